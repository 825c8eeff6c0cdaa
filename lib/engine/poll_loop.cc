#include "engine/poll_loop.h"

#include <algorithm>
#include <utility>

#include "base/cpu.h"
#include "base/eventfd.h"
#include "engine/as_rc.h"

namespace uroce::engine {

using transport::QueuePair;

namespace {

constexpr unsigned kTurn = 16;  // packets a QP may send before the next one has its turn

}  // namespace

PollLoop::PollLoop(LoopPlace place, port::Port& port, const Addresses& addresses,
                   std::uint64_t ask_interval_ns, std::uint64_t seed)
    : place_(place),
      port_(port),
      has_lanes_(port.has_lanes()),
      has_one_queue_(!has_lanes_ && port.info().ends != 0),
      has_ways_(port.has_ways()),
      answers_first_(!port.info().kernel_sends),
      addresses_(addresses),
      neighbours_(addresses_, port, counters_, ask_interval_ns),
      groups_(place.count),
      listener_(place.index != 0 ? nullptr
                                 : std::make_unique<GroupListener>(addresses_, port, counters_, seed)),
      outbox_(place.count),
      link_state_(port.link_state()),
      next_link_look_(place.index == 0 ? Ticks{1} : Ticks{}) {
  nowhere_.sink = nowhere_.bulk = &port_;
  if (place.index == 0) port.keep_from_kernel(addresses.untagged());
  port.leave_fetching_to(&ahead_);
}

PollLoop::~PollLoop() {
  port_.leave_fetching_to(nullptr);
}

void PollLoop::connect(std::span<const std::unique_ptr<PollLoop>> loops) {
  if (loops.size() < 2) return;
  for (const auto& to : loops) {
    for (const auto& from : loops) {
      if (from == to) continue;
      auto ring = std::make_unique<FrameRing>(to->longest_frame());
      from->outbox_[to->place_.index] = {ring.get(), to.get()};
      to->inbox_.push_back(std::move(ring));
    }
  }
}

unsigned PollLoop::run_once(Ticks now) noexcept {
  advance_to(now);
  unsigned work = take_doorbells();
  work += transmit(now);
  port_.tx_flush();
  if (spares_others_ && (asked_until_ <= now || came_until_ <= now)) spare_others(false);
  const unsigned received = receive(now);
  work += received;
  if (spares_others_ && received == 0 && port_.shows_more()) ++work;
  work += take_inner(now);
  if (answers_now_) answer_now(now);
  if (!bulk_ready_.empty()) [[unlikely]]
    work += transmit_bulk(received, now);
  if (wheel_.is_due(now)) [[unlikely]]
    work += on_tick(received, now);
  return work;
}

/// What is due by the clock, once in each slot of the timer wheel; while timers are held back, each time.
/// @return frames that it has received besides
unsigned PollLoop::on_tick(unsigned received, Ticks now) noexcept {
  constexpr std::uint64_t kPauseNs = 100'000;
  const unsigned more = now > wheel_.next_tick() + kPauseNs ? look_everywhere(now) : 0;
  expire_timers(received + more, now);
  neighbours_.on_time(now);
  if (moderation_due_.is_set() && moderation_due_ <= now) wake_moderated(now);
  if (behind_ != nullptr) take_late();
  if (next_link_look_.is_set() && next_link_look_ <= now) look_at_link(now);
  if (next_show_.is_set() && next_show_ <= now) show(now);
  if (listener_ != nullptr) listener_->on_time(now);
  return more;
}

/// Behind the burst of an iteration that comes after a pause: that may have looked at some peers only, and
/// the answers of the others have come meanwhile.
[[gnu::noinline]] unsigned PollLoop::look_everywhere(Ticks now) noexcept {
  unsigned received = 0;
  for (unsigned bursts = port_.bursts_to_see_all(); bursts > 1; --bursts) received += receive(now);
  return received;
}

/// An application that has its own sends signaled probably waits for the completions, and so does its peer,
/// which is of the same kind: their ACKs leave before it sees what has come, not behind what it sends next.
/// But where a frame takes microseconds to send, the application's own goes first, and the ACKs of both ends
/// leave at the same time.
void PollLoop::answer_now(Ticks now) noexcept {
  answers_now_ = false;
  transmit(now);
  port_.tx_flush();
}

unsigned PollLoop::take_doorbells() noexcept {
  unsigned count = 0;
  while (has_doorbells()) {
    auto* qp = static_cast<QueuePair*>(doorbells_.pop());
    if (qp == nullptr) break;
    qp->doorbell.exchange(false, std::memory_order_acq_rel);  // pairs with ring()
    static_cast<void>(qp->on_doorbell());
    make_ready(*qp);
    ++count;
  }
  return count;
}

transport::TxContext PollLoop::turn(const QueuePair& qp, Ticks now) const noexcept {
  const transport::QpContext& ctx = qp.context();
  const bool is_short = ctx.sends_bulk() && is_crowded(qp, now);
  return {.port = *ctx.path->sink,
          .bulk = *ctx.path->bulk,
          .now = now,
          .budget = is_short ? crowded_turn(ctx.mtu) : kTurn};
}

/// On a port without lanes what only answers counts for nothing: it may be the ACKs of bulk that comes.
void PollLoop::note_turn(const QueuePair& qp, bool asks, Ticks now) noexcept {
  const transport::QpContext& ctx = qp.context();
  const bool is_message = asks && ctx.in_flight == transport::InFlight::kShort;
  if (ctx.sends_bulk() || (!is_message && !has_lanes())) return;
  crowded_until_ = now + kCrowdNs;
  prompt_qp_ = &qp;
  if (is_message) asked_until_ = crowded_until_;
}

/// Bulk beside others waits for the next iteration, which has it prepared. Measured: p99 of 64 B round trips
/// beside 8 KiB WRITEs of other QPs 1.33 -> 1.17 us.
PollLoop::Posted PollLoop::send_posted(QueuePair& qp) noexcept {
  if (!cpu::is_intel && has_many_qps()) foresee_posts(qp);
  constexpr std::uint32_t kFew = 2;  // packets in flight; beyond, one flush for many is worth more
  return as_rc(qp, [this](auto& one) {
    if (one.on_doorbell()) [[unlikely]]
      return Posted::kLeft;
    if (one.in_flight() > kFew && !one.context().awaits_reply) return Posted::kWaits;
    if (one.context().sends_bulk() && is_crowded(one, now_)) return Posted::kWaits;
    transport::TxContext tx = turn(one, now_);
    const unsigned budget = tx.budget;
    const bool is_all = one.transmit_requests(tx);
    if (tx.budget < budget) port_.tx_flush();
    return is_all ? Posted::kAll : Posted::kLeft;
  });
}

/// What was sent as if at the time of the last iteration or post has left now.
void PollLoop::date_post(QueuePair& qp, Ticks now) noexcept {
  const Ticks assumed = now_;
  advance_to(now);
  undated_.open();
  as_rc(qp, [&](auto& one) { one.correct_times(assumed, now); });
}

void PollLoop::note_sent(QueuePair& qp) noexcept {
  as_rc(qp, [&](auto& one) {
    one.settle_requests(now_);
    note_turn(qp, true, now_);
    after_step(one, now_);
  });
}

/// Where posts lie further apart they left at some time before `now`: no timer that started with them is due
/// earlier than it should be, and they do not tell how long a round trip takes.
[[gnu::noinline]] void PollLoop::date_posts(Ticks now) noexcept {
  for (QueuePair* const qp : undated_.settle(now_, now)) qp->postdate(now_, now);
}

void PollLoop::make_ready_if_it_wants(QueuePair& qp) noexcept {
  const bool wants = as_rc(qp, [this](auto& one) {
    const bool may_answer = one.context().credits.load(std::memory_order_relaxed);
    return one.wants_to_send(now_) || (may_answer && one.wants_to_answer(now_));
  });
  if (wants) make_ready(qp);
}

/// What a post to the QP behind the next one needs, the way that QPs usually take turns. On Intel that costs
/// more than it saves. Measured, trained, 10 000 QPs with one WRITE each 9.4 -> 8.6 million/s, with 16 11.7
/// -> 12.1.
[[gnu::noinline]] void PollLoop::foresee_posts(const QueuePair& qp) noexcept {
  const QueuePair* const next = order_.behind(qp);
  if (next == nullptr) return;
  next->context().sq.prefetch();
  const QueuePair* const second = order_.behind(*next);
  if (second != nullptr) transport::RcQp::prefetch_sender(*second);
}

/// There was no room for what it was to send.
/// @param stays  the QP, which wants to send, has sent nothing and keeps its turn if no other one may have it
/// @return false if it is no use trying another QP
[[gnu::noinline]] bool PollLoop::on_refusal(QueuePair& qp, const transport::TxContext& tx, bool stays,
                                            bool more) noexcept {
  counters_.add(Count::kLoopTxNoRoom);
  const bool goes_on = &tx.port != &port_ || has_ways_;
  more = more || qp.wants_to_answer(tx.now);  // it may owe a CNP
  if (more) stays && !goes_on ? ready_list_of(qp).put_back(qp) : make_ready(qp);
  return goes_on;
}

/// @return false if it is no use trying another QP
[[gnu::always_inline]] inline bool PollLoop::take_turn(QueuePair& qp, Ticks now, unsigned& work) noexcept {
  transport::TxContext tx = turn(qp, now);
  if (qp.context().joins_acks) tx.joint_acks = company_for(qp.context());
  const unsigned budget = tx.budget;
  const bool only_answers = qp.context().only_answers;
  const bool more = as_rc(qp, [&tx](auto& one) { return one.transmit(tx); });
  const unsigned sent = budget - std::min(budget, tx.budget);  // a short turn may end with more than it had
  work += sent;
  note_turn(qp, !only_answers, now);
  only_answers ? after_request(qp, now) : after_step(qp, now);
  if (!tx.no_room) [[likely]] {
    if (more) make_ready(qp);
    return true;
  }
  return on_refusal(qp, tx, more && sent == 0, more);
}

unsigned PollLoop::take_turns(ReadyList& ready, Ticks now) noexcept {
  unsigned work = 0;
  if (!joint_acks_.empty()) [[unlikely]]
    send_joint_acks(now);  // for which there was no room: before what others send now
  joins_acks_ = joint_acks_.empty();
  constexpr int kAhead = 6;
  const QueuePair* ahead = has_many_qps() ? ready.first() : nullptr;
  const auto prepare = [&ahead] {
    if (ahead == nullptr || ahead->context().next_ready == nullptr) return;
    ahead = ahead->context().next_ready;
    if (!ahead->context().only_answers) transport::RcQp::prefetch_sender(*ahead);
    transport::RcQp::prefetch_receiver(*ahead);
  };
  for (int i = 0; i < kAhead; ++i) prepare();
  const QueuePair* const last = ready.last();
  for (QueuePair* qp = ready.pop(); qp != nullptr; qp = ready.pop()) {
    prepare();
    if (!take_turn(*qp, now, work) || qp == last) break;
  }
  if (!joint_acks_.empty()) send_joint_acks(now);
  joins_acks_ = false;
  return work;
}

/// Where the ACK of a QP may wait for those of others that have their turn now; nullptr: there are none, or
/// some are left that one peer has no room for, which is no matter of another one's. Behind those that are
/// left of its own peer it stays: there may be one of its own.
transport::JointAcks* PollLoop::company_for(const transport::QpContext& ctx) noexcept {
  if (!joins_acks_) return joint_acks_.are_on(*ctx.path) ? &joint_acks_ : nullptr;
  const bool is_alone = ready_.empty() && joint_acks_.empty();
  return is_alone || ctx.sends_bulk() || ctx.path->is_inner ? nullptr : &joint_acks_;
}

[[gnu::noinline]] void PollLoop::send_joint_acks(Ticks now) noexcept {
  transport::TxContext tx{.port = port_, .bulk = port_, .now = now, .budget = 1};
  if (!joint_acks_.send(tx)) counters_.add(Count::kLoopTxNoRoom);
}

unsigned PollLoop::transmit(Ticks now) noexcept {
  unsigned work = ready_.empty() && joint_acks_.empty() ? 0 : take_turns(ready_, now);
  if (!inner_ready_.empty()) [[unlikely]]
    work += take_turns(inner_ready_, now);
  if (bulk_ready_.empty()) [[likely]]
    return work;
  return work + (is_crowded(*bulk_ready_.last(), now) ? 0 : take_turns(bulk_ready_, now));
}

/// Bulk transfers that are not alone have a short turn in iterations that had nothing better to do, and in
/// every third of the others. Before it the port prepares for it, as long as there is nothing better. Where
/// all that is sent stands in one queue, what they have in flight is bounded: with a slower peer a message of
/// others came behind up to 256 packets. Measured, 64 B round trips beside 1 MiB WRITEs over memif: p99 128
/// to 179 -> 8.4 to 8.9 us.
/// @param received  frames of this iteration
[[gnu::noinline]] unsigned PollLoop::transmit_bulk(unsigned received, Ticks now) noexcept {
  if (!is_crowded(*bulk_ready_.last(), now)) return 0;
  const auto is_short = [](const port::RxFrame& frame) { return frame.len <= kShortFrame; };
  const bool had_better = std::any_of(burst_.begin(), burst_.begin() + received, is_short);
  if (had_better && ++bulk_waits_ < 3) return 0;
  constexpr std::uint32_t kHeaders = 128;  // bytes, with the ICRC
  const transport::QpContext& first = bulk_ready_.first()->context();
  const bool prepares = now < asked_until_ && !had_better;
  if (prepares && !first.path->bulk->prepare(crowded_turn(first.mtu) * (first.mtu + kHeaders))) return 1;
  bulk_waits_ = 0;
  QueuePair& qp = *bulk_ready_.pop();
  if (has_one_queue_) qp.narrow_window(crowded_window(qp.context().mtu));
  unsigned work = 0;
  take_turn(qp, now, work);
  port_.tx_flush();
  return work;
}

/// An answer may have come and not been looked at, while the application had the core or because of all that
/// came before it: timers wait for that, since what they would send again makes it worse. So they do for what
/// the device's own QPs and its other loops have for this one.
void PollLoop::expire_timers(unsigned received, Ticks now) noexcept {
  const bool is_port_behind =
      received >= port::kBurst || ((received > 0 || spares_others_) && port_.shows_more());
  if (is_port_behind || has_frames() || !inner_ready_.empty()) {
    if (behind_since_ == 0) behind_since_ = std::max<std::uint64_t>(handled_, 1);
    if (!is_port_behind) handled_ += kInnerTurn;
    if (handled_ - behind_since_ < kRxBacklog) return;
  }
  behind_since_ = 0;
  wheel_.expire(now, [this, now](TimerNode& node) {
    on_timer(*qps_.find(static_cast<transport::QpContext&>(node).qpn), now);
  });
}

bool PollLoop::has_frames() const noexcept {
  const auto has_some = [](const auto& ring) { return !ring->front().empty(); };
  return (own_frames_ != nullptr && has_some(own_frames_)) ||
         std::any_of(inbox_.begin(), inbox_.end(), has_some);
}

void PollLoop::on_timer(QueuePair& qp, Ticks now) noexcept {
  const Ticks due = as_rc(qp, [](auto& one) { return one.deadline(); });
  if (!due.is_set()) return;  // it has been answered in time
  if (due <= now) {
    const std::uint64_t timeouts = counters_.get(Count::kRequesterTimeouts);
    qp.on_timer(now);
    if (counters_.get(Count::kRequesterTimeouts) != timeouts) neighbours_.suspect(qp.neighbour, now);
    if (qp.wants_transmit(now)) make_ready(qp);
  }
  if (qp.take_keepalive()) {
    transport::TxContext tx = turn(qp, now);
    tx.budget = 1;
    qp.send_keepalive(tx);
    port_.tx_flush();
  }
  after_step(qp, now);
}

void PollLoop::keep_alive(Qpn qpn, std::uint64_t silence_ns, Ticks now) noexcept {
  QueuePair* qp = qps_.find(qpn);
  if (qp == nullptr || qp->context().init.type != QpType::kRc) return;
  qp->keep_alive(silence_ns, now);
  after_step(*qp, now);
}

void PollLoop::on_neighbour(const Neighbours::Change& change, Ticks now) noexcept {
  handles_.for_each([&](transport::AddressHandle& handle) {
    if (handle.held == change.hop) address(handle, change.mac);
  });
  qps_.for_each([&](QueuePair& qp) {
    if (qp.state() < QpState::kRtr) return;  // one in Error may owe the NAK that says why
    if (qp.context().init.type != QpType::kUd) {
      if (qp.neighbour != change.hop) return;
      address(qp, change.mac);
    }
    if (qp.wants_transmit(now)) make_ready(qp);
  });
}

/// What follows every step of a QP: its timer, the wake-ups of its CQs, its events.
void PollLoop::after_step(QueuePair& qp, Ticks now) noexcept {
  set_timer(qp, as_rc(qp, [](auto& one) { return one.deadline(); }), now);
  if (qp.context().is_controlled) [[unlikely]]
    paced_until_ = std::max(paced_until_, qp.context().congestion->rate.deadline());
  wake(qp.context().send_cq);
  wake(*qp.context().recv_cq);
  report_events(qp);
}

[[gnu::noinline]] void PollLoop::arm(QueuePair& qp, Ticks due) noexcept {
  wheel_.arm(qp.context(), due);
}

/// The wheel is not to come to it before `due`, if that is set.
[[gnu::noinline]] void PollLoop::disarm(QueuePair& qp, Ticks due) noexcept {
  due.is_set() ? arm(qp, due) : wheel_.cancel(qp.context());
}

/// Likewise, of a request: its responder has no timer.
void PollLoop::after_request(QueuePair& qp, Ticks now) noexcept {
  const transport::QpContext& ctx = qp.context();
  if (ctx.events != 0 || ctx.is_controlled) [[unlikely]]
    return after_step(qp, now);
  wake(*ctx.recv_cq);
}

[[gnu::noinline]] void PollLoop::take_news(transport::CqRing& cq) noexcept {
  if (cq.take_wake()) {
    if (sleeper_ != nullptr) sleeper_->wake_peer();  // before somebody here may have this core
    signal_eventfd(cq.event_fd());
  }
  moderation_due_ = earlier(moderation_due_, cq.deadline());
  if (cq.is_behind()) note_behind(cq);
}

void PollLoop::note_behind(transport::CqRing& cq) noexcept {
  if (std::exchange(cq.is_listed, true)) return;
  cq.next_behind = std::exchange(behind_, &cq);
}

/// CQs whose completions came faster than the application has taken them.
[[gnu::cold]] void PollLoop::take_late() noexcept {
  transport::CqRing* next = std::exchange(behind_, nullptr);
  while (next != nullptr) {
    transport::CqRing& cq = *std::exchange(next, next->next_behind);
    cq.is_listed = false;
    cq.catch_up();
    if (cq.is_behind()) note_behind(cq);
    wake(cq);
  }
}

void PollLoop::moderate(transport::CqRing& cq, std::uint32_t count, std::uint64_t period_ns) {
  const bool is_known = std::find(moderated_.begin(), moderated_.end(), &cq) != moderated_.end();
  if (!is_known) moderated_.push_back(&cq);
  cq.moderate(count, period_ns);
  if (!cq.is_moderated()) std::erase(moderated_, &cq);
  wake(cq);
}

void PollLoop::forget(transport::CqRing& cq) noexcept {
  std::erase(moderated_, &cq);
  for (transport::CqRing** at = &behind_; *at != nullptr; at = &(*at)->next_behind) {
    if (*at != &cq) continue;
    *at = cq.next_behind;
    return;
  }
}

/// CQs whose completions have waited long enough for their event.
void PollLoop::wake_moderated(Ticks now) noexcept {
  moderation_due_ = Ticks{};
  for (transport::CqRing* cq : moderated_) {
    cq->on_timer(now);
    wake(*cq);
    moderation_due_ = earlier(moderation_due_, cq->deadline());
  }
}

void PollLoop::arm_limit(transport::SharedReceives& shared, std::uint32_t limit) noexcept {
  shared.arm(limit);
  report_limit(shared, Qpn{});
}

ReadyList& PollLoop::ready_list_of(const QueuePair& qp) noexcept {
  const transport::QpContext& ctx = qp.context();
  if (ctx.path->is_inner) [[unlikely]]
    return inner_ready_;
  return ctx.sends_bulk() ? bulk_ready_ : ready_;
}

void PollLoop::make_ready_to_answer(QueuePair& qp) noexcept {
  if (qp.context().is_ready) return;
  qp.context().only_answers = true;
  ready_list_of(qp).push(qp);
}

void PollLoop::make_ready(QueuePair& qp) noexcept {
  qp.context().only_answers = false;
  if (!qp.context().is_ready) ready_list_of(qp).push(qp);
}

Ticks PollLoop::deadline(Ticks now) const noexcept {
  // The wheel does not know its earliest node; while any timer is armed, look once a millisecond, and so for
  // room in CQs that are behind.
  constexpr std::uint64_t kLookNs = 1'000'000;
  const Ticks timers = wheel_.armed() > 0 || behind_ != nullptr ? now + kLookNs : Ticks{};
  const Ticks groups = listener_ == nullptr ? Ticks{} : listener_->deadline();
  const Ticks chores = earlier(earlier(neighbours_.deadline(), groups), moderation_due_);
  return earlier(timers, chores.is_set() ? std::max(chores, wheel_.next_tick()) : Ticks{});
}

}  // namespace uroce::engine
