/// ACKs of several QPs on their way into one packet.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "transport/context.h"
#include "wire/joint_ack.h"

namespace uroce::transport {

/// ACKs to one peer that were due in the same iteration of a loop and leave together: wire/joint_ack.h. Of
/// one alone that is an ordinary ACK. All are of QPs that have agreed on it with their peers.
///
/// Threads: loop.
class JointAcks {
 public:
  [[nodiscard]] bool empty() const noexcept { return count_ == 0; }
  /// To the peer of that path.
  [[nodiscard]] bool are_on(const Path& path) const noexcept { return count_ > 0 && path_ == &path; }
  void drop() noexcept { count_ = 0; }

  /// Takes the ACK of `qp`; sends the others if they are on another path, or too many.
  /// @return false if the port has no room for these: nothing has happened then
  [[nodiscard]] bool add(const QpContext& qp, Psn psn, const wire::Aeth& aeth, TxContext& tx) noexcept;
  /// Sends them. @return false if the port has no room now; nothing has happened then.
  bool send(TxContext& tx) noexcept;

 private:
  static constexpr std::uint32_t kMost = wire::kMostInJointAck;
  static constexpr std::uint32_t kSize = wire::AckEth::kSize;  // bytes

  const Path* path_ = nullptr;
  Counters* counters_ = nullptr;
  wire::AckEth first_;
  std::uint8_t opcode_base_ = 0;  // QpContext::opcode_base of them all
  std::uint16_t udp_src_port_ = 0;
  std::uint32_t count_ = 0;
  std::uint32_t most_ = 0;
  std::array<std::byte, (kMost - 1) * kSize> others_;
};

}  // namespace uroce::transport
