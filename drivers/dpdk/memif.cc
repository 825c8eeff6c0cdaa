#include "drivers/dpdk/memif.h"

#include <rte_cycles.h>
#include <rte_ethdev.h>
#include <rte_mbuf.h>
#include <sys/socket.h>

#include <algorithm>
#include <bit>

#include "drivers/dpdk/device_spec.h"
#include "drivers/dpdk/socket_path.h"

namespace uroce::drivers::dpdk {
namespace {

constexpr std::uint32_t kDefaultLinkMtu = 4200;  // carries path MTU 4096
/// 512 buffers a direction: 2 MiB of 4 KiB frames, which stays in a core's L2.
constexpr std::uint32_t kDefaultRingSize = 512;
constexpr std::uint64_t kLargestBuffer = UINT16_MAX - RTE_PKTMBUF_HEADROOM;  // of an mbuf, bytes
constexpr unsigned kAttemptsPerSecond = 50;                                  // of a client without a server

/// Decides the role, and takes a dead server's socket out of the way.
/// @return whether this end is the client.
Result<bool> settle_role(const std::string& path, std::string_view role, const std::string& text) {
  if (role != "auto" && role != "server" && role != "client") {
    return Error{Errc::kConfig,
                 "port \"" + text + "\": role=" + std::string(role) + " is none of server, client, auto"};
  }
  const auto holder = find_holder(path, SOCK_SEQPACKET);
  if (!holder) return holder.error();
  const bool is_client = role == "client" || (role == "auto" && *holder == Holder::kAlive);
  if (is_client && *holder != Holder::kForbidden) return true;
  if (Status status = take_over(path, *holder, text); !status) return status.error();
  return false;
}

}  // namespace

Result<DeviceSpec> describe_memif(PortSpec spec, const PortOptions& options) {
  if (Status status = check_socket_path(spec); !status) return status.error();
  auto link_mtu = take_link_mtu(spec, options, kDefaultLinkMtu);
  if (!link_mtu) return link_mtu.error();
  // One buffer a frame: chained ones cost a quarter of the rate.
  const std::uint32_t whole_frame = (frame_bytes(*link_mtu) + 63) / 64 * 64;
  auto bsize = spec.take_number("bsize", std::max(whole_frame, 2048U), 256, kLargestBuffer);
  if (!bsize) return bsize.error();
  auto rsize = spec.take_number("rsize", kDefaultRingSize, 32, 16'384);
  if (!rsize) return rsize.error();
  if (!std::has_single_bit(*rsize)) {
    return Error{Errc::kConfig,
                 "port \"" + spec.text + "\": rsize=" + std::to_string(*rsize) + " is not a power of two"};
  }
  const std::string role = spec.take_or("role", "auto");

  DeviceSpec device{.text = spec.text};
  auto lock = lock_directory_of(spec.argument);
  if (!lock) return lock.error();
  device.lock = std::move(*lock);
  auto is_client = settle_role(spec.argument, role, spec.text);
  if (!is_client) return is_client.error();
  device.device = "net_memif";
  device.arguments = std::string("role=") + (*is_client ? "client" : "server") + ",socket=" + spec.argument +
                     ",socket-abstract=no,bsize=" + std::to_string(*bsize) +
                     ",rsize=" + std::to_string(std::countr_zero(*rsize));
  device.link_mtu = *link_mtu;
  device.mbuf_room = std::max(static_cast<std::uint32_t>(*bsize), whole_frame);
  device.side = *is_client ? 1 : 0;
  device.is_two_ended = true;
  device.is_memif = true;
  device.is_client = *is_client;
  return device;
}

void MemifLink::attach(std::uint16_t port_id) noexcept {
  port_id_ = port_id;
  next_attempt_ = rte_rdtsc() + rte_get_tsc_hz() / kAttemptsPerSecond;
}

bool MemifLink::service(std::uint64_t now) noexcept {
  channel_.dispatch();
  if (is_client_ && channel_.is_idle() && static_cast<std::int64_t>(now - next_attempt_) >= 0) {
    reconnect();
    next_attempt_ = now + rte_get_tsc_hz() / kAttemptsPerSecond;
  }
  rte_eth_link link{};
  return rte_eth_link_get_nowait(port_id_, &link) == 0 && link.link_status == RTE_ETH_LINK_UP;
}

void MemifLink::reconnect() noexcept {
  const ControlChannel::Scope scope(&channel_);
  rte_eth_dev_stop(port_id_);
  rte_eth_dev_start(port_id_);  // fails while there is no server
}

}  // namespace uroce::drivers::dpdk
