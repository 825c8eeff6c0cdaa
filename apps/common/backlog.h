/// Whether a load whose messages are due at fixed times is too much for what carries it.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>

#include "apps/common/schedule.h"

namespace uroce::apps {

/// What became of such a load.
struct Carried {
  double offered = 0;                        ///< a second
  double achieved = 0;                       ///< likewise
  std::uint64_t messages = 0;                ///< that were due in all the time
  std::uint64_t missing = 0;                 ///< of these, never begun
  std::span<const std::uint64_t> backlog{};  ///< due and not answered, at equal intervals
};

/// Whether latencies are those of a queue that the load itself has made. One pause is a backlog that shrinks
/// again, and may leave too little time behind it to reach the rate: neither is enough alone.
[[nodiscard]] inline bool is_saturated(const Carried& load) noexcept {
  constexpr double kEnough = 0.99;
  // A few messages more or less are the time of an answer.
  constexpr std::uint64_t kNotable = 1000;  // of so many messages one
  constexpr std::uint64_t kFew = 2;
  constexpr std::size_t kTrend = 3;   // looks; a load that was stopped has fewer
  if (load.missing > 0) return true;  // they would have had the longest latencies
  const auto backlog = load.backlog;
  const std::uint64_t few = std::max(kFew, load.messages / kNotable);
  const bool grows = std::ranges::adjacent_find(backlog, std::ranges::greater_equal()) == backlog.end();
  if (grows && backlog.size() >= kTrend && backlog.back() > few) return true;
  const auto queues = std::ranges::count_if(backlog, [few](std::uint64_t behind) { return behind > few; });
  return load.achieved < kEnough * load.offered && 2 * queues >= std::ssize(backlog);
}

/// What is_saturated() judges by: looked at eight times, in equal parts of the messages.
///
/// Threads: one.
class Backlog {
 public:
  /// @param first  of the messages that count, by its number in the schedule
  Backlog(std::uint64_t first, std::uint64_t messages) noexcept : first_(first), messages_(messages) {}

  /// To be called again and again.
  /// @param answered  messages, with those that do not count
  void look(const Schedule& schedule, std::uint64_t now, std::uint64_t answered) noexcept {
    std::size_t passed = count_;
    while (passed < kMarks && now >= schedule.due(due_before(passed))) ++passed;
    if (passed == count_) return;
    const std::uint64_t due = due_before(passed - 1);
    for (; count_ < passed; ++count_) marks_[count_] = due - std::min(due, answered);
  }
  [[nodiscard]] std::uint64_t messages() const noexcept { return messages_; }
  [[nodiscard]] std::span<const std::uint64_t> marks() const noexcept {
    return std::span(marks_).first(count_);
  }

 private:
  static constexpr std::size_t kMarks = 8;

  [[nodiscard]] std::uint64_t due_before(std::size_t mark) const noexcept {
    return first_ + messages_ * (mark + 1) / kMarks;
  }

  std::uint64_t first_;
  std::uint64_t messages_;
  std::size_t count_ = 0;
  std::array<std::uint64_t, kMarks> marks_{};
};

}  // namespace uroce::apps
