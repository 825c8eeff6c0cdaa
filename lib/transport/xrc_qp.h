/// Queue pairs of extended reliable connections.
#pragma once

#include "transport/queue_pair_of.h"
#include "transport/requester.h"
#include "transport/responder.h"

namespace uroce::transport {

/// What an XRC target does not send: anything but responses.
class NoSender {
 public:
  static constexpr bool kSends = false;

  explicit NoSender(QpContext& qp) noexcept : qp_(qp) {}

  void reset() noexcept {}
  void start() noexcept {}
  void take_attributes(std::uint32_t) noexcept {}
  void on_resolved() noexcept {}
  [[nodiscard]] Gate gate(Ticks) const noexcept { return Gate::kIdle; }
  Gate transmit(TxContext&) noexcept { return Gate::kIdle; }
  void on_response(const wire::PacketView&, Ticks) noexcept {}
  void on_timer(Ticks) noexcept {}
  [[nodiscard]] Ticks deadline() const noexcept { return {}; }
  void flush() noexcept {}
  [[nodiscard]] bool is_drained() const noexcept { return true; }
  [[nodiscard]] std::uint32_t in_flight() const noexcept { return 0; }
  [[nodiscard]] Psn next_psn() const noexcept { return qp_.attr.sq_psn; }

 private:
  QpContext& qp_;
};

/// What an XRC initiator does not receive: anything but responses.
class NoReceiver {
 public:
  static constexpr wire::Transport kTransport = wire::Transport::kXrc;
  static constexpr bool kIsConnected = true;
  static constexpr bool kReceives = false;

  explicit NoReceiver(QpContext& qp) noexcept : qp_(qp) {}

  [[nodiscard]] static Count refuse_addresses(const QpContext& qp, const wire::PacketView& packet,
                                              const Gid& local) noexcept {
    return Responder::refuse_addresses(qp, packet, local);
  }
  void reset() noexcept {}
  void start() noexcept {}
  void resize_resources() noexcept {}
  void on_request(const wire::PacketView&) noexcept {}
  [[nodiscard]] bool has_responses() const noexcept { return false; }
  bool transmit(TxContext&) noexcept { return true; }
  void flush() noexcept {}
  void drop_responses() noexcept {}
  [[nodiscard]] Psn expected_psn() const noexcept { return qp_.attr.rq_psn; }

 private:
  QpContext& qp_;
};

/// The responder of RC, which takes receives and rights from the queue that each request names.
class XrcResponder : public Responder {
 public:
  static constexpr wire::Transport kTransport = wire::Transport::kXrc;
  using Responder::Responder;
};

/// IBA A14 ?: the sending end.
using XrcSendQp = QueuePairOf<Requester, NoReceiver>;
/// IBA A14 ?: the receiving end; it belongs to no process and has neither PD nor CQ.
using XrcRecvQp = QueuePairOf<NoSender, XrcResponder>;

}  // namespace uroce::transport
