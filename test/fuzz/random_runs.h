/// Random input for what otherwise a fuzzing engine feeds.
#pragma once

#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "base/random.h"

/// There with a sanitizer only.
extern "C" void __sanitizer_set_death_callback(void (*callback)()) __attribute__((weak));  // NOLINT

namespace uroce::fuzz {

inline char g_last_words[64];

inline void tell_seed() {
  if (write(STDERR_FILENO, g_last_words, std::strlen(g_last_words)) < 0) return;
}

inline void on_abort(int) {
  tell_seed();
  std::_Exit(1);
}

/// Reads "OPTION N" and "--seed S", calls `run` with 200 to 3200 random bytes of seeds S, S + 1, ... until
/// the numbers that it returns add up to N. What aborts tells its seed and ends with status 1.
/// @return how often it was called.
template <typename F>
std::uint64_t run_random(int argc, char** argv, const char* option, F&& run) {
  std::uint64_t wanted = 100'000;
  std::uint64_t seed = 1;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::uint64_t value = std::strtoull(argv[i + 1], nullptr, 0);
    if (std::strcmp(argv[i], option) == 0) wanted = value;
    if (std::strcmp(argv[i], "--seed") == 0) seed = value;
  }
  std::signal(SIGABRT, on_abort);
  if (__sanitizer_set_death_callback != nullptr) {
    __sanitizer_set_death_callback(tell_seed);
  } else {
    std::signal(SIGSEGV, on_abort);
  }
  std::vector<std::uint8_t> input;
  std::uint64_t runs = 0;
  for (std::uint64_t done = 0; done < wanted; ++runs) {
    std::snprintf(g_last_words, sizeof g_last_words, "replay: %s 1 --seed %llu\n", option,
                  static_cast<unsigned long long>(seed + runs));
    Random random(seed + runs);
    input.resize(200 + random.below(3000));
    for (auto& byte : input) byte = static_cast<std::uint8_t>(random.next32());
    done += run(input);
  }
  return runs;
}

}  // namespace uroce::fuzz
