#include "transport/rc_qp.h"

namespace uroce::transport {

namespace {

constexpr std::uint64_t kErrorRecheckNs =
    1'000'000;  // posts that raced with the move to Error are flushed then

/// Low 15 bits equal, and at least one side a full member. IBA 10.9.3.
constexpr bool pkeys_match(std::uint16_t a, std::uint16_t b) noexcept {
  return (a & 0x7fff) == (b & 0x7fff) && ((a | b) & 0x8000) != 0;
}

}  // namespace

void RcQp::set_resolved(const wire::FrameTemplate& head) noexcept {
  ctx_.head = head;
  if (!ctx_.resolved) requester_.on_resolved();
  ctx_.resolved = true;
}

/// Why a packet is none of this QP's business; kRxRoce if it is. IBA 9.6.1.
Count RcQp::refuse(const wire::PacketView& packet, const Gid& local) const noexcept {
  const wire::OpcodeInfo& op = *packet.op;
  if (op.transport != wire::Transport::kRc) return Count::kDropWrongTransport;
  const QpState now = state();
  const bool receives = now == QpState::kRtr || now == QpState::kRts || now == QpState::kSqd;
  if (!receives || (op.is_response && now == QpState::kRtr)) return Count::kDropQpState;
  if (!pkeys_match(packet.bth.pkey, kDefaultPkey)) return Count::kDropBadPkey;
  if (packet.src_gid() != ctx_.attr.dgid || packet.dst_gid() != local) return Count::kDropWrongAddress;
  return Count::kRxRoce;
}

Count RcQp::on_packet(const wire::PacketView& packet, const Gid& local, Ticks now) noexcept {
  const Count verdict = refuse(packet, local);
  if (verdict != Count::kRxRoce) return verdict;
  if (packet.op->is_response) {
    requester_.on_response(packet, now);
  } else {
    if (state() == QpState::kRtr && !established_reported_) {
      established_reported_ = true;
      raise(AsyncEventType::kCommEst);
    }
    responder_.on_request(packet);
  }
  settle(now);
  return Count::kRxRoce;
}

/// Requests leave first: a reply that the application waits for goes out before the ACK of what it answers.
/// While responses are due they have half of the budget.
bool RcQp::transmit(TxContext& tx) noexcept {
  const bool responses = ctx_.resolved && responder_.has_responses();
  const unsigned reserve = responses ? tx.budget / 2 : 0;
  tx.budget -= reserve;
  const Gate gate = requester_.transmit(tx);
  tx.budget += reserve;
  const bool answered = !responses || responder_.transmit(tx);
  settle(tx.now);
  return (gate == Gate::kOpen && !ctx_.has_failed()) || (!answered && responder_.has_responses());
}

void RcQp::transmit_requests(TxContext& tx) noexcept {
  requester_.transmit(tx);
  settle(tx.now);
}

void RcQp::on_timer(Ticks now) noexcept {
  if (error_recheck_.is_set() && error_recheck_ <= now) {
    error_recheck_ = Ticks{};
    on_doorbell();
  }
  if (state() == QpState::kRts || state() == QpState::kSqd) requester_.on_timer(now);
  settle(now);
}

void RcQp::on_doorbell() noexcept {
  if (state() == QpState::kError) flush();
}

/// Completes all that is posted. A CQ without room for it is reported, whatever the QP failed of first.
void RcQp::flush() noexcept {
  requester_.flush();
  responder_.flush();
  if (ctx_.full_cq == nullptr || overflow_reported_) return;
  overflow_reported_ = true;
  raise(AsyncEventType::kCqErr);
}

/// What every step ends with: the move to Error if something failed, and the SQD event.
void RcQp::settle(Ticks now) noexcept {
  if (ctx_.has_failed() && state() != QpState::kError) {
    if (!ctx_.fatal_blames_wr && ctx_.fatal != Fault::kCqOverflow) raise(row(ctx_.fatal).event);
    fall_to_error();
    error_recheck_ = now + kErrorRecheckNs;
  }
  report_drained();
}

void RcQp::report_drained() noexcept {
  if (state() != QpState::kSqd || drained_reported_ || !requester_.is_drained()) return;
  drained_reported_ = true;
  raise(AsyncEventType::kSqDrained);
}

void RcQp::fall_to_error() noexcept {
  ctx_.state.store(QpState::kError, std::memory_order_seq_cst);  // pairs with post_recv's look at the state
  if (row(ctx_.fatal).nak == 0) responder_.drop_responses();
  flush();
}

void RcQp::reset() noexcept {
  requester_.reset();
  responder_.reset();
  ctx_.fatal = Fault::kNone;
  ctx_.fatal_blames_wr = false;
  ctx_.full_cq = nullptr;
  ctx_.resolved = false;
  error_recheck_ = Ticks{};
  drained_reported_ = established_reported_ = overflow_reported_ = false;
}

void RcQp::enter(QpState to) noexcept {
  const QpState from = state();
  if (to == QpState::kError) {
    if (from != QpState::kError) {
      ctx_.fail(Fault::kFlushed);
      fall_to_error();
      error_recheck_ = Ticks{1};  // at the next look
    }
    return;
  }
  if (to == QpState::kReset) reset();
  if (to == QpState::kRtr && from != QpState::kRtr) responder_.start();
  if (to == QpState::kRts && from == QpState::kRtr) requester_.start();
  if (to == QpState::kSqd && from != QpState::kSqd) drained_reported_ = false;
  ctx_.state.store(to, std::memory_order_seq_cst);
  report_drained();
}

QpAttr RcQp::query() const noexcept {
  QpAttr attr = ctx_.attr;
  attr.state = state();
  if (attr.state == QpState::kRts || attr.state == QpState::kSqd) attr.sq_psn = requester_.next_psn();
  if (attr.state >= QpState::kRtr) attr.rq_psn = responder_.expected_psn();
  return attr;
}

}  // namespace uroce::transport
