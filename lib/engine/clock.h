/// The engine's clock: the time stamp counter scaled to nanoseconds. Read once per loop iteration.
#pragma once

#include <chrono>
#include <cstdint>

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

#include "base/random.h"
#include "base/time.h"

namespace uroce::engine {

/// Monotonic nanoseconds since the clock was made (plus one second, so that no time is "unset").
///
/// Threads: any. Without an invariant TSC it falls back to CLOCK_MONOTONIC.
class Clock {
 public:
  Clock() noexcept;

  [[nodiscard]] Ticks now() const noexcept {
#if defined(__x86_64__)
    if (scale_ != 0) {
      const std::uint64_t cycles = __rdtsc() - base_;
      return Ticks{kStart + static_cast<std::uint64_t>((static_cast<Wide>(cycles) * scale_) >> 32)};
    }
#endif
    return Ticks{kStart + steady_ns() - base_};
  }

 private:
  static constexpr std::uint64_t kStart = 1'000'000'000;
  [[nodiscard]] static std::uint64_t steady_ns() noexcept {
    return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                          std::chrono::steady_clock::now().time_since_epoch())
                                          .count());
  }
  struct Reading {
    std::uint64_t ns = 0;
    std::uint64_t tsc = 0;
  };
  static Reading read_both() noexcept;

  std::uint64_t base_ = 0;   // cycles, or ns without TSC
  std::uint64_t scale_ = 0;  // ns per cycle << 32; 0: no TSC
};

}  // namespace uroce::engine
