/// What stands in for the port where frames go to the device itself: no switch sends them back.
#pragma once

#include "base/counters.h"
#include "engine/frame_ring.h"
#include "port/port.h"

namespace uroce::engine {

/// The way to the device's own addresses: a ring that the same loop reads.
///
/// Threads: loop. Lifetime: the ring outlives it.
class LocalPort final : public port::FrameSink {
 public:
  LocalPort(FrameRing& ring, Counters& counters) noexcept : ring_(ring), counters_(counters) {}

  [[nodiscard]] std::byte* tx_claim(std::uint32_t len) noexcept override { return ring_.claim(len); }
  void tx_commit() noexcept override {
    ring_.publish();
    counters_.add(Count::kLocalFrames);
  }

 private:
  FrameRing& ring_;
  Counters& counters_;
};

}  // namespace uroce::engine
