#include "uroce/qp.h"

#include <algorithm>
#include <bit>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "mem/blocks.h"
#include "transport/rc_qp.h"
#include "transport/unreliable_qp.h"
#include "transport/xrc_qp.h"
#include "verbs/cq_impl.h"
#include "verbs/device_impl.h"
#include "verbs/gsi.h"
#include "verbs/route_text.h"
#include "verbs/srq_impl.h"
#include "verbs/xrcd_impl.h"

namespace uroce {

namespace {

QpInitAttr granted(QpInitAttr attr) noexcept {
  attr.max_send_wr = std::bit_ceil(std::max(attr.max_send_wr, 1U));
  attr.max_recv_wr = std::bit_ceil(std::max(attr.max_recv_wr, 1U));
  attr.max_send_sge = std::max(attr.max_send_sge, 1U);
  attr.max_recv_sge = std::max(attr.max_recv_sge, 1U);
  return attr;
}

/// Of its own.
bool takes_receives(const transport::QpContext& ctx) noexcept {
  const bool is_xrc = ctx.init.type == QpType::kXrcSend || ctx.init.type == QpType::kXrcRecv;
  return !is_xrc && ctx.receives.shared() == nullptr;
}

/// Gives a QP number back, whatever came in the way of the QP.
class QpNumber {
 public:
  QpNumber(Device::Impl& from, Qpn qpn) noexcept : device_(&from), qpn_(qpn) {}
  QpNumber(QpNumber&& other) noexcept : device_(std::exchange(other.device_, nullptr)), qpn_(other.qpn_) {}
  QpNumber& operator=(QpNumber&&) = delete;
  ~QpNumber() {
    if (device_ != nullptr) device_->release_qpn(qpn_);
  }
  [[nodiscard]] Qpn qpn() const noexcept { return qpn_; }

 private:
  Device::Impl* device_;
  Qpn qpn_;
};

}  // namespace

struct alignas(64) Qp::Impl : mem::InBlocks {
  /// What a QP is made of. An XRC target has a domain, and neither PD nor CQs nor SRQ of its own.
  struct Parts {
    Device::Impl& device;
    engine::LoopRunner& runner;
    unsigned loop = 0;
    std::uint32_t pd = 0;
    Cq::Impl* send_cq = nullptr;
    Cq::Impl* recv_cq = nullptr;
    Srq::Impl* srq = nullptr;
    Xrcd::Impl* xrcd = nullptr;
    std::optional<Qpn> qpn = std::nullopt;  // unset: any
  };

  /// A QP that its loop knows.
  static Result<std::unique_ptr<Impl>> make(const Parts& parts, const QpInitAttr& init);

  Impl(const Parts& made_of, QpNumber given, const QpInitAttr& init)
      : parts(made_of),
        device(made_of.device),
        number(std::move(given)),
        runner(made_of.runner),
        asked{init.max_send_wr, init.max_recv_wr},
        qp(make_queue_pair(number.qpn(), granted(init))) {}

  ~Impl() {
    forget_handles();
    while (!groups.empty()) (void)detach(Gid{groups.back()});
    runner.execute([this](engine::PollLoop& loop, Ticks now) {
      loop.remove(*qp, now);
      transport::QpContext& context = qp->context();
      context.receives.reset();  // what it took from an SRQ goes back there
      if (is_user) parts.srq->shared.remove_user();
      if (is_target) parts.xrcd->domain.remove_target(context);
      if (is_counted) purge();
    });
    forget_demand();
    if (device.stat_page != nullptr) device.stat_page->give_row(qp->context().shown_at);
    device.keys.release_windows(qp->context().qpn);
    device.reap_ahs();
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  std::unique_ptr<transport::QueuePair> make_queue_pair(Qpn qpn, const QpInitAttr& init) {
    const auto a = [&]<typename Type>(std::type_identity<Type>) -> std::unique_ptr<transport::QueuePair> {
      const auto ring = [this](Cq::Impl* cq) -> transport::CqRing& {
        return cq == nullptr ? parts.xrcd->domain.no_cq() : cq->ring;
      };
      return std::make_unique<Type>(qpn, parts.pd, init, device.keys, runner.loop().counters(),
                                    ring(parts.send_cq), ring(parts.recv_cq),
                                    parts.srq == nullptr ? nullptr : &parts.srq->shared);
    };
    switch (init.type) {
      case QpType::kUc:
        return a(std::type_identity<transport::UcQp>{});
      case QpType::kUd:
        return a(std::type_identity<transport::UdQp>{});
      case QpType::kXrcSend:
        return a(std::type_identity<transport::XrcSendQp>{});
      case QpType::kXrcRecv:
        return a(std::type_identity<transport::XrcRecvQp>{});
      default:
        return a(std::type_identity<transport::RcQp>{});
    }
  }

  Status attach(const Gid& group);
  Status detach(const Gid& group);

  /// Address handles wait for what a datagram QP has posted to them, until it goes.
  void remember_handles() {
    const std::lock_guard lock(device.leaving);
    if (qp->context().type == QpType::kUd) device.datagram_qps.insert(qp->context().qpn);
  }
  void forget_handles() noexcept {
    const std::lock_guard lock(device.leaving);
    device.datagram_qps.erase(qp->context().qpn);
  }

  /// Whoever else knows the QP is not at it, and no more is.
  void part() noexcept {
    if (whereabouts != nullptr) whereabouts->move_to(nullptr);
  }
  void purge() {
    if (parts.send_cq != nullptr) parts.send_cq->purge(qp->context().qpn);
    if (parts.recv_cq != nullptr && parts.recv_cq != parts.send_cq) parts.recv_cq->purge(qp->context().qpn);
  }
  [[nodiscard]] transport::CongestionSettings congestion() const noexcept {
    const Config& config = device.config;
    return {.is_on = config.congestion == CongestionControl::kDcqcn,
            .line_bps = std::uint64_t{config.line_mbps} * 1'000'000,
            .cnp_gap_ns = std::uint64_t{config.cnp_us} * 1000,
            .cnp_traffic_class = static_cast<std::uint8_t>(config.cnp_dscp << 2)};
  }
  [[nodiscard]] transport::QpBounds bounds() const noexcept {
    return {.active_mtu = device.active_mtu(),
            .gid_count = device.gid_count(),
            .max_rd_atomic = device.limits.max_rd_atomic,
            .max_unacked = device.config.max_unacked,
            .hardened = device.config.hardened,
            .rnr_cap_ns = std::uint64_t{device.config.rnr_cap_ms} * 1'000'000,
            .probe_floor_ns = std::uint64_t{device.config.probe_us} * 1000,
            .credits = device.config.credits,
            .congestion = congestion()};
  }

  /// Makes the QP known to its loop and to those that it shares something with.
  void enter() {
    if (device.stat_page != nullptr) qp->context().shown_at = device.stat_page->take_row();
    count_demand();
    runner.execute([this](engine::PollLoop& loop, Ticks) {
      if (parts.srq != nullptr) parts.srq->shared.add_user();
      is_user = parts.srq != nullptr;
      if (parts.xrcd != nullptr) parts.xrcd->domain.add_target(qp->context());
      is_target = parts.xrcd != nullptr;
      loop.add(*qp);
    });
  }
  /// Its loop has what came to the other ones before.
  void let_others_hand_over() {
    for (auto& any : device.runners) {
      if (any.get() == &runner) continue;
      any->execute([](engine::PollLoop& loop, Ticks now) { loop.let_pass_what_is_old(now); });
    }
  }
  /// How many completions its CQs may have to hold. As many as were asked for: a CQ of 32 is made for 32
  /// sends and no receives, which are given queues of 32 and 1.
  void count_demand() {
    if (parts.send_cq != nullptr) parts.send_cq->add_qp();
    if (parts.recv_cq != nullptr) parts.recv_cq->add_qp();
    if (parts.srq != nullptr) parts.srq->demand.add(parts.recv_cq->ring);
    if (parts.send_cq != nullptr) parts.send_cq->ring.add_send_demand(asked.sends);
    if (takes_receives(qp->context())) parts.recv_cq->ring.add_receive_demand(asked.receives);
    is_counted = true;
  }
  void forget_demand() noexcept {
    if (!is_counted) return;
    if (parts.send_cq != nullptr) parts.send_cq->remove_qp();
    if (parts.recv_cq != nullptr) parts.recv_cq->remove_qp();
    if (parts.srq != nullptr) parts.srq->demand.remove(parts.recv_cq->ring);
    if (parts.send_cq != nullptr) parts.send_cq->ring.remove_send_demand(asked.sends);
    if (takes_receives(qp->context())) parts.recv_cq->ring.remove_receive_demand(asked.receives);
  }

  const Parts parts;
  Device::Impl& device;
  QpNumber number;
  engine::LoopRunner& runner;
  struct {
    const std::uint32_t sends;
    const std::uint32_t receives;
  } asked;  // for, not granted
  std::unique_ptr<transport::QueuePair> qp;
  std::uint32_t ece_vendor = 0;                // as last asked for
  bool is_counted = false;                     // in the demand of its CQs
  bool is_user = false;                        // of its SRQ
  bool is_target = false;                      // of its XRC domain
  std::vector<Gid> groups;                     // attached to; guarded by device.multicast
  std::shared_ptr<QpWhereabouts> whereabouts;  // once somebody else has to know
  SharedLoop::User user;                       // of the loop of its SRQ or XRC domain

 private:
  void detach(const Gid& group, std::size_t loops);
};

Status Qp::Impl::attach(const Gid& group) {
  const std::lock_guard lock(device.multicast);
  if (std::find(groups.begin(), groups.end(), group) != groups.end()) return {};
  const auto known = device.group_users.find(group);
  const std::uint32_t users = known == device.group_users.end() ? 0 : known->second;
  if (users == 0 && device.group_users.size() >= device.limits.max_mcast_grp)
    return Error{Errc::kLimit, "the device is in as many multicast groups as it can be"};
  if (users >= device.limits.max_mcast_qp_attach)
    return Error{Errc::kLimit, "as many QPs are attached to this multicast group as can be"};
  std::size_t loops = 0;  // that know of it
  try {
    groups.reserve(groups.size() + 1);
    ++device.group_users[group];
    groups.push_back(group);
    for (auto& any : device.runners) {
      any->execute([&](engine::PollLoop& loop, Ticks now) {
        loop.attach(group, runner.loop().place().index, any.get() == &runner ? qp.get() : nullptr, now);
      });
      ++loops;
    }
  } catch (const std::bad_alloc&) {
    if (!groups.empty() && groups.back() == group) detach(group, loops);
    return Error{Errc::kNoMemory, "no memory for a multicast group"};
  }
  return {};
}

Status Qp::Impl::detach(const Gid& group) {
  const std::lock_guard lock(device.multicast);
  if (std::find(groups.begin(), groups.end(), group) == groups.end())
    return Error{Errc::kInvalid, "the QP is not attached to this multicast group"};
  detach(group, device.runners.size());
  return {};
}

/// Lets the first `loops` loops forget it.
void Qp::Impl::detach(const Gid& group, std::size_t loops) {
  for (auto& any : std::span(device.runners).first(loops)) {
    any->execute([&](engine::PollLoop& loop, Ticks now) {
      loop.detach(group, runner.loop().place().index, any.get() == &runner ? qp.get() : nullptr, now);
    });
  }
  std::erase(groups, group);
  const auto users = device.group_users.find(group);
  if (users != device.group_users.end() && (users->second <= 1 || --users->second == 0))
    device.group_users.erase(users);
}

namespace {

Status check_capacities(const QpInitAttr& attr, const Limits& limits) {
  if (to_string(attr.type) == "?") {
    return Error{Errc::kUnsupported, "QPs are of type RC, UC, UD, XRC_SEND or XRC_RECV"};
  }
  const auto above = [](const char* what, std::uint32_t limit) {
    return Error{Errc::kInvalid, std::string(what) + " is at most " + std::to_string(limit)};
  };
  if (attr.block_own_multicast && attr.type != QpType::kUd) {
    return Error{Errc::kInvalid, "block_own_multicast is for UD QPs"};
  }
  if (attr.max_send_wr > limits.max_qp_wr) return above("max_send_wr", limits.max_qp_wr);
  if (attr.max_recv_wr > limits.max_qp_wr) return above("max_recv_wr", limits.max_qp_wr);
  if (attr.max_send_sge > limits.max_sge) return above("max_send_sge", limits.max_sge);
  if (attr.max_recv_sge > limits.max_sge) return above("max_recv_sge", limits.max_sge);
  if (attr.max_inline_data > limits.max_inline) return above("max_inline_data", limits.max_inline);
  return {};
}

bool is_of(const Device::Impl& device, const Cq::Impl& cq) noexcept {
  return cq.loop < device.runners.size() && device.runners[cq.loop].get() == &cq.runner;
}

std::string describe_failure(const transport::QpContext& ctx, const engine::Addresses& addresses) {
  std::string text(transport::row(ctx.fatal).text);
  if (ctx.fatal == transport::Fault::kRetryExceeded && !ctx.resolved && ctx.path != nullptr)
    text += describe_unresolved(addresses, ctx.path->to);
  if (ctx.fatal == transport::Fault::kRetryExceeded && ctx.lost_bytes != 0) {
    text += "; only packets above " + std::to_string(ctx.carried_bytes) +
            " bytes time out: the path MTU may be " + "smaller than " + std::to_string(ctx.mtu) +
            ": use --mtu / path_mtu";
  }
  if (ctx.full_cq.entries == 0) return text;
  const std::string cq = describe_overflow(ctx.full_cq);
  if (ctx.fatal == transport::Fault::kCqOverflow) return "a " + cq;
  return text + "; and its " + cq;
}

}  // namespace

Qp::Qp(std::unique_ptr<Impl> impl) noexcept
    : impl_(std::move(impl)), queue_pair_(impl_->qp.get()), runner_(&impl_->runner) {}
Qp::~Qp() {
  if (impl_ != nullptr) impl_->part();
}

Qp::Qp(Qp&& other) noexcept {
  take(other);
}

Qp& Qp::operator=(Qp&& other) noexcept {
  if (this == &other) return *this;
  if (impl_ != nullptr) impl_->part();
  take(other);
  return *this;
}

void Qp::take(Qp& other) noexcept {
  const auto whereabouts = other.impl_ == nullptr ? nullptr : other.impl_->whereabouts;
  const auto move = [&] {
    impl_ = std::move(other.impl_);
    queue_pair_ = std::exchange(other.queue_pair_, nullptr);
    runner_ = std::exchange(other.runner_, nullptr);
  };
  if (whereabouts == nullptr) return move();
  whereabouts->move_to(this, move);
}

std::shared_ptr<QpWhereabouts> whereabouts_of(Qp& qp) {
  auto& known = qp.impl().whereabouts;
  if (known == nullptr) known = std::make_shared<QpWhereabouts>(qp);
  return known;
}

Result<std::unique_ptr<Qp::Impl>> Qp::Impl::make(const Parts& parts, const QpInitAttr& asked) {
  QpInitAttr init = asked;
  // It has no receives of its own, and what is said of them means nothing. ibv_create_qp(3).
  if (parts.srq != nullptr || init.type == QpType::kXrcSend) init.max_recv_wr = init.max_recv_sge = 0;
  if (Status fits = check_capacities(init, parts.device.limits); !fits) return fits.error();
  try {
    auto qpn = parts.qpn.has_value() ? parts.device.take_qpn(*parts.qpn) : parts.device.take_qpn(parts.loop);
    if (!qpn) return qpn.error();
    auto impl = std::make_unique<Impl>(parts, QpNumber(parts.device, *qpn), init);
    impl->enter();
    impl->remember_handles();
    return impl;
  } catch (const std::bad_alloc&) {
    return Error{Errc::kNoMemory, "no memory for the queues of a QP"};
  }
}

Result<Qp> Qp::create(Pd& pd, Cq& send_cq, Cq& recv_cq, const QpInitAttr& attr) {
  return make(pd, send_cq, recv_cq, nullptr, attr);
}

Result<Qp> Qp::create(Pd& pd, Cq& send_cq, Cq& recv_cq, Srq& srq, const QpInitAttr& attr) {
  SharedLoop& place = srq.impl().place;
  if (!place.is_of(recv_cq.impl().device))
    return Error{Errc::kInvalid, "the CQs of QPs that share an SRQ must belong to its device"};
  auto user = place.enter(recv_cq.impl().loop);
  if (!user) return Error{Errc::kOtherLoop, "the CQs of QPs that share an SRQ must belong to the same loop"};
  auto made = make(pd, send_cq, recv_cq, &srq, attr);
  if (made) made->impl().user = std::move(*user);
  return made;
}

Result<Qp> Qp::make(Pd& pd, Cq& send_cq, Cq& recv_cq, Srq* srq, const QpInitAttr& attr) {
  Device::Impl& device = pd.device();
  if (attr.type == QpType::kXrcRecv) {
    return Error{Errc::kInvalid, "a QP of type XRC_RECV is made from an XRC domain"};
  }
  if (!is_of(device, send_cq.impl()) || !is_of(device, recv_cq.impl())) {
    return Error{Errc::kInvalid, "the CQs and the PD of a QP must belong to the same device"};
  }
  if (send_cq.impl().loop != recv_cq.impl().loop) {
    return Error{Errc::kOtherLoop, "both CQs of a QP must belong to the same loop"};
  }
  auto impl = Impl::make({.device = device,
                          .runner = send_cq.impl().runner,
                          .loop = send_cq.impl().loop,
                          .pd = pd.number(),
                          .send_cq = &send_cq.impl(),
                          .recv_cq = &recv_cq.impl(),
                          .srq = srq == nullptr ? nullptr : &srq->impl()},
                         attr);
  if (!impl) return impl.error();
  return Qp(std::move(*impl));
}

Result<Qp> make_gsi_qp(Pd& pd, Cq& cq, const QpInitAttr& attr) {
  auto impl = Qp::Impl::make({.device = pd.device(),
                              .runner = cq.impl().runner,
                              .loop = cq.impl().loop,
                              .pd = pd.number(),
                              .send_cq = &cq.impl(),
                              .recv_cq = &cq.impl(),
                              .qpn = kGsiQpn},
                             attr);
  if (!impl) return impl.error();
  Qp qp(std::move(*impl));
  if (Status connected = qp.connect({.qkey = kGsiQkey}); !connected) return connected.error();
  return qp;
}

Result<Qp> Qp::create(Xrcd& domain, const QpInitAttr& attr) {
  Xrcd::Impl& xrcd = domain.impl();
  if (attr.type != QpType::kXrcRecv) {
    return Error{Errc::kInvalid, "only a QP of type XRC_RECV is made from an XRC domain"};
  }
  // It has no queues; a receive that it takes may have as many SGEs as any SRQ of the domain allows.
  const QpInitAttr none{
      .type = attr.type, .max_send_wr = 1, .max_recv_wr = 1, .max_recv_sge = xrcd.device.limits.max_sge};
  SharedLoop::User user = xrcd.place.enter();
  auto impl = Impl::make({.device = xrcd.device,
                          .runner = *xrcd.device.runners[user.loop()],
                          .loop = user.loop(),
                          .xrcd = &xrcd},
                         none);
  if (!impl) return impl.error();
  (*impl)->user = std::move(user);
  return Qp(std::move(*impl));
}

Status Qp::modify(const QpAttr& attr, std::uint32_t mask) {
  Status status;
  const transport::QpBounds bounds = impl_->bounds();
  const bool will_receive = (mask & qp_attr::kState) != 0 && attr.state == QpState::kRtr;
  if (will_receive) impl_->let_others_hand_over();
  try {
    impl_->runner.execute([&](engine::PollLoop& loop, Ticks now) {
      status = loop.modify(*impl_->qp, attr, mask, bounds, now);
      if (!status || (mask & qp_attr::kState) == 0 || attr.state != QpState::kReset) return;
      impl_->purge();
      impl_->ece_vendor = 0;
    });
  } catch (const std::bad_alloc&) {
    return Error{Errc::kNoMemory, "no memory for what the QP is to remember"};
  }
  return status;
}

namespace {

/// What each move up to RTS needs.
struct ConnectMasks {
  std::uint32_t init = qp_attr::kInitMask;
  std::uint32_t rtr = qp_attr::kRtrMask;
  std::uint32_t rts = qp_attr::kRtsMask;
};

constexpr ConnectMasks connect_masks(QpType type) noexcept {
  switch (type) {
    case QpType::kUc:
      return {.rtr = qp_attr::kUcRtrMask, .rts = qp_attr::kUnreliableRtsMask};
    case QpType::kUd:
      return {.init = qp_attr::kUdInitMask, .rtr = qp_attr::kState, .rts = qp_attr::kUnreliableRtsMask};
    case QpType::kXrcSend:
      return {.rtr = qp_attr::kUcRtrMask};
    case QpType::kXrcRecv:
      return {.rts = qp_attr::kXrcRecvRtsMask};
    default:
      return {};
  }
}

}  // namespace

Status Qp::connect(const QpAttr& attr) {
  QpAttr step = attr;
  const ConnectMasks masks = connect_masks(impl_->qp->context().init.type);
  for (const auto& [state, mask] :
       {std::pair{QpState::kInit, masks.init}, {QpState::kRtr, masks.rtr}, {QpState::kRts, masks.rts}}) {
    step.state = state;
    if (Status status = modify(step, mask); !status) return status;
  }
  return {};
}

Status Qp::set_ece(const Ece& asked) {
  const QpState state = impl_->qp->state();
  if (state != QpState::kReset && state != QpState::kInit) {
    return Error{Errc::kBadState, "options are agreed on before a QP is connected: in Reset or Init"};
  }
  const std::uint32_t options = asked.vendor_id == ece::kVendor ? asked.options : 0;
  try {
    impl_->runner.execute([&](engine::PollLoop&, Ticks) { impl_->qp->grant(options); });
  } catch (const std::bad_alloc&) {
    return Error{Errc::kNoMemory, "no memory for the masks of atomics"};
  }
  impl_->ece_vendor = asked.vendor_id;
  return {};
}

Ece Qp::query_ece() const noexcept {
  return {.vendor_id = impl_->ece_vendor, .options = impl_->qp->context().ece};
}

QpAttr Qp::query() const {
  QpAttr attr;
  impl_->runner.execute([&](engine::PollLoop&, Ticks) { attr = impl_->qp->query(); });
  return attr;
}

std::size_t Qp::post_send(std::span<const SendWr> wrs, std::size_t least) noexcept {
  transport::QueuePair& qp = *queue_pair_;
  if (wrs.size() > 1) transport::RcQp::prefetch_sender(qp);  // while the list is being put down
  const QpState state = qp.state();
  if (state == QpState::kReset || state == QpState::kInit || state == QpState::kRtr) return 0;
  std::uint32_t taken = 0;
  while (taken < wrs.size() && qp.context().sq.put(wrs[taken], taken)) ++taken;
  if (taken < least) return taken;
  qp.context().sq.publish(taken);
  runner_->post(qp);
  return taken;
}

std::size_t Qp::post_recv(std::span<const RecvWr> wrs) noexcept {
  transport::QueuePair& qp = *queue_pair_;
  if (qp.state() == QpState::kReset || !takes_receives(qp.context())) return 0;
  std::uint32_t taken = 0;
  while (taken < wrs.size() && qp.context().receives.own.put(wrs[taken], taken)) ++taken;
  if (taken == 0) return 0;
  qp.context().receives.own.publish(taken);
  if (qp.must_ring_for_receives()) runner_->post(qp);
  return taken;
}

Status Qp::attach_multicast(const Gid& group) {
  if (impl_->qp->context().init.type != QpType::kUd || !group.is_multicast())
    return Error{Errc::kInvalid, "UD QPs are attached to multicast groups, 224.0.0.0/4 or ff00::/8"};
  return impl_->attach(group);
}

Status Qp::detach_multicast(const Gid& group) {
  return impl_->detach(group);
}

bool Qp::is_in_multicast() const {
  const std::lock_guard lock(impl_->device.multicast);
  return !impl_->groups.empty();
}

Qpn Qp::qpn() const noexcept {
  return impl_->qp->context().qpn;
}
const QpInitAttr& Qp::attr() const noexcept {
  return impl_->qp->context().init;
}

std::vector<Counter> Qp::counters() const {
  std::vector<Counter> all;
  for (std::size_t i = 0; i < transport::kQpCounters.size(); ++i) {
    const auto name = kCounterNames[static_cast<std::size_t>(transport::kQpCounters[i])];
    all.push_back({std::string(name), impl_->qp->context().own_counters.get(i)});
  }
  return all;
}

std::string Qp::route_trouble() const {
  std::string text;
  const engine::Addresses addresses = impl_->device.address_table();
  impl_->runner.execute([&](engine::PollLoop&, Ticks) {
    const auto& path = impl_->qp->context().path;
    if (path != nullptr && !path->to.dgid.is_zero()) text = describe_route(addresses, path->to);
  });
  return text;
}

std::string Qp::error_text() const {
  std::string text;
  const engine::Addresses addresses = impl_->device.address_table();
  impl_->runner.execute([&](engine::PollLoop&, Ticks) {
    if (impl_->qp->state() == QpState::kError) text = describe_failure(impl_->qp->context(), addresses);
  });
  return text;
}

}  // namespace uroce
