/// Time for measurements: nanoseconds that all processes of the machine share, and a cheap tick counter.
#pragma once

#include <time.h>

#include <cstdint>

#if defined(__x86_64__)
#include <cpuid.h>
#include <x86intrin.h>
#endif

namespace uroce::apps {

/// CLOCK_MONOTONIC in nanoseconds: comparable between the processes of one machine.
[[nodiscard]] inline std::uint64_t now_ns() noexcept {
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<std::uint64_t>(t.tv_sec) * 1'000'000'000U + static_cast<std::uint64_t>(t.tv_nsec);
}

inline constexpr std::uint64_t kMillisecond = 1'000'000;
inline constexpr std::uint64_t kSecond = 1'000'000'000;

/// Counts ticks of the time stamp counter where it is invariant (7 ns a reading), else nanoseconds (17 ns).
class TickClock {
 public:
  /// Compares the counter with the clock for 10 ms.
  [[nodiscard]] static TickClock calibrate() noexcept {
    TickClock clock;
#if defined(__x86_64__)
    unsigned a = 0;
    unsigned b = 0;
    unsigned c = 0;
    unsigned d = 0;
    if (__get_cpuid(0x8000'0007U, &a, &b, &c, &d) == 0 || (d & 0x100U) == 0) return clock;
    const std::uint64_t begin_ns = now_ns();
    const std::uint64_t begin = __rdtsc();
    std::uint64_t end_ns = begin_ns;
    while (end_ns - begin_ns < 10 * kMillisecond) end_ns = now_ns();
    clock.ns_per_tick_ = static_cast<double>(end_ns - begin_ns) / static_cast<double>(__rdtsc() - begin);
    clock.has_tsc_ = true;
#endif
    return clock;
  }

  [[nodiscard]] std::uint64_t ticks() const noexcept {
#if defined(__x86_64__)
    if (has_tsc_) return __rdtsc();
#endif
    return now_ns();
  }
  [[nodiscard]] double ns(std::uint64_t ticks) const noexcept {
    return static_cast<double>(ticks) * ns_per_tick_;
  }
  [[nodiscard]] std::uint64_t from_ns(std::uint64_t ns) const noexcept {
    return static_cast<std::uint64_t>(static_cast<double>(ns) / ns_per_tick_);
  }

 private:
  double ns_per_tick_ = 1.0;
  bool has_tsc_ = false;
};

}  // namespace uroce::apps
