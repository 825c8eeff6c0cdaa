/// The receiving half of an RC QP: request packets -> memory, receive queue, responses.
#pragma once

#include <bit>
#include <cstdint>
#include <memory>
#include <utility>

#include "transport/held_frames.h"
#include "transport/message_sink.h"
#include "transport/responder_resources.h"
#include "wire/packet.h"

namespace uroce::transport {

/// Responder of one RC QP. IBA 9.7.4, 9.7.5.1.
///
/// A new request is checked and executed whole (MessageSink). Responses are only noted while packets come in
/// and leave in transmit(), so that one ACK answers a whole burst.
///
/// Threads: loop.
class Responder : private MessageSink {
 public:
  static constexpr wire::Transport kTransport = wire::Transport::kRc;
  static constexpr bool kIsConnected = true;
  static constexpr bool kReceives = true;

  static constexpr std::size_t kFlushPiece = 64U << 10U;  ///< bytes that leave the caches in one turn

  explicit Responder(QpContext& qp) noexcept : MessageSink(qp, partial_message_) {}

  using MessageSink::refuse_addresses;

  void reset() noexcept;
  /// Takes the attributes of the move to RTR.
  void start();
  /// Makes room for attr.max_dest_rd_atomic requests; called whenever that changes. Up to a power of two:
  /// Soft-RoCE and NICs round the depth of their requesters up to one.
  void resize_resources() {
    const std::uint32_t depth = qp_.max_dest_rd_atomic;
    resources_.resize(depth == 0 ? 0 : std::bit_ceil(depth));
  }

  /// A request packet whose ICRC, addresses and P_Key are right.
  void on_request(const wire::PacketView& packet) noexcept;

  [[nodiscard]] bool has_responses() const noexcept {
    return resources_.has_queued() || ack_pending_ || nak_pending_ != 0 || owes_credits();
  }
  [[nodiscard]] bool owes_only_ack() const noexcept {
    return ack_pending_ && nak_pending_ == 0 && !resources_.has_queued() && !owes_credits();
  }
  /// Whether what is due next is a READ's response that congestion control keeps back.
  [[nodiscard]] bool is_held(Ticks now) const noexcept {
    const ResponderResource* const next = resources_.front();
    return next != nullptr && !next->is_atomic() && !qp_.congestion->rate.may_send(now);
  }
  /// The end has come: what was taken is acknowledged, asked for or not.
  void owe_last_ack() noexcept { ack_pending_ |= std::exchange(is_unasked_, false); }
  /// Sends what is due, in request order. @return false if budget or room ended it.
  bool transmit(TxContext& tx) noexcept;

  /// Completes every posted receive with WR_FLUSH_ERR.
  using MessageSink::flush;
  /// Forgets responses that are still due, when the QP failed for another reason than the peer's request.
  void drop_responses() noexcept;

  [[nodiscard]] Psn expected_psn() const noexcept { return expected_psn_; }
  [[nodiscard]] std::uint32_t msn() const noexcept { return msn_; }

 private:
  // responder.cc: act
  void on_next_request(const wire::PacketView& packet) noexcept;
  void on_new_request(const wire::PacketView& packet) noexcept;
  void on_new(const wire::PacketView& packet, const wire::OpcodeInfo& op) noexcept;
  [[nodiscard]] Fault choose_receives(const wire::PacketView& packet) noexcept;
  void on_gap(const wire::PacketView& packet) noexcept;
  void on_fault(const wire::PacketView& packet, Fault fault) noexcept;
  void execute(const wire::PacketView& packet) noexcept;
  void execute_message(const wire::PacketView& packet, const wire::OpcodeInfo& op) noexcept;
  void execute_read(const wire::PacketView& packet) noexcept;
  void execute_atomic(const wire::PacketView& packet) noexcept;
  void fail(Fault fault, bool blames_recv) noexcept;
  void advance(std::uint32_t packets) noexcept;
  void advance_past_answered(std::uint32_t packets) noexcept;
  std::uint32_t finish_message() noexcept;

  // placement.cc
  void execute_placement(const wire::PacketView& packet) noexcept;
  [[nodiscard]] Fault write_word(const wire::PacketView& packet) noexcept;
  void begin_flush(ResponderResource& request, const wire::PacketView& packet) noexcept;
  [[nodiscard]] bool flush_piece(ResponderResource& request) noexcept;
  [[nodiscard]] bool finish_flushes() noexcept;

  // duplicates.cc
  void on_duplicate(const wire::PacketView& packet) noexcept;
  void replay_read(const wire::PacketView& packet) noexcept;

  // selective_responder.cc
  void make_room_ahead();
  void hold(const wire::PacketView& packet) noexcept;
  void take_held() noexcept;
  void report_held() noexcept;
  bool emit_nak(TxContext& tx) noexcept;
  [[nodiscard]] bool begin_bulk(TxContext& tx) noexcept;
  void pop_response() noexcept;

  // End-to-end credits.
  [[nodiscard]] std::uint8_t ack_syndrome(std::uint32_t msn) noexcept {
    return counts_receives_ ? credits(msn) : wire::syndrome::ack();
  }
  [[nodiscard]] std::uint8_t credits(std::uint32_t msn) noexcept;
  void note_credit_used() noexcept;
  bool emit_credits(TxContext& tx) noexcept;
  void set_out_of_credits(bool out) noexcept;
  [[nodiscard]] bool owes_credits() const noexcept { return is_peer_out_of_credits_ && has_receive(); }

  bool emit_ack(TxContext& tx) noexcept;
  bool emit_acknowledge(TxContext& tx, std::uint8_t syndrome, Psn psn) noexcept;
  bool emit_read_response(TxContext& tx, ResponderResource& request) noexcept;
  bool emit_flush_response(TxContext& tx, ResponderResource& request) noexcept;
  bool refuse_read(TxContext& tx, ResponderResource& request) noexcept;
  bool emit_atomic_response(TxContext& tx, const ResponderResource& request) noexcept;

  // What each message touches comes first: a cache line, with the base.
  bool gap_reported_ = false;  // a NAK or RNR NAK for expected_psn_ has gone out
  bool refusing_ = false;      // that was an RNR NAK
  bool ack_pending_ = false;
  bool is_unasked_ = false;       // the newest SEND or WRITE packet asked for no ACK
  std::uint8_t nak_pending_ = 0;  // syndrome; 0: none
  bool counts_receives_ = false;  // shared ones are promised to nobody
  bool is_peer_out_of_credits_ = false;
  std::uint8_t tolerated_ = 0;  // bad requests with expected_psn_ that were dropped
  std::uint8_t looks_ = 0;      // for whether prompt_end_ has been taken
  Psn expected_psn_;
  Psn ack_psn_;            // of the newest SEND or WRITE packet: what ACKs carry
  std::uint32_t msn_ = 0;  // completed messages, 24 bits on the wire
  Psn answered_end_;       // one past the newest request that had a response of its own, or long ago

  std::unique_ptr<HeldFrames> held_;  // requests ahead of expected_psn_; nullptr: they are dropped
  ResponderResources resources_;
  std::uint64_t prompt_end_ = 0;   // FrameSink::place() behind the last response outside of the bulk lane
  std::uint32_t credits_end_ = 0;  // one past the last receive that the peer was told of
  PartialMessage partial_message_;
};

}  // namespace uroce::transport
