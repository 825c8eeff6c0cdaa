/// The packet sockets that a DPDK driver opens: it does not tell them, and a sleeping loop needs them.
#pragma once

#include <sys/socket.h>

#include <vector>

namespace uroce::drivers::dpdk {

/// Notes the packet sockets that this thread opens inside DPDK for as long as it lives, and what they are set
/// to.
///
/// Threads: one. Not to be nested.
class PacketSockets {
 public:
  /// @param queues  of the port: each has one that receives
  explicit PacketSockets(unsigned queues) noexcept;
  ~PacketSockets();
  PacketSockets(const PacketSockets&) = delete;
  PacketSockets& operator=(const PacketSockets&) = delete;

  /// Those that receive, by queue: they are open and bound to an interface.
  [[nodiscard]] std::vector<int> receiving() const;

  /// What the driver calls in place of socket(2).
  static void note(int fd) noexcept;
  /// What the driver calls in place of setsockopt(2). A single socket becomes no fanout group: the kernel
  /// would look for the addresses in each frame to choose one of one.
  static int set(int fd, int level, int name, const void* value, socklen_t size) noexcept;

 private:
  bool is_single_;
  std::vector<int> opened_;
};

}  // namespace uroce::drivers::dpdk
