#include "abi/ibverbs/posting.h"

#include "abi/ibverbs/context.h"
#include "abi/ibverbs/errors.h"

namespace uroce::abi {

namespace {

constexpr unsigned kFlags = IBV_SEND_FENCE | IBV_SEND_SIGNALED | IBV_SEND_SOLICITED | IBV_SEND_INLINE;

std::uint64_t length_of(std::span<const Sge> sges) noexcept {
  std::uint64_t bytes = 0;
  for (const Sge& sge : sges) bytes += sge.length;
  return bytes;
}

/// What the opcode has beyond what all have. @return false: there is no such opcode.
bool add_particulars(const ibv_send_wr& wr, ibv_qp_type type, SendWr& out, MwBind& bind) noexcept {
  switch (wr.opcode) {
    case IBV_WR_SEND:
    case IBV_WR_SEND_WITH_IMM:
      if (type != IBV_QPT_UD) return true;
      out.ah = cast<AddressHandle>(wr.wr.ud.ah).ah->id();
      out.remote_qpn = Qpn{wr.wr.ud.remote_qpn};
      out.remote_qkey = wr.wr.ud.remote_qkey;
      return true;
    case IBV_WR_SEND_WITH_INV:
    case IBV_WR_LOCAL_INV:
      out.invalidate_rkey = Rkey{wr.invalidate_rkey};
      return true;
    case IBV_WR_RDMA_WRITE:
    case IBV_WR_RDMA_WRITE_WITH_IMM:
    case IBV_WR_RDMA_READ:
    case IBV_WR_ATOMIC_WRITE:
      out.remote_addr = wr.wr.rdma.remote_addr;
      out.rkey = Rkey{wr.wr.rdma.rkey};
      return true;
    case IBV_WR_ATOMIC_CMP_AND_SWP:
    case IBV_WR_ATOMIC_FETCH_AND_ADD:
      out.remote_addr = wr.wr.atomic.remote_addr;
      out.rkey = Rkey{wr.wr.atomic.rkey};
      out.compare_add = wr.wr.atomic.compare_add;
      out.swap = wr.wr.atomic.swap;
      return true;
    case IBV_WR_BIND_MW:
      bind = bind_of(wr.bind_mw.bind_info);
      out.rkey = Rkey{wr.bind_mw.rkey};
      out.bind = &bind;
      return true;
    default:
      return false;
  }
}

bool convert(const ibv_send_wr& wr, ibv_qp_type type, SendWr& out, MwBind& bind) noexcept {
  if ((wr.send_flags & ~kFlags) != 0 || wr.num_sge < 0) return false;
  out.wr_id = wr.wr_id;
  out.sges = sges_of(wr.sg_list, wr.num_sge);
  out.opcode = static_cast<WrOpcode>(wr.opcode);
  out.flags = static_cast<std::uint8_t>(wr.send_flags);
  out.imm_data = wr.imm_data;
  out.remote_srq = wr.qp_type.xrc.remote_srqn;
  return add_particulars(wr, type, out, bind);
}

/// Programs read a window's key there once the bind is posted.
void note_key(const ibv_send_wr& wr) noexcept {
  if (wr.opcode == IBV_WR_BIND_MW && wr.bind_mw.mw != nullptr) wr.bind_mw.mw->rkey = wr.bind_mw.rkey;
}

}  // namespace

int why_not_taken(const QueuePair& qp, const SendWr& wr) {
  if (qp.qp_base.qp_type == IBV_QPT_XRC_RECV) return EINVAL;
  const bool is_inline = (wr.flags & send_flag::kInline) != 0;
  if (is_inline && length_of(wr.sges) > qp.init.cap.max_inline_data) return EINVAL;
  if (!is_inline && wr.sges.size() > qp.init.cap.max_send_sge) return EINVAL;
  const QpState state = qp.qp->query().state;
  const bool may_send = state != QpState::kReset && state != QpState::kInit && state != QpState::kRtr;
  return may_send ? ENOMEM : EINVAL;
}

int post_send(ibv_qp* base, ibv_send_wr* wr, ibv_send_wr** bad_wr) {
  QueuePair& qp = qp_of(base);
  const std::lock_guard lock(qp.sending);
  while (wr != nullptr) {
    ibv_send_wr* next = wr;
    std::size_t count = 0;
    bool is_good = true;
    for (; next != nullptr && count < qp.sends.size(); next = next->next, ++count) {
      is_good = convert(*next, base->qp_type, qp.sends[count], qp.binds[count]);
      if (!is_good) break;
    }
    const std::size_t taken = qp.qp->post_send(std::span(qp.sends).first(count));
    for (std::size_t i = 0; i < taken; ++i, wr = wr->next) note_key(*wr);
    if (taken == count && is_good) continue;
    *bad_wr = wr;
    return taken == count ? EINVAL : why_not_taken(qp, qp.sends[taken]);
  }
  return 0;
}

int post_recv(ibv_qp* base, ibv_recv_wr* wr, ibv_recv_wr** bad_wr) {
  QueuePair& qp = qp_of(base);
  const std::lock_guard lock(qp.receiving);
  ibv_recv_wr* const refused = post_receives(*qp.qp, qp.receives, wr);
  if (refused == nullptr) return 0;
  *bad_wr = refused;
  const bool is_too_long = static_cast<unsigned>(refused->num_sge) > qp.init.cap.max_recv_sge;
  return is_too_long || qp.qp->query().state == QpState::kReset ? EINVAL : ENOMEM;
}

int post_srq_recv(ibv_srq* base, ibv_recv_wr* wr, ibv_recv_wr** bad_wr) {
  auto& srq = cast<SharedQueue>(base);
  const std::lock_guard lock(srq.posting);
  ibv_recv_wr* const refused = post_receives(*srq.srq, srq.batch, wr);
  if (refused == nullptr) return 0;
  *bad_wr = refused;
  return static_cast<unsigned>(refused->num_sge) > srq.srq->attr().max_sge ? EINVAL : ENOMEM;
}

}  // namespace uroce::abi
