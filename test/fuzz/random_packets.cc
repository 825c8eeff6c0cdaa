/// Feeds an endpoint with random packets, posts and time, without a fuzzing engine.
///
/// random_packets [--packets N] [--seed S]
///
/// Each connection has a seed of its own, S and up. When a promise is broken, the program prints how to
/// replay the connection that did it and ends with status 1.
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "base/random.h"
#include "fuzz/machine.h"

/// There with a sanitizer only.
extern "C" void __sanitizer_set_death_callback(void (*callback)()) __attribute__((weak));  // NOLINT

namespace {

char g_last_words[64];

void tell_seed() {
  if (write(STDERR_FILENO, g_last_words, std::strlen(g_last_words)) < 0) return;
}

void on_signal(int) {
  tell_seed();
  std::_Exit(1);
}

}  // namespace

int main(int argc, char** argv) {
  std::uint64_t packets = 100'000;
  std::uint64_t seed = 1;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::uint64_t value = std::strtoull(argv[i + 1], nullptr, 0);
    if (std::strcmp(argv[i], "--packets") == 0) packets = value;
    if (std::strcmp(argv[i], "--seed") == 0) seed = value;
  }
  std::signal(SIGABRT, on_signal);
  if (__sanitizer_set_death_callback != nullptr) {
    __sanitizer_set_death_callback(tell_seed);
  } else {
    std::signal(SIGSEGV, on_signal);
  }
  std::vector<std::uint8_t> input;
  std::uint64_t runs = 0;
  std::uint64_t done = 0;
  std::uint64_t executed = 0;
  for (; done < packets; ++runs) {
    std::snprintf(g_last_words, sizeof g_last_words, "replay: --packets 1 --seed %llu\n",
                  static_cast<unsigned long long>(seed + runs));
    uroce::Random random(seed + runs);
    input.resize(200 + random.below(3000));
    for (auto& byte : input) byte = static_cast<std::uint8_t>(random.next32());
    uroce::fuzz::Machine machine;
    machine.run(input);
    done += machine.packets();
    executed += machine.executed();
  }
  std::printf("%llu packets in %llu connections, %llu requests executed\n",
              static_cast<unsigned long long>(done), static_cast<unsigned long long>(runs),
              static_cast<unsigned long long>(executed));
  return 0;
}
