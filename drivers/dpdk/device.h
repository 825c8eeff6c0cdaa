/// One started ethdev: its queues, its mbuf pools, its end.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "drivers/dpdk/device_spec.h"
#include "drivers/dpdk/group_socket.h"
#include "drivers/dpdk/interface.h"
#include "drivers/dpdk/kernel_filter.h"
#include "drivers/dpdk/memif.h"
#include "drivers/dpdk/open_name.h"
#include "drivers/dpdk/packet_sender.h"
#include "drivers/dpdk/rx_losses.h"
#include "drivers/dpdk/tap_trigger.h"
#include "port/port.h"

struct rte_mempool;

namespace uroce::drivers::dpdk {

/// An ethdev with a mempool per queue, owned by the ports on its queues together.
///
/// Threads: open() and the destructor: control; the last port to go closes the device. The rest is constant.
class Device {
 public:
  /// Starts the EAL if need be, creates the device and starts it.
  /// @return as start_eal(); kNameInUse for a PCI device that is open here; kSystem with DPDK's own words and
  /// the spec's hint.
  static Result<std::shared_ptr<Device>> open(DeviceSpec spec);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  /// Lets frames to these group addresses in, or to all groups where the device cannot choose.
  /// Control: one thread at a time.
  void listen(std::span<const MacAddress> groups) noexcept;
  /// See port::Port. Control: one thread at a time.
  void keep_from_kernel(std::span<const Gid> addresses) noexcept;

  [[nodiscard]] std::uint16_t id() const noexcept { return id_; }
  [[nodiscard]] std::uint16_t queues() const noexcept { return static_cast<std::uint16_t>(pools_.size()); }
  [[nodiscard]] rte_mempool* pool(std::uint16_t queue) const noexcept { return pools_[queue]; }
  [[nodiscard]] const port::PortInfo& info() const noexcept { return info_; }
  /// Sends what a queue has to send; nullptr: the ethdev does.
  [[nodiscard]] PacketSender* sender(std::uint16_t queue) noexcept {
    return queue < senders_.size() ? &senders_[queue] : nullptr;
  }
  /// Threads: the loop of one of the ports.
  [[nodiscard]] port::LinkState link_state() noexcept;
  /// Readable while frames wait in a queue of a port that the kernel wakes sleepers of; else -1.
  [[nodiscard]] int rx_fd(std::uint16_t queue) const noexcept {
    return queue < rx_fds_.size() ? rx_fds_[queue] : -1;
  }
  /// nullptr: it counts none.
  [[nodiscard]] RxLosses* losses() noexcept { return losses_.has_value() ? &*losses_ : nullptr; }
  [[nodiscard]] MemifLink* memif() const noexcept { return memif_.get(); }  ///< nullptr if it is none

 private:
  Device(DeviceSpec spec, OpenName name);
  Status create();
  Status configure();
  Status set_up_queues();
  Status set_up_rx(std::uint16_t queue, unsigned node);
  Status start();
  Status open_senders();
  void read_info();
  [[nodiscard]] Error failure(const std::string& what) const;

  DeviceSpec spec_;
  OpenName name_;  ///< DPDK's; given back when the device is closed
  std::uint16_t id_ = 0;
  bool exists_ = false;
  std::unique_ptr<MemifLink> memif_;
  std::vector<rte_mempool*> pools_;
  std::vector<int> rx_fds_;  ///< the driver's
  std::vector<PacketSender> senders_;
  std::optional<RxLosses> losses_;
  std::optional<TapTrigger> tap_;
  port::PortInfo info_;
  std::optional<InterfaceWatch> watch_;  ///< of an interface that the kernel has
  GroupSocket listeners_;
  KernelFilter filter_;
};

}  // namespace uroce::drivers::dpdk
