/// A port specification turned into what DPDK has to be told.
#pragma once

#include <cstdint>
#include <string>

#include "base/owned_fd.h"
#include "drivers/registry.h"
#include "drivers/spec.h"
#include "uroce/result.h"

namespace uroce::drivers::dpdk {

/// A lock on a directory, held while a socket in it is looked at and taken over.
using DirectoryLock = OwnedFd;

/// Who sends the frames of a port: the ethdev, or a PacketSender.
enum class Sends : std::uint8_t { kEthdev, kThroughQdisc, kPastQdisc };

/// One ethdev to be made.
struct DeviceSpec {
  std::string text{};             ///< as the user wrote it
  std::string bus = "vdev";       ///< or "pci"
  std::string device{};           ///< a vdev's driver ("net_memif"), to be numbered; or a PCI address
  std::string arguments{};        ///< key=value,...
  std::string netdev{};           ///< the kernel's, if it is one
  std::string hint{};             ///< what to try if DPDK refuses; may be empty
  std::uint32_t link_mtu = 1500;  ///< bytes
  std::uint32_t mbuf_room = 0;    ///< bytes for one frame
  std::uint32_t mbufs = 511;      ///< per queue
  std::uint16_t rx_descriptors = 64;
  std::uint16_t tx_descriptors = 64;
  unsigned queues = 1;
  unsigned side = 0;
  Sends sends = Sends::kEthdev;
  bool is_two_ended = false;
  bool is_memif = false;
  bool is_client = false;          ///< of memif: connects, and again after each loss
  bool sets_mtu = false;           ///< tell the device its MTU
  bool lends_mbufs = false;        ///< to the kernel: WholeUmem
  bool waits_for_trigger = false;  ///< before it reads a queue: TapTrigger
  bool no_huge = false;
  bool is_exclusive = false;  ///< RoCE frames to the port's addresses are not for the kernel's stack
  bool has_own_mac = false;   ///< the port's address must differ from the device's
  DirectoryLock lock{};       ///< until the device exists
};

/// Reads the options of `spec` and checks everything that can be known before DPDK is asked.
/// @return kUnsupported if no DPDK driver has that name; else as open_ports().
Result<DeviceSpec> describe_device(PortSpec spec, const PortOptions& options);

/// The driver's option mtu=, else PortOptions::link_mtu, else `fallback`.
Result<std::uint32_t> take_link_mtu(PortSpec& spec, const PortOptions& options, std::uint32_t fallback);

/// A frame of a link: Ethernet header, VLAN tag, payload.
[[nodiscard]] constexpr std::uint32_t frame_bytes(std::uint32_t link_mtu) noexcept {
  return link_mtu + 18;
}

Result<DeviceSpec> describe_memif(PortSpec spec, const PortOptions& options);

}  // namespace uroce::drivers::dpdk
