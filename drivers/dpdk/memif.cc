#include "drivers/dpdk/memif.h"

#include <fcntl.h>
#include <rte_cycles.h>
#include <rte_ethdev.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

#include "drivers/dpdk/device_spec.h"

namespace uroce::drivers::dpdk {
namespace {

constexpr std::uint32_t kDefaultLinkMtu = 4200;  // carries path MTU 4096
/// 512 buffers a direction: 2 MiB of 4 KiB frames, which stays in a core's L2.
constexpr std::uint32_t kDefaultRingSize = 512;
constexpr unsigned kAttemptsPerSecond = 50;  // of a client without a server

enum class Holder { kNobody, kDead, kAlive, kNotASocket };

/// Who listens on the socket file. A live server sees a connection that ends at once.
Holder find_holder(const std::string& path) {
  struct stat status {};
  if (lstat(path.c_str(), &status) != 0) return Holder::kNobody;
  if (!S_ISSOCK(status.st_mode)) return Holder::kNotASocket;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  const int code = connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 ? 0 : errno;
  if (fd >= 0) close(fd);
  return code == ECONNREFUSED ? Holder::kDead : code == ENOENT ? Holder::kNobody : Holder::kAlive;
}

Status check_path(const PortSpec& spec, const std::string& directory) {
  const std::string& path = spec.argument;
  const std::string example = "; e.g. memif:/tmp/demo.sock";
  if (path.empty() || path.front() != '/' || path.back() == '/') {
    return Error{Errc::kConfig,
                 "port \"" + spec.text + "\" must name a socket by an absolute path" + example};
  }
  if (path.size() >= sizeof(sockaddr_un::sun_path)) {
    return Error{Errc::kConfig, "socket path " + path + " is longer than " +
                                    std::to_string(sizeof(sockaddr_un::sun_path) - 1) + " bytes" + example};
  }
  struct stat status {};
  if (stat(directory.c_str(), &status) != 0 || !S_ISDIR(status.st_mode)) {
    return Error{Errc::kNotFound,
                 "no directory " + directory + " for the memif socket; run: mkdir -p " + directory};
  }
  if (access(directory.c_str(), R_OK | W_OK | X_OK) != 0) {
    return Error{Errc::kPermission, "directory " + directory +
                                        " of the memif socket is not writable for you; take " +
                                        "one of your own" + example};
  }
  return {};
}

/// So that of two processes that start at once one becomes the server, and neither removes the other's
/// socket.
Result<DirectoryLock> lock_directory(const std::string& directory) {
  const int fd = open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DirectoryLock lock(fd);
  constexpr auto kPatience = std::chrono::seconds(2);
  const auto give_up = std::chrono::steady_clock::now() + kPatience;
  while (flock(fd, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR) {
      return Error{Errc::kSystem, "cannot lock directory " + directory + ": " + std::strerror(errno)};
    }
    if (std::chrono::steady_clock::now() > give_up) {
      return Error{Errc::kTimeout, "directory " + directory + " stays locked; see: fuser " + directory};
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return lock;
}

/// Decides the role, and takes a dead server's socket out of the way.
/// @return whether this end is the client.
Result<bool> settle_role(const std::string& path, std::string_view role, const std::string& text) {
  if (role != "auto" && role != "server" && role != "client") {
    return Error{Errc::kConfig,
                 "port \"" + text + "\": role=" + std::string(role) + " is none of server, client, auto"};
  }
  const Holder holder = find_holder(path);
  if (holder == Holder::kNotASocket) {
    return Error{Errc::kNameInUse, path + " exists and is not a socket; take another name"};
  }
  if (role == "client") return true;
  if (holder == Holder::kAlive) {
    if (role == "auto") return true;
    return Error{Errc::kNameInUse, "a live process serves memif socket " + path +
                                       " already; use role=client or another path; see: fuser " + path};
  }
  if (holder == Holder::kDead && unlink(path.c_str()) != 0 && errno != ENOENT) {
    return Error{Errc::kPermission,
                 "memif socket " + path + " is stale but cannot be removed; run: sudo rm " + path};
  }
  return false;
}

}  // namespace

Result<DeviceSpec> describe_memif(PortSpec spec, const PortOptions& options) {
  const std::string directory = spec.argument.substr(0, std::max<std::size_t>(spec.argument.rfind('/'), 1));
  if (Status status = check_path(spec, directory); !status) return status.error();
  auto link_mtu = take_link_mtu(spec, options, kDefaultLinkMtu);
  if (!link_mtu) return link_mtu.error();
  // One buffer a frame: chained ones cost a quarter of the rate.
  const std::uint32_t whole_frame = (frame_bytes(*link_mtu) + 63) / 64 * 64;
  auto bsize = spec.take_number("bsize", std::max(whole_frame, 2048U), 256, 65'472);
  if (!bsize) return bsize.error();
  auto rsize = spec.take_number("rsize", kDefaultRingSize, 32, 16'384);
  if (!rsize) return rsize.error();
  if (!std::has_single_bit(*rsize)) {
    return Error{Errc::kConfig,
                 "port \"" + spec.text + "\": rsize=" + std::to_string(*rsize) + " is not a power of two"};
  }
  const std::string role = spec.take_or("role", "auto");
  if (Status status = spec.finish(); !status) return status.error();

  DeviceSpec device{.text = spec.text};
  auto lock = lock_directory(directory);
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
