/// What has tap's driver read its queues.
#pragma once

#include <cstdint>
#include <vector>

struct rte_eth_rxtx_callback;

namespace uroce::drivers::dpdk {

/// DPDK's driver reads a queue only after a realtime signal that it takes from the program, which interrupts
/// the program's own system calls; where all threads block it, nothing is ever read. Here it gets no signal:
/// each burst has the next one look.
///
/// Threads: control, while nobody polls the device.
class TapTrigger {
 public:
  /// @param id, queues  of a tap device whose queues are set up
  TapTrigger(std::uint16_t id, std::uint16_t queues);
  TapTrigger(const TapTrigger&) = delete;
  TapTrigger& operator=(const TapTrigger&) = delete;
  ~TapTrigger();

  /// Whether all queues will be read.
  [[nodiscard]] bool is_whole() const noexcept;

 private:
  std::uint16_t id_;
  std::vector<const rte_eth_rxtx_callback*> callbacks_;  // by queue
};

}  // namespace uroce::drivers::dpdk
