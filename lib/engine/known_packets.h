/// Packets like those that came last, which need not be parsed and judged in all parts again.
#pragma once

#include <array>
#include <cstddef>
#include <span>

#include "transport/context.h"
#include "wire/header_pattern.h"

namespace uroce::engine {

/// The headers of the packets that came last, by their length, and the path on which an RC QP took one.
///
/// Threads: loop.
class KnownPackets {
 public:
  struct alignas(64) Kind {
    wire::HeaderPattern pattern;
    /// Of RC QPs that such packets are for: addresses, P_Key and transport are right; nullptr: of none.
    const transport::Path* path = nullptr;

    [[nodiscard]] bool is_for(const transport::QpContext& qp) const noexcept {
      return qp.path == path && qp.type == QpType::kRc;
    }
  };

  /// What frames like that one were like: of that length and that sender, and with the same opcode, if they
  /// are IPv4 without a VLAN tag.
  [[nodiscard]] Kind& of(std::span<const std::byte> frame) noexcept {
    constexpr std::size_t kSender = 11;  // the last byte of its MAC address
    constexpr std::size_t kOpcode = wire::Ether::kSize + wire::Ipv4::kSize + wire::Udp::kSize;
    if (frame.size() <= kOpcode) return kinds_[0];
    const auto byte = [frame](std::size_t at) { return std::to_integer<std::size_t>(frame[at]); };
    return kinds_[(frame.size() / 4 + byte(kOpcode) + 5 * byte(kSender)) % kKinds];
  }

  /// A QP has taken `packet`.
  void learn(const wire::PacketView& packet, const transport::QpContext& qp) noexcept {
    Kind& kind = of({packet.frame, packet.frame_len});
    if (!kind.pattern.is_shown_by(packet)) kind.pattern.learn(packet);
    const bool is_connected = qp.type == QpType::kRc && packet.op->transport == wire::Transport::kRc;
    kind.path = is_connected ? qp.path : nullptr;
  }
  /// QPs, their paths or the port's addresses change: who is meant is to be judged anew.
  void forget_paths() noexcept {
    for (Kind& kind : kinds_) kind.path = nullptr;
  }

 private:
  static constexpr std::size_t kKinds = 16;
  static_assert(sizeof(Kind) == 3 * 64, "cache lines");

  std::array<Kind, kKinds> kinds_;
};

}  // namespace uroce::engine
