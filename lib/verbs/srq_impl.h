/// The inside of an Srq.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <mutex>
#include <vector>

#include "transport/cq_ring.h"
#include "transport/receives.h"
#include "uroce/srq.h"
#include "verbs/device_impl.h"
#include "verbs/shared_loop.h"
#include "verbs/xrcd_impl.h"

namespace uroce {

/// The number of an SRQ while that lives; 0: there was none left.
class SrqNumber {
 public:
  explicit SrqNumber(Device::Impl& of) : device_(of) {
    const std::lock_guard lock(device_.control);
    number_ = device_.srqs.take();
  }
  ~SrqNumber() {
    const std::lock_guard lock(device_.control);
    device_.srqs.give_back(number_);
  }
  SrqNumber(const SrqNumber&) = delete;
  SrqNumber& operator=(const SrqNumber&) = delete;

  [[nodiscard]] std::uint32_t value() const noexcept { return number_; }

 private:
  Device::Impl& device_;
  std::uint32_t number_ = 0;
};

/// How many completions the receives of an SRQ may be, in each CQ where they may become some: all of them.
///
/// Threads: any.
class SrqDemand {
 public:
  explicit SrqDemand(std::uint32_t receives) noexcept : receives_(receives) {}
  SrqDemand(const SrqDemand&) = delete;
  SrqDemand& operator=(const SrqDemand&) = delete;

  /// One more QP completes them there, or one less. The former may throw bad_alloc.
  void add(transport::CqRing& cq) {
    const std::lock_guard lock(mutex_);
    for (User& known : users_) {
      if (known.cq != &cq) continue;
      ++known.qps;
      return;
    }
    users_.push_back({&cq, 1});
    cq.add_receive_demand(receives_);
  }
  void remove(transport::CqRing& cq) noexcept {
    const std::lock_guard lock(mutex_);
    for (User& known : users_) {
      if (known.cq == &cq && --known.qps == 0) cq.remove_receive_demand(receives_);
    }
    std::erase_if(users_, [](const User& known) { return known.qps == 0; });
  }
  /// The SRQ has that many from now on.
  void resize(std::uint32_t receives) noexcept {
    const std::lock_guard lock(mutex_);
    for (const User& known : users_) {
      known.cq->add_receive_demand(receives);
      known.cq->remove_receive_demand(receives_);
    }
    receives_ = receives;
  }

 private:
  struct User {
    transport::CqRing* cq;
    std::uint32_t qps;
  };
  std::mutex mutex_;
  std::uint32_t receives_;
  std::vector<User> users_;
};

struct Srq::Impl {
  Impl(Device::Impl& device, std::uint32_t pd, const SrqInitAttr& asked)
      : limits(device.limits),
        place(device),
        number(device),
        attr{.max_wr = std::bit_ceil(asked.max_wr), .max_sge = std::max(asked.max_sge, 1U)},
        shared(number.value(), pd, attr.max_wr, attr.max_sge),
        demand(asked.max_wr) {}
  ~Impl() {
    if (domain == nullptr) return;
    place.execute([this](engine::PollLoop&, Ticks) { domain->remove(shared); });
    demand.remove(*cq);
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  const Limits& limits;
  SharedLoop place;  // of its QPs
  const SrqNumber number;
  SrqInitAttr attr;
  transport::SharedReceives shared;
  SrqDemand demand;

  // That of XRC is where its domain is.
  SharedLoop::User in_domain;
  SharedLoop::User in_place;
  transport::XrcDomain* domain = nullptr;
  transport::CqRing* cq = nullptr;
};

}  // namespace uroce
