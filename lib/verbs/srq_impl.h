/// The inside of an Srq.
#pragma once

#include "engine/loop_runner.h"
#include "transport/receives.h"
#include "uroce/srq.h"
#include "verbs/xrcd_impl.h"

namespace uroce {

struct Srq::Impl {
  Impl(const Limits& device_limits, engine::LoopRunner& loop_runner, unsigned loop_index,
       std::uint32_t number, std::uint32_t pd, const SrqInitAttr& granted)
      : limits(device_limits),
        runner(loop_runner),
        loop(loop_index),
        attr(granted),
        shared(number, pd, granted.max_wr, granted.max_sge) {}
  ~Impl() {
    if (domain != nullptr) runner.execute([this](engine::PollLoop&, Ticks) { domain->remove(shared); });
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  const Limits& limits;
  engine::LoopRunner& runner;
  const unsigned loop;
  SrqInitAttr attr;
  transport::SharedReceives shared;
  transport::XrcDomain* domain = nullptr;  // that it is in
};

}  // namespace uroce
