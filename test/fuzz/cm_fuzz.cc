/// Any bytes as messages, calls and time of the communication manager.
///
/// Run: build-fuzz/test/fuzz/cm_fuzz -max_len=4096 -max_total_time=60 CORPUS
#include "fuzz/cm_machine.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  uroce::fuzz::CmMachine machine;
  machine.run({data, size});
  return 0;
}
