/// The packet sockets that a DPDK driver opens: it does not tell them, and a sleeping loop needs them.
#pragma once

#include <utility>
#include <vector>

namespace uroce::drivers::dpdk {

/// Notes the packet sockets that this thread opens inside DPDK for as long as it lives.
///
/// Threads: one. Not to be nested.
class PacketSockets {
 public:
  PacketSockets() noexcept;
  ~PacketSockets();
  PacketSockets(const PacketSockets&) = delete;
  PacketSockets& operator=(const PacketSockets&) = delete;

  /// Those that receive, by queue: they are open and bound to an interface.
  [[nodiscard]] std::vector<int> receiving() const;

  /// What the driver calls in place of socket(2).
  static void note(int fd) noexcept;

 private:
  std::vector<int> opened_;
};

}  // namespace uroce::drivers::dpdk
