#include "uroce/qp.h"

#include <bit>
#include <memory>
#include <new>
#include <type_traits>

#include "transport/rc_qp.h"
#include "transport/unreliable_qp.h"
#include "verbs/cq_impl.h"
#include "verbs/device_impl.h"
#include "verbs/srq_impl.h"

namespace uroce {

struct Qp::Impl {
  Impl(Device::Impl& device_impl, Cq::Impl& send, Cq::Impl& recv, Srq* srq, Qpn qpn, std::uint32_t pd,
       const QpInitAttr& init)
      : device(device_impl),
        runner(send.runner),
        send_cq(send),
        recv_cq(recv),
        qp(make(qpn, pd, init, srq == nullptr ? nullptr : &srq->impl().shared)) {}

  ~Impl() {
    runner.execute([this](engine::PollLoop& loop, Ticks now) {
      loop.remove(*qp, now);
      transport::Receives& receives = qp->context().receives;
      receives.reset();  // what it took from an SRQ goes back there
      if (receives.shared() != nullptr) receives.shared()->remove_user();
      purge();
    });
    device.release_qpn(qp->context().qpn);
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  std::unique_ptr<transport::QueuePair> make(Qpn qpn, std::uint32_t pd, const QpInitAttr& init,
                                             transport::SharedReceives* shared) {
    const auto a = [&]<typename Type>(std::type_identity<Type>) -> std::unique_ptr<transport::QueuePair> {
      return std::make_unique<Type>(qpn, pd, init, device.keys, runner.loop().counters(), send_cq.ring,
                                    recv_cq.ring, shared);
    };
    if (init.type == QpType::kUc) return a(std::type_identity<transport::UcQp>{});
    if (init.type == QpType::kUd) return a(std::type_identity<transport::UdQp>{});
    return a(std::type_identity<transport::RcQp>{});
  }

  void purge() {
    send_cq.purge(qp->context().qpn);
    if (&recv_cq != &send_cq) recv_cq.purge(qp->context().qpn);
  }
  [[nodiscard]] transport::QpBounds bounds() const noexcept {
    return {.active_mtu = device.active_mtu(),
            .gid_count = static_cast<std::uint32_t>(device.addresses.own().size()),
            .max_rd_atomic = device.limits.max_rd_atomic,
            .max_unacked = device.config.max_unacked,
            .hardened = device.config.hardened,
            .rnr_cap_ns = std::uint64_t{device.config.rnr_cap_ms} * 1'000'000,
            .probe_floor_ns = std::uint64_t{device.config.probe_us} * 1000};
  }

  Device::Impl& device;
  engine::LoopRunner& runner;
  Cq::Impl& send_cq;
  Cq::Impl& recv_cq;
  std::unique_ptr<transport::QueuePair> qp;
};

namespace {

Status check_capacities(const QpInitAttr& attr, const Limits& limits) {
  if (attr.type != QpType::kRc && attr.type != QpType::kUc && attr.type != QpType::kUd) {
    return Error{Errc::kUnsupported, "QPs are of type RC, UC or UD"};
  }
  const auto above = [](const char* what, std::uint32_t limit) {
    return Error{Errc::kInvalid, std::string(what) + " is at most " + std::to_string(limit)};
  };
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

std::string describe_failure(const transport::QpContext& ctx) {
  std::string text(transport::row(ctx.fatal).text);
  if (ctx.full_cq == nullptr) return text;
  const std::string cq =
      "completion queue of " + std::to_string(ctx.full_cq->entries()) + " entries overflowed";
  if (ctx.fatal == transport::Fault::kCqOverflow) return "a " + cq + ": create it larger";
  return text + "; and its " + cq;
}

QpInitAttr granted(QpInitAttr attr) noexcept {
  attr.max_send_wr = std::bit_ceil(std::max(attr.max_send_wr, 1U));
  attr.max_recv_wr = std::bit_ceil(std::max(attr.max_recv_wr, 1U));
  attr.max_send_sge = std::max(attr.max_send_sge, 1U);
  attr.max_recv_sge = std::max(attr.max_recv_sge, 1U);
  return attr;
}

}  // namespace

Qp::Qp(std::unique_ptr<Impl> impl) noexcept : impl_(std::move(impl)) {}
Qp::Qp(Qp&&) noexcept = default;
Qp& Qp::operator=(Qp&&) noexcept = default;
Qp::~Qp() = default;

Result<Qp> Qp::create(Pd& pd, Cq& send_cq, Cq& recv_cq, const QpInitAttr& attr) {
  return make(pd, send_cq, recv_cq, nullptr, attr);
}

Result<Qp> Qp::create(Pd& pd, Cq& send_cq, Cq& recv_cq, Srq& srq, const QpInitAttr& attr) {
  if (&srq.impl().runner != &recv_cq.impl().runner) {
    return Error{Errc::kInvalid,
                 "the SRQ and the CQs of a QP must belong to the same loop of the same device"};
  }
  return make(pd, send_cq, recv_cq, &srq, attr);
}

Result<Qp> Qp::make(Pd& pd, Cq& send_cq, Cq& recv_cq, Srq* srq, const QpInitAttr& attr) {
  Device::Impl& device = pd.device();
  if (Status fits = check_capacities(attr, device.limits); !fits) return fits.error();
  if (!is_of(device, send_cq.impl()) || !is_of(device, recv_cq.impl())) {
    return Error{Errc::kInvalid, "the CQs and the PD of a QP must belong to the same device"};
  }
  if (send_cq.impl().loop != recv_cq.impl().loop) {
    return Error{Errc::kInvalid, "both CQs of a QP must belong to the same loop"};
  }
  auto qpn = device.take_qpn(send_cq.impl().loop);
  if (!qpn) return qpn.error();
  try {
    auto impl =
        std::make_unique<Impl>(device, send_cq.impl(), recv_cq.impl(), srq, *qpn, pd.number(), granted(attr));
    impl->runner.execute([&](engine::PollLoop& loop, Ticks) {
      if (srq != nullptr) srq->impl().shared.add_user();
      loop.add(*impl->qp);
    });
    return Qp(std::move(impl));
  } catch (const std::bad_alloc&) {
    device.release_qpn(*qpn);
    return Error{Errc::kNoMemory, "no memory for the queues of a QP"};
  }
}

Status Qp::modify(const QpAttr& attr, std::uint32_t mask) {
  Status status;
  const transport::QpBounds bounds = impl_->bounds();
  impl_->runner.execute([&](engine::PollLoop& loop, Ticks now) {
    status = loop.modify(*impl_->qp, attr, mask, bounds, now);
    if (status && (mask & qp_attr::kState) != 0 && attr.state == QpState::kReset) impl_->purge();
  });
  return status;
}

Status Qp::connect(const QpAttr& attr) {
  QpAttr step = attr;
  const QpType type = impl_->qp->context().init.type;
  const bool is_rc = type == QpType::kRc;
  const bool is_ud = type == QpType::kUd;
  const std::uint32_t rtr = is_rc ? qp_attr::kRtrMask : is_ud ? qp_attr::kState : qp_attr::kUcRtrMask;
  for (const auto& [state, mask] :
       {std::pair{QpState::kInit, is_ud ? qp_attr::kUdInitMask : qp_attr::kInitMask},
        {QpState::kRtr, rtr},
        {QpState::kRts, is_rc ? qp_attr::kRtsMask : qp_attr::kUnreliableRtsMask}}) {
    step.state = state;
    if (Status status = modify(step, mask); !status) return status;
  }
  return {};
}

QpAttr Qp::query() const {
  QpAttr attr;
  impl_->runner.execute([&](engine::PollLoop&, Ticks) { attr = impl_->qp->query(); });
  return attr;
}

std::size_t Qp::post_send(std::span<const SendWr> wrs) noexcept {
  transport::QueuePair& qp = *impl_->qp;
  const QpState state = qp.state();
  if (state == QpState::kReset || state == QpState::kInit || state == QpState::kRtr) return 0;
  std::uint32_t taken = 0;
  while (taken < wrs.size() && qp.context().sq.put(wrs[taken], taken)) ++taken;
  if (taken == 0) return 0;
  qp.context().sq.publish(taken);
  impl_->runner.post(*impl_->qp);
  return taken;
}

std::size_t Qp::post_recv(std::span<const RecvWr> wrs) noexcept {
  transport::QueuePair& qp = *impl_->qp;
  if (qp.state() == QpState::kReset || qp.context().receives.shared() != nullptr) return 0;
  std::uint32_t taken = 0;
  while (taken < wrs.size() && qp.context().receives.own.put(wrs[taken], taken)) ++taken;
  if (taken == 0) return 0;
  qp.context().receives.own.publish(taken);
  if (qp.state() == QpState::kError)
    impl_->runner.post(*impl_->qp);  // a post that just misses the move is found by the recheck
  return taken;
}

Qpn Qp::qpn() const noexcept {
  return impl_->qp->context().qpn;
}
const QpInitAttr& Qp::attr() const noexcept {
  return impl_->qp->context().init;
}

std::string Qp::error_text() const {
  std::string text;
  impl_->runner.execute([&](engine::PollLoop&, Ticks) {
    if (impl_->qp->state() == QpState::kError) text = describe_failure(impl_->qp->context());
  });
  return text;
}

}  // namespace uroce
