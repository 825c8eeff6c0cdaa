#include "transport/requester.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <utility>

#include "transport/send_message.h"
#include "uroce/ece.h"
#include "wire/atomic_eth.h"
#include "wire/feth.h"
#include "wire/timer_codes.h"

namespace uroce::transport {

namespace {

using wire::Opcode;

/// What the QP can send of what not every one can.
[[gnu::cold]] bool is_known(WrOpcode opcode, const QpContext& qp) noexcept {
  if (opcode == WrOpcode::kMaskedCmpAndSwp || opcode == WrOpcode::kMaskedFetchAndAdd)
    return (qp.ece & ece::kMaskedAtomics) != 0;
  return opcode == WrOpcode::kFlush || opcode == WrOpcode::kAtomicWrite;
}

wire::Opcode atomic_opcode(const SendWqe& wqe) noexcept {
  if (wqe.is_masked()) return wqe.is_swap() ? Opcode::kRcMaskedCompareSwap : Opcode::kRcMaskedFetchAdd;
  return wqe.is_swap() ? Opcode::kRcCompareSwap : Opcode::kRcFetchAdd;
}

/// Moves exactly 8 bytes.
bool is_word(const SendWqe& wqe) noexcept {
  return wqe.is_atomic() || wqe.opcode == WrOpcode::kAtomicWrite;
}

}  // namespace

Requester::Requester(QpContext& qp) : qp_(qp), read_ends_(1) {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Winvalid-offsetof"  // GCC and clang know it all the same
  static_assert(offsetof(Requester, timer_) + sizeof(LossTimer) == 128, "what each message touches");
#pragma GCC diagnostic pop
}

void Requester::reset() noexcept {
  oldest_ = current_ = started_ = qp_.sq.tail();
  qp_.sq.retire(oldest_);
  sent_packets_ = read_head_ = reads_unfinished_ = local_unfinished_ = 0;
  since_ack_req_ = reads_in_flight_ = 0;
  oldest_psn_ = current_psn_ = next_wqe_psn_ = unacked_psn_ = sent_psn_ = Psn{};
  broken_ = Fault::kNone;
  forget_doubts();
  besides_.has_local = false;
  quiet_until_ = tail_due_ = Ticks{};
  besides_.asks_tail = false;
  besides_.recovering = besides_.repeating = false;
  is_back_ = false;
  selective_.reset();
  besides_.is_selective = false;
  carried_ = 0;
  timer_.stop();
  wait_for_receive(Ticks{});
  credits_.stop();
  besides_.uses_credits = false;
  besides_.credits_asked = false;
  cursor_.rewind();
  read_cursor_.rewind();
}

void Requester::start() noexcept {
  oldest_psn_ = current_psn_ = next_wqe_psn_ = unacked_psn_ = sent_psn_ = qp_.attr.sq_psn;
  retries_left_ = qp_.retry_cnt;
  rnr_retries_left_ = qp_.rnr_retry;
  window_ = qp_.max_unacked;
  set_window_before_probe(0);
  timer_.reset(probe_margin_ns());
  credits_.start(qp_.credits);
  besides_.uses_credits = credits_.in_use();
  if (selective_ != nullptr) forget_selective();
}

/// Where switches mark, round trips grow by a queue and not by loss: another sender that starts may put all
/// of its window in front of what this one sends, at the line's rate, before a CNP can reach it.
std::uint64_t Requester::probe_margin_ns() const noexcept {
  if (qp_.probe_floor_ns == 0 || !qp_.is_controlled) return qp_.probe_floor_ns;
  return qp_.probe_floor_ns + qp_.congestion->line_time_ns(std::uint64_t{qp_.max_unacked} * qp_.mtu);
}

void Requester::take_attributes(std::uint32_t mask) {
  if ((mask & qp_attr::kRetryCnt) != 0) retries_left_ = qp_.retry_cnt;
  if ((mask & qp_attr::kRnrRetry) != 0) rnr_retries_left_ = qp_.rnr_retry;
  if (read_ends_.size() < qp_.max_rd_atomic) {
    std::vector<Psn> larger(qp_.max_rd_atomic);
    for (std::uint32_t i = 0; i < reads_in_flight_; ++i)
      larger[i] = read_ends_[(read_head_ + i) % read_ends_.size()];
    read_ends_.swap(larger);
    read_head_ = 0;
  }
  if (qp_.state.load(std::memory_order_relaxed) == QpState::kRtr) make_selective();
}

Gate Requester::gate(Ticks now) const noexcept {
  if (has_sent_all()) return or_ask(Gate::kIdle);
  if (!may_send() || qp_.has_failed() || broken_ != Fault::kNone) [[unlikely]]
    return or_ask(Gate::kStopped);
  const SendWqe& wqe = qp_.sq.at(current_);
  if (!qp_.resolved && !wqe.is_local()) return Gate::kUnresolved;
  if (besides_.waits_for_receive && now < rnr_until_) return Gate::kRnrWait;
  if (wqe.has(send_flag::kFence) || besides_.uses_credits) [[unlikely]] {
    if (const Gate why = hold_back(wqe); why != Gate::kOpen) return why;
  }
  if (span_from(send_psn(), unacked_psn_) >= window_) return Gate::kWindowFull;
  if (wqe.is_answered() && reads_in_flight_ > 0 && reads_in_flight_ >= qp_.max_rd_atomic &&
      !besides_.repeating) {
    return Gate::kReadDepth;
  }
  if (qp_.is_controlled && !qp_.congestion->rate.may_send(now)) [[unlikely]]
    return Gate::kPaced;
  return Gate::kOpen;
}

/// What holds the current WQE back that most do not meet: a fence, or the want of credits.
[[gnu::cold]] Gate Requester::hold_back(const SendWqe& wqe) const noexcept {
  if (current_ == started_ && wqe.has(send_flag::kFence) && is_fenced(wqe)) {
    return or_ask(Gate::kFenced);  // IBA 10.6.5.1 ?, 10.8.3.3
  }
  if (!credits_.in_use() || has_credit(wqe)) return Gate::kOpen;
  if (besides_.credits_asked) return Gate::kAskCredits;
  return or_ask(Gate::kNoCredits);
}

/// Whether the peer's credits allow the next packet of `wqe`, the current one. A QP without ack timeout has
/// nothing to wait with, and goes on with limited messages.
bool Requester::has_credit(const SendWqe& wqe) const noexcept {
  if (credits_.is_limited())  // the newest that has started
    return current_ != started_ && (current_ + 1 != started_ || sent_packets_ == 0);
  return current_ != started_ || !wqe.takes_receive() || credits_.may_start() || qp_.timeout == 0;
}

Gate Requester::transmit(TxContext& tx) noexcept {
  if (besides_.waits_for_receive && rnr_until_ <= tx.now)
    wait_for_receive(Ticks{});  // what is sent from now on may be refused anew
  Gate why = gate(tx.now);
  while (why == Gate::kOpen && tx.budget > 0) {
    if (!emit_current(tx)) return Gate::kOpen;
    why = gate(tx.now);
  }
  switch (why) {
    case Gate::kUnresolved:
      if (!timer_.is_running()) start_timer(tx.now);
      qp_.counters.add(Count::kGateUnresolved);
      break;
    case Gate::kAskCredits:
      ask_for_credits(tx);
      if (besides_.credits_asked) return Gate::kOpen;
      break;
    case Gate::kAskTail:
      if (!ask_about_tail(tx)) return Gate::kOpen;
      break;
    case Gate::kNoCredits:
      if (!timer_.is_running()) start_timer(tx.now);
      qp_.counters.add(Count::kGateNoCredits);
      break;
    case Gate::kRnrWait:
      qp_.counters.add(Count::kGateRnrWait);
      break;
    case Gate::kFenced:
      qp_.counters.add(Count::kGateFenced);
      break;
    case Gate::kWindowFull:
      qp_.counters.add(Count::kGateWindowFull);
      break;
    case Gate::kReadDepth:
      qp_.counters.add(Count::kGateReadDepth);
      break;
    case Gate::kPaced:
      qp_.congestion->rate.hold();
      qp_.counters.add(Count::kGatePaced);
      break;
    default:
      break;
  }
  return why;
}

void Requester::correct_times(Ticks assumed, Ticks actual) noexcept {
  if (quiet_until_ == assumed + timer_.quiet_ns()) quiet_until_ = actual + timer_.quiet_ns();
  if (tail_due_ == assumed + LossTimer::kTailNs) tail_due_ = actual + LossTimer::kTailNs;
  timer_.correct(assumed, actual, wire::ack_timeout_ns(qp_.timeout));
}

/// Gives the next WQE its PSNs. @return false if there is nothing to send: it is local, or cannot be sent.
bool Requester::start_wqe(const SendWqe& wqe) noexcept {
  if ((!wqe.is_plain() || wqe.malformed != 0) && !start_special(wqe)) [[unlikely]]
    return false;
  const bool answered = wqe.is_answered();
  if (in_flight() == 0) {
    const bool is_long = wqe.length > kLongestPrompt && (!answered || wqe.is_read());
    qp_.in_flight = !is_long ? InFlight::kShort : answered ? InFlight::kAsksForLong : InFlight::kLong;
  }
  const std::uint32_t packets = packets_of(wqe);
  next_wqe_psn_ = next_wqe_psn_ + packets;
  ++started_;
  if (besides_.uses_credits) [[unlikely]]
    take_credit(wqe, packets);
  if (answered) ++reads_unfinished_;
  if (packets > 1) cursor_.rewind();
  qp_.signaled = static_cast<std::uint8_t>(2U * qp_.signaled + (wqe.has(send_flag::kSignaled) ? 1U : 0U));
  qp_.awaits_reply = false;
  qp_.counters.add(Count::kRequesterMessages);
  return true;
}

/// What start_wqe() does first with all but SENDs and WRITEs, and with what was posted wrongly.
[[gnu::noinline]] bool Requester::start_special(const SendWqe& wqe) noexcept {
  Fault fault = Fault::kNone;
  const bool is_common = raw(wqe.opcode) <= raw(WrOpcode::kSendWithInv);
  if ((!is_common && !is_known(wqe.opcode, qp_)) || (wqe.is_answered() && qp_.max_rd_atomic == 0) ||
      ((wqe.is_read() || wqe.is_atomic()) && wqe.has(send_flag::kInline))) {
    fault = Fault::kLocalOpcode;
  } else if (wqe.malformed != 0 || (is_word(wqe) && wqe.length != 8)) {
    fault = Fault::kLocalLength;
  }
  if (fault != Fault::kNone) {
    break_wqe(fault);
    return false;
  }
  if (!wqe.is_local()) return true;
  run_local(wqe);
  return false;
}

[[gnu::cold]] void Requester::take_credit(const SendWqe& wqe, std::uint32_t packets) noexcept {
  const std::uint32_t requests = wqe.is_read() ? (packets + read_chunk() - 1) / read_chunk() : 1;
  credits_.on_start(wqe.takes_receive(), requests);
  if (credits_.is_limited()) qp_.counters.add(Count::kRequesterLimited);
}

/// Does what the next WQE asks for here; it owns no PSN. It completes in its turn, and is never done again: a
/// go-back steps over it.
void Requester::run_local(const SendWqe& wqe) noexcept {
  const std::optional<Fault> fault = do_local(qp_, wqe);
  if (!fault) return;
  if (*fault != Fault::kNone) return break_wqe(*fault);
  current_ = ++started_;
  ++local_unfinished_;
  besides_.has_local = true;
  retire_local();
}

/// What is local between two messages is not done again.
void Requester::skip_local() noexcept {
  while (current_ != started_ && qp_.sq.at(current_).is_local()) ++current_;
}

/// Sends the next packet of the current WQE. @return false if the port has no room.
bool Requester::emit_current(TxContext& tx) noexcept {
  const SendWqe& wqe = qp_.sq.at(current_);
  if (current_ == started_ && !start_wqe(wqe)) {
    --tx.budget;
    return true;
  }
  if (qp_.opcode_base != 0) qp_.remote_srq = wqe.remote_srq();
  if (!wqe.is_answered()) return emit_data(wqe, tx);
  if (wqe.is_read()) return emit_read(wqe, tx);
  if (wqe.is_atomic()) return emit_atomic(wqe, tx);
  return wqe.opcode == WrOpcode::kFlush ? emit_flush(wqe, tx) : emit_atomic_write(wqe, tx);
}

/// An ACK is asked for at the end of a message, four times per window, before the window closes, and now and
/// then if congestion control makes a window last long. Not at the end of one whose completion nobody waits
/// for, if others were asked for a moment ago and the send queue has room: should no more follow, a question
/// does.
bool Requester::asks_for_ack(const SendWqe& wqe, Psn psn, bool is_last, Ticks now) noexcept {
  if (is_last) {
    const bool has_queue_room =
        2 * (started_ - oldest_) <= qp_.sq.depth() || 4 * (since_ack_req_ + 1U) < qp_.sq.depth();
    const bool is_quiet =
        now < quiet_until_ && !wqe.has(send_flag::kSignaled) && psn == sent_psn_ && has_queue_room;
    if (!is_quiet) return true;
  }
  const std::uint32_t unacked = span_from(psn, unacked_psn_) + 1;
  return 4 * (since_ack_req_ + 1U) >= window_ || unacked >= window_ ||
         (besides_.uses_credits && credits_.is_limited()) ||
         (qp_.is_controlled && qp_.congestion->rate.should_ask(now));
}

/// Most messages are SENDs or WRITEs of one packet: of these the compiler knows what follows of the opcode.
[[gnu::always_inline]] inline bool Requester::emit_data(const SendWqe& wqe, TxContext& tx) noexcept {
  if (wqe.length <= qp_.mtu) [[likely]] {
    if (wqe.opcode == WrOpcode::kSend) return emit_send_only(wqe, tx);
    if (wqe.opcode == WrOpcode::kRdmaWrite) return emit_write_only(wqe, tx);
  }
  return emit_any(wqe, tx);
}

[[gnu::noinline]] bool Requester::emit_send_only(const SendWqe& wqe, TxContext& tx) noexcept {
  return emit_part(wqe, {.opcode = Opcode::kRcSendOnly, .bytes = wqe.length}, tx);
}

[[gnu::noinline]] bool Requester::emit_write_only(const SendWqe& wqe, TxContext& tx) noexcept {
  return emit_part(wqe, {.opcode = Opcode::kRcWriteOnly, .bytes = wqe.length}, tx);
}

[[gnu::noinline]] bool Requester::emit_any(const SendWqe& wqe, TxContext& tx) noexcept {
  const std::uint64_t at = std::uint64_t{sent_packets_} * qp_.mtu;
  const auto bytes = static_cast<std::uint32_t>(std::min<std::uint64_t>(qp_.mtu, wqe.length - at));
  const bool is_last = at + bytes == wqe.length;
  return emit_part(wqe,
                   {.opcode = rc_opcodes(wqe.opcode).at(sent_packets_ == 0, is_last),
                    .at = at,
                    .bytes = bytes,
                    .is_last = is_last,
                    .packets = packets_of(wqe)},
                   tx);
}

[[gnu::always_inline]] inline bool Requester::emit_part(const SendWqe& wqe, const Part& part,
                                                        TxContext& tx) noexcept {
  const wire::OpcodeInfo& info = wire::info(part.opcode);
  const bool solicited = part.is_last && wqe.has(send_flag::kSolicited) && (info.is_send || info.has_imm);
  const Psn psn = send_psn();
  const bool ack_req = info.is_atomic_write || asks_for_ack(wqe, psn, part.is_last, tx.now);
  FrameWriter frame(tx.lane(qp_.is_bulk()));
  if (!frame.begin(qp_, tx, part.opcode, psn, part.bytes, ack_req, solicited)) return false;
  put_data_headers(frame, wqe, info);
  mem::SgeCursor start;
  mem::SgeCursor& cursor = part.packets == 1 ? start : cursor_;
  if (const Fault fault = fill_payload(qp_, cursor, wqe, part.at, frame); fault != Fault::kNone) {
    break_wqe(fault);
    return true;
  }
  frame.send(qp_, tx);
  since_ack_req_ = ack_req ? std::uint16_t{0} : static_cast<std::uint16_t>(since_ack_req_ + 1);
  if (ack_req) {
    quiet_until_ = tx.now + timer_.quiet_ns();
    tail_due_ = Ticks{};
    besides_.asks_tail = false;
  } else if (part.is_last) {
    tail_due_ = tx.now + LossTimer::kTailNs;
  }
  on_sent(1, part.packets, tx.now);
  return true;
}

/// Asks for the READ's next chunk. Chunks of half a window keep the responses in flight bounded; their
/// borders are the same when they are asked for again, so a responder finds them among the requests that it
/// remembers.
bool Requester::emit_read(const SendWqe& wqe, TxContext& tx) noexcept {
  const std::uint32_t chunk = read_chunk();
  std::uint32_t end = std::min(packets_of(wqe), (sent_packets_ / chunk + 1) * chunk);
  if (besides_.repeating) [[unlikely]]
    end = end_of_hole(end);
  const std::uint64_t from = std::uint64_t{sent_packets_} * qp_.mtu;
  const std::uint64_t to = std::min<std::uint64_t>(wqe.length, std::uint64_t{end} * qp_.mtu);
  const Psn psn = send_psn();

  FrameWriter frame(tx.lane(qp_.is_bulk()));
  if (!frame.begin(qp_, tx, Opcode::kRcReadRequest, psn, 0, true)) return false;
  frame.put(wire::Reth{
      .va = wqe.remote_addr + from, .rkey = Rkey{wqe.rkey}, .length = static_cast<std::uint32_t>(to - from)});
  frame.send(qp_, tx);
  const std::uint32_t packets = end - sent_packets_;
  note_read_in_flight(psn + (packets - 1));
  on_sent(packets, packets_of(wqe), tx.now);
  return true;
}

bool Requester::emit_atomic(const SendWqe& wqe, TxContext& tx) noexcept {
  const bool swaps = wqe.is_swap();
  FrameWriter frame(tx.lane(qp_.is_bulk()));
  if (!frame.begin(qp_, tx, atomic_opcode(wqe), current_psn_, 0, true)) return false;
  frame.put(wire::AtomicEth{.va = wqe.remote_addr,
                            .rkey = Rkey{wqe.rkey},
                            .swap_add = swaps ? wqe.swap : wqe.compare_add,
                            .compare = swaps ? wqe.compare_add : 0});
  if (wqe.is_masked()) [[unlikely]] {
    const AtomicMasks& masks = qp_.sq.masks(current_);
    frame.put(wire::AtomicMaskEth{.compare = swaps ? masks.compare : masks.boundary,
                                  .swap = swaps ? masks.swap : 0});
  }
  frame.send(qp_, tx);
  note_read_in_flight(current_psn_);
  on_sent(1, 1, tx.now);
  return true;
}

bool Requester::emit_atomic_write(const SendWqe& wqe, TxContext& tx) noexcept {
  const Psn psn = current_psn_;
  const bool is_counted = besides_.repeating;
  if (!emit_data(wqe, tx)) return false;
  if (broken_ == Fault::kNone && !is_counted) note_read_in_flight(psn);
  return true;
}

bool Requester::emit_flush(const SendWqe& wqe, TxContext& tx) noexcept {
  FrameWriter frame(tx.lane(qp_.is_bulk()));
  if (!frame.begin(qp_, tx, Opcode::kRcFlush, current_psn_, 0, true)) return false;
  frame.put(wire::Feth{.placement = static_cast<std::uint8_t>(wqe.imm_or_rkey),
                       .selectivity = static_cast<std::uint8_t>(wqe.imm_or_rkey >> 8)});
  frame.put(wire::Reth{.va = wqe.remote_addr, .rkey = Rkey{wqe.rkey}, .length = wqe.length});
  frame.send(qp_, tx);
  note_read_in_flight(current_psn_);
  on_sent(1, 1, tx.now);
  return true;
}

/// A WRITE of nothing with the PSN before all that is in flight: to the peer it is a duplicate, which every
/// responder answers, also if there never was an original. IBA 9.7.5.1.5 ?
[[gnu::cold]] bool Requester::ask_peer(TxContext& tx) noexcept {
  FrameWriter frame(tx.lane(qp_.is_bulk()));
  const bool has_room =
      tx.budget > 0 && frame.begin(qp_, tx, Opcode::kRcWriteOnly, unacked_psn_ - 1, 0, true);
  if (!has_room) return false;
  frame.put(wire::Reth{});
  frame.send(qp_, tx);
  return true;
}

void Requester::send_keepalive(TxContext& tx) noexcept {
  if (qp_.resolved && ask_peer(tx)) qp_.counters.add(Count::kRequesterKeepalives);
}

/// The ACK says how many receives there are.
[[gnu::cold]] void Requester::ask_for_credits(TxContext& tx) noexcept {
  if (!ask_peer(tx)) return;
  qp_.counters.add(Count::kRequesterCreditQuestions);
  besides_.credits_asked = false;
}

/// No other message has followed for a while. If the next one waits for something that only an answer brings,
/// or may bring, a question is due.
[[gnu::cold]] void Requester::look_at_tail(Ticks now) noexcept {
  if (now < tail_due_) return;
  tail_due_ = Ticks{};
  if (besides_.asks_tail || since_ack_req_ == 0 || in_flight() == 0 || qp_.has_failed()) return;
  const Gate why = gate(now);
  besides_.asks_tail =
      why == Gate::kIdle || why == Gate::kStopped || why == Gate::kFenced || why == Gate::kNoCredits;
  if (why == Gate::kOpen || why == Gate::kPaced)
    tail_due_ = now + LossTimer::kTailNs;  // what is posted may be nothing that is sent
}

[[gnu::cold]] bool Requester::ask_about_tail(TxContext& tx) noexcept {
  if (!ask_peer(tx)) return false;
  qp_.counters.add(Count::kRequesterTailQuestions);
  besides_.asks_tail = false;
  since_ack_req_ = 0;
  return true;
}

void Requester::note_read_in_flight(Psn last_psn) noexcept {
  if (besides_.repeating) [[unlikely]]
    return;             // it is counted
  tail_due_ = Ticks{};  // the answer acknowledges what is before it
  read_ends_[(read_head_ + reads_in_flight_) % read_ends_.size()] = last_psn;
  ++reads_in_flight_;
}

/// @param of  so many PSNs are the current WQE's
[[gnu::always_inline]] inline void Requester::on_sent(std::uint32_t packets, std::uint32_t of,
                                                      Ticks now) noexcept {
  qp_.counters.add(Count::kRequesterPackets);
  sent_packets_ += packets;
  if (sent_packets_ == of) {
    ++current_;
    current_psn_ = current_psn_ + sent_packets_;
    if (sent_packets_ > 1) cursor_.rewind();
    sent_packets_ = 0;
    if (besides_.has_local) [[unlikely]]
      skip_local();
  }
  const Psn next = send_psn();
  if (before(sent_psn_, next)) {
    if (since_ack_req_ == 0) timer_.on_sent(next - packets, now);
    sent_psn_ = next;
  } else {
    on_sent_again(next - packets, packets);
  }
  if (!timer_.is_running()) start_timer(now);
}

[[gnu::noinline]] void Requester::on_sent_again(Psn psn, std::uint32_t packets) noexcept {
  qp_.count(Count::kRequesterRepeatedPackets);
  timer_.on_sent_again(psn, packets);
  if (besides_.is_selective) {
    note_repeat(psn, packets);
    if (besides_.repeating) next_repeat();
  }
  is_back_ = is_back_ && before(send_psn(), sent_psn_);
}

/// The current WQE cannot be sent. It completes with `fault` once it is the oldest. IBA 9.9.2.3
void Requester::break_wqe(Fault fault) noexcept {
  broken_ = fault;
  if (current_ == oldest_) fail_oldest(fault);
}

/// The oldest packet was sent in vain. If smaller ones arrived and none of its size, the path may not carry
/// it.
void Requester::suspect_path_mtu() noexcept {
  if (carried_ == 0 || oldest_ == started_ || packets_answered() != 0) return;
  const std::uint32_t lost = largest_payload(qp_.sq.at(oldest_));
  if (lost <= carried_ || lost <= bytes(PathMtu::k256)) return;
  qp_.lost_bytes = lost;
  qp_.carried_bytes = carried_;
}

void Requester::start_timer(Ticks now) noexcept {
  timer_.start(now, wire::ack_timeout_ns(qp_.timeout));
}

}  // namespace uroce::transport
