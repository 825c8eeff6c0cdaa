/// Feeds an endpoint with random packets, posts and time, without a fuzzing engine.
///
/// random_packets [--packets N] [--seed S]
///
/// Each connection has a seed of its own, S and up. When a promise is broken, the program prints how to
/// replay the connection that did it and ends with status 1.
#include "fuzz/machine.h"
#include "fuzz/random_runs.h"

int main(int argc, char** argv) {
  std::uint64_t done = 0;
  std::uint64_t executed = 0;
  const auto run = [&](const std::vector<std::uint8_t>& input) {
    uroce::fuzz::Machine machine;
    machine.run(input);
    done += machine.packets();
    executed += machine.executed();
    return machine.packets();
  };
  const std::uint64_t runs = uroce::fuzz::run_random(argc, argv, "--packets", run);
  std::printf("%llu packets in %llu connections, %llu requests executed\n",
              static_cast<unsigned long long>(done), static_cast<unsigned long long>(runs),
              static_cast<unsigned long long>(executed));
  return 0;
}
