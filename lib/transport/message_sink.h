/// Where the SENDs and WRITEs of connected transports end: memory and receive queue.
#pragma once

#include <bit>
#include <cstdint>
#include <span>

#include "base/endian.h"
#include "mem/sge_cursor.h"
#include "transport/context.h"
#include "uroce/access.h"
#include "wire/icrc_ahead.h"
#include "wire/packet.h"

namespace uroce::transport {

/// Whether an atomic operation may be done there.
[[nodiscard]] inline bool is_word_aligned(const void* memory) noexcept {
  return std::bit_cast<std::uintptr_t>(memory) % sizeof(std::uint64_t) == 0;
}

/// How far a message of several packets has come.
struct PartialMessage {
  mem::SgeCursor cursor;  ///< behind the last byte of a SEND

  std::uint64_t write_va = 0;    ///< where a WRITE's next byte goes
  std::uint32_t write_left = 0;  ///< bytes of it still to come
  std::uint32_t write_length = 0;
  std::uint32_t write_rkey = 0;
};

/// The access that a FLUSH needs.
[[nodiscard]] inline std::uint32_t flush_access(const wire::Feth& feth) noexcept {
  const std::uint32_t global = (feth.placement & wire::Feth::kGlobal) != 0 ? access::kFlushGlobal : 0;
  return global | ((feth.placement & wire::Feth::kPersistent) != 0 ? access::kFlushPersistent : 0);
}
/// The access that any other request needs.
[[nodiscard]] constexpr std::uint32_t access_needed(const wire::OpcodeInfo& op) noexcept {
  if (op.is_write || op.is_atomic_write) return access::kRemoteWrite;
  if (op.is_read_request) return access::kRemoteRead;
  return op.is_atomic_request ? access::kRemoteAtomic : 0;
}

/// What a FLUSH names.
struct FlushRange {
  wire::Feth feth;
  std::uint64_t va = 0;
  std::uint32_t length = 0;  ///< bytes
  std::uint32_t rkey = 0;
};

/// The message that is coming in, and what is true of its packets whether somebody acknowledges them or not.
/// A packet is judged by ordered checks that change nothing, and then placed whole. IBA 9.7.4, 9.8.2.
///
/// `op` is the packet's: a caller who knows the opcode when it is compiled lets the compiler leave out what
/// others need.
///
/// Threads: loop.
class MessageSink {
 public:
  /// IBA 9.6.1.1 ?: only the peer's packets, to the address that it was told.
  [[nodiscard]] static Count refuse_addresses(const QpContext& qp, const wire::PacketView& packet,
                                              const Gid& local) noexcept {
    const bool fits = packet.comes_from(qp.path->to.dgid) && packet.goes_to(local);
    return fits ? Count::kRxRoce : Count::kDropWrongAddress;
  }

 protected:
  enum class Message : std::uint8_t { kNone, kSend, kWrite };

  /// @param partial  whoever has this as a base keeps it apart from what a message of one packet touches
  MessageSink(QpContext& qp, PartialMessage& partial) noexcept : qp_(qp), partial_(partial) {}

  /// Forgets the message and all that is posted.
  void reset_message() noexcept;
  /// The checks of a request, in order; the first fault counts.
  [[nodiscard]] Fault check(const wire::PacketView& packet, const wire::OpcodeInfo& op) const noexcept;
  /// Puts the payload of a checked SEND or WRITE packet where it belongs, and notes how far the message is.
  [[nodiscard]] Fault place(const wire::PacketView& packet, const wire::OpcodeInfo& op) noexcept {
    return op.is_send ? place_send(packet, op) : place_write(packet, op);
  }
  /// The message has come to its end: completes the receive that it takes, if any.
  void complete_receive(const wire::PacketView& packet, const wire::OpcodeInfo& op) noexcept;
  /// Completes every posted receive with WR_FLUSH_ERR.
  void flush() noexcept;

  /// What a FLUSH is to write back, if key, rights and range allow.
  [[nodiscard]] std::span<const std::byte> flushed_range(const FlushRange& range, const mem::KeyUser& user,
                                                         mem::KeyFault& fault) const noexcept;

  [[nodiscard]] bool has_receive() const noexcept { return qp_.receives.available(); }

  QpContext& qp_;

 private:
  [[nodiscard]] Fault check_opcode_sequence(const wire::OpcodeInfo& op) const noexcept;
  [[nodiscard]] Fault check_extension() const noexcept;
  [[nodiscard]] Fault check_access(const wire::PacketView& packet, const wire::OpcodeInfo& op) const noexcept;
  [[nodiscard]] Fault check_resources(const wire::OpcodeInfo& op) const noexcept;
  [[nodiscard]] Fault check_length(const wire::PacketView& packet, const wire::OpcodeInfo& op) const noexcept;
  [[nodiscard]] Fault check_write_length(const wire::PacketView& packet,
                                         const wire::OpcodeInfo& op) const noexcept;
  [[nodiscard]] Fault check_remote_key(const wire::PacketView& packet) const noexcept;
  [[nodiscard]] Fault check_flush_key(const wire::PacketView& packet) const noexcept;
  [[nodiscard]] Fault place_send(const wire::PacketView& packet, const wire::OpcodeInfo& op) noexcept;
  [[nodiscard]] Fault place_write(const wire::PacketView& packet, const wire::OpcodeInfo& op) noexcept;
  [[nodiscard]] Fault write(const wire::PacketView& packet, std::uint64_t va, std::uint32_t rkey,
                            std::uint32_t whole) noexcept;

  PartialMessage& partial_;

 protected:
  Message message_ = Message::kNone;
};

/// IBA 9.7.4, table 57.
[[gnu::always_inline]] inline Fault MessageSink::check(const wire::PacketView& packet,
                                                       const wire::OpcodeInfo& op) const noexcept {
  Fault fault = check_opcode_sequence(op);
  if (fault == Fault::kNone) fault = check_access(packet, op);
  if (fault == Fault::kNone) fault = check_resources(op);
  if (fault == Fault::kNone) fault = check_length(packet, op);
  if (fault == Fault::kNone && !op.is_send) fault = check_remote_key(packet);
  if (fault == Fault::kNone && op.has_ieth && !qp_.keys.may_invalidate(raw(packet.ieth().rkey), qp_.user())) {
    fault = Fault::kInvalidateRefused;
  }
  return fault;
}

/// A message is First Middle* Last or Only, without anything between. IBA C9-60 ?
[[gnu::always_inline]] inline Fault MessageSink::check_opcode_sequence(
    const wire::OpcodeInfo& op) const noexcept {
  if (op.starts_message) return message_ == Message::kNone ? Fault::kNone : Fault::kOpcodeSequence;
  if (op.is_send) return message_ == Message::kSend ? Fault::kNone : Fault::kOpcodeSequence;
  return message_ == Message::kWrite ? Fault::kNone : Fault::kOpcodeSequence;
}

[[gnu::always_inline]] inline Fault MessageSink::check_access(const wire::PacketView& packet,
                                                              const wire::OpcodeInfo& op) const noexcept {
  const std::uint32_t needed = op.is_flush ? flush_access(packet.feth()) : access_needed(op);
  return (qp_.access_flags & needed) == needed ? Fault::kNone : Fault::kAccessDisabled;
}

[[gnu::always_inline]] inline Fault MessageSink::check_resources(const wire::OpcodeInfo& op) const noexcept {
  if (op.is_remembered() && qp_.max_dest_rd_atomic == 0) return Fault::kReadDepth;
  if (op.takes_recv && !has_receive()) return Fault::kRnr;
  return Fault::kNone;
}

[[gnu::always_inline]] inline Fault MessageSink::check_length(const wire::PacketView& packet,
                                                              const wire::OpcodeInfo& op) const noexcept {
  const std::size_t size = packet.payload.size();
  if (op.has_payload) {
    if (op.payload_is_mtu ? size != qp_.mtu : size > qp_.mtu) return Fault::kBadLength;
    if (!op.payload_is_mtu && size == 0 && !op.payload_may_be_empty()) return Fault::kBadLength;
  }
  if (op.is_write) return check_write_length(packet, op);
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
[[gnu::always_inline]] inline Fault MessageSink::check_write_length(
    const wire::PacketView& packet, const wire::OpcodeInfo& op) const noexcept {
  const std::uint32_t left = op.starts_message ? packet.reth().length : partial_.write_left;
  if (left > kMaxMessage) return Fault::kBadLength;
  const std::size_t size = packet.payload.size();
  const bool fits = op.ends_message ? size == left : size < left;
  return fits ? Fault::kNone : Fault::kBadLength;
}

[[gnu::always_inline]] inline Fault MessageSink::place_send(const wire::PacketView& packet,
                                                            const wire::OpcodeInfo& op) noexcept {
  const bool is_only = op.is_only();
  mem::SgeCursor start;
  if (op.starts_message && !is_only) partial_ = {};
  mem::SgeCursor& cursor = is_only ? start : partial_.cursor;
  const RecvWqe& wqe = qp_.receives.front();
  if (cursor.scatter(wqe.sges(), qp_.keys, qp_.recv_pd, cursor.position(), packet.payload.size(),
                     wire::PayloadCopy(packet)) != mem::KeyFault::kNone)
    return Fault::kReceiveKey;
  if (op.has_ieth && !qp_.keys.invalidate(raw(packet.ieth().rkey), qp_.user()))
    return Fault::kInvalidateRefused;
  if (is_only) return Fault::kNone;
  message_ = op.ends_message ? Message::kNone : Message::kSend;
  return Fault::kNone;
}

[[gnu::always_inline]] inline void MessageSink::complete_receive(const wire::PacketView& packet,
                                                                 const wire::OpcodeInfo& op) noexcept {
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
  qp_.complete_receive(wc, packet.bth.solicited);
}

}  // namespace uroce::transport
