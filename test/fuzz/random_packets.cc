/// Feeds an endpoint with random packets, posts and time, without a fuzzing engine.
///
/// random_packets [--packets N] [--seed S]
///
/// Each connection has a seed of its own, S and up. When a promise is broken, the program prints how to
/// replay the connection that did it and ends with status 1.
#include "fuzz/machine.h"
#include "fuzz/random_runs.h"

namespace {

constexpr std::uint64_t kEnough = 100'000;  // packets after which everything has happened

}  // namespace

int main(int argc, char** argv) {
  std::uint64_t done = 0;
  std::uint64_t executed = 0;
  std::uint64_t cnps_sent = 0;
  std::uint64_t cnps_handled = 0;
  const auto run = [&](const std::vector<std::uint8_t>& input) {
    uroce::fuzz::Machine machine;
    machine.run(input);
    done += machine.packets();
    executed += machine.executed();
    cnps_sent += machine.cnps_sent();
    cnps_handled += machine.cnps_handled();
    return machine.packets();
  };
  const std::uint64_t runs = uroce::fuzz::run_random(argc, argv, "--packets", run);
  const auto number = [](std::uint64_t value) { return static_cast<unsigned long long>(value); };
  std::printf("%llu packets in %llu connections, %llu requests executed, %llu CNPs sent, %llu heeded\n",
              number(done), number(runs), number(executed), number(cnps_sent), number(cnps_handled));
  const bool had_all = executed > 0 && cnps_sent > 0 && cnps_handled > 0;
  if (done >= kEnough && !had_all) std::printf("not all of it happened: nothing was shown\n");
  return done >= kEnough && !had_all ? 1 : 0;
}
