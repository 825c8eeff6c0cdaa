/// A memif port's connection: noticed, lost, made again.
#pragma once

#include <cstdint>
#include <memory>

#include "drivers/dpdk/control_channel.h"

namespace uroce::drivers::dpdk {

/// Watches over the connection of one memif ethdev.
///
/// Threads: the one that polls the port. Lifetime: longer than the ethdev.
class MemifLink {
 public:
  explicit MemifLink(bool is_client) noexcept : is_client_(is_client) {}

  [[nodiscard]] ControlChannel& channel() noexcept { return channel_; }
  /// The ethdev has been started, successfully unless this is a client without a server.
  void attach(std::uint16_t port_id) noexcept;

  /// Does what is due: handshakes, tear-down, a client's next attempt to connect. Costs one poll(2) if
  /// nothing is.
  /// @param now  TSC
  /// @return whether frames can be carried now.
  bool service(std::uint64_t now) noexcept;

 private:
  void reconnect() noexcept;

  ControlChannel channel_;
  bool is_client_;
  std::uint16_t port_id_ = 0;
  std::uint64_t next_attempt_ = 0;  ///< TSC
};

}  // namespace uroce::drivers::dpdk
