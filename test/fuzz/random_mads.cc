/// Feeds the communication manager with random messages, calls and time, without a fuzzing engine.
///
/// random_mads [--mads N] [--seed S]
///
/// Each agent has a seed of its own, S and up. When a promise is broken, the program prints how to replay the
/// agent that did it and ends with status 1.
#include "fuzz/cm_machine.h"
#include "fuzz/random_runs.h"

int main(int argc, char** argv) {
  std::uint64_t done = 0;
  std::uint64_t established = 0;
  const auto run = [&](const std::vector<std::uint8_t>& input) {
    uroce::fuzz::CmMachine machine;
    machine.run(input);
    done += machine.mads();
    established += machine.established();
    return machine.mads();
  };
  const std::uint64_t runs = uroce::fuzz::run_random(argc, argv, "--mads", run);
  std::printf("%llu MADs to %llu agents, %llu connections established\n",
              static_cast<unsigned long long>(done), static_cast<unsigned long long>(runs),
              static_cast<unsigned long long>(established));
  return 0;
}
