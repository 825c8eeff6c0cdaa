/// How often the consumer looks for the next record.
#pragma once

#include <algorithm>
#include <cstdint>

#if defined(__x86_64__)
#include <x86intrin.h>
#else
#include <chrono>
#endif

namespace uroce::drivers::shm {

/// Tells a stream of records from questions and answers, and lets the consumer of one wait a little between
/// its looks.
///
/// A consumer that is faster than its producer looks at the line of the next record all the time, and takes
/// it away from the producer, which then waits for it once for each record, and with this for all stores
/// behind; and so it does with lines that are fetched ahead of what is there. Between cores that do not share
/// a cache that is most of the time that a record takes.
///
/// Threads: loop.
class Pace {
 public:
  /// @param cycles  of the time stamp counter that a wait takes; by default 0.4 to 0.75 us
  explicit Pace(std::uint64_t cycles = 1500) noexcept : wait_(cycles) {}

  /// It is too early for the next look.
  [[nodiscard]] bool waits() noexcept {
    if (until_ == 0) [[likely]]
      return false;
    if (now() < until_) return true;
    until_ = 0;
    has_waited_ = true;
    return false;
  }
  /// A look has shown `records`, short ones.
  /// @param sent  frames that this end has sent so far: a stream has few answers
  void saw(unsigned records, std::uint64_t sent) noexcept {
    if (records == 0) return saw_none();
    const auto answers = static_cast<int>(std::min<std::uint64_t>(sent - sent_, kMostScore));
    score_ = std::clamp(score_ + 2 * static_cast<int>(records) - 3 * answers, 0, kMostScore);
    pause_ = std::max(0, pause_ - static_cast<int>(records));
    sent_ = sent;
    empty_ = 0;
    has_waited_ = false;
  }
  /// Long ones do not wait: most of their lines are not looked at too early.
  void saw_long() noexcept { score_ = 0; }
  /// Short records come one after another, with few answers and no gaps.
  [[nodiscard]] bool is_stream() const noexcept { return score_ >= kMostScore / 2; }
  /// Something else is there that must not come first: the next look is not too early.
  void hurry() noexcept { until_ = 0; }
  /// It is a stream: the next look should show several of its records. Does nothing for a while if the last
  /// wait was in vain.
  void wait() noexcept {
    if (pause_ == 0) until_ = now() + wait_;
  }

 private:
  static constexpr int kMostScore = 128;
  static constexpr int kMostEmpty = 32;  // looks in a row that find nothing in a stream
  static constexpr int kPause = 64;      // records

  void saw_none() noexcept {
    if (empty_ < kMostEmpty) {
      ++empty_;
    } else {
      score_ = 0;
    }
    if (has_waited_) pause_ = kPause;
    has_waited_ = false;
  }
  [[nodiscard]] static std::uint64_t now() noexcept {
#if defined(__x86_64__)
    return __rdtsc();
#else
    return static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
#endif
  }

  std::uint64_t wait_;
  std::uint64_t until_ = 0;  // 0: no wait
  std::uint64_t sent_ = 0;
  int score_ = 0;
  int empty_ = 0;  // looks in a row
  int pause_ = 0;  // records to come before the next wait
  bool has_waited_ = false;
};

}  // namespace uroce::drivers::shm
