/// What all requesters do alike with a posted SEND or WRITE.
#pragma once

#include <algorithm>
#include <optional>

#include "base/endian.h"
#include "mem/sge_cursor.h"
#include "transport/context.h"
#include "transport/frame_writer.h"
#include "wire/ieth.h"
#include "wire/imm_dt.h"
#include "wire/opcode.h"
#include "wire/reth.h"

namespace uroce::transport {

/// The packet opcodes of what carries data, by place in the message.
struct DataOpcodes {
  wire::Opcode first, middle, last, only;

  [[nodiscard]] constexpr wire::Opcode at(bool is_first, bool is_last) const noexcept {
    return is_first ? (is_last ? only : first) : (is_last ? last : middle);
  }
};

[[nodiscard]] constexpr DataOpcodes rc_opcodes(WrOpcode opcode) noexcept {
  using enum wire::Opcode;
  switch (opcode) {
    case WrOpcode::kRdmaWrite:
      return {kRcWriteFirst, kRcWriteMiddle, kRcWriteLast, kRcWriteOnly};
    case WrOpcode::kRdmaWriteWithImm:
      return {kRcWriteFirst, kRcWriteMiddle, kRcWriteLastImm, kRcWriteOnlyImm};
    case WrOpcode::kSendWithImm:
      return {kRcSendFirst, kRcSendMiddle, kRcSendLastImm, kRcSendOnlyImm};
    case WrOpcode::kSendWithInv:
      return {kRcSendFirst, kRcSendMiddle, kRcSendLastInv, kRcSendOnlyInv};
    case WrOpcode::kAtomicWrite:
      return {kRcAtomicWrite, kRcAtomicWrite, kRcAtomicWrite, kRcAtomicWrite};
    default:
      return {kRcSendFirst, kRcSendMiddle, kRcSendLast, kRcSendOnly};
  }
}

/// There is no SEND with invalidate.
[[nodiscard]] constexpr DataOpcodes uc_opcodes(WrOpcode opcode) noexcept {
  const auto same = [](wire::Opcode rc) { return wire::Opcode{static_cast<std::uint8_t>(raw(rc) + 0x20)}; };
  const DataOpcodes rc = rc_opcodes(opcode);
  return {same(rc.first), same(rc.middle), same(rc.last), same(rc.only)};
}
static_assert(uc_opcodes(WrOpcode::kRdmaWriteWithImm).only == wire::Opcode::kUcWriteOnlyImm);

[[nodiscard]] constexpr WcOpcode wc_opcode(WrOpcode opcode) noexcept {
  switch (opcode) {
    case WrOpcode::kRdmaWrite:
    case WrOpcode::kRdmaWriteWithImm:
      return WcOpcode::kRdmaWrite;
    case WrOpcode::kRdmaRead:
      return WcOpcode::kRdmaRead;
    case WrOpcode::kAtomicCmpAndSwp:
      return WcOpcode::kCompSwap;
    case WrOpcode::kAtomicFetchAndAdd:
      return WcOpcode::kFetchAdd;
    case WrOpcode::kMaskedCmpAndSwp:
      return WcOpcode::kMaskedCompSwap;
    case WrOpcode::kMaskedFetchAndAdd:
      return WcOpcode::kMaskedFetchAdd;
    case WrOpcode::kBindMw:
      return WcOpcode::kBindMw;
    case WrOpcode::kLocalInv:
      return WcOpcode::kLocalInv;
    case WrOpcode::kFlush:
      return WcOpcode::kFlush;
    case WrOpcode::kAtomicWrite:
      return WcOpcode::kAtomicWrite;
    default:
      return WcOpcode::kSend;
  }
}

/// Writes the extension headers of a SEND or WRITE packet.
inline void put_data_headers(FrameWriter& frame, const SendWqe& wqe, const wire::OpcodeInfo& info) noexcept {
  if (info.has_reth) {
    frame.put(wire::Reth{.va = wqe.remote_addr, .rkey = Rkey{wqe.rkey}, .length = wqe.length});
  }
  if (info.has_imm) frame.put(wire::ImmDt{.value = network_order(wqe.imm_or_rkey)});
  if (info.has_ieth) frame.put(wire::Ieth{.rkey = Rkey{wqe.imm_or_rkey}});
}

/// Copies the message's bytes from offset `at` on.
[[nodiscard]] inline Fault fill_payload(const QpContext& qp, mem::SgeCursor& cursor, const SendWqe& wqe,
                                        std::uint64_t at, FrameWriter& frame) noexcept {
  if (wqe.has(send_flag::kInline)) {
    frame.append(wqe.inline_data() + at, frame.payload_len());
    return Fault::kNone;
  }
  const mem::KeyFault fault =
      cursor.gather(wqe.sges(), qp.keys, qp.pd, at, frame.payload_len(),
                    [&frame](const std::byte* memory, std::size_t n) { frame.append(memory, n); });
  return fault == mem::KeyFault::kNone ? Fault::kNone : Fault::kLocalKey;
}

/// Does what a bind or a local invalidate asks for. @return nothing if it is to be tried again.
[[nodiscard]] inline std::optional<Fault> do_local(const QpContext& qp, const SendWqe& wqe) noexcept {
  if (wqe.opcode == WrOpcode::kLocalInv) {
    return qp.keys.invalidate(wqe.imm_or_rkey, qp.user()) ? Fault::kNone : Fault::kLocalInvalidate;
  }
  const mem::BindResult result = qp.keys.bind(wqe.rkey, qp.user(), wqe.bind());
  if (result == mem::BindResult::kAgain) return std::nullopt;
  return result == mem::BindResult::kDone ? Fault::kNone : Fault::kWindowBind;
}

/// Completes a send, if it is signaled or failed, and frees the slots before `next`: first, because who sees
/// the completion may post at once.
inline void complete_send(QpContext& qp, const SendWqe& wqe, Fault fault, std::uint32_t next) noexcept {
  if (fault == Fault::kNone && !wqe.has(send_flag::kSignaled)) {
    if (qp.send_cq.is_behind()) [[unlikely]]
      return qp.retire_late(next);
    return qp.sq.retire(next);
  }
  const bool reads = wqe.is_read() || wqe.is_atomic();
  const Wc wc{.wr_id = wqe.wr_id,
              .byte_len = fault == Fault::kNone && reads ? wqe.length : 0,
              .qpn = qp.qpn,
              .src_qpn = qp.dest_qpn,
              .status = row(fault).status,
              .opcode = wc_opcode(wqe.opcode),
              .vendor_err = raw(fault)};
  if (!qp.send_cq.has_room()) [[unlikely]]
    return qp.put_off_send(wc, next);
  qp.sq.retire(next);
  qp.counters.add(Count::kCompletions);
  qp.send_cq.append(wc, false);
}

}  // namespace uroce::transport
