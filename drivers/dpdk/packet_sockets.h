/// The packet sockets that a DPDK driver opens: it does not tell them, and a sleeping loop needs them.
#pragma once

#include <sys/socket.h>

#include <optional>
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

  /// Of each that the driver gets from socket(2). @return false without memory to note it: it is not to be
  /// used then, or those after it would count as another queue's.
  [[nodiscard]] static bool note(int fd) noexcept;
  /// What the driver calls in place of setsockopt(2). A single socket becomes no fanout group: the kernel
  /// would look for the addresses in each frame to choose one of one. A group has the number that the kernel
  /// finds unused.
  static int set(int fd, int level, int name, const void* value, socklen_t size) noexcept;

 private:
  int join_group(int fd, unsigned wanted) noexcept;

  bool is_single_;
  std::optional<unsigned> group_;  ///< its number, once a socket has made it
  std::vector<int> opened_;
};

}  // namespace uroce::drivers::dpdk
