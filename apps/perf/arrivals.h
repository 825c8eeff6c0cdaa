/// Which messages have come over a transport that may lose them.
#pragma once

#include <algorithm>
#include <bitset>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace uroce::apps::perf {

/// Messages of one sender by their numbers, which they carry 32 bits of: each counts once, in whatever order
/// they come.
///
/// Threads: one.
class Arrivals {
 public:
  /// @param first  the number that message 0 carries
  explicit Arrivals(std::uint32_t first) : first_(first) {}

  /// @return which message it is; none if it has come before, is of an earlier run, or is so late that it
  ///   cannot be told from one that has.
  [[nodiscard]] std::optional<std::uint64_t> take(std::uint32_t carried) noexcept {
    const auto ahead = static_cast<std::int32_t>(carried - first_ - static_cast<std::uint32_t>(next_));
    if (ahead < 0) return take_late(static_cast<std::uint64_t>(-std::int64_t{ahead}));
    const std::uint64_t number = next_ + static_cast<std::uint64_t>(ahead);
    for (std::uint64_t i = next_; i < std::min<std::uint64_t>(number, next_ + kKnown); ++i)
      has_come_.reset(i % kKnown);
    has_come_.set(number % kKnown);
    next_ = number + 1;
    return number;
  }

 private:
  static constexpr std::size_t kKnown = 1024;  // messages up to the latest one

  std::optional<std::uint64_t> take_late(std::uint64_t behind) noexcept {
    if (behind > std::min<std::uint64_t>(next_, kKnown)) return std::nullopt;
    const std::uint64_t number = next_ - behind;
    if (has_come_.test(number % kKnown)) return std::nullopt;
    has_come_.set(number % kKnown);
    return number;
  }

  std::uint32_t first_;
  std::uint64_t next_ = 0;  // behind the latest one
  std::bitset<kKnown> has_come_;
};

}  // namespace uroce::apps::perf
