#include "uroce/srq.h"

#include <bit>
#include <new>

#include "verbs/cq_impl.h"
#include "verbs/device_impl.h"
#include "verbs/srq_impl.h"

namespace uroce {

namespace {

Status check_depth(std::uint32_t max_wr, const Limits& limits) {
  if (max_wr > 0 && max_wr <= limits.max_qp_wr) return {};
  return Error{Errc::kInvalid, "an SRQ has 1 to " + std::to_string(limits.max_qp_wr) + " receives"};
}

Error no_memory() {
  return Error{Errc::kNoMemory, "no memory for a shared receive queue"};
}

}  // namespace

Srq::Srq(std::unique_ptr<Impl> impl) noexcept : impl_(std::move(impl)) {}
Srq::Srq(Srq&&) noexcept = default;
Srq& Srq::operator=(Srq&&) noexcept = default;
Srq::~Srq() = default;

Result<Srq> Srq::create(Pd& pd, const SrqInitAttr& attr) {
  return make(pd, attr);
}

Result<Srq> Srq::create(Pd& pd, Xrcd& domain, Cq& cq, const SrqInitAttr& attr) {
  Xrcd::Impl& xrcd = domain.impl();
  if (&xrcd.device != &pd.device() || &cq.impl().device != &pd.device())
    return Error{Errc::kInvalid,
                 "the CQ, the XRC domain and the PD of an SRQ must belong to the same device"};
  auto user = xrcd.place.enter(cq.impl().loop);
  if (!user)
    return Error{Errc::kOtherLoop, "the CQ of an SRQ and its XRC domain must belong to the same loop"};
  auto made = make(pd, attr);
  if (!made) return made;
  Impl& impl = made->impl();
  impl.in_domain = std::move(*user);
  impl.in_place = std::move(*impl.place.enter(cq.impl().loop));
  try {
    impl.demand.add(cq.impl().ring);
    impl.place.execute([&](engine::PollLoop&, Ticks) { xrcd.domain.add(impl.shared, cq.impl().ring); });
  } catch (const std::bad_alloc&) {
    impl.demand.remove(cq.impl().ring);
    return no_memory();
  }
  impl.domain = &xrcd.domain;
  impl.cq = &cq.impl().ring;
  return made;
}

Result<Srq> Srq::make(Pd& pd, const SrqInitAttr& attr) {
  Device::Impl& device = pd.device();
  if (Status fits = check_depth(attr.max_wr, device.limits); !fits) return fits.error();
  if (attr.max_sge > device.limits.max_sge) {
    return Error{Errc::kInvalid, "max_sge is at most " + std::to_string(device.limits.max_sge)};
  }
  try {
    auto impl = std::make_unique<Impl>(device, pd.number(), attr);
    if (impl->number.value() == 0) return Error{Errc::kLimit, "all numbers of SRQs are in use"};
    return Srq(std::move(impl));
  } catch (const std::bad_alloc&) {
    return no_memory();
  }
}

std::size_t Srq::post_recv(std::span<const RecvWr> wrs) noexcept {
  transport::RecvQueue& ring = impl_->shared.ring;
  std::uint32_t taken = 0;
  while (taken < wrs.size() && ring.put(wrs[taken], taken)) ++taken;
  if (taken > 0) ring.publish(taken);
  return taken;
}

Status Srq::resize(std::uint32_t max_wr) {
  if (Status fits = check_depth(max_wr, impl_->limits); !fits) return fits;
  const std::uint32_t depth = std::bit_ceil(max_wr);
  bool is_enough = false;
  try {
    impl_->place.execute([&](engine::PollLoop&, Ticks) { is_enough = impl_->shared.resize(depth); });
  } catch (const std::bad_alloc&) {
    return no_memory();
  }
  if (!is_enough) {
    return Error{Errc::kInvalid,
                 "more than " + std::to_string(depth) + " receives are posted, or the limit is above that"};
  }
  impl_->attr.max_wr = depth;
  impl_->demand.resize(max_wr);
  return {};
}

Status Srq::arm_limit(std::uint32_t limit) {
  if (limit > impl_->attr.max_wr) {
    return Error{Errc::kInvalid, "the limit is at most the capacity, " + std::to_string(impl_->attr.max_wr)};
  }
  impl_->place.execute([&](engine::PollLoop& loop, Ticks) { loop.arm_limit(impl_->shared, limit); });
  return {};
}

std::uint32_t Srq::limit() const {
  std::uint32_t limit = 0;
  impl_->place.execute([&](engine::PollLoop&, Ticks) { limit = impl_->shared.limit(); });
  return limit;
}

const SrqInitAttr& Srq::attr() const noexcept {
  return impl_->attr;
}
std::uint32_t Srq::number() const noexcept {
  return impl_->shared.number;
}

}  // namespace uroce
