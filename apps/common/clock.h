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

/// What two clocks say at one time.
struct ClockPair {
  std::uint64_t ns = 0;
  std::uint64_t ticks = 0;
};

/// @param ns, ticks  read the one and the other clock: until nothing has come in between for long, a hundred
///                   times at most
template <typename Ns, typename Ticks>
[[nodiscard]] ClockPair read_together(Ns&& ns, Ticks&& ticks) noexcept {
  constexpr std::uint64_t kNear = 1000;  // nanoseconds
  ClockPair nearest;
  std::uint64_t least = UINT64_MAX;
  for (unsigned i = 0; i < 100 && least >= kNear; ++i) {
    const std::uint64_t before = ns();
    const std::uint64_t then = ticks();
    const std::uint64_t took = ns() - before;
    if (took >= least) continue;
    least = took;
    nearest = {.ns = before + took / 2, .ticks = then};
  }
  return nearest;
}

/// Counts ticks of the time stamp counter where it is invariant (7 ns a reading), else nanoseconds (17 ns).
class TickClock {
 public:
  /// Whether ticks are those of the time stamp counter.
  [[nodiscard]] static bool has_invariant_counter() noexcept {
#if defined(__x86_64__)
    unsigned a = 0;
    unsigned b = 0;
    unsigned c = 0;
    unsigned d = 0;
    return __get_cpuid(0x8000'0007U, &a, &b, &c, &d) != 0 && (d & 0x100U) != 0;
#else
    return false;
#endif
  }
  /// Compares the counter with the clock for 10 ms.
  [[nodiscard]] static TickClock calibrate() noexcept {
    TickClock clock;
#if defined(__x86_64__)
    if (!has_invariant_counter()) return clock;
    const auto tsc = [] { return __rdtsc(); };
    const ClockPair begin = read_together(now_ns, tsc);
    while (now_ns() - begin.ns < 10 * kMillisecond) {
    }
    const ClockPair end = read_together(now_ns, tsc);
    clock.ns_per_tick_ =
        static_cast<double>(end.ns - begin.ns) / static_cast<double>(end.ticks - begin.ticks);
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
