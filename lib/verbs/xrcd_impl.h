/// The inside of an Xrcd.
#pragma once

#include "transport/xrc_domain.h"
#include "uroce/xrcd.h"
#include "verbs/shared_loop.h"

namespace uroce {

struct Xrcd::Impl {
  explicit Impl(Device::Impl& device_impl) : device(device_impl), place(device_impl) {}

  Device::Impl& device;
  SharedLoop place;  // of its SRQs and targets
  transport::XrcDomain domain;
};

}  // namespace uroce
