/// The inside of an Xrcd.
#pragma once

#include "engine/loop_runner.h"
#include "transport/xrc_domain.h"
#include "uroce/xrcd.h"

namespace uroce {

struct Xrcd::Impl {
  Impl(Device::Impl& device_impl, engine::LoopRunner& loop_runner, unsigned loop_index)
      : device(device_impl), runner(loop_runner), loop(loop_index) {}

  Device::Impl& device;
  engine::LoopRunner& runner;
  const unsigned loop;
  transport::XrcDomain domain;
};

}  // namespace uroce
