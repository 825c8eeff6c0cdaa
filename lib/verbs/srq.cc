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

}  // namespace

Srq::Srq(std::unique_ptr<Impl> impl) noexcept : impl_(std::move(impl)) {}
Srq::Srq(Srq&&) noexcept = default;
Srq& Srq::operator=(Srq&&) noexcept = default;
Srq::~Srq() = default;

Result<Srq> Srq::create(Pd& pd, const SrqInitAttr& attr, unsigned loop) {
  return make(pd, attr, loop, nullptr, nullptr);
}

Result<Srq> Srq::create(Pd& pd, Xrcd& domain, Cq& cq, const SrqInitAttr& attr) {
  if (&domain.impl().device != &pd.device() || &domain.impl().runner != &cq.impl().runner) {
    return Error{Errc::kInvalid,
                 "the CQ and the XRC domain of an SRQ must belong to the same loop of the same device"};
  }
  return make(pd, attr, domain.impl().loop, &domain, &cq);
}

Result<Srq> Srq::make(Pd& pd, const SrqInitAttr& attr, unsigned loop, Xrcd* domain, Cq* cq) {
  Device::Impl& device = pd.device();
  if (Status fits = check_depth(attr.max_wr, device.limits); !fits) return fits.error();
  if (attr.max_sge > device.limits.max_sge) {
    return Error{Errc::kInvalid, "max_sge is at most " + std::to_string(device.limits.max_sge)};
  }
  if (loop >= device.runners.size()) {
    return Error{Errc::kInvalid,
                 "the device has " + std::to_string(device.runners.size()) + " loops (--lcores)"};
  }
  const SrqInitAttr granted{.max_wr = std::bit_ceil(attr.max_wr), .max_sge = std::max(attr.max_sge, 1U)};
  try {
    auto impl = std::make_unique<Impl>(device, loop, pd.number(), granted);
    if (impl->number.value() == 0) return Error{Errc::kLimit, "all numbers of SRQs are in use"};
    if (domain == nullptr) return Srq(std::move(impl));
    impl->runner.execute(
        [&](engine::PollLoop&, Ticks) { domain->impl().domain.add(impl->shared, cq->impl().ring); });
    impl->domain = &domain->impl().domain;
    return Srq(std::move(impl));
  } catch (const std::bad_alloc&) {
    return Error{Errc::kNoMemory, "no memory for a shared receive queue"};
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
    impl_->runner.execute([&](engine::PollLoop&, Ticks) { is_enough = impl_->shared.resize(depth); });
  } catch (const std::bad_alloc&) {
    return Error{Errc::kNoMemory, "no memory for a shared receive queue"};
  }
  if (!is_enough) {
    return Error{Errc::kInvalid,
                 "more than " + std::to_string(depth) + " receives are posted, or the limit is above that"};
  }
  impl_->attr.max_wr = depth;
  return {};
}

Status Srq::arm_limit(std::uint32_t limit) {
  if (limit > impl_->attr.max_wr) {
    return Error{Errc::kInvalid, "the limit is at most the capacity, " + std::to_string(impl_->attr.max_wr)};
  }
  impl_->runner.execute([&](engine::PollLoop& loop, Ticks) { loop.arm_limit(impl_->shared, limit); });
  return {};
}

std::uint32_t Srq::limit() const {
  std::uint32_t limit = 0;
  impl_->runner.execute([&](engine::PollLoop&, Ticks) { limit = impl_->shared.limit(); });
  return limit;
}

const SrqInitAttr& Srq::attr() const noexcept {
  return impl_->attr;
}
std::uint32_t Srq::number() const noexcept {
  return impl_->shared.number;
}

}  // namespace uroce
