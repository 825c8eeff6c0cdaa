// Polling of completion queues: in arrays, and one by one.
#include <algorithm>

#include "abi/ibverbs/completions.h"
#include "abi/ibverbs/context.h"
#include "base/give_way.h"

namespace uroce::abi {

namespace {

/// Of a thread that may run on one core only, which its peer may have as well: it gives way once an answer
/// takes longer, some 5 us of empty polls, than it does from another core.
thread_local constinit GiveWay give_way{
    {.wait = 256, .first_wait = 512, .longest = 4096, .only_one_core = true}};

/// Of a datagram what kind of packet it was, as ConnectX tells in the place of the service level, which RoCE
/// does not have: UCX looks for the network header by it.
std::uint8_t sl_of(const Wc& wc) noexcept {
  constexpr std::uint8_t kHasUdp = 8;
  if ((wc.flags & wc_flag::kGrh) == 0) return 0;
  return static_cast<std::uint8_t>(wc.network == NetworkHeader::kGrh ? 0 : kHasUdp | raw(wc.network));
}

/// Of a datagram its VLAN, which ibv_create_ah_from_wc() has to know and no field is for; 0: none. RoCE has
/// no LIDs.
std::uint16_t slid_of(const Wc& wc) noexcept {
  return (wc.flags & wc_flag::kGrh) == 0 ? std::uint16_t{0} : wc.vlan;
}

void to_verbs(const Wc& wc, ibv_wc& out) noexcept {
  out.wr_id = wc.wr_id;
  out.status = static_cast<ibv_wc_status>(wc.status);
  out.opcode = static_cast<ibv_wc_opcode>(wc.opcode);
  out.vendor_err = wc.vendor_err;
  out.byte_len = wc.byte_len;
  out.imm_data = wc.imm_data;
  out.qp_num = raw(wc.qpn);
  out.src_qp = raw(wc.src_qpn);
  out.wc_flags = wc.flags;
  out.pkey_index = 0;
  out.slid = slid_of(wc);
  out.sl = sl_of(wc);
  out.dlid_path_bits = 0;
}

CompletionQueue& own(ibv_cq_ex* cq) noexcept {
  return static_cast<CompletionQueue&>(*cq);
}

bool take_next(CompletionQueue& cq) noexcept {
  if (cq.cq->poll(std::span{&cq.current, 1}) == 0) return false;
  cq.status = static_cast<ibv_wc_status>(cq.current.status);
  cq.wr_id = cq.current.wr_id;
  return true;
}

/// Takes what there is, and gives way if that is nothing. Not without another look: whoever had the core may
/// have sent what a program expects that has seen the end of its connection, and destroys its QP next.
template <typename Take>
[[gnu::always_inline]] inline unsigned take_or_give_way(Take&& take) {
  for (bool is_last = false;; is_last = true) {  // one place that takes: it is inlined there
    const unsigned taken = take();
    if (is_last || !give_way.after(taken)) return taken;
  }
}

/// The lock is held until end_poll(); nobody calls that after an error.
int start_poll(ibv_cq_ex* base, ibv_poll_cq_attr* attr) {
  if (attr != nullptr && attr->comp_mask != 0) return EINVAL;
  CompletionQueue& cq = own(base);
  const unsigned found = take_or_give_way([&] {
    cq.polling.lock();
    if (take_next(cq)) return 1U;
    cq.polling.unlock();
    return 0U;
  });
  return found != 0 ? 0 : ENOENT;
}

int next_poll(ibv_cq_ex* base) {
  return take_next(own(base)) ? 0 : ENOENT;
}

void end_poll(ibv_cq_ex* base) {
  own(base).polling.unlock();
}

unsigned take(CompletionQueue& cq, unsigned count, ibv_wc* wcs) {
  const std::lock_guard lock(cq.polling);
  unsigned taken = 0;
  while (taken < count) {
    const auto wanted = std::min<std::size_t>(count - taken, cq.batch.size());
    const std::size_t found = cq.cq->poll(std::span(cq.batch).first(wanted));
    for (std::size_t i = 0; i < found; ++i) to_verbs(cq.batch[i], wcs[taken++]);
    if (found < wanted) break;
  }
  return taken;
}

}  // namespace

int poll_cq(ibv_cq* base, int count, ibv_wc* wcs) {
  const auto wanted = static_cast<unsigned>(std::max(count, 0));
  return static_cast<int>(take_or_give_way([&] { return take(cq_of(base), wanted, wcs); }));
}

void die(CompletionQueue& cq) noexcept {
  cq.start_poll = [](ibv_cq_ex*, ibv_poll_cq_attr*) { return EIO; };
  cq.next_poll = [](ibv_cq_ex*) { return EIO; };
  cq.end_poll = [](ibv_cq_ex*) {};
}

void set_extended_polling(CompletionQueue& cq, std::uint64_t wc_flags) noexcept {
  const auto asked = [wc_flags](std::uint64_t flag) { return (wc_flags & flag) != 0; };
  cq.start_poll = start_poll;
  cq.next_poll = next_poll;
  cq.end_poll = end_poll;
  cq.read_opcode = [](ibv_cq_ex* c) { return static_cast<ibv_wc_opcode>(own(c).current.opcode); };
  cq.read_vendor_err = [](ibv_cq_ex* c) { return std::uint32_t{own(c).current.vendor_err}; };
  cq.read_wc_flags = [](ibv_cq_ex* c) { return unsigned{own(c).current.flags}; };
  if (asked(IBV_WC_EX_WITH_BYTE_LEN)) {
    cq.read_byte_len = [](ibv_cq_ex* c) { return own(c).current.byte_len; };
  }
  if (asked(IBV_WC_EX_WITH_IMM)) {
    cq.read_imm_data = [](ibv_cq_ex* c) { return __be32{own(c).current.imm_data}; };
  }
  if (asked(IBV_WC_EX_WITH_QP_NUM)) {
    cq.read_qp_num = [](ibv_cq_ex* c) { return raw(own(c).current.qpn); };
  }
  if (asked(IBV_WC_EX_WITH_SRC_QP)) {
    cq.read_src_qp = [](ibv_cq_ex* c) { return raw(own(c).current.src_qpn); };
  }
  if (asked(IBV_WC_EX_WITH_SLID)) {
    cq.read_slid = [](ibv_cq_ex* c) { return std::uint32_t{slid_of(own(c).current)}; };
  }
  if (asked(IBV_WC_EX_WITH_SL)) {
    cq.read_sl = [](ibv_cq_ex* c) { return sl_of(own(c).current); };
  }
  if (asked(IBV_WC_EX_WITH_DLID_PATH_BITS)) {
    cq.read_dlid_path_bits = [](ibv_cq_ex*) { return std::uint8_t{0}; };
  }
  if (asked(IBV_WC_EX_WITH_COMPLETION_TIMESTAMP)) {
    cq.read_completion_ts = [](ibv_cq_ex* c) { return own(c).current.timestamp_ns; };
  }
  if (asked(IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK)) {
    cq.read_completion_wallclock_ns = [](ibv_cq_ex* c) {
      return own(c).current.timestamp_ns + own(c).wallclock_offset;
    };
  }
  if (asked(IBV_WC_EX_WITH_CVLAN)) {
    cq.read_cvlan = [](ibv_cq_ex* c) { return own(c).current.vlan; };
  }
}

}  // namespace uroce::abi
