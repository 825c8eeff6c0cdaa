/// Notices that the other end of a link is a new incarnation.
#pragma once

#include <cstdint>

#include "drivers/shm/link.h"
#include "port/port_counters.h"

namespace uroce::drivers::shm {

/// Threads: loop. Lifetime: the link and the counters outlive it.
class PeerWatch {
 public:
  PeerWatch(const Link& link, port::LivePortCounters& counters) noexcept
      : link_(link), counters_(counters), seen_(link.peer_epoch()) {}

  /// Called whenever a stream starts.
  void look() noexcept {
    const std::uint32_t epoch = link_.peer_epoch();
    if (epoch == seen_) return;
    if (seen_ != 0) counters_.peer_restarts.add();
    seen_ = epoch;
  }
  [[nodiscard]] bool is_peer_alive() const noexcept { return link_.is_peer_alive(); }

 private:
  const Link& link_;
  port::LivePortCounters& counters_;
  std::uint32_t seen_;
};

}  // namespace uroce::drivers::shm
