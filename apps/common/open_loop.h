/// A load that does not wait for answers: what is due when, and what became of it.
#pragma once

#include <cstdint>

#include "apps/common/backlog.h"
#include "apps/common/sample.h"
#include "apps/common/schedule.h"

namespace uroce::apps {

/// The CPU time of this process, all its threads, since the first units were added.
class CpuMeter {
 public:
  void add(std::uint64_t units) noexcept;
  /// Nanoseconds; 0: nothing has come behind the first units.
  [[nodiscard]] double per_unit() const noexcept;

 private:
  std::uint64_t begin_ = 0;  ///< ns
  std::uint64_t units_ = 0;  ///< after that
};

/// The client of one sample of Kind::kOpen: counts messages that are sent and answered in their order, and
/// has the latency of each, from when it was due. The first of them, of warm_up_ns(), are not counted. What
/// is still not sent a fifth of the run after its end is not sent.
///
/// Threads: one. Times in ticks.
class OpenLoop {
 public:
  /// The first message is due at `begin`.
  OpenLoop(const Sample& sample, const TickClock& clock, std::uint64_t begin) noexcept;

  /// How many messages are due and not sent. To be asked again and again: it looks at the backlog.
  [[nodiscard]] std::uint64_t due(std::uint64_t now) noexcept;
  void add_sent(std::uint64_t messages) noexcept { sent_ += messages; }
  void add_answered(std::uint64_t messages, std::uint64_t now) noexcept;
  [[nodiscard]] std::uint64_t sent() const noexcept { return sent_; }
  [[nodiscard]] std::uint64_t in_flight() const noexcept { return sent_ - answered_; }
  /// Nothing will be sent any more, and all answers are there.
  [[nodiscard]] bool is_over(std::uint64_t now) const noexcept {
    return answered_ == sent_ && has_sent_all(now);
  }
  /// For how long nothing becomes due; bounded.
  [[nodiscard]] std::uint64_t idle_ns(std::uint64_t now) const noexcept;

  /// What counts: {"p50", "p99", "p999": absent if fewer than kAbove lie above; "max"} in ns, "rate"
  /// achieved, messages "offered" and "answered", "saturated", "cpu_ns" of a message. Writes the sample's
  /// file.
  [[nodiscard]] Result<Json> result() const;

  static constexpr std::uint64_t kAbove = 100;

 private:
  [[nodiscard]] bool has_sent_all(std::uint64_t now) const noexcept {
    return sent_ == total_ || now >= last_call_;
  }
  [[nodiscard]] double achieved() const noexcept;

  TickClock clock_;
  Schedule schedule_;
  double rate_;
  std::string file_;
  std::uint64_t warm_;       ///< messages that are not counted
  std::uint64_t total_;      ///< with these
  std::uint64_t end_;        ///< when the one behind the last would be due
  std::uint64_t last_call_;  ///< for those that are late
  std::uint64_t sent_ = 0;
  std::uint64_t answered_ = 0;
  std::uint64_t last_ = 0;      ///< when the last answer came
  std::uint64_t warm_ups_ = 0;  ///< answers before the first message that counts was due
  Backlog backlog_;
  CpuMeter cpu_;
  Histogram ticks_;
};

}  // namespace uroce::apps
