#include "drivers/dpdk/tap_trigger.h"

#include <fcntl.h>
#include <rte_ethdev.h>
#include <rte_malloc.h>

#include <algorithm>
#include <atomic>
#include <csignal>

namespace uroce::drivers::dpdk {
namespace {

/// What the driver would do at a signal: it notes that there may be something. One for all devices.
std::atomic<void (*)(int)> trigger{nullptr};

std::uint16_t look_next_time(std::uint16_t /*port*/, std::uint16_t /*queue*/, rte_mbuf** /*frames*/,
                             std::uint16_t count, std::uint16_t /*most*/, void* /*unused*/) {
  if (auto* const note = trigger.load(std::memory_order_relaxed); note != nullptr) note(0);
  return count;
}

}  // namespace

TapTrigger::TapTrigger(std::uint16_t id, std::uint16_t queues) : id_(id) {
  for (std::uint16_t queue = 0; queue < queues; ++queue)
    callbacks_.push_back(rte_eth_add_rx_callback(id, queue, look_next_time, nullptr));
}

TapTrigger::~TapTrigger() {
  for (std::uint16_t queue = 0; queue < callbacks_.size(); ++queue) {
    if (callbacks_[queue] == nullptr) continue;
    (void)rte_eth_remove_rx_callback(id_, queue, callbacks_[queue]);
    rte_free(const_cast<rte_eth_rxtx_callback*>(callbacks_[queue]));
  }
}

bool TapTrigger::is_whole() const noexcept {
  return std::ranges::find(callbacks_, nullptr) == callbacks_.end();
}

}  // namespace uroce::drivers::dpdk

extern "C" {
int uroce_tap_sigaction(int number, const struct sigaction* act, struct sigaction* old);
int uroce_tap_fcntl(int fd, int command, long value);
}

/// In place of sigaction(2) in the driver: all signals are free, or its own.
int uroce_tap_sigaction(int /*number*/, const struct sigaction* act, struct sigaction* old) {
  using uroce::drivers::dpdk::trigger;
  if (old != nullptr) {
    *old = {};
    old->sa_handler = trigger.load();
  }
  if (act != nullptr) trigger.store(act->sa_handler);
  return 0;
}

/// In place of fcntl(2) there: no signal for what comes.
int uroce_tap_fcntl(int fd, int command, long value) {
  if (command == F_SETSIG || command == F_SETOWN) return 0;
  return fcntl(fd, command, command == F_SETFL ? value & ~long{O_ASYNC} : value);
}
