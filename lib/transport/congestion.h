/// Congestion control of one connection: marks, CNPs, and a rate that is kept to. IBA A17.9.3.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

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

/// How fast a connection may send: the part of congestion control that can be another one. It is told what
/// has left of requests and READ responses, and what the peer says of marks; a Pacer holds back what is too
/// fast. DCQCN is transport/dcqcn.h.
///
/// Threads: loop.
class RateControl {
 public:
  RateControl() = default;
  RateControl(const RateControl&) = delete;
  RateControl& operator=(const RateControl&) = delete;
  virtual ~RateControl() = default;

  /// Forgets everything: no limit.
  virtual void reset() noexcept = 0;
  /// The peer saw marks.
  virtual void on_cnp(Ticks now) noexcept = 0;
  /// `bytes` have left, the whole frame.
  virtual void on_sent(std::uint32_t bytes, Ticks now) noexcept = 0;
  /// Bits per second; 0: there is no limit. Asked behind each of the above, and kept until the next one.
  [[nodiscard]] virtual std::uint64_t rate_bps() const noexcept = 0;
};

/// Holds packets of a connection back that would be faster than its RateControl allows.
///
/// Threads: loop.
class Pacer {
 public:
  explicit Pacer(std::unique_ptr<RateControl> control) noexcept : control_(std::move(control)) {}

  /// Forgets everything: no limit.
  void reset() noexcept;
  /// The peer saw marks.
  void on_cnp(Ticks now) noexcept;
  /// `bytes` have left, the whole frame, of what may_send() holds back.
  void on_sent(std::uint32_t bytes, Ticks now) noexcept;
  /// Whether one more packet may leave.
  [[nodiscard]] bool may_send(Ticks now) const noexcept { return !is_limited() || next_send_ <= now; }
  /// Whether the packet that leaves now should ask for an ACK, because none has for a while. What is slow
  /// must not be taken for lost.
  [[nodiscard]] bool should_ask(Ticks now) noexcept {
    if (!is_limited() || now < next_ask_) return false;
    next_ask_ = now + kAskNs;
    return true;
  }
  /// There is one that may not: the timer looks for it, whatever else is sent meanwhile.
  void hold() noexcept { waits_ = true; }
  /// When what is held may leave; unset: nothing is held.
  [[nodiscard]] Ticks deadline() const noexcept { return waits_ ? next_send_ : Ticks{}; }
  void on_timer(Ticks now) noexcept { waits_ = waits_ && next_send_ > now; }

  [[nodiscard]] bool is_limited() const noexcept { return rate_bps_ != 0; }
  /// Bits per second; 0: there is no limit.
  [[nodiscard]] std::uint64_t rate_bps() const noexcept { return rate_bps_; }

 private:
  /// A limited sender that comes late may make up for so much: the timer wheel is no finer.
  static constexpr std::uint64_t kLateNs = 8'192;
  static constexpr std::uint64_t kAskNs = 50'000;  // less than the margin before a probe, Config::probe_us

  std::unique_ptr<RateControl> control_;
  std::uint64_t rate_bps_ = 0;
  bool waits_ = false;
  Ticks next_send_;
  Ticks next_ask_;
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
  explicit Congestion(const CongestionSettings& settings);
  /// How long `bytes` take at the line's rate.
  [[nodiscard]] std::uint64_t line_time_ns(std::uint64_t bytes) const noexcept {
    return bytes * 8 * 1'000'000'000 / line_bps;
  }

  std::uint64_t line_bps;
  std::uint8_t cnp_traffic_class;
  Pacer rate;
  NotificationPoint marks;
  wire::FrameTemplate cnp_head;  ///< valid while the peer's Ethernet address is known
  bool answers_first = false;    ///< the next packet that may leave is a READ response
};

}  // namespace uroce::transport
