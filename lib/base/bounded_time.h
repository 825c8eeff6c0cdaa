/// Times that callers give, who may mean no time at all, or for ever.
#pragma once

#include <chrono>
#include <ctime>

namespace uroce {

/// A time that can be added to a clock and counted in nanoseconds: one that is negative is over, and a year
/// is for ever.
template <typename Rep, typename Period>
[[nodiscard]] constexpr std::chrono::nanoseconds bounded(std::chrono::duration<Rep, Period> time) noexcept {
  constexpr std::chrono::hours kYear(24 * 365);
  if (time < time.zero()) return {};
  return time < kYear ? std::chrono::nanoseconds(time) : std::chrono::nanoseconds(kYear);
}

/// As ppoll(2) takes it; of one that is not negative.
[[nodiscard]] constexpr timespec timespec_of(std::chrono::nanoseconds time) noexcept {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(time);
  return {.tv_sec = seconds.count(), .tv_nsec = (time - seconds).count()};
}

static_assert(bounded(std::chrono::milliseconds::max()) == std::chrono::hours(24 * 365));
static_assert(bounded(std::chrono::milliseconds::min()).count() == 0);
static_assert(bounded(std::chrono::milliseconds(2)).count() == 2'000'000);

}  // namespace uroce
