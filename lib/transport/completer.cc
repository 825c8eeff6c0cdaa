// The completer: what responses and timeouts do to the send queue.
#include <algorithm>
#include <cstring>

#include "transport/requester.h"
#include "transport/send_message.h"
#include "wire/icrc_ahead.h"
#include "wire/timer_codes.h"

namespace uroce::transport {

namespace {

constexpr std::uint32_t kWindowAfterTimeout = 16;  // packets
constexpr std::uint8_t kForever = 7;               // rnr_retry; IBA 9.7.5.2.8

constexpr Fault fault_of_nak(std::uint8_t syndrome) noexcept {
  switch (syndrome) {
    case wire::syndrome::kNakInvalidRequest:
      return Fault::kRemoteInvalidRequest;
    case wire::syndrome::kNakRemoteAccess:
      return Fault::kRemoteAccess;
    case wire::syndrome::kNakRemoteOp:
      return Fault::kRemoteOperation;
    case wire::syndrome::kNakInvalidRdRequest:
      return Fault::kRemoteInvalidRd;
    default:
      return Fault::kReservedSyndrome;
  }
}

/// What comes with data is a positive answer, or a false one. IBA 9.7.6 ?
bool is_positive(const wire::PacketView& response) noexcept {
  return !response.op->has_aeth ||
         wire::syndrome::classify(response.aeth().syndrome) == wire::syndrome::Kind::kAck;
}

}  // namespace

void Requester::on_response(const wire::PacketView& packet, Ticks now) noexcept {
  if (packet.op->is_ack && take_last_ack(packet.bth.psn, packet.aeth().syndrome, now)) return;
  // Only PSNs in flight mean anything; the rest are late duplicates or forgeries. IBA 9.7.6.1.1 ?
  const bool is_ghost = span_from(packet.bth.psn, unacked_psn_) >= in_flight();
  if (besides_.uses_credits) [[unlikely]] {
    if (take_credits(packet) && is_ghost) return;
  }
  if (is_ghost) {
    if (refuses_rest_of_read(packet)) return on_bad_response(fault_of_nak(packet.aeth().syndrome));
    qp_.counters.add(Count::kRequesterGhostResponses);
    return;
  }
  take_response(packet, now);
  if (besides_.is_selective && before(unacked_psn_, selective_->taken)) [[unlikely]]
    take_held_responses(now);
}

bool Requester::take_last_ack(Psn psn, std::uint8_t syndrome, Ticks now) noexcept {
  // All that has started owns this one PSN, and has been sent.
  const bool is_only = oldest_psn_ == psn && next_wqe_psn_ == psn + 1 && current_ == started_;
  if (!is_only || !besides_.is_nothing() || broken_ != Fault::kNone) return false;
  const SendWqe& wqe = qp_.sq.at(oldest_);
  if (!wqe.is_plain() || wire::syndrome::classify(syndrome) != wire::syndrome::Kind::kAck) return false;
  oldest_psn_ = unacked_psn_ = next_wqe_psn_;
  carried_ = std::max(carried_, largest_payload(wqe));
  renew_patience();
  timer_.on_answered(unacked_psn_, now);
  timer_.stop();
  complete_send(qp_, wqe, Fault::kNone, ++oldest_);
  return true;
}

/// Soft-RoCE names a READ by the PSN of its request, or of the last one for a part of it, also when it
/// refuses what is left of it.
bool Requester::refuses_rest_of_read(const wire::PacketView& packet) const noexcept {
  if (!packet.op->is_ack || in_flight() == 0 || !qp_.sq.at(oldest_).is_read()) return false;
  const std::uint32_t of_request = packets_answered() % read_chunk();
  const std::uint32_t back = span_from(unacked_psn_, packet.bth.psn);
  const std::uint8_t syndrome = packet.aeth().syndrome;
  return back != 0 && back <= of_request &&
         wire::syndrome::classify(syndrome) == wire::syndrome::Kind::kNak &&
         syndrome != wire::syndrome::kNakPsnSequence;
}

void Requester::take_response(const wire::PacketView& packet, Ticks now) noexcept {
  if (packet.op->is_read_response) {
    on_read_response(packet, now);
  } else if (packet.op->is_atomic_ack) {
    on_atomic_response(packet, now);
  } else if (packet.op->is_selective_nak()) [[unlikely]] {
    on_selective_nak(packet, now);
  } else {
    on_ack(packet, now);
  }
}

/// Takes what an AETH tells of the peer's receives. ACKs may come for that alone, with a PSN that has been
/// acknowledged before.
/// @return whether it may have come for that
[[gnu::cold]] bool Requester::take_credits(const wire::PacketView& packet) noexcept {
  if (!packet.op->has_aeth || !before(packet.bth.psn, sent_psn_)) return false;
  const wire::Aeth aeth = packet.aeth();
  if (wire::syndrome::classify(aeth.syndrome) != wire::syndrome::Kind::kAck) return false;
  if (credits_.on_aeth(aeth)) {
    besides_.uses_credits = credits_.in_use();
    besides_.credits_asked = false;
    if (in_flight() == 0) timer_.stop();  // it ran for want of credits
  }
  if (credits_.is_limited() && oldest_ != started_) {
    const Psn newest = next_wqe_psn_ - packets_of(started_ - 1);
    if (packet.bth.psn == newest) credits_.end_limited();
  }
  return packet.op->is_ack;
}

void Requester::on_ack(const wire::PacketView& packet, Ticks now) noexcept {
  using wire::syndrome::Kind;
  const std::uint8_t syndrome = packet.aeth().syndrome;
  const std::uint32_t before_psn = span_from(packet.bth.psn, unacked_psn_);
  switch (wire::syndrome::classify(syndrome)) {
    case Kind::kAck:
      if (acknowledge(before_psn + 1, now) && besides_.is_selective) look_for_dropped(now);
      break;
    case Kind::kRnrNak:
      if (acknowledge(before_psn, now, true)) on_rnr_nak(wire::syndrome::code(syndrome), now);
      break;
    case Kind::kNak:
      if (acknowledge(before_psn, now, true)) on_nak(syndrome, now);
      break;
    case Kind::kReserved:
      on_bad_response(Fault::kReservedSyndrome);
      break;
  }
}

/// Acknowledges `packets` PSNs from the oldest unacknowledged one on.
/// @param goes_back  what lies behind them is not to be waited for
/// @return false if a request among them lacks the response that it must have: an implied NAK. IBA 9.7.5.1.4
/// ?
bool Requester::acknowledge(std::uint32_t packets, Ticks now, bool goes_back) noexcept {
  bool moved = false;
  while (packets > 0) {
    const SendWqe& wqe = qp_.sq.at(oldest_);
    if (wqe.is_answered()) {
      if (moved) on_progress(now);
      if (selective_ != nullptr && !goes_back) {
        on_missing_response(unacked_psn_ + packets, now);
        return false;
      }
      qp_.count(Count::kRequesterImpliedNaks);
      if (!besides_.recovering && take_retry()) {
        go_back(now);
        besides_.recovering = true;
      }
      return false;
    }
    const std::uint32_t left = packets_of(wqe) - packets_answered();
    const std::uint32_t step = std::min(left, packets);
    unacked_psn_ = unacked_psn_ + step;
    packets -= step;
    moved = true;
    if (step == left) retire(Fault::kNone);
  }
  if (moved) on_progress(now);
  return !qp_.has_failed();
}

void Requester::on_progress(Ticks now) noexcept {
  renew_patience();
  besides_.recovering = false;
  if (besides_.has_doubts) [[unlikely]]
    forget_doubts();
  if (besides_.is_selective) selective_->on_progress(unacked_psn_);
  if (besides_.waits_for_receive)
    wait_for_receive(Ticks{});  // the packet that was refused is among what the peer has taken
  timer_.on_answered(unacked_psn_, now);
  if (in_flight() > 0) {
    start_timer(now);
  } else {
    timer_.stop();
  }
  if (besides_.is_probing) [[unlikely]]
    end_probe();
  while (reads_in_flight_ > 0 && before(read_ends_[read_head_], unacked_psn_)) {
    read_head_ = static_cast<std::uint32_t>((read_head_ + 1) % read_ends_.size());
    --reads_in_flight_;
  }
  if (besides_.has_local) [[unlikely]]
    retire_local();
  catch_up();
  if (besides_.repeating) [[unlikely]]
    next_repeat();
}

/// Acknowledged packets need not be sent (again), not even those that could not be.
void Requester::catch_up() noexcept {
  if (static_cast<std::int32_t>(oldest_ - current_) > 0) {
    current_ = oldest_;
    current_psn_ = oldest_psn_;
    sent_packets_ = 0;
    broken_ = Fault::kNone;
    cursor_.rewind();
  }
  if (current_ != oldest_) return;
  if (oldest_ != started_ && packets_answered() > sent_packets_) {
    sent_packets_ = packets_answered();
    broken_ = Fault::kNone;
  }
  if (broken_ != Fault::kNone) fail_oldest(broken_);
}

void Requester::on_nak(std::uint8_t syndrome, Ticks now) noexcept {
  if (syndrome != wire::syndrome::kNakPsnSequence) {
    on_bad_response(fault_of_nak(syndrome));
    return;
  }
  qp_.count(Count::kRequesterSeqNaks);
  // One go-back per loss; a responder that is not ready may also report the gap that the RNR NAK made.
  if (besides_.recovering || besides_.waits_for_receive) return;
  if (!take_retry()) return;
  go_back(now);
  besides_.recovering = true;
}

/// A response that ends the QP if it is the peer's. A hardened QP drops some first: what was answered falsely
/// is answered again, by an ACK if the false word was not the peer's, else not at all or in the same way.
void Requester::on_bad_response(Fault fault) noexcept {
  const bool asks_again = qp_.timeout != 0;  // else a doubt would never be settled
  if (tolerated_ >= qp_.hardened || !asks_again) {
    fail_oldest(fault);
    return;
  }
  ++tolerated_;
  besides_.has_doubts = true;
  if (doubted_ == Fault::kNone) doubted_ = fault;
  qp_.counters.add(Count::kRequesterTolerated);
}

void Requester::on_rnr_nak(std::uint8_t timer_code, Ticks now) noexcept {
  qp_.count(Count::kRequesterRnrNaks);
  if (besides_.waits_for_receive) return;  // a duplicate
  if (qp_.rnr_retry != kForever) {
    if (rnr_retries_left_ == 0) {
      fail_oldest(Fault::kRnrRetryExceeded);
      return;
    }
    --rnr_retries_left_;
  }
  rewind();
  timer_.stop();
  const std::uint64_t wait = wire::rnr_timer_ns(timer_code);
  wait_for_receive(now + (qp_.rnr_cap_ns == 0 ? wait : std::min(wait, qp_.rnr_cap_ns)));
}

void Requester::on_read_response(const wire::PacketView& packet, Ticks now) noexcept {
  if (!acknowledge(span_from(packet.bth.psn, unacked_psn_), now)) return hold_response(packet, now);
  if (!is_positive(packet)) return on_bad_response(Fault::kReservedSyndrome);
  const SendWqe& wqe = qp_.sq.at(oldest_);
  if (!wqe.is_read()) {
    on_placed(packet, now);
    return;
  }
  const std::uint32_t received = packets_answered();
  const std::uint64_t at = std::uint64_t{received} * qp_.mtu;
  if (packet.payload.size() != std::min<std::uint64_t>(qp_.mtu, wqe.length - at)) {
    on_bad_response(Fault::kReadResponseLength);
    return;
  }
  if (received == 0) read_cursor_.rewind();
  if (read_cursor_.scatter(wqe.sges(), qp_.keys, qp_.pd, at, packet.payload.size(),
                           wire::PayloadCopy(packet, wqe.length)) != mem::KeyFault::kNone) {
    fail_oldest(Fault::kLocalKey);
    return;
  }
  unacked_psn_ = unacked_psn_ + 1;
  if (received + 1 == packets_of(wqe)) retire(Fault::kNone);
  on_progress(now);
}

void Requester::on_atomic_response(const wire::PacketView& packet, Ticks now) noexcept {
  if (!acknowledge(span_from(packet.bth.psn, unacked_psn_), now)) return hold_response(packet, now);
  if (!is_positive(packet)) return on_bad_response(Fault::kReservedSyndrome);
  const SendWqe& wqe = qp_.sq.at(oldest_);
  if (!wqe.is_atomic()) {
    on_bad_response(Fault::kUnexpectedResponse);
    return;
  }
  // The original value lands in host byte order, as ibv_post_send(3) promises.
  const std::uint64_t original = packet.atomic_ack_eth().original;
  read_cursor_.rewind();
  if (read_cursor_.scatter(wqe.sges(), qp_.keys, qp_.pd, 0, sizeof original,
                           mem::CopyFrom{std::as_bytes(std::span{&original, 1}).data()}) !=
      mem::KeyFault::kNone) {
    fail_oldest(Fault::kLocalKey);
    return;
  }
  unacked_psn_ = unacked_psn_ + 1;
  retire(Fault::kNone);
  on_progress(now);
}

/// A FLUSH or ATOMIC WRITE is answered as a READ of nothing would be. IBA A19.
void Requester::on_placed(const wire::PacketView& packet, Ticks now) noexcept {
  const WrOpcode opcode = qp_.sq.at(oldest_).opcode;
  const bool is_placement = opcode == WrOpcode::kFlush || opcode == WrOpcode::kAtomicWrite;
  if (!is_placement || !packet.op->is_only()) {
    on_bad_response(Fault::kUnexpectedResponse);
    return;
  }
  if (!packet.payload.empty()) {
    on_bad_response(Fault::kReadResponseLength);
    return;
  }
  unacked_psn_ = unacked_psn_ + 1;
  retire(Fault::kNone);
  on_progress(now);
}

/// Congestion control has not let the oldest packet go again yet: no answer can be late.
bool Requester::is_held_back(Ticks now) const noexcept {
  return is_back_ && in_flight() != 0 && send_psn() == unacked_psn_ && qp_.is_controlled &&
         !qp_.congestion->rate.may_send(now);
}

void Requester::on_timer(Ticks now) noexcept {
  if (besides_.waits_for_receive && rnr_until_ <= now) wait_for_receive(Ticks{});
  if (tail_due_.is_set()) look_at_tail(now);
  const LossTimer::Expiry expiry = timer_.expire(now);
  if (expiry == LossTimer::Expiry::kProbe) probe();
  if (expiry != LossTimer::Expiry::kTimeout) return;
  const bool waits_for_address = !qp_.resolved && may_send();
  if (in_flight() == 0 && !waits_for_address) {
    if (besides_.uses_credits) credits_.allow_limited();
    return;
  }
  if (is_held_back(now)) return qp_.congestion->rate.hold();  // the timer starts when it leaves
  qp_.count(Count::kRequesterTimeouts);
  if (!take_retry()) return;
  go_back(now);
  besides_.recovering = false;  // the peer may still tell of a gap that we do not know
  // A peer that is only slow has to answer every duplicate: with whole windows of them it would never catch
  // up.
  window_ = std::min(window_, kWindowAfterTimeout);
}

/// The answer is late, which is no failure yet: the oldest packet goes once more, and the next ones as
/// answers come in. If nothing was lost, the first answer says so and sending goes on where it was.
void Requester::probe() noexcept {
  if (!qp_.resolved) return;
  if (in_flight() == 0) {
    besides_.credits_asked = besides_.uses_credits;
    return;
  }
  qp_.count(Count::kRequesterProbes);
  if (!besides_.is_probing) {
    set_window_before_probe(window_);
    probe_end_ = sent_psn_;
  }
  is_back_ = is_back_ && send_psn() == unacked_psn_;  // else the oldest packet has left
  selective_ != nullptr ? repeat_unsettled() : rewind();
  window_ = 1;
}

void Requester::end_probe() noexcept {
  if (!before(unacked_psn_, probe_end_)) end_probes();
}

void Requester::end_probes() noexcept {
  if (!besides_.is_probing) return;
  window_ = std::max(window_, window_before_probe_);
  set_window_before_probe(0);
}

void Requester::on_resolved() noexcept {
  retries_left_ = qp_.retry_cnt;
  if (in_flight() > 0) return;
  timer_.stop();
  window_ = qp_.max_unacked;
}

/// Uses up one retry. @return false if there was none: the oldest WQE has failed.
bool Requester::take_retry() noexcept {
  if (retries_left_ == 0) {
    if (doubted_ == Fault::kNone) suspect_path_mtu();
    fail_oldest(doubted_ == Fault::kNone ? Fault::kRetryExceeded : doubted_);
    return false;
  }
  --retries_left_;
  return true;
}

/// Sends everything again from the oldest unacknowledged PSN.
void Requester::go_back(Ticks now) noexcept {
  rewind();
  is_back_ = true;
  start_timer(now);
}

void Requester::rewind() noexcept {
  qp_.counters.add(Count::kRequesterGoBacks);
  current_ = oldest_;
  current_psn_ = oldest_psn_;
  sent_packets_ = oldest_ == started_ ? 0 : packets_answered();
  reads_in_flight_ = 0;
  since_ack_req_ = 0;
  broken_ = Fault::kNone;
  cursor_.rewind();
  if (selective_ != nullptr) forget_selective();
}

/// Completes the oldest WQE.
void Requester::retire(Fault fault) noexcept {
  const SendWqe& wqe = qp_.sq.at(oldest_);
  if (oldest_ != started_) {
    if (wqe.is_answered()) --reads_unfinished_;
    if (besides_.has_local && wqe.is_local()) besides_.has_local = --local_unfinished_ != 0;
    oldest_psn_ = oldest_psn_ + packets_of(wqe);
  }
  if (fault == Fault::kNone) carried_ = std::max(carried_, largest_payload(wqe));
  if (oldest_ == started_) ++started_;
  complete_send(qp_, wqe, fault, ++oldest_);
}

/// The oldest WQE that has not completed owns PSNs, or has not started.
void Requester::retire_local() noexcept {
  while (oldest_ != started_ && qp_.sq.at(oldest_).is_local()) retire(Fault::kNone);
}

void Requester::fail_oldest(Fault fault) noexcept {
  if (qp_.has_failed()) return;
  qp_.fail(fault, true);
  retire(fault);
}

void Requester::fail_silent() noexcept {
  if (oldest_ == qp_.sq.tail()) {
    qp_.fail(Fault::kPeerSilent, false);
  } else {
    fail_oldest(Fault::kPeerSilent);
  }
}

void Requester::flush() noexcept {
  const std::uint32_t tail = qp_.sq.tail();
  while (oldest_ != tail) {
    qp_.counters.add(Count::kFlushed);
    retire(Fault::kFlushed);
  }
  current_ = oldest_;
  started_ = oldest_;
  oldest_psn_ = current_psn_ = next_wqe_psn_;
  sent_packets_ = 0;
  sent_psn_ = unacked_psn_;
  reads_in_flight_ = 0;
  besides_.repeating = besides_.asks_tail = false;
  timer_.stop();
  wait_for_receive(Ticks{});
  tail_due_ = Ticks{};
}

}  // namespace uroce::transport
