/// What stands in for the port where frames go to the device itself: no switch sends them back.
#pragma once

#include <span>

#include "base/counters.h"
#include "engine/frame_ring.h"
#include "engine/groups.h"
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

/// The way to a group: the port, and a copy for the members that are on the device itself. IBA 10.5.2 ?
///
/// Threads: loop. Lifetime: all that it is made from outlives it.
class GroupPort final : public port::FrameSink {
 public:
  GroupPort(port::FrameSink& port, FrameRing& ring, const Groups& groups, Counters& counters) noexcept
      : port_(port), ring_(ring), groups_(groups), counters_(counters) {}

  [[nodiscard]] std::byte* tx_claim(std::uint32_t len) noexcept override;
  void tx_commit() noexcept override;
  [[nodiscard]] bool takes_pieces() const noexcept override { return port_.takes_pieces(); }

 private:
  port::FrameSink& port_;
  FrameRing& ring_;
  const Groups& groups_;
  Counters& counters_;
  std::span<const std::byte> frame_;  // claimed
};

}  // namespace uroce::engine
