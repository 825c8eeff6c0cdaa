/// Times that callers give, who may mean no time at all, or for ever.
#pragma once

#include <chrono>

namespace uroce {

/// A time that can be added to a clock and counted in nanoseconds: one that is negative is over, and a year
/// is for ever.
template <typename Rep, typename Period>
[[nodiscard]] constexpr std::chrono::nanoseconds bounded(std::chrono::duration<Rep, Period> time) noexcept {
  constexpr std::chrono::hours kYear(24 * 365);
  if (time < time.zero()) return {};
  return time < kYear ? std::chrono::nanoseconds(time) : std::chrono::nanoseconds(kYear);
}

static_assert(bounded(std::chrono::milliseconds::max()) == std::chrono::hours(24 * 365));
static_assert(bounded(std::chrono::milliseconds::min()).count() == 0);
static_assert(bounded(std::chrono::milliseconds(2)).count() == 2'000'000);

}  // namespace uroce
