/// A loop with RC QPs on any port, for worlds in which only time matters and not what the bytes are.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/poll_loop.h"
#include "transport/rc_qp.h"

namespace uroce::sim {

/// The path of a connection, as both of its ends have it.
struct LoopPath {
  PathMtu mtu = PathMtu::k1024;
  std::uint8_t traffic_class = 0;
  transport::QpBounds bounds;
};

/// All of its messages are WRITEs of the same bytes: of the first ones.
struct LoopHost {
  static constexpr std::uint32_t kMessageBytes = 65'536;
  static constexpr unsigned kPosted = 16;  // work requests that a send queue holds

  /// @param memory_bytes  what its messages may have at most
  LoopHost(std::unique_ptr<port::Port> own_port, unsigned index, std::uint32_t memory_bytes = kMessageBytes);

  [[nodiscard]] std::unique_ptr<transport::RcQp> make_qp(Qpn qpn);
  /// To RTS. Throws Violation.
  void connect(transport::RcQp& qp, const LoopHost& other, Qpn peer, const LoopPath& path, Ticks now);
  /// WRITEs of `bytes` to `other`, as many as there is room for. @return how many were posted
  unsigned post(transport::RcQp& qp, const LoopHost& other, unsigned count,
                std::uint32_t bytes = kMessageBytes);
  /// @return WRITEs that have completed. Throws Violation if one failed.
  unsigned take_completions();
  /// When an iteration is due although nothing arrives; unset: never.
  [[nodiscard]] Ticks deadline(Ticks now) const noexcept;

  unsigned number;
  std::unique_ptr<port::Port> port;
  mem::KeyTable keys;
  engine::PollLoop loop;
  transport::CqRing cq;
  std::vector<std::byte> memory;
  std::uint32_t key;
  std::vector<transport::QueuePair*> qps;
};

}  // namespace uroce::sim
