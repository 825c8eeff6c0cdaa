/// The sending half of UC and UD QPs: send queue -> packets that nobody acknowledges.
#pragma once

#include <cstdint>

#include "mem/sge_cursor.h"
#include "transport/context.h"
#include "transport/frame_writer.h"
#include "transport/requester.h"
#include "wire/packet.h"

namespace uroce::transport {

/// Requester of one UC or UD QP. IBA 9.8.2, 9.8.3. A send completes when its last packet has left. One that
/// cannot be sent completes with its error and moves the QP to SQE.
///
/// Threads: loop.
class UnreliableSender {
 public:
  static constexpr bool kSends = true;

  explicit UnreliableSender(QpContext& qp) noexcept : qp_(qp) {}

  /// Back to the state of a new QP; what is still in the send queue is forgotten.
  void reset() noexcept;
  /// Takes the attributes of the move to RTS.
  void start() noexcept { psn_ = qp_.attr.sq_psn; }
  /// Another peer is waited for as the first one was.
  void take_attributes(std::uint32_t mask) noexcept {
    if ((mask & qp_attr::kAv) != 0) give_up_ = peer_patience_ = Ticks{};
  }
  void on_resolved() noexcept { give_up_ = peer_patience_ = Ticks{}; }

  [[nodiscard]] Gate gate(Ticks now) const noexcept;
  /// @return the gate that ended it; kOpen if budget or room ended it.
  Gate transmit(TxContext& tx) noexcept;
  /// There are none.
  void on_response(const wire::PacketView&, Ticks) noexcept {}
  /// A destination whose Ethernet address nobody tells: what was to go there is lost.
  void on_timer(Ticks now) noexcept;
  [[nodiscard]] Ticks deadline() const noexcept { return give_up_; }

  void flush() noexcept;
  [[nodiscard]] bool is_drained() const noexcept { return sent_packets_ == 0; }
  [[nodiscard]] std::uint32_t in_flight() const noexcept { return 0; }
  [[nodiscard]] Psn next_psn() const noexcept { return psn_; }

 private:
  [[nodiscard]] bool is_datagram() const noexcept { return qp_.init.type == QpType::kUd; }
  [[nodiscard]] Fault check(const SendWqe& wqe) const noexcept;
  [[nodiscard]] bool is_resolved(const SendWqe& wqe) const noexcept;
  [[nodiscard]] Ticks& patience() noexcept;
  bool emit(TxContext& tx) noexcept;
  bool run_local(const SendWqe& wqe, TxContext& tx) noexcept;
  bool emit_packet(const SendWqe& wqe, TxContext& tx) noexcept;
  bool emit_datagram(const SendWqe& wqe, TxContext& tx) noexcept;
  void send(FrameWriter& frame, TxContext& tx) noexcept;
  void retire(Fault fault) noexcept;
  void fail(Fault fault) noexcept;

  QpContext& qp_;
  std::uint32_t head_ = 0;          // WQE that sends next
  std::uint32_t sent_packets_ = 0;  // of it
  Psn psn_;                         // of the next packet
  Ticks give_up_;                   // waiting for an Ethernet address until then
  Ticks peer_patience_;             // UC: with that of the peer
  mem::SgeCursor cursor_;
};

}  // namespace uroce::transport
