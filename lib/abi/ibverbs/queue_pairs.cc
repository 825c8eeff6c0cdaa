// Queue pairs: creation, states, multicast, options.
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <string>

#include "abi/ibverbs/addresses.h"
#include "abi/ibverbs/context.h"
#include "abi/ibverbs/errors.h"
#include "abi/ibverbs/objects.h"
#include "abi/ibverbs/posting.h"

namespace uroce::abi {

namespace {

constexpr std::uint64_t kSendOps =
    IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_SEND |
    IBV_QP_EX_WITH_SEND_WITH_IMM | IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |
    IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD | IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_BIND_MW |
    IBV_QP_EX_WITH_SEND_WITH_INV | IBV_QP_EX_WITH_ATOMIC_WRITE;

/// Without the bit the field may hold anything.
ibv_pd* pd_of(const ibv_qp_init_attr_ex& attr) noexcept {
  return has(attr, IBV_QP_INIT_ATTR_PD) ? attr.pd : nullptr;
}

/// What the extended calls can ask of a QP of that type.
constexpr std::uint64_t send_ops_of(ibv_qp_type type) noexcept {
  constexpr std::uint64_t kSends = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM;
  constexpr std::uint64_t kUnreliable = kSends | IBV_QP_EX_WITH_RDMA_WRITE |
                                        IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_LOCAL_INV |
                                        IBV_QP_EX_WITH_BIND_MW;
  switch (type) {
    case IBV_QPT_UD:
      return kSends;
    case IBV_QPT_UC:
      return kUnreliable;
    case IBV_QPT_XRC_RECV:
      return 0;
    default:
      return kSendOps;
  }
}

/// Whether all that it is made of is there and of that context.
bool has_parts(const ibv_context& context, const ibv_qp_init_attr_ex& attr) noexcept {
  if (attr.qp_type == IBV_QPT_XRC_RECV) return has(attr, IBV_QP_INIT_ATTR_XRCD) && is_of(context, attr.xrcd);
  if (!is_of(context, pd_of(attr)) || !is_of(context, attr.send_cq)) return false;
  if (attr.qp_type == IBV_QPT_XRC_SEND) return attr.recv_cq == nullptr || is_of(context, attr.recv_cq);
  return is_of(context, attr.recv_cq) && (attr.srq == nullptr || is_of(context, attr.srq));
}

/// 0, or why such a QP cannot be.
int check(const ibv_context& context, const ibv_qp_init_attr_ex& attr) noexcept {
  constexpr std::uint32_t kKnown = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_XRCD |
                                   IBV_QP_INIT_ATTR_CREATE_FLAGS | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  if ((attr.comp_mask & ~kKnown) != 0) return EOPNOTSUPP;
  if (has(attr, IBV_QP_INIT_ATTR_CREATE_FLAGS) &&
      (attr.create_flags & ~std::uint32_t{IBV_QP_CREATE_BLOCK_SELF_MCAST_LB}) != 0) {
    return EOPNOTSUPP;
  }
  if (has(attr, IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) && (attr.send_ops_flags & ~send_ops_of(attr.qp_type)) != 0) {
    return EOPNOTSUPP;
  }
  if (to_string(static_cast<QpType>(attr.qp_type)) == "?") return EOPNOTSUPP;
  return has_parts(context, attr) ? 0 : EINVAL;
}

/// As much as there is room for SGEs, whatever the program asks for, as with other providers: rdma_xclient
/// asks for none, and sends some. The data of an ATOMIC WRITE is inline.
std::uint32_t inline_data(const ibv_qp_init_attr_ex& attr) noexcept {
  const bool writes =
      has(attr, IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) && (attr.send_ops_flags & IBV_QP_EX_WITH_ATOMIC_WRITE) != 0;
  const std::size_t least = std::max(attr.cap.max_send_sge * sizeof(Sge), writes ? sizeof(std::uint64_t) : 0);
  return std::max(attr.cap.max_inline_data, static_cast<std::uint32_t>(least));
}

QpInitAttr wanted(const ibv_qp_init_attr_ex& attr) noexcept {
  return {.type = static_cast<QpType>(attr.qp_type),
          .max_send_wr = attr.cap.max_send_wr,
          .max_recv_wr = attr.cap.max_recv_wr,
          .max_send_sge = attr.cap.max_send_sge,
          .max_recv_sge = attr.cap.max_recv_sge,
          .max_inline_data = inline_data(attr),
          .sq_sig_all = attr.sq_sig_all != 0,
          .block_own_multicast = has(attr, IBV_QP_INIT_ATTR_CREATE_FLAGS) &&
                                 (attr.create_flags & IBV_QP_CREATE_BLOCK_SELF_MCAST_LB) != 0};
}

Result<Qp> make(const ibv_qp_init_attr_ex& attr) {
  if (attr.qp_type == IBV_QPT_XRC_RECV) return Qp::create(*cast<XrcDomain>(attr.xrcd).xrcd, wanted(attr));
  auto& pd = cast<ProtectionDomain>(attr.pd).pd();
  Cq& send_cq = *cq_of(attr.send_cq).cq;
  Cq& recv_cq = attr.recv_cq == nullptr ? send_cq : *cq_of(attr.recv_cq).cq;
  if (attr.srq == nullptr || attr.qp_type == IBV_QPT_XRC_SEND) {
    return Qp::create(pd, send_cq, recv_cq, wanted(attr));
  }
  return Qp::create(pd, send_cq, recv_cq, *cast<SharedQueue>(attr.srq).srq, wanted(attr));
}

void use_parts(QueuePair& qp, const ibv_qp_init_attr_ex& attr) noexcept {
  ibv_qp& base = qp.qp_base;
  base.pd = pd_of(attr);
  if (attr.qp_type == IBV_QPT_XRC_RECV) {
    qp.of_xrcd = Use(cast<XrcDomain>(attr.xrcd).users);
    return;
  }
  base.send_cq = attr.send_cq;
  base.recv_cq = attr.recv_cq;
  base.srq = attr.srq;
  qp.of_pd = Use(cast<ProtectionDomain>(attr.pd).users);
  qp.of_send_cq = Use(cq_of(attr.send_cq).users);
  if (attr.recv_cq != nullptr) qp.of_recv_cq = Use(cq_of(attr.recv_cq).users);
  if (attr.srq != nullptr) qp.of_srq = Use(cast<SharedQueue>(attr.srq).users);
}

ibv_qp_cap granted(const QpInitAttr& attr, const ibv_qp_init_attr_ex& asked) noexcept {
  const bool receives = asked.srq == nullptr && asked.qp_type != IBV_QPT_XRC_SEND;
  return {.max_send_wr = attr.max_send_wr,
          .max_recv_wr = receives ? attr.max_recv_wr : 0,
          .max_send_sge = attr.max_send_sge,
          .max_recv_sge = receives ? attr.max_recv_sge : 0,
          .max_inline_data = attr.max_inline_data};
}

/// 0, or what is wrong with those attributes that the C++ API does not know.
int check(const ibv_qp_attr& attr, unsigned mask) noexcept {
  constexpr unsigned kUnknown = IBV_QP_ALT_PATH | IBV_QP_CAP | IBV_QP_RATE_LIMIT;
  if ((mask & kUnknown) != 0) return EOPNOTSUPP;
  // That is where each path is already, without an alternate one.
  if ((mask & IBV_QP_PATH_MIG_STATE) != 0 && attr.path_mig_state != IBV_MIG_MIGRATED) return EOPNOTSUPP;
  if ((mask & IBV_QP_PORT) != 0 && attr.port_num != 1) return EINVAL;
  if ((mask & IBV_QP_PKEY_INDEX) != 0 && attr.pkey_index != 0) return EINVAL;
  if ((mask & IBV_QP_AV) != 0 && (attr.ah_attr.is_global == 0 || attr.ah_attr.port_num > 1)) return EINVAL;
  return 0;
}

/// Without what XRC QPs are given as if they were RC; the kernel takes it off, too.
unsigned meant(ibv_qp_type type, unsigned mask) noexcept {
  if (type == IBV_QPT_XRC_SEND) return mask & ~unsigned{IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER};
  if (type != IBV_QPT_XRC_RECV) return mask;
  return mask & ~unsigned{IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY};
}

QpAttr to_engine(const ibv_qp_attr& attr, unsigned mask) noexcept {
  QpAttr out{.state = static_cast<QpState>(attr.qp_state),
             .path_mtu = static_cast<PathMtu>(attr.path_mtu),
             .en_sqd_async_notify = attr.en_sqd_async_notify != 0,
             .dest_qpn = Qpn{attr.dest_qp_num},
             .rq_psn = Psn{attr.rq_psn},
             .sq_psn = Psn{attr.sq_psn},
             .access_flags = attr.qp_access_flags & access::kAll,
             .max_rd_atomic = attr.max_rd_atomic,
             .max_dest_rd_atomic = attr.max_dest_rd_atomic,
             .min_rnr_timer = attr.min_rnr_timer,
             .timeout = attr.timeout,
             .retry_cnt = attr.retry_cnt,
             .rnr_retry = attr.rnr_retry,
             .qkey = attr.qkey};
  if ((mask & IBV_QP_ACCESS_FLAGS) != 0) {
    out.access_flags = attr.qp_access_flags &
                       (access::kAll | access::kMwBind | access::kFlushGlobal | access::kFlushPersistent);
  }
  if ((mask & IBV_QP_AV) != 0) {
    const AhAttr path = path_of(attr.ah_attr);
    out.dgid = path.dgid;
    out.sgid_index = path.sgid_index;
    out.traffic_class = path.traffic_class;
    out.hop_limit = path.hop_limit;
    out.flow_label = path.flow_label;
    out.sl = path.sl;
  }
  return out;
}

ibv_qp_attr to_verbs(const QpAttr& attr, const ibv_qp_cap& cap) noexcept {
  auto out = attributes_of<ibv_qp_attr>(attr);
  out.qp_state = out.cur_qp_state = static_cast<ibv_qp_state>(attr.state);
  out.cap = cap;
  out.sq_draining = attr.sq_draining ? 1 : 0;
  return out;
}

/// On stderr: what the program is told later is only that nobody answers. Once: it may have many QPs.
void tell_route_trouble(const Qp& qp) {
  static std::atomic_flag told;
  if (told.test(std::memory_order_relaxed)) return;
  const std::string trouble = qp.route_trouble();
  if (trouble.empty() || told.test_and_set(std::memory_order_relaxed)) return;
  std::fprintf(stderr, "uroce: %s\n", trouble.c_str());
}

Gid gid_of(const ibv_gid& from) noexcept {
  Gid gid;
  std::memcpy(gid.raw.data(), from.raw, sizeof from.raw);
  return gid;
}

}  // namespace

ibv_qp* create_qp_ex(ibv_context* context, ibv_qp_init_attr_ex* attr) {
  if (!is_here(*context)) return fail_null(EIO);
  if (const int wrong = check(*context, *attr); wrong != 0) return fail_null(wrong);
  return guarded([&]() -> ibv_qp* {
    auto made = make(*attr);
    if (!made) return Context::refuse(made.error());
    auto qp = std::make_unique<QueuePair>(is_shared(pd_of(*attr)));
    static_cast<ibv_qp_ex&>(*qp) = {};
    ibv_qp& base = qp->qp_base;
    base.context = context;
    base.qp_context = attr->qp_context;
    base.handle = base.qp_num = raw(made->qpn());
    base.state = IBV_QPS_RESET;
    base.qp_type = attr->qp_type;
    use_parts(*qp, *attr);
    attr->cap = granted(made->attr(), *attr);
    std::memcpy(static_cast<void*>(&qp->init), attr, sizeof qp->init);
    qp->qp.emplace(std::move(*made));
    if (has(*attr, IBV_QP_INIT_ATTR_SEND_OPS_FLAGS)) set_extended_sends(*qp, attr->send_ops_flags);
    Engine::instance().add(*qp);
    init_events(base);
    return &qp.release()->qp_base;
  });
}

}  // namespace uroce::abi

using namespace uroce;
using namespace uroce::abi;

extern "C" {

ibv_qp* ibv_create_qp(ibv_pd* pd, ibv_qp_init_attr* attr) {
  ibv_qp_init_attr_ex all{};
  std::memcpy(static_cast<void*>(&all), attr, sizeof *attr);
  all.comp_mask = IBV_QP_INIT_ATTR_PD;
  all.pd = pd;
  ibv_qp* qp = create_qp_ex(pd->context, &all);
  if (qp != nullptr) attr->cap = all.cap;
  return qp;
}

ibv_qp_ex* ibv_qp_to_qp_ex(ibv_qp* qp) {
  return qp_of(qp).is_extended ? &qp_of(qp) : nullptr;
}

int ibv_modify_qp(ibv_qp* base, ibv_qp_attr* attr, int attr_mask) {
  if (!is_here(*base)) return fail(EIO);
  const NotCancelled here;
  const auto asked = static_cast<unsigned>(attr_mask);
  if (const int wrong = check(*attr, asked); wrong != 0) return fail(wrong);
  const unsigned mask = meant(base->qp_type, asked & ~unsigned{IBV_QP_PATH_MIG_STATE});
  const Status status = qp_of(base).qp->modify(to_engine(*attr, mask), mask);
  if (status && (mask & IBV_QP_STATE) != 0) base->state = attr->qp_state;
  if (status && (mask & IBV_QP_AV) != 0) tell_route_trouble(*qp_of(base).qp);
  return answer(status);
}

int ibv_query_qp(ibv_qp* base, ibv_qp_attr* attr, int, ibv_qp_init_attr* init_attr) {
  if (!is_here(*base)) return fail(EIO);
  QueuePair& qp = qp_of(base);
  const ibv_qp_attr all = to_verbs(qp.qp->query(), qp.init.cap);
  // Programs that were built before there was a rate limit have no room for it.
  std::memcpy(static_cast<void*>(attr), &all, offsetof(ibv_qp_attr, rate_limit));
  *init_attr = qp.init;
  base->state = attr->qp_state;
  return 0;
}

int ibv_destroy_qp(ibv_qp* base) {
  if (!is_here(*base)) return 0;
  QueuePair& qp = qp_of(base);
  if (qp.qp->is_in_multicast()) return fail(EBUSY);
  const NotCancelled here;
  Engine::instance().remove(qp);
  Context::of(base->context).events.purge(base);
  await_acks(*base, base->events_completed, qp.events_taken);
  end_events(*base);
  delete &qp;
  return 0;
}

int ibv_attach_mcast(ibv_qp* qp, const ibv_gid* gid, std::uint16_t) {
  if (!is_here(*qp)) return fail(EIO);
  return answer(qp_of(qp).qp->attach_multicast(gid_of(*gid)));
}

int ibv_detach_mcast(ibv_qp* qp, const ibv_gid* gid, std::uint16_t) {
  if (!is_here(*qp)) return fail(EIO);
  return answer(qp_of(qp).qp->detach_multicast(gid_of(*gid)));
}

int ibv_set_ece(ibv_qp* qp, ibv_ece* ece) {
  if (!is_here(*qp)) return fail(EIO);
  if (ece->comp_mask != 0) return fail(EOPNOTSUPP);
  return answer(qp_of(qp).qp->set_ece({.vendor_id = ece->vendor_id, .options = ece->options}));
}

int ibv_query_ece(ibv_qp* qp, ibv_ece* ece) {
  if (!is_here(*qp)) return EIO;
  const Ece known = qp_of(qp).qp->query_ece();
  if (known.vendor_id == 0) return EOPNOTSUPP;  // none until a peer's are set: librdmacm takes no empty ones
  *ece = {.vendor_id = known.vendor_id, .options = known.options, .comp_mask = 0};
  return 0;
}

}  // extern "C"
