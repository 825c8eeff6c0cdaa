/// Rates per short window: their median repeats where the mean of a whole run does not.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "apps/common/clock.h"

namespace uroce::apps {

/// The middle value; 0 of nothing.
[[nodiscard]] inline double median(std::vector<double> values) {
  if (values.empty()) return 0.0;
  const auto half = values.size() / 2;
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(half), values.end());
  const double upper = values[half];
  if (values.size() % 2 == 1) return upper;
  return (*std::max_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(half)) + upper) / 2;
}

/// Adds up units (messages or bytes) and closes a window at the first add() after its time at which it holds
/// enough: no rounding to windows.
///
/// Threads: one.
class RateMeter {
 public:
  /// @param least_units  what a window holds at least: several times what one add() may tell of, since that
  ///                     may have taken longer than the window
  explicit RateMeter(std::uint64_t window_ns = kMillisecond, std::uint64_t skip_ns = 0,
                     std::uint64_t least_units = 0)
      : window_ns_(window_ns), skip_ns_(skip_ns), least_units_(least_units) {
    rates_.reserve(4096);
  }

  void add(std::uint64_t units, std::uint64_t now) {
    if (first_ == 0) {  // the units that open the first window took unknown time
      first_ = begin_ = now;
      return;
    }
    units_ += units;
    total_ += units;
    last_ = now;
    if (now - begin_ < window_ns_ || units_ < least_units_) return;
    if (begin_ - first_ >= skip_ns_) {
      rates_.push_back(static_cast<double>(units_) * 1e9 / static_cast<double>(now - begin_));
    }
    begin_ = now;
    units_ = 0;
  }

  /// Units per second: the median window, or the whole run if it was shorter than a window.
  [[nodiscard]] double typical() const { return rates_.empty() ? average() : median(rates_); }
  [[nodiscard]] double average() const noexcept {
    return last_ == first_ ? 0.0 : static_cast<double>(total_) * 1e9 / static_cast<double>(last_ - first_);
  }
  /// The best window; 0 where there are not several: the time before the first units is not known, and what
  /// came behind them may have come at once.
  [[nodiscard]] double peak() const {
    return rates_.size() < 2 ? 0.0 : *std::max_element(rates_.begin(), rates_.end());
  }

 private:
  std::uint64_t window_ns_;
  std::uint64_t skip_ns_;
  std::uint64_t least_units_;
  std::uint64_t first_ = 0;
  std::uint64_t begin_ = 0;
  std::uint64_t last_ = 0;
  std::uint64_t units_ = 0;
  std::uint64_t total_ = 0;
  std::vector<double> rates_;
};

}  // namespace uroce::apps
