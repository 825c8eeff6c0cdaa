/// The inside of an Srq.
#pragma once

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

struct Srq::Impl {
  Impl(Device::Impl& device, std::uint32_t pd, const SrqInitAttr& granted)
      : limits(device.limits),
        place(device),
        number(device),
        attr(granted),
        shared(number.value(), pd, granted.max_wr, granted.max_sge) {}
  ~Impl() {
    if (domain != nullptr) place.execute([this](engine::PollLoop&, Ticks) { domain->remove(shared); });
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  const Limits& limits;
  SharedLoop place;  // of its QPs
  const SrqNumber number;
  SrqInitAttr attr;
  transport::SharedReceives shared;

  // That of XRC is where its domain is.
  SharedLoop::User in_domain;
  SharedLoop::User in_place;
  transport::XrcDomain* domain = nullptr;
};

}  // namespace uroce
