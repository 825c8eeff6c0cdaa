/// When operations are due that do not wait for each other.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "apps/common/clock.h"

namespace uroce::apps {

/// Of so many in that time, a second: no more than were offered, as the last one is not followed by a pause.
/// @param offered  a second; 0: as many as can be
[[nodiscard]] inline double achieved_rate(double offered, std::uint64_t operations, double ns) noexcept {
  const double rate = static_cast<double>(operations) * 1e9 / ns;
  return offered > 0 ? std::min(offered, rate) : rate;
}

/// Due at once, or at fixed times: how late earlier ones were moves none of them. In ticks of a clock.
class Schedule {
 public:
  /// @param rate  operations a second; 0: each is due when it is asked for
  Schedule(const TickClock& clock, double rate) : interval_(rate > 0 ? 1e9 / rate / clock.ns(1) : 0) {}

  [[nodiscard]] bool is_fixed() const noexcept { return interval_ > 0; }
  /// Starts anew: the next operation is due now.
  void begin(std::uint64_t now) noexcept {
    origin_ = now;
    number_ = 0;
  }
  /// Of the operation with that number, from 0.
  [[nodiscard]] std::uint64_t due(std::uint64_t number) const noexcept {
    return origin_ + static_cast<std::uint64_t>(std::llround(interval_ * static_cast<double>(number)));
  }
  /// Of the next operation.
  [[nodiscard]] std::uint64_t next_due() noexcept { return due(number_++); }
  /// How many are due by then, if they are at fixed times.
  [[nodiscard]] std::uint64_t due_by(std::uint64_t now) const noexcept {
    return static_cast<std::uint64_t>(static_cast<double>(now - origin_) / interval_) + 1;
  }

 private:
  double interval_;  // ticks
  std::uint64_t origin_ = 0;
  std::uint64_t number_ = 0;
};

}  // namespace uroce::apps
