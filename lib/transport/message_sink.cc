#include "transport/message_sink.h"

#include "base/copy.h"
#include "base/endian.h"
#include "uroce/access.h"
#include "uroce/ece.h"

namespace uroce::transport {

namespace {

constexpr std::uint32_t kMaxMessage = 1U << 31;  // bytes

std::uint32_t flush_access(const wire::Feth& feth) noexcept {
  const std::uint32_t global = (feth.placement & wire::Feth::kGlobal) != 0 ? access::kFlushGlobal : 0;
  return global | ((feth.placement & wire::Feth::kPersistent) != 0 ? access::kFlushPersistent : 0);
}

std::uint32_t access_needed(const wire::PacketView& packet) noexcept {
  const wire::OpcodeInfo& op = *packet.op;
  if (op.is_send) return 0;
  if (op.is_write || op.is_atomic_write) return access::kRemoteWrite;
  if (op.is_read_request) return access::kRemoteRead;
  if (op.is_atomic_request) return access::kRemoteAtomic;
  return flush_access(packet.feth());
}

}  // namespace

/// IBA 9.7.4, table 57.
Fault MessageSink::check(const wire::PacketView& packet) const noexcept {
  const wire::OpcodeInfo& op = *packet.op;
  Fault fault = check_opcode_sequence(op);
  if (fault == Fault::kNone) fault = check_access(packet);
  if (fault == Fault::kNone) fault = check_resources(op);
  if (fault == Fault::kNone) fault = check_length(packet);
  if (fault == Fault::kNone) fault = check_remote_key(packet);
  if (fault == Fault::kNone && op.has_ieth && !qp_.keys.may_invalidate(raw(packet.ieth().rkey), qp_.user())) {
    fault = Fault::kInvalidateRefused;
  }
  return fault;
}

/// A message is First Middle* Last or Only, without anything between. IBA C9-60 ?
Fault MessageSink::check_opcode_sequence(const wire::OpcodeInfo& op) const noexcept {
  if (op.starts_message) return message_ == Message::kNone ? Fault::kNone : Fault::kOpcodeSequence;
  if (op.is_send) return message_ == Message::kSend ? Fault::kNone : Fault::kOpcodeSequence;
  return message_ == Message::kWrite ? Fault::kNone : Fault::kOpcodeSequence;
}

/// Extensions are for peers that agreed on them; there are only masked atomics.
Fault MessageSink::check_extension() const noexcept {
  return (qp_.ece & ece::kMaskedAtomics) != 0 ? Fault::kNone : Fault::kOpcodeForQp;
}

Fault MessageSink::check_access(const wire::PacketView& packet) const noexcept {
  const std::uint32_t needed = access_needed(packet);
  return (qp_.access_flags & needed) == needed ? Fault::kNone : Fault::kAccessDisabled;
}

Fault MessageSink::check_resources(const wire::OpcodeInfo& op) const noexcept {
  if (op.is_remembered() && qp_.max_dest_rd_atomic == 0) return Fault::kReadDepth;
  if (op.takes_recv && !has_receive()) return Fault::kRnr;
  return Fault::kNone;
}

Fault MessageSink::check_length(const wire::PacketView& packet) const noexcept {
  const wire::OpcodeInfo& op = *packet.op;
  const std::size_t size = packet.payload.size();
  if (op.has_payload) {
    if (op.payload_is_mtu ? size != qp_.mtu : size > qp_.mtu) return Fault::kBadLength;
    if (!op.payload_is_mtu && size == 0 && !op.payload_may_be_empty()) return Fault::kBadLength;
  }
  if (op.is_write) return check_write_length(packet);
  if (op.is_read_request) return packet.reth().length <= kMaxMessage ? Fault::kNone : Fault::kBadLength;
  if (op.is_send) {
    const std::uint64_t before = op.starts_message ? 0 : partial_.cursor.position();
    return before + size > qp_.receives.front().length ? Fault::kReceiveTooSmall : Fault::kNone;
  }
  if (op.is_atomic_write) return size == 8 && packet.reth().length == 8 ? Fault::kNone : Fault::kBadLength;
  if (op.is_masked()) return check_extension();
  return op.is_flush && !packet.feth().is_valid() ? Fault::kBadFlush : Fault::kNone;
}

/// The payloads of a WRITE add up to the RETH's length exactly. IBA C9-66 ?
Fault MessageSink::check_write_length(const wire::PacketView& packet) const noexcept {
  const wire::OpcodeInfo& op = *packet.op;
  const std::uint32_t left = op.starts_message ? packet.reth().length : partial_.write_left;
  if (left > kMaxMessage) return Fault::kBadLength;
  const std::size_t size = packet.payload.size();
  const bool fits = op.ends_message ? size == left : size < left;
  return fits ? Fault::kNone : Fault::kBadLength;
}

Fault MessageSink::check_remote_key(const wire::PacketView& packet) const noexcept {
  const wire::OpcodeInfo& op = *packet.op;
  const std::uint32_t needed = access_needed(packet);
  if (needed == 0) return Fault::kNone;
  if (op.is_flush) return check_flush_key(packet);
  std::uint64_t va = 0;
  std::uint64_t length = 0;
  std::uint32_t rkey = 0;
  if (op.has_reth) {
    const wire::Reth reth = packet.reth();
    va = reth.va;
    length = reth.length;
    rkey = raw(reth.rkey);
  } else if (op.is_atomic_request) {
    const wire::AtomicEth atomic = packet.atomic_eth();
    va = atomic.va;
    length = 8;
    rkey = raw(atomic.rkey);
  } else {
    va = partial_.write_va;
    length = partial_.write_left;
    rkey = partial_.write_rkey;
  }
  if ((op.is_atomic_request || op.is_atomic_write) && va % 8 != 0) return Fault::kMisalignedAtomic;
  if (length == 0) return Fault::kNone;  // IBA C9-88 ?: no bytes, no key
  mem::KeyFault fault{};
  const std::byte* memory = qp_.resolve_remote(rkey, needed, va, length, fault);
  if (memory == nullptr) return Fault::kRemoteKey;
  const bool is_atomic = op.is_atomic_request || op.is_atomic_write;
  // A place that counts from 0 says nothing about the address.
  return is_atomic && !is_word_aligned(memory) ? Fault::kMisalignedAtomic : Fault::kNone;
}

/// The key is looked at also if the range is empty.
Fault MessageSink::check_flush_key(const wire::PacketView& packet) const noexcept {
  mem::KeyFault fault{};
  static_cast<void>(flushed_range(packet, fault));
  return fault == mem::KeyFault::kNone ? Fault::kNone : Fault::kRemoteKey;
}

std::span<const std::byte> MessageSink::flushed_range(const wire::PacketView& packet,
                                                      mem::KeyFault& fault) const noexcept {
  const wire::Feth feth = packet.feth();
  const wire::Reth reth = packet.reth();
  if (feth.selectivity == wire::Feth::kWholeMr) {
    return qp_.keys.resolve_all(raw(reth.rkey), qp_.user(), flush_access(feth), fault);
  }
  return {qp_.resolve_remote(raw(reth.rkey), flush_access(feth), reth.va, reth.length, fault), reth.length};
}

void MessageSink::reset_message() noexcept {
  message_ = Message::kNone;
  qp_.receives.reset();
  partial_ = {};
}

Fault MessageSink::place_send(const wire::PacketView& packet) noexcept {
  const wire::OpcodeInfo& op = *packet.op;
  const bool is_only = op.is_only();
  mem::SgeCursor start;
  if (op.starts_message && !is_only) partial_ = {};
  mem::SgeCursor& cursor = is_only ? start : partial_.cursor;
  const RecvWqe& wqe = qp_.receives.front();
  if (cursor.scatter(wqe.sges(), qp_.keys, qp_.recv_pd, cursor.position(), packet.payload) !=
      mem::KeyFault::kNone)
    return Fault::kReceiveKey;
  if (op.has_ieth && !qp_.keys.invalidate(raw(packet.ieth().rkey), qp_.user()))
    return Fault::kInvalidateRefused;
  if (is_only) return Fault::kNone;
  message_ = op.ends_message ? Message::kNone : Message::kSend;
  return Fault::kNone;
}

Fault MessageSink::place_write(const wire::PacketView& packet) noexcept {
  const wire::OpcodeInfo& op = *packet.op;
  if (op.starts_message) {
    const wire::Reth reth = packet.reth();
    if (op.is_only()) return write(reth.va, raw(reth.rkey), packet.payload, reth.length);
    partial_.write_va = reth.va;
    partial_.write_rkey = raw(reth.rkey);
    partial_.write_left = partial_.write_length = reth.length;
  }
  const Fault fault = write(partial_.write_va, partial_.write_rkey, packet.payload, partial_.write_length);
  if (fault != Fault::kNone) return fault;
  const auto size = static_cast<std::uint32_t>(packet.payload.size());
  partial_.write_va += size;
  partial_.write_left -= size;
  message_ = op.ends_message ? Message::kNone : Message::kWrite;
  return Fault::kNone;
}

/// @param whole  bytes of the message
Fault MessageSink::write(std::uint64_t va, std::uint32_t rkey, std::span<const std::byte> in,
                         std::uint32_t whole) noexcept {
  if (in.empty()) return Fault::kNone;
  mem::KeyFault fault{};
  std::byte* memory = qp_.resolve_remote(rkey, access::kRemoteWrite, va, in.size(), fault);
  if (memory == nullptr) return Fault::kRemoteKey;
  copy_part(memory, in.data(), in.size(), whole);
  return Fault::kNone;
}

void MessageSink::complete_receive(const wire::PacketView& packet) noexcept {
  const wire::OpcodeInfo& op = *packet.op;
  if (op.is_write && !op.has_imm) return;
  const auto bytes = [&] {
    if (op.is_only()) return static_cast<std::uint32_t>(packet.payload.size());
    return op.is_write ? partial_.write_length : static_cast<std::uint32_t>(partial_.cursor.position());
  };
  const RecvWqe& wqe = qp_.receives.front();
  Wc wc{.wr_id = wqe.wr_id,
        .byte_len = bytes(),
        .qpn = qp_.qpn,
        .src_qpn = qp_.dest_qpn,
        .opcode = op.is_write ? WcOpcode::kRecvRdmaWithImm : WcOpcode::kRecv};
  if (op.has_imm) {
    wc.imm_data = network_order(packet.imm().value);
    wc.flags = wc_flag::kWithImm;
  } else if (op.has_ieth) {
    wc.imm_data = raw(packet.ieth().rkey);
    wc.flags = wc_flag::kWithInv;
  }
  qp_.receives.pop();
  qp_.complete(*qp_.recv_cq, wc, packet.bth.solicited);
}

void MessageSink::fail_receive(Fault fault) noexcept {
  const Wc wc{.wr_id = qp_.receives.front().wr_id,
              .qpn = qp_.qpn,
              .src_qpn = qp_.dest_qpn,
              .status = row(fault).status,
              .opcode = WcOpcode::kRecv,
              .vendor_err = raw(fault)};
  qp_.receives.pop();
  qp_.complete(*qp_.recv_cq, wc);
}

void MessageSink::flush_receives() noexcept {
  while (qp_.receives.holds_one()) {
    qp_.counters.add(Count::kFlushed);
    fail_receive(Fault::kFlushed);
  }
  message_ = Message::kNone;
}

}  // namespace uroce::transport
