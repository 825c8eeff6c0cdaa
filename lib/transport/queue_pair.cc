#include "transport/queue_pair.h"

#include <cstddef>
#include <cstring>

#include "transport/frame_writer.h"
#include "uroce/ece.h"

namespace uroce::transport {

namespace {

constexpr std::uint64_t kErrorRecheckNs =
    1'000'000;                             // posts that raced with the move to Error are flushed then
constexpr std::uint32_t kSilentLooks = 5;  // in a row: the peer is gone; it is asked after each but the last

/// What follows the BTH of a CNP.
struct CnpReserved {
  static constexpr std::size_t kSize = 16;
  [[nodiscard]] constexpr wire::Words<kSize> words() const noexcept { return {}; }
};

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Winvalid-offsetof"  // GCC and clang know it all the same
static_assert(offsetof(QpContext, sq) == 64 && offsetof(QpContext, mtu) == 128 + 4 &&
                  offsetof(QpContext, attr) == 192,
              "two lines for packets, and between them that of the application");
#pragma GCC diagnostic pop

}  // namespace

std::uint32_t QueuePair::grant(std::uint32_t options) {
  const std::uint32_t granted = ctx_.is_reliable() ? options & ece::kAll : 0;
  if ((granted & ece::kMaskedAtomics) != 0) ctx_.sq.make_room_for_masks();
  ctx_.ece = granted;
  ctx_.joins_acks = (granted & ece::kJointAcks) != 0;
  return granted;
}

[[gnu::cold]] void QpContext::put_off_receive(Wc wc, bool solicited) noexcept {
  if (!recv_cq->put_off({.wc = wc, .is_solicited = solicited}, qpn)) overflow(*recv_cq);
}

[[gnu::cold]] void QpContext::put_off_send(Wc wc, std::uint32_t end) noexcept {
  counters.add(Count::kCompletions);
  if (send_cq.put_off({.wc = wc, .queue = &sq, .next = end}, qpn)) return;
  sq.retire(end);
  overflow(send_cq);
}

[[gnu::cold]] void QpContext::retire_late(std::uint32_t end) noexcept {
  if (!send_cq.put_off({.is_told = false, .queue = &sq, .next = end}, qpn)) sq.retire(end);
}

/// Those of an XRC target stay in the CQs of its queues, as there stay those that had room.
void QpContext::forget_late() noexcept {
  send_cq.forget_late(qpn);
  if (type != QpType::kXrcRecv) recv_cq->forget_late(qpn);
}

void QpContext::overflow(const CqRing& cq) noexcept {
  if (full_cq.entries == 0) full_cq = cq.size();
  fail(Fault::kCqOverflow);
}

[[gnu::cold]] void QpContext::fail_receive(Fault fault) noexcept {
  const Wc wc{.wr_id = receives.front().wr_id,
              .qpn = qpn,
              .src_qpn = dest_qpn,
              .status = row(fault).status,
              .opcode = WcOpcode::kRecv,
              .vendor_err = raw(fault)};
  receives.pop();
  complete_receive(wc);
}

void QpContext::flush_receives() noexcept {
  while (receives.holds_one()) {
    counters.add(Count::kFlushed);
    fail_receive(Fault::kFlushed);
  }
}

[[gnu::cold, gnu::noinline]] void QpContext::count(Count what) noexcept {
  counters.add(what);
  own_counters.add(what);
  events |= kHasNews;
}

/// Where nobody is sent a NAK, the message is dropped.
[[gnu::cold, gnu::noinline]] Count QpContext::counter_of(Fault fault) const noexcept {
  const FaultRow& known = row(fault);
  return known.nak != 0 && !is_reliable() ? Count::kResponderDroppedMessages : known.counter;
}

void QueuePair::note_established() noexcept {
  if (established_reported_) return;
  established_reported_ = true;
  raise(AsyncEventType::kCommEst);
}

[[gnu::noinline]] void QueuePair::note_mark(const wire::PacketView& packet, Ticks now) noexcept {
  if (packet.ecn() != wire::kCongestionExperienced) return;
  ctx_.counters.add(Count::kMarkedPackets);
  ctx_.congestion->marks.on_mark(now);
}

/// To the peer's QP: a CNP concerns what that sends. IBA A17.9.3 ?
[[gnu::noinline]] void QueuePair::send_cnp(TxContext& tx) noexcept {
  if (!owes_cnp() || tx.budget == 0) return;
  Congestion& congestion = *ctx_.congestion;
  FrameWriter frame(tx.port);
  const wire::Bth bth{.opcode = wire::Opcode::kCnp,
                      .mig_req = false,
                      .pkey = kDefaultPkey,
                      .becn = true,
                      .dest_qpn = ctx_.dest_qpn};
  if (!frame.begin(congestion.cnp_head, bth, 0, tx)) return;
  frame.put(CnpReserved{});
  frame.send_at_once(ctx_, tx);
  congestion.marks.on_sent(tx.now);
  ctx_.count(Count::kCnpsSent);
}

Count QueuePair::on_cnp(Ticks now) noexcept {
  if (!ctx_.is_controlled) return Count::kCnpsIgnored;
  ctx_.congestion->rate.on_cnp(now);
  ctx_.count(Count::kCnpsHandled);
  return Count::kRxRoce;
}

void QueuePair::housekeeping(Ticks now) noexcept {
  if (!ctx_.keeps_house || ctx_.housekeeping_due > now) return;
  if (error_recheck_.is_set() && error_recheck_ <= now) {
    recheck_at(Ticks{});
    static_cast<void>(on_doorbell());
  }
  if (keepalive_due_.is_set() && keepalive_due_ <= now) look_for_peer(now);
}

void QueuePair::keep_alive(std::uint64_t silence_ns, Ticks now) noexcept {
  keepalive_ns_ = silence_ns / (kSilentLooks + 1);  // the first look finds the last sign of life
  keepalive_due_ = keepalive_ns_ == 0 ? Ticks{} : now + keepalive_ns_;
  ctx_.heard = true;
  recheck_at(error_recheck_);
}

void QueuePair::look_for_peer(Ticks now) noexcept {
  const bool is_connected = state() == QpState::kRts || state() == QpState::kSqd;
  keepalive_due_ = is_connected ? now + keepalive_ns_ : Ticks{};
  recheck_at(error_recheck_);
  if (!is_connected) return;
  if (std::exchange(ctx_.heard, false)) {
    silent_looks_ = 0;
  } else if (++silent_looks_ < kSilentLooks) {
    keepalive_wanted_ = true;
  } else {
    fail_silent();
  }
}

bool QueuePair::on_doorbell() noexcept {
  const QpState in = state();
  if (in == QpState::kError) flush();
  if (in == QpState::kSqe) flush_sends();
  return in == QpState::kError || in == QpState::kSqe;
}

/// Completes all that is posted. A CQ without room for it is reported, whatever the QP failed of first.
void QueuePair::flush() noexcept {
  flush_sends();
  flush_receives();
  if (ctx_.full_cq.entries == 0 || overflow_reported_) return;
  overflow_reported_ = true;
  raise(AsyncEventType::kCqErr);
}

void QueuePair::settle_what_happened(Ticks now) noexcept {
  if (ctx_.has_failed() && state() != QpState::kError) {
    if (!ctx_.fatal_blames_wr && ctx_.fatal != Fault::kCqOverflow) raise(row(ctx_.fatal).event);
    ctx_.events |= kHasFailed | QpContext::kHasNews;
    if (const Count why = ctx_.counter_of(ctx_.fatal); QpCounters::has(why)) ctx_.own_counters.add(why);
    fall_to_error();
    recheck_at(now + kErrorRecheckNs);
  } else if (ctx_.send_fault != Fault::kNone && (state() == QpState::kRts || state() == QpState::kSqd)) {
    ctx_.state.store(QpState::kSqe, std::memory_order_seq_cst);
    ctx_.events |= QpContext::kHasNews;
    flush_sends();
    recheck_at(now + kErrorRecheckNs);
  }
  report_drained();
  if (ctx_.receives.shared() != nullptr) [[unlikely]]
    report_shared();
}

/// What users of a shared receive queue wait for. IBA 11.6.3.1 ?
void QueuePair::report_shared() noexcept {
  if (ctx_.receives.shared()->take_limit_event()) raise(AsyncEventType::kSrqLimitReached);
  if (state() != QpState::kError || last_wqe_reported_ || ctx_.domain != nullptr) return;
  last_wqe_reported_ = true;
  raise(AsyncEventType::kQpLastWqeReached);
}

void QueuePair::report_drained() noexcept {
  if (state() != QpState::kSqd || drained_reported_ || !is_drained()) return;
  drained_reported_ = true;
  raise(AsyncEventType::kSqDrained);
}

void QueuePair::fall_to_error() noexcept {
  ctx_.state.store(QpState::kError, std::memory_order_seq_cst);  // pairs with post_recv's look at the state
  if (row(ctx_.fatal).nak == 0) drop_responses();
  flush();
}

void QueuePair::reset() noexcept {
  ctx_.forget_late();
  reset_halves();
  ctx_.fatal = ctx_.send_fault = Fault::kNone;
  ctx_.fatal_blames_wr = false;
  ctx_.attr.rq_psn = Psn{};  // as the halves: has_heard()
  ctx_.full_cq = {};
  ctx_.lost_bytes = ctx_.carried_bytes = 0;
  ctx_.own_counters.clear();
  ctx_.ece = 0;  // agreed on with the peer that was
  ctx_.joins_acks = false;
  ctx_.resolved = false;
  if (ctx_.is_controlled) {
    ctx_.congestion->rate.reset();
    ctx_.congestion->marks.reset();
    ctx_.congestion->answers_first = false;
  }
  keepalive_due_ = Ticks{};
  keepalive_wanted_ = false;
  recheck_at(Ticks{});
  drained_reported_ = established_reported_ = overflow_reported_ = last_wqe_reported_ = false;
}

/// Throws bad_alloc on the way to RTR only, and the state has not changed then.
void QueuePair::enter(QpState to) {
  const QpState from = state();
  if (to == QpState::kError) {
    if (from != QpState::kError) {
      if (!ctx_.has_failed()) ctx_.fatal = Fault::kFlushed;  // no fault of anybody's, to be counted
      fall_to_error();
      recheck_at(Ticks{1});  // at the next look
      if (ctx_.receives.shared() != nullptr) report_shared();
    }
    return;
  }
  if (to == QpState::kReset) reset();
  if (to == QpState::kRtr && from != QpState::kRtr) start_receiving();
  if (to == QpState::kRts && from == QpState::kRtr) start_sending();
  if (to == QpState::kRts && from == QpState::kSqe) ctx_.send_fault = Fault::kNone;
  ctx_.state.store(to, std::memory_order_seq_cst);
  report_drained();
}

QpAttr QueuePair::query() const noexcept {
  QpAttr attr = ctx_.attr;
  attr.state = state();
  const bool sends =
      attr.state == QpState::kRts || attr.state == QpState::kSqd || attr.state == QpState::kSqe;
  if (sends) attr.sq_psn = next_psn();
  attr.sq_draining = attr.state == QpState::kSqd && !is_drained();
  if (attr.state >= QpState::kRtr) attr.rq_psn = expected_psn();
  return attr;
}

}  // namespace uroce::transport
