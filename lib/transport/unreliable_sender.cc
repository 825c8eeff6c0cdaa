#include "transport/unreliable_sender.h"

#include "transport/send_message.h"
#include "wire/deth.h"

namespace uroce::transport {

namespace {

constexpr std::uint64_t kAddressPatienceNs = 1'000'000'000;
constexpr std::uint32_t kControlledQkey = 0x8000'0000;

constexpr bool is_send(WrOpcode opcode) noexcept {
  return opcode == WrOpcode::kSend || opcode == WrOpcode::kSendWithImm;
}
constexpr bool is_write(WrOpcode opcode) noexcept {
  return opcode == WrOpcode::kRdmaWrite || opcode == WrOpcode::kRdmaWriteWithImm;
}

}  // namespace

void UnreliableSender::reset() noexcept {
  head_ = qp_.sq.tail();
  qp_.sq.retire(head_);
  sent_packets_ = 0;
  psn_ = Psn{};
  give_up_ = peer_patience_ = Ticks{};
  cursor_.rewind();
}

Fault UnreliableSender::check(const SendWqe& wqe) const noexcept {
  const bool is_connected_only = is_write(wqe.opcode) || wqe.is_local();
  if (!is_send(wqe.opcode) && (is_datagram() || !is_connected_only)) return Fault::kLocalOpcode;
  if (wqe.malformed != 0) return Fault::kLocalLength;
  if (!is_datagram()) return Fault::kNone;
  const AddressHandle* handle = qp_.handles->find(wqe.ah());
  if (handle == nullptr || handle->pd != qp_.pd) return Fault::kAddressHandle;
  return wqe.length <= qp_.mtu ? Fault::kNone : Fault::kDatagramLength;
}

bool UnreliableSender::is_resolved(const SendWqe& wqe) const noexcept {
  if (!is_datagram()) return qp_.resolved || wqe.is_local();
  const AddressHandle* handle = qp_.handles->find(wqe.ah());
  return handle == nullptr || handle->resolved;
}

Gate UnreliableSender::gate(Ticks now) const noexcept {
  if (head_ == qp_.sq.tail()) return Gate::kIdle;
  const QpState state = qp_.state.load(std::memory_order_relaxed);
  const bool sends = state == QpState::kRts || (state == QpState::kSqd && sent_packets_ > 0);
  if (!sends || qp_.has_failed() || qp_.send_fault != Fault::kNone) return Gate::kStopped;
  const SendWqe& wqe = qp_.sq.at(head_);
  // What cannot be sent at all need not wait for an address.
  if (!is_resolved(wqe)) return check(wqe) == Fault::kNone ? Gate::kUnresolved : Gate::kOpen;
  const bool is_paced = qp_.is_controlled && !wqe.is_local() && !qp_.congestion->rate.may_send(now);
  return is_paced ? Gate::kPaced : Gate::kOpen;
}

Gate UnreliableSender::transmit(TxContext& tx) noexcept {
  Gate why = gate(tx.now);
  while (why == Gate::kOpen && tx.budget > 0) {
    if (!emit(tx)) return Gate::kOpen;
    why = gate(tx.now);
  }
  if (why == Gate::kUnresolved) {
    qp_.counters.add(Count::kGateUnresolved);
    Ticks& until = patience();
    if (!until.is_set()) until = tx.now + kAddressPatienceNs;
    give_up_ = until;
  } else {
    give_up_ = Ticks{};
  }
  if (why == Gate::kPaced) {
    qp_.congestion->rate.hold();
    qp_.counters.add(Count::kGatePaced);
  }
  return why;
}

/// How long the destination of the WQE at the head is waited for; all that goes there waits together.
Ticks& UnreliableSender::patience() noexcept {
  return is_datagram() ? qp_.handles->find(qp_.sq.at(head_).ah())->give_up : peer_patience_;
}

void UnreliableSender::on_timer(Ticks now) noexcept {
  if (!give_up_.is_set() || give_up_ > now) return;
  give_up_ = Ticks{};
  if (gate(now) != Gate::kUnresolved) return;
  qp_.counters.add(Count::kRequesterUnresolved);
  retire(Fault::kNone);
}

/// Sends the next packet, or does what is local. @return false if the port has no room, or it is to be tried
/// again.
bool UnreliableSender::emit(TxContext& tx) noexcept {
  const SendWqe& wqe = qp_.sq.at(head_);
  if (sent_packets_ == 0) {
    if (const Fault fault = check(wqe); fault != Fault::kNone) {
      fail(fault);
      return true;
    }
  }
  if (wqe.is_local()) return run_local(wqe, tx);
  return is_datagram() ? emit_datagram(wqe, tx) : emit_packet(wqe, tx);
}

/// A bind or a local invalidate. @return false if it is to be tried again.
bool UnreliableSender::run_local(const SendWqe& wqe, TxContext& tx) noexcept {
  const std::optional<Fault> fault = do_local(qp_, wqe);
  if (!fault) return false;
  --tx.budget;
  *fault == Fault::kNone ? retire(Fault::kNone) : fail(*fault);
  return true;
}

bool UnreliableSender::emit_packet(const SendWqe& wqe, TxContext& tx) noexcept {
  const std::uint64_t at = std::uint64_t{sent_packets_} * qp_.mtu;
  const auto payload = static_cast<std::uint32_t>(std::min<std::uint64_t>(qp_.mtu, wqe.length - at));
  const bool last = at + payload == wqe.length;
  const wire::Opcode opcode = uc_opcodes(wqe.opcode).at(sent_packets_ == 0, last);
  const wire::OpcodeInfo& info = wire::info(opcode);
  const bool solicited = last && wqe.has(send_flag::kSolicited) && (info.is_send || info.has_imm);
  FrameWriter frame(tx.port);
  if (!frame.begin(qp_, tx, opcode, psn_, payload, false, solicited)) return false;
  put_data_headers(frame, wqe, info);
  if (const Fault fault = fill_payload(qp_, cursor_, wqe, at, frame); fault != Fault::kNone) {
    fail(fault);
    return true;
  }
  send(frame, tx);
  ++sent_packets_;
  if (last) retire(Fault::kNone);
  return true;
}

bool UnreliableSender::emit_datagram(const SendWqe& wqe, TxContext& tx) noexcept {
  const AddressHandle& handle = *qp_.handles->find(wqe.ah());
  const bool has_imm = wqe.opcode == WrOpcode::kSendWithImm;
  const wire::Opcode opcode = has_imm ? wire::Opcode::kUdSendOnlyImm : wire::Opcode::kUdSendOnly;
  FrameWriter frame(handle.sink != nullptr ? *handle.sink : tx.port);
  const wire::Bth bth{.opcode = opcode,
                      .solicited = wqe.has(send_flag::kSolicited),
                      .pkey = kDefaultPkey,
                      .dest_qpn = wqe.remote_qpn(),
                      .psn = psn_};
  if (!frame.begin(handle.head, bth, wqe.length, tx)) return false;
  const bool own = (wqe.remote_qkey() & kControlledQkey) != 0;
  frame.put(wire::Deth{.qkey = own ? qp_.attr.qkey : wqe.remote_qkey(), .src_qpn = qp_.qpn});
  put_data_headers(frame, wqe, wire::info(opcode));
  if (const Fault fault = fill_payload(qp_, cursor_, wqe, 0, frame); fault != Fault::kNone) {
    fail(fault);
    return true;
  }
  send(frame, tx);
  retire(Fault::kNone);
  return true;
}

void UnreliableSender::send(FrameWriter& frame, TxContext& tx) noexcept {
  frame.send(qp_, tx);
  psn_ = psn_ + 1;
  qp_.counters.add(Count::kRequesterPackets);
}

/// Completes the WQE at the head.
void UnreliableSender::retire(Fault fault) noexcept {
  const SendWqe& wqe = qp_.sq.at(head_);
  if (fault == Fault::kNone && !wqe.is_local()) qp_.counters.add(Count::kRequesterMessages);
  complete_send(qp_, wqe, fault, ++head_);
  sent_packets_ = 0;
  cursor_.rewind();
}

/// IBA 10.3.1.5 ?: only the send queue stops.
void UnreliableSender::fail(Fault fault) noexcept {
  qp_.counters.add(row(fault).counter);
  qp_.send_fault = fault;
  retire(fault);
}

void UnreliableSender::flush() noexcept {
  for (const std::uint32_t tail = qp_.sq.tail(); head_ != tail;) {
    qp_.counters.add(Count::kFlushed);
    retire(Fault::kFlushed);
  }
  give_up_ = Ticks{};
}

}  // namespace uroce::transport
