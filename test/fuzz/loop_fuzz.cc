/// Any order of packets, posts and time at one endpoint; see machine.h for the promises.
///
/// Run: build-fuzz/test/fuzz/loop_fuzz -max_len=4096 -max_total_time=60 CORPUS
#include "fuzz/machine.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  uroce::fuzz::Machine machine;  // a fresh one: each input stands for itself
  machine.run({data, size});
  return 0;
}
