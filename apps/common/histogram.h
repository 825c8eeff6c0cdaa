/// Log-linear histogram: every sample counts, percentiles are within 0.4 %.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <optional>

namespace uroce::apps {

/// Histogram of non-negative integers (ticks or nanoseconds) with 128 buckets per power of two.
///
/// Threads: one.
class Histogram {
 public:
  void add(std::uint64_t value) noexcept {
    ++counts_[bucket_of(value)];
    ++total_;
    min_ = std::min(min_, value);
    max_ = std::max(max_, value);
    const auto x = static_cast<double>(value);
    sum_ += x;
    sum_of_squares_ += x * x;
  }

  [[nodiscard]] std::uint64_t count() const noexcept { return total_; }
  [[nodiscard]] std::uint64_t min() const noexcept { return total_ == 0 ? 0 : min_; }
  [[nodiscard]] std::uint64_t max() const noexcept { return max_; }
  [[nodiscard]] double mean() const noexcept {
    return total_ == 0 ? 0.0 : sum_ / static_cast<double>(total_);
  }
  [[nodiscard]] double stdev() const noexcept {
    if (total_ < 2) return 0.0;
    const auto n = static_cast<double>(total_);
    return std::sqrt(std::max(0.0, (sum_of_squares_ - sum_ * sum_ / n) / (n - 1)));
  }

  /// Calls visit(value, count) for all that were added, least first.
  template <typename Visit>
  void for_each(Visit&& visit) const {
    for (std::size_t i = 0; i < kBuckets; ++i) {
      if (counts_[i] > 0) visit(within_range(middle_of(i)), counts_[i]);
    }
  }

  /// The value that `percent` of the samples do not exceed, 0..100; 0 without samples.
  [[nodiscard]] double percentile(double percent) const noexcept {
    if (total_ == 0) return 0.0;
    const double exact = std::ceil(percent / 100.0 * static_cast<double>(total_));
    const auto rank = std::clamp<std::uint64_t>(static_cast<std::uint64_t>(exact), 1, total_);
    std::uint64_t seen = 0;
    for (std::size_t i = 0; i < counts_.size(); ++i) {
      seen += counts_[i];
      if (seen < rank) continue;
      return within_range(middle_of(i));
    }
    return static_cast<double>(max_);
  }
  /// Likewise, for a clock that moves in steps of several units: samples are taken to be spread evenly over
  /// their step, which reaches half-way to the nearer one of the values beside it.
  [[nodiscard]] double interpolated(double percent) const noexcept {
    const double rank = percent / 100.0 * static_cast<double>(total_);
    double below = 0;  // samples
    std::size_t previous = kBuckets;
    for (std::size_t i = 0; i < kBuckets; ++i) {
      const auto count = static_cast<double>(counts_[i]);
      if (count == 0) continue;
      if (below + count < rank) {
        below += count;
        previous = i;
        continue;
      }
      std::size_t next = i + 1;
      while (next < kBuckets && counts_[next] == 0) ++next;
      if (previous == kBuckets || next == kBuckets) break;
      const double at = middle_of(i);
      const double half = std::min(at - middle_of(previous), middle_of(next) - at) / 2;
      return at + half * (2 * (rank - below) / count - 1);
    }
    return percentile(percent);
  }
  /// As percentile(), but nothing if fewer than `above` samples lie above it: such a percentile is noise.
  [[nodiscard]] std::optional<double> sound_percentile(double percent,
                                                       std::uint64_t above = 10) const noexcept {
    return is_sound(percent, above) ? std::optional(percentile(percent)) : std::nullopt;
  }
  /// Whether so many samples lie above that percentile.
  [[nodiscard]] bool is_sound(double percent, std::uint64_t above) const noexcept {
    const double beyond = static_cast<double>(total_) * (100.0 - percent) / 100.0;
    return beyond + 1e-6 >= static_cast<double>(above);
  }

 private:
  static constexpr unsigned kLinearBits = 7;
  static constexpr std::size_t kPerOctave = std::size_t{1} << kLinearBits;
  static constexpr std::size_t kBuckets = (64 - kLinearBits + 1) * kPerOctave;

  [[nodiscard]] static std::size_t bucket_of(std::uint64_t value) noexcept {
    if (value < kPerOctave) return static_cast<std::size_t>(value);
    const auto shift = static_cast<unsigned>(std::bit_width(value)) - kLinearBits - 1;
    const auto offset = static_cast<std::size_t>(value >> shift) - kPerOctave;
    return (shift + 1) * kPerOctave + offset;
  }
  [[nodiscard]] static double middle_of(std::size_t bucket) noexcept {
    if (bucket < kPerOctave) return static_cast<double>(bucket);
    const auto shift = static_cast<int>(bucket / kPerOctave) - 1;
    const auto low = static_cast<double>(kPerOctave + bucket % kPerOctave);
    return std::ldexp(low + 0.5, shift) - 0.5;
  }

  [[nodiscard]] double within_range(double value) const noexcept {
    return std::clamp(value, static_cast<double>(min_), static_cast<double>(max_));
  }

  std::array<std::uint64_t, kBuckets> counts_{};
  std::uint64_t total_ = 0;
  std::uint64_t min_ = UINT64_MAX;
  std::uint64_t max_ = 0;
  double sum_ = 0.0;
  double sum_of_squares_ = 0.0;
};

}  // namespace uroce::apps
