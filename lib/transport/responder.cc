#include "transport/responder.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "base/copy.h"
#include "base/endian.h"
#include "transport/frame_writer.h"
#include "transport/joint_acks.h"
#include "transport/masked_atomic.h"
#include "transport/xrc_domain.h"
#include "uroce/access.h"
#include "wire/aeth.h"
#include "wire/credit_codes.h"

namespace uroce::transport {

using wire::Opcode;

namespace {

/// An ACK for the sake of its credits names a PSN that was acknowledged before, however long ago: a peer must
/// not take it for one that is still to come.
constexpr std::uint32_t kOldestAck = 1U << 22;
/// No requester has more packets in flight: Config::max_unacked.
constexpr std::uint32_t kMostInFlight = 4096;

}  // namespace

void Responder::reset() noexcept {
  expected_psn_ = Psn{};
  msn_ = 0;
  gap_reported_ = refusing_ = ack_pending_ = is_unasked_ = false;
  held_.reset();
  nak_pending_ = 0;
  tolerated_ = looks_ = 0;
  prompt_end_ = 0;
  credits_end_ = qp_.receives.taken();
  set_out_of_credits(false);
  reset_message();
  resources_.clear();
}

void Responder::start() {
  expected_psn_ = qp_.attr.rq_psn;
  ack_psn_ = expected_psn_ - 1;
  answered_end_ = expected_psn_ - kOldestAck;
  counts_receives_ = qp_.credits && qp_.receives.shared() == nullptr;
  resize_resources();
  make_room_ahead();
}

void Responder::on_request(const wire::PacketView& packet) noexcept {
  if (qp_.has_failed()) return;  // in Error requests are dropped silently
  const std::int32_t offset = distance(packet.bth.psn, expected_psn_);
  if (offset == 0) {
    on_next_request(packet);
    if (held_ != nullptr && !held_->is_empty()) take_held();
  } else if (offset > 0) {
    on_gap(packet);
  } else {
    on_duplicate(packet);
  }
}

/// A packet from the future: ask once for the one that is missing. IBA 9.7.5.2.8 ?
void Responder::on_gap(const wire::PacketView& packet) noexcept {
  qp_.count(Count::kResponderOutOfSequence);
  if (held_ != nullptr && !refusing_) hold(packet);
  if (gap_reported_) {
    qp_.counters.add(Count::kResponderAwaitingResync);
    return;
  }
  gap_reported_ = true;
  nak_pending_ = wire::syndrome::kNakPsnSequence;
  qp_.count(Count::kResponderSeqNaks);
}

/// Most requests are SENDs or WRITEs of one packet: of these the compiler knows what follows of the opcode.
[[gnu::always_inline]] inline void Responder::on_next_request(const wire::PacketView& packet) noexcept {
  if (packet.bth.opcode == Opcode::kRcSendOnly) return on_new(packet, wire::info(Opcode::kRcSendOnly));
  if (packet.bth.opcode == Opcode::kRcWriteOnly) return on_new(packet, wire::info(Opcode::kRcWriteOnly));
  on_new_request(packet);
}

[[gnu::noinline]] void Responder::on_new_request(const wire::PacketView& packet) noexcept {
  on_new(packet, *packet.op);
}

[[gnu::always_inline]] inline void Responder::on_new(const wire::PacketView& packet,
                                                     const wire::OpcodeInfo& op) noexcept {
  const bool is_xrc = op.has_xrceth() && qp_.domain != nullptr;  // the latter is far off
  Fault fault = is_xrc ? choose_receives(packet) : Fault::kNone;
  if (fault == Fault::kNone) fault = check(packet, op);
  if (fault == Fault::kNone && op.is_remembered() && !resources_.has_room()) fault = Fault::kReadDepth;
  if (fault != Fault::kNone && fault != Fault::kRnr && tolerated_ < qp_.hardened) {
    // Perhaps not the peer's: its own packet with this PSN may still come. If it is the peer's, it comes
    // again.
    ++tolerated_;
    qp_.counters.add(Count::kResponderTolerated);
    if (message_ == Message::kNone) qp_.receives.put_back();  // a shared one that was looked at
    return;
  }
  nak_pending_ = 0;  // a NAK for this PSN that has not left yet is no longer true
  gap_reported_ = refusing_ = false;
  if (fault != Fault::kNone) [[unlikely]] {
    on_fault(packet, fault);
    return;
  }
  tolerated_ = 0;
  qp_.counters.add(Count::kResponderPackets);
  if (op.is_send || op.is_write) {
    execute_message(packet, op);
  } else {
    execute(packet);
  }
}

/// XRC: receives, their CQ and the protection domain are those of the queue that the request names; one and
/// the same for a whole message. IBA A14 ?
Fault Responder::choose_receives(const wire::PacketView& packet) noexcept {
  const std::uint32_t number = packet.xrceth().srq;
  const SharedReceives* in_use = qp_.receives.shared();
  if (in_use != nullptr && in_use->number == number) return Fault::kNone;
  const XrcDomain::Entry* entry = message_ == Message::kNone ? qp_.domain->find(number) : nullptr;
  if (entry == nullptr) return Fault::kNoSuchSrq;
  qp_.receives.use(entry->receives);
  qp_.recv_cq = entry->cq;
  qp_.pd = qp_.recv_pd = entry->receives->pd;
  return Fault::kNone;
}

void Responder::on_fault(const wire::PacketView& packet, Fault fault) noexcept {
  if (fault == Fault::kRnr) {
    qp_.count(Count::kResponderRnrNaks);
    nak_pending_ = wire::syndrome::rnr_nak(qp_.min_rnr_timer);
    gap_reported_ = refusing_ = true;  // what follows the refused packet is not worth a NAK of its own
    return;
  }
  const bool has_recv = has_receive() && (message_ == Message::kSend || packet.op->takes_recv);
  const bool blames_recv =
      fault == Fault::kReceiveTooSmall || fault == Fault::kInvalidateRefused || message_ == Message::kSend;
  fail(fault, has_recv && blames_recv);
}

/// The request cannot be executed: NAK it, once, and move to Error. IBA 9.9.3.
/// @param blames_recv  the receive WQE in use completes with the fault
void Responder::fail(Fault fault, bool blames_recv) noexcept {
  nak_pending_ = row(fault).nak;
  ack_pending_ = is_unasked_ = false;
  set_out_of_credits(false);
  qp_.fail(fault, blames_recv);  // before a full CQ becomes the reason
  if (blames_recv) qp_.fail_receive(fault);
}

void Responder::execute(const wire::PacketView& packet) noexcept {
  const wire::OpcodeInfo& op = *packet.op;
  if (op.is_read_request) {
    execute_read(packet);
  } else if (op.is_atomic_request) {
    execute_atomic(packet);
  } else {
    execute_placement(packet);
  }
}

void Responder::advance(std::uint32_t packets) noexcept {
  expected_psn_ = expected_psn_ + packets;
}

/// Past a request that is answered by more than an ACK.
void Responder::advance_past_answered(std::uint32_t packets) noexcept {
  advance(packets);
  answered_end_ = expected_psn_;
  if (span_from(expected_psn_, ack_psn_) > kOldestAck) ack_psn_ = expected_psn_ - kOldestAck;
}

/// @return the new MSN
std::uint32_t Responder::finish_message() noexcept {
  qp_.counters.add(Count::kResponderMessages);
  qp_.awaits_reply = true;
  return ++msn_;
}

[[gnu::always_inline]] inline void Responder::execute_message(const wire::PacketView& packet,
                                                              const wire::OpcodeInfo& op) noexcept {
  if (const Fault fault = place(packet, op); fault != Fault::kNone) return fail(fault, op.is_send);
  ack_psn_ = expected_psn_;
  advance(1);
  ack_pending_ |= packet.bth.ack_req;
  is_unasked_ = !packet.bth.ack_req;
  if (!op.ends_message) return;
  finish_message();
  complete_receive(packet, op);
  if (counts_receives_) [[unlikely]]
    note_credit_used();
}

/// What an AETH with this MSN says of the receives. IBA 9.7.7.2 ?
[[gnu::cold]] std::uint8_t Responder::credits(std::uint32_t msn) noexcept {
  const std::uint32_t taken = qp_.receives.taken();
  const std::uint8_t code = wire::credit_code(qp_.receives.posted() - taken);
  if (msn == msn_) {  // with an older one the peer learns less than there is
    credits_end_ = taken + wire::credits_of(code);
    set_out_of_credits(code == 0);
  }
  return wire::syndrome::ack(code);
}

/// The peer hears at once that its last credit is used up, be it that the message asks for no ACK.
[[gnu::cold]] void Responder::note_credit_used() noexcept {
  const auto left = static_cast<std::int32_t>(credits_end_ - qp_.receives.taken());
  if (left <= 0) ack_pending_ = true;
}

/// Whoever posts receives from now on rings the doorbell; what was posted meanwhile is found at once.
void Responder::set_out_of_credits(bool out) noexcept {
  is_peer_out_of_credits_ = out;
  if (qp_.is_peer_out_of_credits.load(std::memory_order_relaxed) == out) return;
  qp_.is_peer_out_of_credits.store(out, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_seq_cst);  // pairs with QueuePair::must_ring_for_receives
}

void Responder::execute_read(const wire::PacketView& packet) noexcept {
  ResponderResource* request = resources_.add();
  if (request == nullptr) return fail(Fault::kReadDepth, false);
  const wire::Reth reth = packet.reth();
  const std::uint32_t packets = std::max(1U, (reth.length + qp_.mtu - 1) / qp_.mtu);
  request->first_psn = expected_psn_;
  request->packets = packets;
  request->va = reth.va;
  request->length = reth.length;
  request->opcode = packet.bth.opcode;
  request->rkey = raw(reth.rkey);
  request->pd = qp_.pd;
  request->end = packets;
  request->msn = finish_message();
  resources_.queue(*request);
  advance_past_answered(packets);
}

namespace {

/// @return the value before
[[gnu::cold]] std::uint64_t operate_masked(const wire::PacketView& packet,
                                           std::atomic_ref<std::uint64_t> target, bool swaps) noexcept {
  const wire::AtomicEth atomic = packet.atomic_eth();
  const wire::AtomicMaskEth masks = packet.atomic_mask_eth();
  const MaskedSwap swap{.compare = atomic.compare,
                        .swap = atomic.swap_add,
                        .mask_compare = masks.compare,
                        .mask_swap = masks.swap};
  std::uint64_t word = target.load(std::memory_order_acquire);
  for (;;) {
    const std::uint64_t next = swaps ? swap.after(word) : add_fields(word, atomic.swap_add, masks.compare);
    if (target.compare_exchange_weak(word, next, std::memory_order_acq_rel)) return word;
  }
}

/// @return the value before
std::uint64_t operate(const wire::PacketView& packet, std::uint64_t& word,
                      std::uint8_t opcode_base) noexcept {
  std::atomic_ref<std::uint64_t> target(word);
  const auto is = [&](Opcode rc) { return raw(packet.bth.opcode) == (raw(rc) | opcode_base); };
  if (packet.op->is_masked()) [[unlikely]]
    return operate_masked(packet, target, is(Opcode::kRcMaskedCompareSwap));
  const wire::AtomicEth atomic = packet.atomic_eth();
  if (!is(Opcode::kRcCompareSwap)) return target.fetch_add(atomic.swap_add, std::memory_order_acq_rel);
  std::uint64_t original = atomic.compare;
  target.compare_exchange_strong(original, atomic.swap_add, std::memory_order_acq_rel);
  return original;
}

}  // namespace

/// Executes once; the original value is kept for duplicates. IBA 9.4.5.
void Responder::execute_atomic(const wire::PacketView& packet) noexcept {
  ResponderResource* request = resources_.add();
  if (request == nullptr) return fail(Fault::kReadDepth, false);
  const wire::AtomicEth atomic = packet.atomic_eth();
  mem::KeyFault fault{};
  void* memory = qp_.resolve_remote(raw(atomic.rkey), access::kRemoteAtomic, atomic.va, 8, fault);
  if (memory == nullptr || !is_word_aligned(memory)) return fail(Fault::kRemoteKey, false);
  const std::uint64_t original = operate(packet, *static_cast<std::uint64_t*>(memory), qp_.opcode_base);
  request->first_psn = expected_psn_;
  request->packets = 1;
  request->opcode = packet.bth.opcode;
  request->va = atomic.va;
  request->rkey = raw(atomic.rkey);
  request->original = original;
  request->msn = finish_message();
  resources_.queue(*request);
  advance_past_answered(1);
}

/// Chooses the lane of a long response: not bulk while a shorter one might come behind it, which the peer
/// would take for lost. Who sleeps takes nothing: there is an end to the wait, once for each response.
/// @return false if it is to wait
bool Responder::begin_bulk(TxContext& tx) noexcept {
  constexpr std::uint8_t kMostLooks = 64;
  qp_.answers_bulk = tx.port.has_taken(prompt_end_);
  if (qp_.answers_bulk || !tx.may_wait || looks_ == kMostLooks) return true;
  ++looks_;
  return false;
}

void Responder::pop_response() noexcept {
  resources_.pop();
  looks_ = 0;
}

bool Responder::transmit(TxContext& tx) noexcept {
  if (qp_.answers_bulk && tx.bulk.is_drained()) qp_.answers_bulk = false;
  while (ResponderResource* request = resources_.front()) {
    if (tx.budget == 0) return false;
    const bool is_long = request->length > kLongestPrompt && !request->is_atomic();
    if (is_long && !qp_.answers_bulk && !begin_bulk(tx)) return false;
    if (qp_.is_controlled && is_held(tx.now)) [[unlikely]] {
      qp_.congestion->rate.hold();
      return true;
    }
    const bool sent = request->is_atomic()    ? emit_atomic_response(tx, *request)
                      : request->is_unflushed ? emit_flush_response(tx, *request)
                                              : emit_read_response(tx, *request);
    if (!sent) return false;
    if (!qp_.answers_bulk) prompt_end_ = tx.port.place();
    if (before(ack_psn_, request->first_psn))
      ack_pending_ = false;  // the response acknowledges all before it
    if (request->is_atomic() || request->next >= request->end) pop_response();
  }
  if (nak_pending_ != 0) {
    if (tx.budget == 0 || !emit_nak(tx)) return false;
    nak_pending_ = 0;
    ack_pending_ = false;  // the NAK acknowledges all before it
  }
  if (ack_pending_) {
    if (tx.budget == 0 || !emit_ack(tx)) return false;
    ack_pending_ = false;
    qp_.counters.add(Count::kResponderAcks);
  }
  return !owes_credits() || emit_credits(tx);
}

/// With those of other QPs, if there are any. Whatever this QP sends before they leave the peer may have
/// before the ACK, which says nothing new then. But nothing keeps it behind what this QP has sent, as they
/// take another's way: it must not overtake a response that acknowledges more than it does. IBA 9.7.5.1.4 ?
bool Responder::emit_ack(TxContext& tx) noexcept {
  const std::uint8_t syndrome = ack_syndrome(msn_);
  if (tx.joint_acks == nullptr || span_from(ack_psn_, answered_end_) < kMostInFlight) [[likely]]
    return emit_acknowledge(tx, syndrome, ack_psn_);
  return tx.joint_acks->add(qp_, ack_psn_, {.syndrome = syndrome, .msn = msn_ & Psn::kMask}, tx);
}

/// The peer waits for receives, and some were posted.
[[gnu::cold]] bool Responder::emit_credits(TxContext& tx) noexcept {
  if (tx.budget == 0) return false;
  const std::uint32_t told = credits_end_;
  if (!emit_acknowledge(tx, credits(msn_), ack_psn_)) {
    credits_end_ = told;
    set_out_of_credits(true);
    return false;
  }
  qp_.counters.add(Count::kResponderCreditUpdates);
  return true;
}

/// Behind those that wait for others: one may be of this QP, of an earlier turn, when there was no room.
bool Responder::emit_acknowledge(TxContext& tx, std::uint8_t syndrome, Psn psn) noexcept {
  if (tx.joint_acks != nullptr && !tx.joint_acks->send(tx)) [[unlikely]]
    return false;
  FrameWriter frame(tx.lane(qp_.answers_bulk));
  if (!frame.begin(qp_, tx, Opcode::kRcAck, psn, 0)) return false;
  frame.put(wire::Aeth{.syndrome = syndrome, .msn = msn_ & Psn::kMask});
  frame.send_at_once(qp_, tx);
  return true;
}

/// Sends one response packet. The key is looked up for each one: a region may be deregistered meanwhile.
/// The opcode tells the packet's place in the READ as first asked, also when only its tail is asked again.
bool Responder::emit_read_response(TxContext& tx, ResponderResource& request) noexcept {
  const bool first = request.next == 0;
  const bool last = request.next + 1 == request.packets;
  const Opcode opcode = first ? (last ? Opcode::kRcReadResponseOnly : Opcode::kRcReadResponseFirst)
                              : (last ? Opcode::kRcReadResponseLast : Opcode::kRcReadResponseMiddle);
  const std::uint64_t at = std::uint64_t{request.next} * qp_.mtu;
  const auto size = static_cast<std::uint32_t>(std::min<std::uint64_t>(qp_.mtu, request.length - at));
  const std::byte* memory = nullptr;
  if (size > 0) {
    mem::KeyFault fault{};
    memory = qp_.keys.resolve_remote(request.rkey, {.pd = request.pd, .qpn = qp_.qpn}, access::kRemoteRead,
                                     request.va + at, size, fault);
    if (memory == nullptr) return refuse_read(tx, request);
  }
  FrameWriter frame(tx.lane(qp_.answers_bulk));
  if (!frame.begin(qp_, tx, opcode, request.first_psn + request.next, size)) return false;
  if (wire::info(opcode).has_aeth) {
    frame.put(wire::Aeth{.syndrome = ack_syndrome(request.msn), .msn = request.msn & Psn::kMask});
  }
  frame.append(memory, size);
  frame.send(qp_, tx);
  qp_.counters.add(Count::kReadResponsePackets);
  ++request.next;
  request.sent = std::max(request.sent, request.next);
  return true;
}

/// Does a part of what it answers, or the last one.
bool Responder::emit_flush_response(TxContext& tx, ResponderResource& request) noexcept {
  if (!flush_piece(request)) return refuse_read(tx, request);
  if (!request.is_unflushed) return emit_read_response(tx, request);
  --tx.budget;
  return false;
}

/// The region is gone. If all has been sent before, the peer may need nothing any more: it is told, and no
/// harm done. Else this QP ends with the NAK; where the peer is in the READ it knows best, so both the packet
/// that it asked for again and the first one that was never sent are refused.
/// @return false if there is no more to send now.
bool Responder::refuse_read(TxContext& tx, ResponderResource& request) noexcept {
  const std::uint8_t nak = row(Fault::kRemoteKey).nak;
  if (!emit_acknowledge(tx, nak, request.first_psn + request.next)) return false;
  if (request.answered) {
    request.next = request.end;
    return true;
  }
  const bool is_repeated = request.sent > request.next;
  if (is_repeated && (tx.budget == 0 || !emit_acknowledge(tx, nak, request.first_psn + request.sent)))
    return false;
  drop_responses();  // the NAK is the last word
  qp_.fail(Fault::kRemoteKey);
  return false;
}

bool Responder::emit_atomic_response(TxContext& tx, const ResponderResource& request) noexcept {
  FrameWriter frame(tx.lane(qp_.answers_bulk));
  if (!frame.begin(qp_, tx, Opcode::kRcAtomicAck, request.first_psn, 0)) return false;
  frame.put(wire::Aeth{.syndrome = ack_syndrome(request.msn), .msn = request.msn & Psn::kMask});
  frame.put(wire::AtomicAckEth{.original = request.original});
  frame.send_at_once(qp_, tx);
  return true;
}

void Responder::drop_responses() noexcept {
  resources_.clear();
  ack_pending_ = is_unasked_ = false;
  nak_pending_ = 0;
  set_out_of_credits(false);
}

}  // namespace uroce::transport
