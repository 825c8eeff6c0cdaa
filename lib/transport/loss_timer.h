/// When a requester stops waiting for an answer.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include "base/time.h"
#include "uroce/types.h"

namespace uroce::transport {

/// The ack timeout of a QP, IBA 9.7.6.1.3, and within it probes: the oldest packet is sent once more when an
/// answer is late by what round trips have taken so far. A lost tail so costs a round trip and not a timeout
/// of seconds; how long a silent peer is waited for stays what the QP was told. The round trip is estimated
/// as in RFC 6298, the time to a probe follows RFC 9002, 6.2: it doubles with each that is not answered, and
/// stays so (RFC 6298, 5) until a round trip has been measured: one that has grown is not asked about again
/// and again.
///
/// Threads: loop.
class LossTimer {
 public:
  /// After a message that asked for no ACK, and that none has followed, a question does.
  static constexpr std::uint64_t kTailNs = 16'384;

  /// Forgets what it has learnt.
  /// @param floor_ns  least margin over the round trip before a probe; 0: no probes
  void reset(std::uint64_t floor_ns) noexcept {
    *this = LossTimer{};
    floor_ns_ = to_short(floor_ns);
    if (floor_ns_ != 0) probe_ns_ = std::max(kUnmeasuredNs, floor_ns_);
  }

  /// Something is in flight and nothing was before, or something was answered.
  /// @param timeout_ns  the QP's ack timeout; 0: for ever
  void start(Ticks now, std::uint64_t timeout_ns) noexcept {
    probes_ = std::min(probes_, kMostKept);
    timeout_at_ = timeout_ns == 0 ? Ticks{} : now + timeout_ns;
    due_ = timeout_ns == 0 ? Ticks{} : now + first_wait(timeout_ns);
  }
  /// What was started and sent at `assumed` was so at `actual`.
  void correct(Ticks assumed, Ticks actual, std::uint64_t timeout_ns) noexcept {
    if (sent_at_ == assumed) sent_at_ = actual;
    if (due_.is_set() && due_ == assumed + first_wait(timeout_ns)) start(actual, timeout_ns);
  }
  /// What was sent at `assumed` was so at another time: its answer tells no time.
  void forget_time(Ticks assumed) noexcept {
    if (sent_at_ == assumed) is_timing_ = false;
  }
  /// The oldest packet is sent again without a probe, or others are still arriving: the next one counts from
  /// there.
  void postpone_probe(Ticks now) noexcept {
    probes_ = 0;
    if (due_.is_set() && probe_ns_ != kNever) due_ = std::min(now + probe_ns_, timeout_at_);
  }
  void stop() noexcept { due_ = Ticks{}; }
  [[nodiscard]] bool is_running() const noexcept { return due_.is_set(); }
  [[nodiscard]] Ticks due() const noexcept { return due_; }

  enum class Expiry : std::uint8_t { kNone, kProbe, kTimeout };
  /// What has fallen due. A probe leaves the timer running, a timeout stops it.
  Expiry expire(Ticks now) noexcept {
    if (!due_.is_set() || now < due_) return Expiry::kNone;
    if (now >= timeout_at_) {
      due_ = Ticks{};
      probes_ = 0;
      return Expiry::kTimeout;
    }
    if (probes_ < kMostDoublings) ++probes_;
    due_ = std::min(now + (std::uint64_t{probe_ns_} << probes_), timeout_at_);
    return Expiry::kProbe;
  }

  /// A packet that asks for an ACK leaves for the first time.
  void on_sent(Psn psn, Ticks now) noexcept {
    if (is_timing_) return;
    is_timing_ = true;
    timed_psn_ = psn;
    sent_at_ = now;
  }
  /// For how long after an ACK was asked for messages may leave that ask for none: a lost one of them shall
  /// not wait longer for its probe. 0 as long as there would be none.
  [[nodiscard]] std::uint64_t quiet_ns() const noexcept {
    return smoothed_ns_ == 0 ? 0 : std::min<std::uint64_t>(kQuietNs, floor_ns_ / 2);
  }
  /// Everything before `unacked` has been answered.
  void on_answered(Psn unacked, Ticks now) noexcept {
    if (!is_timing_ || !before(timed_psn_, unacked)) return;
    is_timing_ = false;
    if (now < sent_at_) return;  // by the clock of another core
    take_sample(to_short(now.ns() - sent_at_.ns()));
  }
  /// `packets` from `first` on leave once more: an answer to one of them tells no time. Karn's rule, RFC
  /// 6298, 3.
  void on_sent_again(Psn first, std::uint32_t packets) noexcept {
    if (is_timing_ && span_from(timed_psn_, first) < packets) is_timing_ = false;
  }

 private:
  static constexpr std::uint64_t kQuietNs = 50'000;
  static constexpr std::uint32_t kUnmeasuredNs = 4'000'000;  // to the first probe
  static constexpr std::uint32_t kNever = std::numeric_limits<std::uint32_t>::max();
  static constexpr std::uint8_t kMostDoublings = 24;  // of at most 2^35 ns
  static constexpr std::uint8_t kMostKept = 5;        // from one answer to the next

  /// Round trips longer than 4 s are taken for such.
  static constexpr std::uint32_t to_short(std::uint64_t ns) noexcept {
    return static_cast<std::uint32_t>(std::min<std::uint64_t>(ns, std::numeric_limits<std::uint32_t>::max()));
  }
  [[nodiscard]] std::uint64_t first_wait(std::uint64_t timeout_ns) const noexcept {
    return probe_ns_ == kNever ? timeout_ns : std::min(std::uint64_t{probe_ns_} << probes_, timeout_ns);
  }
  void take_sample(std::uint32_t sample) noexcept {
    probes_ = 0;
    if (smoothed_ns_ == 0) {
      smoothed_ns_ = std::max(sample, 1U);
      variation_ns_ = sample / 2;
    } else {
      const std::uint32_t off = sample > smoothed_ns_ ? sample - smoothed_ns_ : smoothed_ns_ - sample;
      variation_ns_ = variation_ns_ - variation_ns_ / 4 + off / 4;
      smoothed_ns_ = std::max(smoothed_ns_ - smoothed_ns_ / 8 + sample / 8, 1U);
    }
    if (floor_ns_ != 0)
      probe_ns_ =
          to_short(smoothed_ns_ + std::max<std::uint64_t>(4 * std::uint64_t{variation_ns_}, floor_ns_));
  }

  Ticks due_;         // of whatever comes first
  Ticks timeout_at_;  // of the ack timeout
  Ticks sent_at_;
  std::uint32_t probe_ns_ = kNever;
  Psn timed_psn_;
  std::uint32_t smoothed_ns_ = 0;  // round trip; 0: not measured yet
  std::uint32_t variation_ns_ = 0;
  std::uint32_t floor_ns_ = 0;
  std::uint8_t probes_ = 0;  // since a round trip was measured: each doubles the wait for the next
  bool is_timing_ = false;
};
static_assert(sizeof(LossTimer) == 48, "part of what each message touches of a QP");

}  // namespace uroce::transport
