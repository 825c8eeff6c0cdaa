/// The receiving half of an RC QP: request packets -> memory, receive queue, responses.
#pragma once

#include <cstdint>

#include "mem/sge_cursor.h"
#include "transport/context.h"
#include "transport/responder_resources.h"
#include "wire/packet.h"

namespace uroce::transport {

/// Responder of one RC QP. IBA 9.7.4, 9.7.5.1.
///
/// A new request is judged by ordered checks that change nothing (responder_checks.cc) and then executed
/// whole. Responses are only noted while packets come in and leave in transmit(), so that one ACK answers a
/// whole burst.
///
/// Threads: loop.
class Responder {
 public:
  explicit Responder(QpContext& qp) noexcept : qp_(qp) {}

  void reset() noexcept;
  /// Takes the attributes of the move to RTR.
  void start();
  /// Makes room for attr.max_dest_rd_atomic requests; called whenever that changes.
  void resize_resources() { resources_.resize(qp_.attr.max_dest_rd_atomic); }

  /// A request packet whose ICRC, addresses and P_Key are right.
  void on_request(const wire::PacketView& packet) noexcept;

  [[nodiscard]] bool has_responses() const noexcept {
    return resources_.has_queued() || ack_pending_ || nak_pending_ != 0;
  }
  /// Sends what is due, in request order. @return false if budget or room ended it.
  bool transmit(TxContext& tx) noexcept;

  /// Completes every posted receive with WR_FLUSH_ERR.
  void flush() noexcept;
  /// Forgets responses that are still due, when the QP failed for another reason than the peer's request.
  void drop_responses() noexcept;

  [[nodiscard]] Psn expected_psn() const noexcept { return expected_psn_; }
  [[nodiscard]] std::uint32_t msn() const noexcept { return msn_; }

 private:
  /// The message that is coming in.
  enum class Message : std::uint8_t { kNone, kSend, kWrite };

  // responder_checks.cc: decide, in this order; the first fault counts
  [[nodiscard]] Fault check(const wire::PacketView& packet) const noexcept;
  [[nodiscard]] Fault check_opcode_sequence(const wire::OpcodeInfo& op) const noexcept;
  [[nodiscard]] Fault check_access(const wire::OpcodeInfo& op) const noexcept;
  [[nodiscard]] Fault check_resources(const wire::OpcodeInfo& op) const noexcept;
  [[nodiscard]] Fault check_length(const wire::PacketView& packet) const noexcept;
  [[nodiscard]] Fault check_write_length(const wire::PacketView& packet) const noexcept;
  [[nodiscard]] Fault check_remote_key(const wire::PacketView& packet) const noexcept;

  // responder.cc: act
  void on_new_request(const wire::PacketView& packet) noexcept;
  void on_gap() noexcept;
  void on_fault(const wire::PacketView& packet, Fault fault) noexcept;
  void execute(const wire::PacketView& packet) noexcept;
  void execute_send(const wire::PacketView& packet) noexcept;
  void execute_write(const wire::PacketView& packet) noexcept;
  void execute_read(const wire::PacketView& packet) noexcept;
  void execute_atomic(const wire::PacketView& packet) noexcept;
  void complete_receive(const wire::PacketView& packet, std::uint32_t byte_len) noexcept;
  void fail(Fault fault, bool blames_recv) noexcept;
  void advance(std::uint32_t packets) noexcept;
  std::uint32_t finish_message() noexcept;

  // duplicates.cc
  void on_duplicate(const wire::PacketView& packet) noexcept;
  void replay_read(const wire::PacketView& packet) noexcept;

  bool emit_acknowledge(TxContext& tx, std::uint8_t syndrome, Psn psn) noexcept;
  bool emit_read_response(TxContext& tx, ResponderResource& request) noexcept;
  bool emit_atomic_response(TxContext& tx, const ResponderResource& request) noexcept;
  [[nodiscard]] bool has_receive() const noexcept { return recv_head_ != qp_.rq.tail(); }

  QpContext& qp_;
  Psn expected_psn_;
  Psn ack_psn_;            // of the newest SEND or WRITE packet: what ACKs carry
  std::uint32_t msn_ = 0;  // completed messages, 24 bits on the wire
  Message message_ = Message::kNone;
  bool gap_reported_ = false;  // a NAK or RNR NAK for expected_psn_ has gone out
  bool ack_pending_ = false;
  std::uint8_t nak_pending_ = 0;  // syndrome; 0: none

  std::uint32_t tolerated_ = 0;  // bad requests with expected_psn_ that were dropped

  std::uint32_t recv_head_ = 0;  // receive WQE in use, or next
  std::uint32_t received_ = 0;   // bytes of the message so far
  mem::SgeCursor recv_cursor_;

  std::uint64_t write_va_ = 0;    // where the WRITE's next byte goes
  std::uint32_t write_left_ = 0;  // bytes of the WRITE still to come
  std::uint32_t write_length_ = 0;
  std::uint32_t write_rkey_ = 0;

  ResponderResources resources_;
};

}  // namespace uroce::transport
