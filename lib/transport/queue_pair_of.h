/// A queue pair made of a sending and a receiving half.
#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>

#include "base/prefetch.h"
#include "transport/queue_pair.h"
#include "transport/requester.h"
#include "wire/packet.h"

namespace uroce::transport {

/// Low 15 bits equal, and at least one side a full member. IBA 10.9.3.
[[nodiscard]] constexpr bool pkeys_match(std::uint16_t a, std::uint16_t b) noexcept {
  return (a & 0x7fff) == (b & 0x7fff) && ((a | b) & 0x8000) != 0;
}

/// One QP of the transport that its halves speak. The halves are known here, so a packet costs one virtual
/// call and not one per question.
///
/// Threads: loop.
template <typename Sender, typename Receiver>
class QueuePairOf final : public QueuePair {
 public:
  QueuePairOf(Qpn qpn, std::uint32_t pd, const QpInitAttr& init, mem::KeyTable& keys, Counters& counters,
              CqRing& send_cq, CqRing& recv_cq, SharedReceives* shared = nullptr)
      : QueuePair(qpn, pd, init, keys, counters, send_cq, recv_cq, shared), sender_(ctx_), receiver_(ctx_) {}

  void set_resolved() noexcept override {
    if (!ctx_.resolved) sender_.on_resolved();
    ctx_.resolved = true;
  }

  Count on_packet(const wire::PacketView& packet, const Gid& local, Ticks now) noexcept override {
    if (packet.op->transport != Receiver::kTransport) [[unlikely]]
      return on_foreign_packet(packet, local, now);
    Count verdict = refuse(packet);
    if (verdict == Count::kRxRoce) verdict = Receiver::refuse_addresses(ctx_, packet, local);
    return verdict == Count::kRxRoce ? take(packet, now) : verdict;
  }

  /// on_packet(), for RC: of a packet like one that it took, here or at another QP of this type and path,
  /// with the same opcode, P_Key and addresses, which neither QPs nor the port have changed since.
  Count on_known_packet(const wire::PacketView& packet, Ticks now) noexcept {
    static_assert(Receiver::kTransport == wire::Transport::kRc);
    return may_take(packet) ? take(packet, now) : Count::kDropQpState;
  }

  /// Likewise of a positive ACK, if it is one that Requester::take_last_ack() takes.
  bool take_last_ack(Psn psn, std::uint8_t syndrome, Ticks now) noexcept {
    if (state() != QpState::kRts || ctx_.is_controlled) return false;
    if (!sender_.take_last_ack(psn, syndrome, now)) return false;
    ctx_.heard = true;
    settle(now);
    return true;
  }

  /// Requests leave first: a reply that the application waits for goes out before the ACK of what it answers.
  /// While responses are due they have half of the budget; a packet each, if it is not enough for both.
  bool transmit(TxContext& tx) noexcept override {
    if (ctx_.is_controlled) [[unlikely]]
      send_cnp(tx);
    const bool responses = ctx_.resolved && receiver_.has_responses();
    if (std::exchange(ctx_.only_answers, false)) {
      const bool answered = !responses || receiver_.transmit(tx);
      settle(tx.now);
      return !answered && receiver_.has_responses();
    }
    if (responses && answers_first()) [[unlikely]]
      return transmit_answers_first(tx);
    const unsigned reserve = responses ? std::max(1U, tx.budget / 2) : 0;
    tx.budget = tx.budget > reserve ? tx.budget - reserve : 1;
    const Gate gate = sender_.transmit(tx);
    tx.budget += reserve;
    const bool answered = !responses || receiver_.transmit(tx);
    if (ctx_.is_controlled) [[unlikely]]
      ctx_.congestion->answers_first = is_response_held(tx.now);
    return settle_transmit(gate, answered, tx.now);
  }

  bool transmit_requests(TxContext& tx) noexcept override {
    return !answers_first() && sender_.transmit(tx) == Gate::kIdle;
  }

  void correct_times(Ticks assumed, Ticks actual) noexcept override {
    if constexpr (requires { sender_.correct_times(assumed, actual); })
      sender_.correct_times(assumed, actual);
  }
  void narrow_window(std::uint32_t packets) noexcept override {
    if constexpr (requires { sender_.narrow_window(packets); }) sender_.narrow_window(packets);
  }
  void settle_requests(Ticks now) noexcept override { settle(now); }
  void postdate(Ticks assumed, Ticks latest) noexcept override {
    if constexpr (requires { sender_.postdate(assumed, latest); }) sender_.postdate(assumed, latest);
  }

  void answer(TxContext& tx) noexcept override {
    if constexpr (requires { receiver_.owe_last_ack(); }) receiver_.owe_last_ack();
    if (!ctx_.resolved || !receiver_.has_responses()) return;
    const bool had_failed = ctx_.has_failed();
    tx.may_wait = false;
    receiver_.transmit(tx);
    if (ctx_.has_failed() && !had_failed) [[unlikely]]
      settle(tx.now);
  }

  void send_keepalive(TxContext& tx) noexcept override {
    if constexpr (requires { sender_.send_keepalive(tx); }) sender_.send_keepalive(tx);
  }

  void on_timer(Ticks now) noexcept override {
    housekeeping(now);
    if (ctx_.is_controlled) ctx_.congestion->rate.on_timer(now);
    if (state() == QpState::kRts || state() == QpState::kSqd) sender_.on_timer(now);
    settle(now);
  }

  [[nodiscard]] Ticks deadline() const noexcept override {
    Ticks due = sender_.deadline();
    if (ctx_.keeps_house) [[unlikely]]
      due = earlier(due, ctx_.housekeeping_due);
    if (ctx_.is_controlled) [[unlikely]]
      due = earlier(due, ctx_.congestion->rate.deadline());
    return due;
  }

  [[nodiscard]] bool wants_transmit(Ticks now) const noexcept override {
    return wants_to_answer(now) || wants_to_send(now);
  }
  [[nodiscard]] bool wants_to_answer(Ticks now) const noexcept override {
    if (ctx_.is_controlled && owes_cnp()) [[unlikely]]
      return true;
    return ctx_.resolved && receiver_.has_responses() && !is_response_held(now);
  }
  [[nodiscard]] bool wants_to_send(Ticks now) const noexcept override {
    const Gate gate = sender_.gate(now);
    // Unresolved, or without credits: once, for the timer that bounds the wait.
    const bool waits = gate == Gate::kUnresolved || gate == Gate::kNoCredits;
    if (gate == Gate::kPaced) [[unlikely]]
      return !ctx_.congestion->rate.deadline().is_set();
    const bool asks = gate == Gate::kAskCredits || gate == Gate::kAskTail;
    return gate == Gate::kOpen || asks || (waits && !sender_.deadline().is_set());
  }

  [[nodiscard]] bool owes_only_ack(Ticks now) const noexcept override {
    if constexpr (requires { receiver_.owes_only_ack(); }) {
      if (ctx_.is_controlled && owes_cnp()) [[unlikely]]
        return false;
      const Gate gate = sender_.gate(now);
      return receiver_.owes_only_ack() && (gate == Gate::kIdle || gate == Gate::kWindowFull);
    } else {
      return false;
    }
  }

  [[nodiscard]] std::uint32_t in_flight() const noexcept override { return sender_.in_flight(); }

  // Bring into the cache what `qp` is going to touch. Hints: of a QP of another type these are not the right
  // lines.
  /// For a post, or a response.
  static void prefetch_sender(const QueuePair& qp) noexcept {
    prefetch_shared(qp);
    uroce::prefetch(&qp.context().sq);
    uroce::prefetch(at(qp, kSenderAt));
    uroce::prefetch(at(qp, kSenderAt + 64));
  }
  /// For a request, or its answer.
  static void prefetch_receiver(const QueuePair& qp) noexcept {
    prefetch_shared(qp);
    uroce::prefetch(at(qp, kReceiverAt));
  }

  [[nodiscard]] const Sender& requester() const noexcept { return sender_; }
  [[nodiscard]] const Receiver& responder() const noexcept { return receiver_; }

 private:
  static constexpr std::size_t whole_lines(std::size_t bytes) noexcept { return (bytes + 63) / 64 * 64; }
  static constexpr std::size_t kSenderAt = whole_lines(sizeof(QueuePair));
  static constexpr std::size_t kReceiverAt = kSenderAt + whole_lines(sizeof(Sender));
  static const void* at(const QueuePair& qp, std::size_t offset) noexcept {
    return static_cast<const char*>(static_cast<const void*>(&qp)) + offset;
  }
  static void prefetch_shared(const QueuePair& qp) noexcept {
    const QpContext& ctx = qp.context();
    uroce::prefetch(&ctx);
    uroce::prefetch(static_cast<const char*>(static_cast<const void*>(&ctx.sq)) + 64);  // the loop's line
  }
  /// Why a packet is none of this QP's business; kRxRoce if it is. IBA 9.6.1.
  [[nodiscard]] Count refuse(const wire::PacketView& packet) const noexcept {
    const wire::OpcodeInfo& op = *packet.op;
    if (op.is_response ? !Sender::kSends : !Receiver::kReceives) return Count::kDropWrongTransport;
    if (!may_take(packet)) return Count::kDropQpState;
    if (!pkeys_match(packet.bth.pkey, kDefaultPkey)) return Count::kDropBadPkey;
    return Count::kRxRoce;
  }

  /// Whether the QP's state is one for such packets.
  [[nodiscard]] bool may_take(const wire::PacketView& packet) const noexcept {
    const QpState now = state();
    if (now == QpState::kRts) [[likely]]
      return true;
    return (now == QpState::kRtr && !packet.op->is_response) || now == QpState::kSqd || now == QpState::kSqe;
  }

  Count take(const wire::PacketView& packet, Ticks now) noexcept {
    ctx_.heard = true;
    if (ctx_.is_controlled) [[unlikely]]
      note_mark(packet, now);
    if (packet.op->is_response) {
      sender_.on_response(packet, now);
    } else {
      if (Receiver::kIsConnected && state() == QpState::kRtr) note_established();
      receiver_.on_request(packet);
    }
    settle(now);
    return Count::kRxRoce;
  }

  /// A CNP, if it is anything that concerns a QP. IBA A17.9.3 ?
  [[gnu::cold]] Count on_foreign_packet(const wire::PacketView& packet, const Gid& local,
                                        Ticks now) noexcept {
    if (packet.op->transport != wire::Transport::kCnp || !Receiver::kIsConnected)
      return Count::kDropWrongTransport;
    if (!pkeys_match(packet.bth.pkey, kDefaultPkey)) return Count::kDropBadPkey;
    const Count verdict = Receiver::refuse_addresses(ctx_, packet, local);
    return verdict == Count::kRxRoce ? on_cnp(now) : verdict;
  }
  /// Requests and READ responses that congestion control keeps back take turns: those that came first each
  /// time would let the other one wait for ever.
  [[nodiscard]] bool answers_first() const noexcept {
    return ctx_.is_controlled && ctx_.congestion->answers_first;
  }
  /// The answers keep their turn until one has left.
  [[gnu::cold]] bool transmit_answers_first(TxContext& tx) noexcept {
    const unsigned before = tx.budget;
    const bool answered = receiver_.transmit(tx);
    const bool had_turn = tx.budget != before;
    tx.budget = std::max(tx.budget, 1U);
    const Gate gate = sender_.transmit(tx);
    ctx_.congestion->answers_first = !had_turn && is_response_held(tx.now);
    return settle_transmit(gate, answered, tx.now);
  }
  /// @return whether there is more to send, as transmit() does.
  [[nodiscard]] bool settle_transmit(Gate gate, bool answered, Ticks now) noexcept {
    settle(now);
    return (gate == Gate::kOpen && !ctx_.has_failed()) || (!answered && receiver_.has_responses());
  }
  /// A READ response that is due and may not leave yet, and is waited for.
  [[nodiscard]] bool is_response_held(Ticks now) const noexcept {
    if constexpr (requires { receiver_.is_held(now); }) {
      if (!ctx_.is_controlled) [[likely]]
        return false;
      return receiver_.is_held(now) && ctx_.congestion->rate.deadline().is_set();
    }
    return false;
  }

  void fail_silent() noexcept override {
    if constexpr (requires { sender_.fail_silent(); }) sender_.fail_silent();
  }
  void reset_halves() noexcept override {
    sender_.reset();
    receiver_.reset();
  }
  void start_sending() noexcept override { sender_.start(); }
  void start_receiving() override { receiver_.start(); }
  void take_attributes(std::uint32_t mask) override {
    sender_.take_attributes(mask);
    receiver_.resize_resources();
  }
  void flush_sends() noexcept override { sender_.flush(); }
  void flush_receives() noexcept override { receiver_.flush(); }
  void drop_responses() noexcept override { receiver_.drop_responses(); }
  [[nodiscard]] bool is_drained() const noexcept override { return sender_.is_drained(); }
  [[nodiscard]] Psn next_psn() const noexcept override { return sender_.next_psn(); }
  [[nodiscard]] Psn expected_psn() const noexcept override { return receiver_.expected_psn(); }

  alignas(64) Sender sender_;
  alignas(64) Receiver receiver_;
};

}  // namespace uroce::transport
