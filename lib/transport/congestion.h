/// Congestion control of one connection: DCQCN. IBA A17.9.3; Zhu et al., SIGCOMM 2015.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/time.h"
#include "wire/frame_template.h"

namespace uroce::transport {

/// What the connections of a device have in common.
struct CongestionSettings {
  bool is_on = false;
  std::uint64_t line_bps = 100'000'000'000;  ///< the highest rate of a connection, bits per second
  std::uint64_t cnp_gap_ns = 50'000;         ///< between two CNPs of a connection
  std::uint8_t cnp_traffic_class = 48 << 2;  ///< DSCP 48, as network cards send them
};

/// The rate of what is sent: cut by CNPs, regained with time and bytes. Until the first CNP, and once it is
/// back at the line's rate, there is no limit. Numbers are those of the paper.
///
/// Threads: loop.
class ReactionPoint {
 public:
  static constexpr std::uint64_t kMinBps = 10'000'000;

  explicit ReactionPoint(std::uint64_t line_bps) noexcept : line_bps_(std::max(line_bps, kMinBps)) {}

  /// Forgets everything: no limit.
  void reset() noexcept;
  /// The peer saw marks.
  void on_cnp(Ticks now) noexcept;
  /// `bytes` have left, the whole frame.
  void on_sent(std::uint32_t bytes, Ticks now) noexcept;
  /// Whether one more packet may leave.
  [[nodiscard]] bool may_send(Ticks now) const noexcept { return !is_limited_ || next_send_ <= now; }
  /// Whether the packet that leaves now should ask for an ACK, because none has for a while. What is slow
  /// must not be taken for lost.
  [[nodiscard]] bool should_ask(Ticks now) noexcept {
    if (!is_limited_ || now < next_ask_) return false;
    next_ask_ = now + kAskNs;
    return true;
  }
  /// There is one that may not: the timer looks for it, whatever else is sent meanwhile.
  void hold() noexcept { waits_ = true; }
  /// When what is held may leave; unset: nothing is held.
  [[nodiscard]] Ticks deadline() const noexcept { return waits_ ? next_send_ : Ticks{}; }
  void on_timer(Ticks now) noexcept { waits_ = waits_ && next_send_ > now; }

  [[nodiscard]] bool is_limited() const noexcept { return is_limited_; }
  /// Bits per second; the line's if there is no limit.
  [[nodiscard]] std::uint64_t rate_bps() const noexcept { return is_limited_ ? rate_bps_ : line_bps_; }

 private:
  static constexpr std::uint64_t kPeriodNs = 55'000;  // of the decay of alpha, and of the rise by time
  static constexpr std::uint64_t kRiseBytes = 10'000'000;
  static constexpr unsigned kFastSteps = 5;
  static constexpr std::uint64_t kAdditiveBps = 40'000'000;
  static constexpr std::uint64_t kHyperBps = 200'000'000;
  static constexpr double kGain = 1.0 / 256;
  /// A limited sender that comes late may make up for so much: the timer wheel is no finer.
  static constexpr std::uint64_t kLateNs = 8'192;

  static constexpr std::uint64_t kCutGapNs = 50'000;  // however many CNPs come
  static constexpr std::uint64_t kMeasureNs = 100'000;
  static constexpr std::uint64_t kAskNs = 50'000;  // less than the margin before a probe, Config::probe_us

  void limit(Ticks now) noexcept;
  void lift() noexcept;
  void catch_up(Ticks now) noexcept;
  void rise() noexcept;
  void measure(std::uint32_t bytes, Ticks now) noexcept;

  std::uint64_t line_bps_;
  bool is_limited_ = false;
  bool waits_ = false;
  Ticks next_send_;
  Ticks next_ask_;
  std::uint64_t rate_bps_ = 0;
  std::uint64_t target_bps_ = 0;
  double alpha_ = 1;
  Ticks last_cut_;
  Ticks period_end_;
  std::uint64_t bytes_ = 0;   // since the last rise by bytes
  unsigned time_steps_ = 0;   // rises by time since the last cut
  unsigned bytes_steps_ = 0;  // by bytes
  // Without a limit: how fast it went.
  Ticks window_start_;
  std::uint64_t window_bytes_ = 0;
  std::uint64_t measured_bps_ = 0;
};

/// Says that packets of a connection arrive with marks, at most once a gap.
///
/// Threads: loop.
class NotificationPoint {
 public:
  explicit NotificationPoint(std::uint64_t gap_ns) noexcept : gap_ns_(gap_ns) {}

  void reset() noexcept { is_due_ = false; }
  /// A packet was marked.
  void on_mark(Ticks now) noexcept {
    if (!next_.is_set() || next_ <= now) is_due_ = true;
  }
  /// Whether a CNP is to be sent.
  [[nodiscard]] bool is_due() const noexcept { return is_due_; }
  void on_sent(Ticks now) noexcept {
    is_due_ = false;
    next_ = now + gap_ns_;
  }

 private:
  std::uint64_t gap_ns_;
  Ticks next_;
  bool is_due_ = false;
};

/// Both, and the headers of the CNPs.
struct Congestion {
  explicit Congestion(const CongestionSettings& settings) noexcept
      : cnp_traffic_class(settings.cnp_traffic_class), rate(settings.line_bps), marks(settings.cnp_gap_ns) {}

  std::uint8_t cnp_traffic_class;
  ReactionPoint rate;
  NotificationPoint marks;
  wire::FrameTemplate cnp_head;  ///< valid while the peer's Ethernet address is known
  bool answers_first = false;    ///< the next packet that may leave is a READ response
};

}  // namespace uroce::transport
