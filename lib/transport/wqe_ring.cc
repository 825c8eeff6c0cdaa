#include "transport/wqe_ring.h"

#include <algorithm>

#include "base/copy.h"

namespace uroce::transport {

namespace {

constexpr std::uint32_t send_stride(std::uint32_t max_sge, std::uint32_t max_inline) noexcept {
  const std::uint32_t body = std::max<std::uint32_t>(max_sge * sizeof(Sge), max_inline);
  return (static_cast<std::uint32_t>(sizeof(SendWqe)) + body + 63) & ~63U;
}

std::uint64_t total(std::span<const Sge> sges) noexcept {
  std::uint64_t bytes = 0;
  for (const Sge& sge : sges) bytes += sge.length;
  return bytes;
}

std::byte* body_of(void* wqe, std::size_t header) noexcept {
  return static_cast<std::byte*>(wqe) + header;
}

/// Field by field, as the application has just written them: one load of several stores would wait until all
/// that was written before, packets into a link for example, has left the processor. Measured: WRITEs of 64 B
/// posted one by one, 10 of 130 ns.
void copy_sges(std::span<const Sge> sges, void* body) noexcept {
  auto* out = static_cast<Sge*>(body);
  for (const Sge& sge : sges) {
    std::uint64_t addr = sge.addr;
    std::uint32_t length = sge.length;
    std::uint32_t lkey = raw(sge.lkey);
    asm("" : "+r"(addr), "+r"(length), "+r"(lkey));  // nor may the compiler join them
    *out++ = {.addr = addr, .length = length, .lkey = Lkey{lkey}};
  }
}

void copy_inline(std::span<const Sge> sges, std::byte* out) noexcept {
  for (const Sge& sge : sges) {
    copy_payload(out, std::bit_cast<const std::byte*>(sge.addr), sge.length);
    out += sge.length;
  }
}

/// What has no data here: FLUSH, bind, local invalidate.
/// @param data  bytes named by SGEs all the same
void put_special(SendWqe& wqe, const SendWr& wr, std::uint64_t data) noexcept {
  wqe.length = wr.opcode == WrOpcode::kFlush ? wr.flush.length : 0;
  wqe.malformed = data != 0;
  if (wr.opcode == WrOpcode::kFlush) {
    wqe.imm_or_rkey = (wr.flush.placement & 0xfU) | (raw(wr.flush.scope) & 3U) << 8;
  } else if (wr.opcode == WrOpcode::kLocalInv) {
    wqe.imm_or_rkey = raw(wr.invalidate_rkey);
    wqe.flags |= send_flag::kFence;
  } else if (wr.bind == nullptr) {
    wqe.malformed = 1;
  } else {
    wqe.imm_or_rkey = raw(wr.bind->mr);
    wqe.remote_addr = wr.bind->addr;
    wqe.compare_add = wr.bind->length;
    wqe.swap = wr.bind->access;
  }
}

constexpr bool is_special(WrOpcode opcode) noexcept {
  constexpr std::uint32_t kSpecial = 1U << raw(WrOpcode::kFlush) | 1U << raw(WrOpcode::kLocalInv) |
                                     1U << raw(WrOpcode::kBindMw) | 1U << raw(WrOpcode::kMaskedCmpAndSwp) |
                                     1U << raw(WrOpcode::kMaskedFetchAndAdd);
  return raw(opcode) < 32 && (kSpecial >> raw(opcode) & 1) != 0;
}

void put_srq(SendWqe& wqe, std::uint32_t number) noexcept {
  if (wqe.is_atomic()) {
    wqe.imm_or_rkey = number;
  } else {
    wqe.compare_add = number;
  }
}

}  // namespace

SendQueue::SendQueue(std::uint32_t depth, std::uint32_t max_sge, std::uint32_t max_inline, QpType type,
                     std::uint8_t flags_of_all)
    : WqeRing(depth, send_stride(max_sge, max_inline),
              {.max_inline = max_inline,
               .max_sge = static_cast<std::uint16_t>(max_sge),
               .flags_of_all = flags_of_all,
               .is_datagram = type == QpType::kUd,
               .is_xrc = type == QpType::kXrcSend,
               .is_closed = type == QpType::kXrcRecv}) {}

bool SendQueue::put(const SendWr& wr, std::uint32_t ahead) noexcept {
  const bool is_inline = (wr.flags & send_flag::kInline) != 0;
  const std::uint64_t length = total(wr.sges);
  if (is_inline ? length > posting().max_inline : wr.sges.size() > posting().max_sge) return false;
  SendWqe* wqe = posting().is_closed ? nullptr : claim(ahead);
  if (wqe == nullptr) return false;
  const bool is_datagram = posting().is_datagram;
  const bool has_key = wr.opcode == WrOpcode::kSendWithInv;
  *wqe = {.wr_id = wr.wr_id,
          .remote_addr = is_datagram ? raw(wr.ah) : wr.remote_addr,
          .compare_add = is_datagram ? raw(wr.remote_qpn) : wr.compare_add,
          .swap = is_datagram ? wr.remote_qkey : wr.swap,
          .length = static_cast<std::uint32_t>(std::min<std::uint64_t>(length, kMaxMessage)),
          .imm_or_rkey = has_key ? raw(wr.invalidate_rkey) : wr.imm_data,
          .rkey = raw(wr.rkey),
          .opcode = wr.opcode,
          .flags = static_cast<std::uint8_t>(wr.flags | posting().flags_of_all),
          .num_sge = static_cast<std::uint8_t>(is_inline ? 0 : wr.sges.size()),
          .malformed = length > kMaxMessage};
  if (posting().is_xrc) [[unlikely]]
    put_srq(*wqe, wr.remote_srq);
  if (is_special(wr.opcode)) [[unlikely]]
    wqe->is_masked() ? put_masks(*wqe, wr.masks, index_of(ahead)) : put_special(*wqe, wr, length);
  std::byte* body = body_of(wqe, sizeof(SendWqe));
  if (is_inline) {
    copy_inline(wr.sges, body);
  } else {
    copy_sges(wr.sges, body);
  }
  return true;
}

/// If there is no room, the requester says that the QP does not do this.
[[gnu::cold]] void SendQueue::put_masks(SendWqe& wqe, const AtomicMasks* masks,
                                        std::uint32_t index) noexcept {
  if (masks == nullptr) wqe.malformed = 1;
  if (masks != nullptr && posting().masks != nullptr) posting().masks[index & (depth() - 1)] = *masks;
}

RecvQueue::RecvQueue(std::uint32_t depth, std::uint32_t max_sge)
    : WqeRing(depth, static_cast<std::uint32_t>(sizeof(RecvWqe) + std::max(max_sge, 1U) * sizeof(Sge)),
              {.max_sge = max_sge}) {}

bool RecvQueue::put(const RecvWr& wr, std::uint32_t ahead) noexcept {
  if (wr.sges.size() > posting().max_sge) return false;
  RecvWqe* wqe = claim(ahead);
  if (wqe == nullptr) return false;
  *wqe = {.wr_id = wr.wr_id,
          .num_sge = static_cast<std::uint32_t>(wr.sges.size()),
          .length = static_cast<std::uint32_t>(std::min<std::uint64_t>(total(wr.sges), UINT32_MAX))};
  copy_sges(wr.sges, body_of(wqe, sizeof(RecvWqe)));
  return true;
}

}  // namespace uroce::transport
