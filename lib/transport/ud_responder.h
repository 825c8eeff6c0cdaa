/// The receiving half of a UD QP.
#pragma once

#include "transport/context.h"
#include "wire/packet.h"

namespace uroce::transport {

/// Takes datagrams from anybody who knows the Q_Key. IBA 9.8.3.
///
/// Threads: loop.
class UdResponder {
 public:
  static constexpr wire::Transport kTransport = wire::Transport::kUd;
  static constexpr bool kIsConnected = false;
  static constexpr bool kReceives = true;

  explicit UdResponder(QpContext& qp) noexcept : qp_(qp) {}

  /// The loop knows whether the destination is the port's; the source is anybody.
  [[nodiscard]] static Count refuse_addresses(const QpContext& qp, const wire::PacketView& packet,
                                              const Gid&) noexcept {
    return packet.deth().qkey == qp.attr.qkey ? Count::kRxRoce : Count::kDropBadQkey;
  }

  void reset() noexcept { qp_.receives.reset(); }
  void start() noexcept {}
  void resize_resources() noexcept {}
  void on_request(const wire::PacketView& packet) noexcept;

  [[nodiscard]] bool has_responses() const noexcept { return false; }
  bool transmit(TxContext&) noexcept { return true; }
  void drop_responses() noexcept {}
  void flush() noexcept { qp_.flush_receives(); }
  [[nodiscard]] Psn expected_psn() const noexcept { return Psn{}; }

 private:
  QpContext& qp_;
};

}  // namespace uroce::transport
