/// Packets like those that came last, which need not be parsed and judged in all parts again.
#pragma once

#include <array>
#include <cstddef>

#include "transport/queue_pair.h"
#include "wire/header_pattern.h"

namespace uroce::engine {

/// The headers of the packets that came last, by their length, and the QP that took one of them for its own.
///
/// Threads: loop.
class KnownPackets {
 public:
  struct alignas(64) Kind {
    wire::HeaderPattern pattern;
    /// An RC QP that such packets are for, with the right addresses, P_Key and transport; nullptr: none.
    transport::QueuePair* qp = nullptr;

    [[nodiscard]] bool is_for_qp(Qpn qpn) const noexcept { return qp != nullptr && qp->context().qpn == qpn; }
  };

  /// What frames of that length were like.
  [[nodiscard]] Kind& of(std::size_t frame_len) noexcept { return kinds_[frame_len / 4 % kKinds]; }

  /// `qp` has taken `packet`.
  void learn(const wire::PacketView& packet, transport::QueuePair& qp) noexcept {
    Kind& kind = of(packet.frame_len);
    if (!kind.pattern.is_shown_by(packet)) kind.pattern.learn(packet);
    const bool is_connected =
        qp.context().type == QpType::kRc && packet.op->transport == wire::Transport::kRc;
    kind.qp = is_connected ? &qp : nullptr;
  }
  /// QPs, their paths or the port's addresses change: who is meant is to be judged anew.
  void forget_qps() noexcept {
    for (Kind& kind : kinds_) kind.qp = nullptr;
  }

 private:
  static constexpr std::size_t kKinds = 8;
  static_assert(sizeof(Kind) == 256);

  std::array<Kind, kKinds> kinds_;
};

}  // namespace uroce::engine
