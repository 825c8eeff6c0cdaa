#include "drivers/dpdk/rx_losses.h"

#include <linux/if_packet.h>
#include <rte_ethdev.h>
#include <sys/socket.h>

#include <algorithm>

namespace uroce::drivers::dpdk {

void RxLosses::ask() noexcept {
  const std::lock_guard lock(asking_);
  update();
}

void RxLosses::look() noexcept {
  if (is_slow_) return;
  const std::unique_lock lock(asking_, std::try_to_lock);
  if (lock.owns_lock()) update();
}

void RxLosses::update() noexcept {
  for (const int fd : sockets_) {
    tpacket_stats since{};  // the last time: it begins at 0 again
    socklen_t size = sizeof since;
    if (getsockopt(fd, SOL_PACKET, PACKET_STATISTICS, &since, &size) == 0) by_sockets_ += since.tp_drops;
  }
  rte_eth_stats stats{};
  if (rte_eth_stats_get(id_, &stats) == 0) by_ethdev_ = std::max(by_ethdev_, stats.imissed + stats.rx_nombuf);
  known_.store(by_sockets_ + by_ethdev_, std::memory_order_relaxed);
}

}  // namespace uroce::drivers::dpdk
