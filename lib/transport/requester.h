/// The sending half of an RC QP: send queue -> request packets, responses and timeouts -> completions.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <memory>
#include <vector>

#include "mem/sge_cursor.h"
#include "transport/context.h"
#include "transport/credits.h"
#include "transport/loss_timer.h"
#include "transport/selective_repeat.h"
#include "wire/packet.h"

namespace uroce::transport {

/// Why the requester may, or may not, put one more packet on the wire now.
/// Declared in the order in which the checks run.
enum class Gate : std::uint8_t {
  kOpen,
  kIdle,        ///< nothing is posted
  kStopped,     ///< the QP state sends nothing, or a broken WQE waits for those before it
  kUnresolved,  ///< the peer's Ethernet address is not known yet
  kRnrWait,
  kFenced,
  kNoCredits,   ///< the peer has no receive for it
  kAskCredits,  ///< likewise, and it is time to ask
  kAskTail,     ///< nothing may be sent before what was is answered, and it is time to ask about that
  kWindowFull,
  kReadDepth,
  kPaced,  ///< congestion control: not yet
};

/// Requester and completer of one RC QP. IBA 9.7.5, 9.7.6, 9.9.2.
///
/// PSNs are given to WQEs when they start. `unacked_psn_` is the oldest unacknowledged one; after a loss
/// everything from there is sent again (go-back-N), with READs asked again from their first missing response;
/// only what was lost if the peer agreed on selective repeat.
///
/// Threads: loop.
class Requester {
 public:
  static constexpr bool kSends = true;

  explicit Requester(QpContext& qp);

  /// Back to the state of a new QP; what is still in the send queue is forgotten.
  void reset() noexcept;
  /// Takes the attributes of the move to RTS.
  void start() noexcept;
  /// The attributes of these bits have changed: makes room for attr.max_rd_atomic READs in flight, and has as
  /// many retries as it is told.
  void take_attributes(std::uint32_t mask);
  /// The peer's Ethernet address is known now: time spent waiting for it does not count as retries.
  void on_resolved() noexcept;

  /// Nothing is posted that it has not sent, and nothing to be asked: the gate says kIdle.
  [[nodiscard]] bool is_idle() const noexcept { return has_sent_all() && or_ask(Gate::kIdle) == Gate::kIdle; }
  /// Decides; changes nothing. The first check that objects names the reason.
  [[nodiscard]] Gate gate(Ticks now) const noexcept;
  /// Sends until the gate closes, the budget is used up or the port has no room.
  /// @return the gate that ended it; kOpen if budget or room ended it.
  Gate transmit(TxContext& tx) noexcept;

  /// No more packets in flight than that; twice as many once the peer has taken something, and so on. But one
  /// more than have asked for no ACK yet: that asks.
  void narrow_window(std::uint32_t packets) noexcept {
    window_ = std::min(window_, std::max(packets, since_ack_req_ + 1U));
  }

  /// What transmit() sent as if at `assumed` has left at `actual`.
  void correct_times(Ticks assumed, Ticks actual) noexcept;
  /// Likewise, behind `assumed` and not after `latest`.
  void postdate(Ticks assumed, Ticks latest) noexcept {
    timer_.forget_time(assumed);
    correct_times(assumed, latest);
  }

  /// ACK, NAK, READ response or atomic response.
  void on_response(const wire::PacketView& packet, Ticks now) noexcept;
  /// An ACK of all that is in flight, where that is one SEND or WRITE of one packet and nothing goes on
  /// besides: what each of many QPs that take turns gets.
  /// @return false if it is not that; nothing has happened then
  bool take_last_ack(Psn psn, std::uint8_t syndrome, Ticks now) noexcept;
  /// Handles whatever deadline has passed.
  void on_timer(Ticks now) noexcept;
  [[nodiscard]] Ticks deadline() const noexcept {
    const Ticks due = earlier(timer_.due(), tail_due_);
    return besides_.waits_for_receive ? earlier(due, rnr_until_) : due;
  }

  /// Asks the peer for an answer that says nothing: an empty WRITE that was acknowledged before.
  void send_keepalive(TxContext& tx) noexcept;
  /// Nothing has been heard of the peer for too long.
  void fail_silent() noexcept;

  /// Completes everything in the send queue as flushed. What the QP failed of has completed before.
  void flush() noexcept;
  /// SQD: true once every started message has completed. IBA 10.3.1.6 ?
  [[nodiscard]] bool is_drained() const noexcept { return oldest_ == started_; }
  /// Packets that are sent and not acknowledged.
  [[nodiscard]] std::uint32_t in_flight() const noexcept { return span_from(sent_psn_, unacked_psn_); }
  [[nodiscard]] Psn next_psn() const noexcept { return next_wqe_psn_; }
  [[nodiscard]] Psn unacked_psn() const noexcept { return unacked_psn_; }

 private:
  /// What there is besides messages and their ACKs, in one word: mostly nothing.
  struct Besides {
    bool repeating : 1 = false;          // `current_` is behind what has been sent, at what is lost
    bool recovering : 1 = false;         // went back; further NAKs for the same PSN say nothing new
    bool credits_asked : 1 = false;      // a question for credits is to be sent
    bool asks_tail : 1 = false;          // a question about the newest messages is to be sent
    bool is_selective : 1 = false;       // selective_
    bool waits_for_receive : 1 = false;  // rnr_until_
    bool is_probing : 1 = false;         // a probe is unanswered: window_before_probe_
    bool has_local : 1 = false;          // local_unfinished_
    bool has_doubts : 1 = false;         // doubted_, tolerated_
    bool uses_credits : 1 = false;       // credits_
    std::uint8_t unused : 6 = 0;

    [[nodiscard]] bool is_nothing() const noexcept { return std::bit_cast<std::uint16_t>(*this) == 0; }
  };

  /// PSNs that a WQE owns once it has started; 0: it is local, and done.
  [[nodiscard]] std::uint32_t packets_of(const SendWqe& wqe) const noexcept {
    if (wqe.length <= qp_.mtu) return wqe.is_local() ? 0 : 1;
    if (wqe.opcode == WrOpcode::kFlush) return 1;
    return (wqe.length + qp_.mtu - 1) >> std::countr_zero(qp_.mtu);
  }
  [[nodiscard]] std::uint32_t packets_of(std::uint32_t index) const noexcept {
    return packets_of(qp_.sq.at(index));
  }
  [[nodiscard]] bool is_fenced(const SendWqe& wqe) const noexcept {
    return reads_unfinished_ > 0 || (wqe.opcode == WrOpcode::kLocalInv && oldest_ != started_);
  }
  [[nodiscard]] Psn send_psn() const noexcept { return current_psn_ + sent_packets_; }
  /// Of the oldest WQE.
  [[nodiscard]] std::uint32_t packets_answered() const noexcept {
    return span_from(unacked_psn_, oldest_psn_);
  }

  /// The QP's state allows it: in SQD what has started. IBA 10.3.1.6 ?
  [[nodiscard]] bool may_send() const noexcept {
    const QpState state = qp_.state.load(std::memory_order_relaxed);
    return state == QpState::kRts || (state == QpState::kSqd && current_ != started_);
  }
  [[nodiscard]] bool has_sent_all() const noexcept {
    return current_ == started_ && current_ == qp_.sq.tail();
  }
  /// Nothing may be sent, but for a question that is due.
  [[nodiscard]] Gate or_ask(Gate why) const noexcept {
    return besides_.asks_tail && qp_.resolved ? Gate::kAskTail : why;
  }
  [[nodiscard]] Gate hold_back(const SendWqe& wqe) const noexcept;
  [[nodiscard]] std::uint64_t probe_margin_ns() const noexcept;
  [[nodiscard]] bool has_credit(const SendWqe& wqe) const noexcept;

  // requester.cc: sending
  bool start_wqe(const SendWqe& wqe) noexcept;
  bool start_special(const SendWqe& wqe) noexcept;
  void run_local(const SendWqe& wqe) noexcept;
  void skip_local() noexcept;
  bool emit_current(TxContext& tx) noexcept;
  [[nodiscard]] bool asks_for_ack(const SendWqe& wqe, Psn psn, bool is_last, Ticks now) noexcept;
  /// What one packet carries of a message: all of it, if nothing else is said.
  struct Part {
    wire::Opcode opcode{};
    std::uint64_t at = 0;     // bytes before it
    std::uint32_t bytes = 0;  // of it
    bool is_last = true;
    std::uint32_t packets = 1;  // of the message
  };
  bool emit_data(const SendWqe& wqe, TxContext& tx) noexcept;
  bool emit_send_only(const SendWqe& wqe, TxContext& tx) noexcept;
  bool emit_write_only(const SendWqe& wqe, TxContext& tx) noexcept;
  bool emit_any(const SendWqe& wqe, TxContext& tx) noexcept;
  bool emit_part(const SendWqe& wqe, const Part& part, TxContext& tx) noexcept;
  bool emit_read(const SendWqe& wqe, TxContext& tx) noexcept;
  bool emit_atomic(const SendWqe& wqe, TxContext& tx) noexcept;
  bool emit_atomic_write(const SendWqe& wqe, TxContext& tx) noexcept;
  bool emit_flush(const SendWqe& wqe, TxContext& tx) noexcept;
  bool ask_peer(TxContext& tx) noexcept;
  void take_credit(const SendWqe& wqe, std::uint32_t packets) noexcept;
  void ask_for_credits(TxContext& tx) noexcept;
  void look_at_tail(Ticks now) noexcept;
  bool ask_about_tail(TxContext& tx) noexcept;
  [[nodiscard]] std::uint32_t read_chunk() const noexcept { return std::max(1U, qp_.max_unacked / 2); }
  void note_read_in_flight(Psn last_psn) noexcept;
  void on_sent(std::uint32_t packets, std::uint32_t of, Ticks now) noexcept;
  void on_sent_again(Psn psn, std::uint32_t packets) noexcept;
  void break_wqe(Fault fault) noexcept;

  // completer.cc: responses and loss
  /// The peer has taken something: again as many retries as there may be, and a wider window.
  void renew_patience() noexcept {
    retries_left_ = qp_.retry_cnt;
    rnr_retries_left_ = qp_.rnr_retry;
    window_ = std::min(qp_.max_unacked, 2 * window_);
  }
  void wait_for_receive(Ticks until) noexcept {
    rnr_until_ = until;
    besides_.waits_for_receive = until.is_set();
  }
  void forget_doubts() noexcept {
    doubted_ = Fault::kNone;
    tolerated_ = 0;
    besides_.has_doubts = false;
  }
  void set_window_before_probe(std::uint32_t packets) noexcept {
    window_before_probe_ = packets;
    besides_.is_probing = packets != 0;
  }
  bool take_credits(const wire::PacketView& packet) noexcept;
  bool acknowledge(std::uint32_t packets, Ticks now, bool goes_back = false) noexcept;
  void on_progress(Ticks now) noexcept;
  void take_response(const wire::PacketView& packet, Ticks now) noexcept;
  void on_ack(const wire::PacketView& packet, Ticks now) noexcept;
  [[nodiscard]] bool refuses_rest_of_read(const wire::PacketView& packet) const noexcept;
  void on_nak(std::uint8_t syndrome, Ticks now) noexcept;
  void on_bad_response(Fault fault) noexcept;
  void on_rnr_nak(std::uint8_t timer_code, Ticks now) noexcept;
  void on_read_response(const wire::PacketView& packet, Ticks now) noexcept;
  void on_atomic_response(const wire::PacketView& packet, Ticks now) noexcept;
  void on_placed(const wire::PacketView& packet, Ticks now) noexcept;
  void probe() noexcept;
  void end_probe() noexcept;
  void end_probes() noexcept;
  void go_back(Ticks now) noexcept;
  void rewind() noexcept;
  bool take_retry() noexcept;
  void retire(Fault fault) noexcept;
  void retire_local() noexcept;
  void fail_oldest(Fault fault) noexcept;
  void suspect_path_mtu() noexcept;
  /// Of its requests or, for a READ, of the responses.
  [[nodiscard]] std::uint16_t largest_payload(const SendWqe& wqe) const noexcept {
    return wqe.opcode == WrOpcode::kFlush ? std::uint16_t{0}
                                          : static_cast<std::uint16_t>(std::min(wqe.length, qp_.mtu));
  }
  void catch_up() noexcept;
  void start_timer(Ticks now) noexcept;
  [[nodiscard]] bool is_held_back(Ticks now) const noexcept;

  // selective_repeat.cc
  void make_selective();
  void on_selective_nak(const wire::PacketView& packet, Ticks now) noexcept;
  void on_missing_response(Psn end, Ticks now) noexcept;
  void hold_response(const wire::PacketView& packet, Ticks now) noexcept;
  void take_held_responses(Ticks now) noexcept;
  void note_taken(Psn end) noexcept;
  void skip_read_tails(Psn end) noexcept;
  bool repeat_lost(Ticks now) noexcept;
  void repeat_unsettled() noexcept;
  void begin_repeat() noexcept;
  void next_repeat() noexcept;
  void seek(Psn psn) noexcept;
  void note_repeat(Psn psn, std::uint32_t packets) noexcept;
  [[nodiscard]] std::uint32_t end_of_hole(std::uint32_t end) const noexcept;
  void count_reads_in_flight() noexcept;
  void forget_selective() noexcept;
  void look_for_dropped(Ticks now) noexcept;

  // What each message touches comes first: two cache lines. What most connections never use is behind them,
  // and a bit here says whether it is in use.
  QpContext& qp_;
  std::uint32_t oldest_ = 0;        // oldest WQE that has not completed
  std::uint32_t current_ = 0;       // WQE that sends next
  std::uint32_t started_ = 0;       // WQEs before it own PSNs
  std::uint32_t sent_packets_ = 0;  // of `current_`, in this pass
  Psn oldest_psn_;                  // first PSN of `oldest_`
  Psn current_psn_;                 // of `current_`
  Psn next_wqe_psn_;                // of the next WQE to start
  Psn unacked_psn_;
  Psn sent_psn_;                     // one past the newest PSN ever sent
  std::uint16_t since_ack_req_ = 0;  // packets
  std::uint16_t carried_ = 0;        // payload of the largest packet that was acknowledged
  Ticks quiet_until_;                // until then what is not signaled asks for no ACK
  Ticks tail_due_;                   // the newest message has not asked: others should have followed by then

  std::uint32_t window_ = 0;  // packets in flight now: max_unacked, less after a timeout or a probe
  std::uint8_t reads_in_flight_ = 0;
  Fault broken_ = Fault::kNone;  // `current_` cannot be sent; takes effect when it is the oldest
  std::uint8_t retries_left_ = 0;
  std::uint8_t rnr_retries_left_ = 0;
  Besides besides_;
  LossTimer timer_;

  std::unique_ptr<Selective> selective_;   // nullptr: goes back N
  Ticks rnr_until_;                        // until then the peer has no receive
  std::uint32_t window_before_probe_ = 0;  // 0: no probe is unanswered
  std::uint32_t local_unfinished_ = 0;     // local WQEs that are done and have not completed
  Fault doubted_ = Fault::kNone;  // what a NAK said that was not believed; true if nothing contradicts it
  std::uint8_t tolerated_ = 0;    // bad responses in a row that were dropped
  bool is_back_ = false;          // went back to what was lost, and has not sent all of it again
  SendCredits credits_;
  mem::SgeCursor cursor_;  // in a message of several packets

  Psn probe_end_;                       // what was in flight at the first probe ends here
  std::uint32_t reads_unfinished_ = 0;  // WQEs with an answer that started and have not completed, for fences
  std::uint32_t read_head_ = 0;
  std::vector<Psn> read_ends_;  // ring: last PSN of each request in flight that is answered
  mem::SgeCursor read_cursor_;
};

}  // namespace uroce::transport
