/// The inside of an Srq.
#pragma once

#include "engine/loop_runner.h"
#include "transport/receives.h"
#include "uroce/srq.h"
#include "verbs/device_impl.h"
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
  Impl(Device::Impl& device, unsigned loop_index, std::uint32_t pd, const SrqInitAttr& granted)
      : limits(device.limits),
        runner(*device.runners[loop_index]),
        number(device),
        loop(loop_index),
        attr(granted),
        shared(number.value(), pd, granted.max_wr, granted.max_sge) {}
  ~Impl() {
    if (domain != nullptr) runner.execute([this](engine::PollLoop&, Ticks) { domain->remove(shared); });
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  const Limits& limits;
  engine::LoopRunner& runner;
  const SrqNumber number;
  const unsigned loop;
  SrqInitAttr attr;
  transport::SharedReceives shared;
  transport::XrcDomain* domain = nullptr;  // that it is in
};

}  // namespace uroce
