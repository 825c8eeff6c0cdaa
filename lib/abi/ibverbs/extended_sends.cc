// ibv_wr_*: sends that are built call by call, and posted together.
#include <algorithm>
#include <cstring>
#include <memory>

#include "abi/ibverbs/context.h"
#include "abi/ibverbs/errors.h"
#include "abi/ibverbs/posting.h"

namespace uroce::abi {

namespace {

using Rest = StagedSends::Rest;

/// What a setter changes after something went wrong: nothing that counts.
template <typename Part>
Part& scratch() noexcept {
  static thread_local Part part;
  return part;
}

SendWr& stage(ibv_qp_ex* base, WrOpcode opcode) noexcept {
  StagedSends& staged = qp_of(base).staged;
  if ((base->wr_flags & IBV_SEND_IP_CSUM) != 0) staged.error = EINVAL;
  try {
    staged.rests.emplace_back();
    SendWr& wr = staged.wrs.emplace_back();
    wr.wr_id = base->wr_id;
    wr.flags =
        static_cast<std::uint8_t>(base->wr_flags & (IBV_SEND_FENCE | IBV_SEND_SIGNALED | IBV_SEND_SOLICITED));
    wr.opcode = opcode;
    return wr;
  } catch (const std::bad_alloc&) {
    staged.error = ENOMEM;
    return scratch<SendWr>();
  }
}

template <typename Part>
Part& last(std::vector<Part>& parts) noexcept {
  return parts.empty() ? scratch<Part>() : parts.back();
}
SendWr& last(ibv_qp_ex* base) noexcept {
  return last(qp_of(base).staged.wrs);
}

SendWr& stage_remote(ibv_qp_ex* base, WrOpcode opcode, std::uint32_t rkey, std::uint64_t addr) noexcept {
  SendWr& wr = stage(base, opcode);
  wr.rkey = Rkey{rkey};
  wr.remote_addr = addr;
  return wr;
}

void set_sges(ibv_qp_ex* base, std::span<const Sge> sges) noexcept {
  StagedSends& staged = qp_of(base).staged;
  Rest& rest = last(staged.rests);
  try {
    rest.first_sge = staged.sges.size();
    rest.sges = sges.size();
    staged.sges.insert(staged.sges.end(), sges.begin(), sges.end());
  } catch (const std::bad_alloc&) {
    staged.error = ENOMEM;
  }
}

/// The program may change its buffer at once: the data is copied. What is added to it follows it.
void add_inline(ibv_qp_ex* base, const void* data, std::size_t bytes) noexcept {
  QueuePair& qp = qp_of(base);
  SendWr& wr = last(base);
  if ((wr.flags & send_flag::kInline) == 0) {
    wr.flags |= send_flag::kInline;
    const Sge none{.addr = qp.staged.inline_data.size()};
    set_sges(base, std::span{&none, 1});
  }
  Sge& sge = last(qp.staged.sges);
  if (sge.length + bytes > qp.init.cap.max_inline_data) {
    qp.staged.error = ENOMEM;
    return;
  }
  try {
    const auto* const first = static_cast<const std::byte*>(data);
    qp.staged.inline_data.insert(qp.staged.inline_data.end(), first, first + bytes);
    sge.length += static_cast<std::uint32_t>(bytes);
  } catch (const std::bad_alloc&) {
    qp.staged.error = ENOMEM;
  }
}

/// Of data that was set twice the last counts.
void replace_sges(ibv_qp_ex* base, std::span<const Sge> sges) noexcept {
  last(base).flags &= static_cast<std::uint8_t>(~send_flag::kInline);
  set_sges(base, sges);
}

void wr_start(ibv_qp_ex* base) {
  QueuePair& qp = qp_of(base);
  qp.sending.lock();
  qp.staged.clear();
}

void wr_abort(ibv_qp_ex* base) {
  qp_of(base).sending.unlock();
}

/// Makes a request whole, once nothing moves any longer.
void complete(StagedSends& staged, SendWr& wr, const Rest& rest) noexcept {
  const auto sges = std::span(staged.sges).subspan(rest.first_sge, rest.sges);
  if ((wr.flags & send_flag::kInline) != 0)
    sges.front().addr += reinterpret_cast<std::uintptr_t>(staged.inline_data.data());
  if (wr.opcode == WrOpcode::kBindMw) wr.bind = &rest.bind;
  wr.sges = sges;
}

int post(QueuePair& qp) {
  StagedSends& staged = qp.staged;
  if (staged.error != 0) return staged.error;
  for (std::size_t i = 0; i < staged.wrs.size(); ++i) complete(staged, staged.wrs[i], staged.rests[i]);
  const std::size_t taken = qp.qp->post_send(staged.wrs, std::max<std::size_t>(staged.wrs.size(), 1));
  if (taken != staged.wrs.size()) return why_not_taken(qp, staged.wrs[taken]);
  for (const StagedSends::NewKey& key : staged.new_keys) key.mw->rkey = key.rkey;
  return 0;
}

int wr_complete(ibv_qp_ex* base) {
  QueuePair& qp = qp_of(base);
  const int error = post(qp);
  qp.sending.unlock();
  return error;
}

void wr_atomic_cmp_swp(ibv_qp_ex* qp, std::uint32_t rkey, std::uint64_t addr, std::uint64_t compare,
                       std::uint64_t swap) {
  SendWr& wr = stage_remote(qp, WrOpcode::kAtomicCmpAndSwp, rkey, addr);
  wr.compare_add = compare;
  wr.swap = swap;
}

void wr_atomic_fetch_add(ibv_qp_ex* qp, std::uint32_t rkey, std::uint64_t addr, std::uint64_t add) {
  stage_remote(qp, WrOpcode::kAtomicFetchAndAdd, rkey, addr).compare_add = add;
}

void wr_atomic_write(ibv_qp_ex* qp, std::uint32_t rkey, std::uint64_t addr, const void* data) {
  stage_remote(qp, WrOpcode::kAtomicWrite, rkey, addr);
  add_inline(qp, data, sizeof(std::uint64_t));
}

void wr_bind_mw(ibv_qp_ex* qp, ibv_mw* mw, std::uint32_t rkey, const ibv_mw_bind_info* info) {
  StagedSends& staged = qp_of(qp).staged;
  stage(qp, WrOpcode::kBindMw).rkey = Rkey{rkey};
  last(staged.rests).bind = bind_of(*info);
  try {
    staged.new_keys.push_back({mw, rkey});
  } catch (const std::bad_alloc&) {
    staged.error = ENOMEM;
  }
}

void wr_local_inv(ibv_qp_ex* qp, std::uint32_t rkey) {
  stage(qp, WrOpcode::kLocalInv).invalidate_rkey = Rkey{rkey};
}

void wr_rdma_read(ibv_qp_ex* qp, std::uint32_t rkey, std::uint64_t addr) {
  stage_remote(qp, WrOpcode::kRdmaRead, rkey, addr);
}

void wr_rdma_write(ibv_qp_ex* qp, std::uint32_t rkey, std::uint64_t addr) {
  stage_remote(qp, WrOpcode::kRdmaWrite, rkey, addr);
}

void wr_rdma_write_imm(ibv_qp_ex* qp, std::uint32_t rkey, std::uint64_t addr, __be32 imm_data) {
  stage_remote(qp, WrOpcode::kRdmaWriteWithImm, rkey, addr).imm_data = imm_data;
}

void wr_send(ibv_qp_ex* qp) {
  stage(qp, WrOpcode::kSend);
}

void wr_send_imm(ibv_qp_ex* qp, __be32 imm_data) {
  stage(qp, WrOpcode::kSendWithImm).imm_data = imm_data;
}

void wr_send_inv(ibv_qp_ex* qp, std::uint32_t rkey) {
  stage(qp, WrOpcode::kSendWithInv).invalidate_rkey = Rkey{rkey};
}

void wr_set_ud_addr(ibv_qp_ex* qp, ibv_ah* ah, std::uint32_t remote_qpn, std::uint32_t remote_qkey) {
  SendWr& wr = last(qp);
  wr.ah = cast<AddressHandle>(ah).ah->id();
  wr.remote_qpn = Qpn{remote_qpn};
  wr.remote_qkey = remote_qkey;
}

void wr_set_xrc_srqn(ibv_qp_ex* qp, std::uint32_t remote_srqn) {
  last(qp).remote_srq = remote_srqn;
}

void wr_set_inline_data(ibv_qp_ex* qp, void* addr, std::size_t length) {
  add_inline(qp, addr, length);
}

void wr_set_inline_data_list(ibv_qp_ex* qp, std::size_t num_buf, const ibv_data_buf* list) {
  for (const ibv_data_buf& buf : std::span(list, num_buf)) add_inline(qp, buf.addr, buf.length);
}

void wr_set_sge(ibv_qp_ex* qp, std::uint32_t lkey, std::uint64_t addr, std::uint32_t length) {
  const Sge sge{.addr = addr, .length = length, .lkey = Lkey{lkey}};
  replace_sges(qp, std::span{&sge, 1});
}

void wr_set_sge_list(ibv_qp_ex* qp, std::size_t num_sge, const ibv_sge* list) {
  replace_sges(qp, sges_of(list, static_cast<int>(num_sge)));
}

}  // namespace

void die(QueuePair& qp) noexcept {
  if (!qp.is_extended) return;
  std::construct_at(&qp.staged);  // a thread may have been at it
  qp.ibv_qp_ex::wr_start = [](ibv_qp_ex* base) { qp_of(base).staged.clear(); };
  qp.ibv_qp_ex::wr_complete = [](ibv_qp_ex*) { return EIO; };
  qp.ibv_qp_ex::wr_abort = [](ibv_qp_ex*) {};
}

void set_extended_sends(QueuePair& qp, std::uint64_t send_ops) noexcept {
  const auto set = [send_ops](auto& slot, auto function, std::uint64_t op) {
    if ((send_ops & op) != 0) slot = function;
  };
  qp.is_extended = true;
  qp.ibv_qp_ex::wr_start = abi::wr_start;
  qp.ibv_qp_ex::wr_complete = abi::wr_complete;
  qp.ibv_qp_ex::wr_abort = abi::wr_abort;
  qp.ibv_qp_ex::wr_set_ud_addr = abi::wr_set_ud_addr;
  qp.ibv_qp_ex::wr_set_xrc_srqn = abi::wr_set_xrc_srqn;
  qp.ibv_qp_ex::wr_set_inline_data = abi::wr_set_inline_data;
  qp.ibv_qp_ex::wr_set_inline_data_list = abi::wr_set_inline_data_list;
  qp.ibv_qp_ex::wr_set_sge = abi::wr_set_sge;
  qp.ibv_qp_ex::wr_set_sge_list = abi::wr_set_sge_list;
  set(qp.ibv_qp_ex::wr_rdma_write, abi::wr_rdma_write, IBV_QP_EX_WITH_RDMA_WRITE);
  set(qp.ibv_qp_ex::wr_rdma_write_imm, abi::wr_rdma_write_imm, IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM);
  set(qp.ibv_qp_ex::wr_send, abi::wr_send, IBV_QP_EX_WITH_SEND);
  set(qp.ibv_qp_ex::wr_send_imm, abi::wr_send_imm, IBV_QP_EX_WITH_SEND_WITH_IMM);
  set(qp.ibv_qp_ex::wr_rdma_read, abi::wr_rdma_read, IBV_QP_EX_WITH_RDMA_READ);
  set(qp.ibv_qp_ex::wr_atomic_cmp_swp, abi::wr_atomic_cmp_swp, IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP);
  set(qp.ibv_qp_ex::wr_atomic_fetch_add, abi::wr_atomic_fetch_add, IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD);
  set(qp.ibv_qp_ex::wr_local_inv, abi::wr_local_inv, IBV_QP_EX_WITH_LOCAL_INV);
  set(qp.ibv_qp_ex::wr_bind_mw, abi::wr_bind_mw, IBV_QP_EX_WITH_BIND_MW);
  set(qp.ibv_qp_ex::wr_send_inv, abi::wr_send_inv, IBV_QP_EX_WITH_SEND_WITH_INV);
  set(qp.ibv_qp_ex::wr_atomic_write, abi::wr_atomic_write, IBV_QP_EX_WITH_ATOMIC_WRITE);
}

}  // namespace uroce::abi
