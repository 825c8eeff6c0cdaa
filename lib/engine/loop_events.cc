// What a loop tells the control threads.
#include <utility>

#include "base/eventfd.h"
#include "engine/poll_loop.h"
#include "transport/xrc_domain.h"

namespace uroce::engine {

using transport::QueuePair;

void PollLoop::report(QueuePair& qp, std::uint32_t events) noexcept {
  if ((events & transport::QpContext::kHasNews) != 0) show(qp);
  if (events == transport::QpContext::kHasNews) return;  // under loss, of many packets
  if ((events & QueuePair::kHasFailed) != 0 && failure_fd_ >= 0) {
    if (Qpn* slot = failures_.claim()) {
      *slot = qp.context().qpn;
      failures_.publish();
    }
    signal_eventfd(failure_fd_);
  }
  if ((events & transport::QpContext::kManyQueues) != 0 && qp.context().domain != nullptr) {
    qp.context().domain->for_each([this](const transport::XrcDomain::Entry& queue) {
      wake(*queue.cq);
      report_limit(*queue.receives);
    });
  }
  transport::SharedReceives* shared = qp.context().receives.shared();
  for (std::uint8_t type = 0; type < 29; ++type) {
    if ((events & 1U << type) == 0) continue;
    if (AsyncEventType{type} == AsyncEventType::kSrqLimitReached && shared != nullptr) {
      shared->put_back_limit_event();
      report_limit(*shared, qp.context().qpn);
      continue;
    }
    const bool is_overflow = AsyncEventType{type} == AsyncEventType::kCqErr;
    const bool is_told = report({.type = AsyncEventType{type},
                                 .qpn = qp.context().qpn,
                                 .fault = is_overflow ? transport::Fault::kCqOverflow : qp.context().fatal,
                                 .srq = shared == nullptr ? 0 : shared->number,
                                 .full_cq = is_overflow ? qp.context().full_cq : transport::CqSize{}});
    if (is_told) continue;
    qp.put_back_event(AsyncEventType{type});
    note_untold();
  }
}

/// That of an SRQ stays there while there is no room: a QP may soon take receives from another one.
void PollLoop::report_limit(transport::SharedReceives& shared, Qpn qpn) noexcept {
  if (!shared.take_limit_event()) return;
  if (report({.type = AsyncEventType::kSrqLimitReached, .qpn = qpn, .srq = shared.number})) return;
  shared.put_back_limit_event();
  note_untold();
}

/// Whoever knows of some already will ask for all. Each further step of a QP that has one would be a write to
/// the descriptor: for as long as nobody takes events, with each packet.
void PollLoop::note_untold() noexcept {
  if (has_untold_.load(std::memory_order_relaxed)) return;
  has_untold_.store(true, std::memory_order_release);  // pairs with has_untold_events()
  signal_eventfd(event_fd_);
}

/// @return whether there was room: those of QPs and SRQs are kept by these, and told later.
bool PollLoop::report(const LoopEvent& event) noexcept {
  LoopEvent* slot = events_.claim();
  if (slot == nullptr) return false;
  *slot = event;
  events_.publish();
  signal_eventfd(event_fd_);
  return true;
}

void PollLoop::report_untold() noexcept {
  has_untold_.store(false, std::memory_order_relaxed);
  const transport::XrcDomain* looked_at = nullptr;
  qps_.for_each([this, &looked_at](QueuePair& qp) {
    report_events(qp);
    const transport::QpContext& ctx = qp.context();
    if (ctx.receives.shared() != nullptr) report_limit(*ctx.receives.shared());
    if (ctx.domain == nullptr || ctx.domain == looked_at) return;
    looked_at = ctx.domain;
    ctx.domain->for_each([this](const transport::XrcDomain::Entry& queue) { report_limit(*queue.receives); });
  });
}

/// Of what nobody can keep.
void PollLoop::report_or_count(const LoopEvent& event) noexcept {
  if (!report(event)) counters_.add(Count::kAsyncEventsLost);
}

void PollLoop::set_addresses(Addresses addresses, Ticks now) {
  const bool is_first = place_.index == 0;
  const std::vector<Gid> kept = is_first ? addresses.untagged() : std::vector<Gid>{};
  if (listener_ != nullptr) listener_->prepare(addresses, now);
  addresses_ = std::move(addresses);
  known_.forget_paths();
  if (!is_first) return;
  port_.keep_from_kernel(kept);
  report_or_count({.type = AsyncEventType::kGidChange});
}

port::LinkState PollLoop::look_at_link(Ticks now) noexcept {
  if (next_link_look_.is_set()) next_link_look_ = now + kLinkLookNs;
  const port::LinkState before = std::exchange(link_state_, port_.link_state());
  if (link_state_ == before) return before;
  if (link_state_ == port::LinkState::kUp && listener_ != nullptr) listener_->on_link_up(now);
  AsyncEventType type = AsyncEventType::kDeviceFatal;
  if (link_state_ != port::LinkState::kGone) {
    type = link_state_ == port::LinkState::kUp ? AsyncEventType::kPortActive : AsyncEventType::kPortErr;
  }
  report_or_count({.type = type});
  return link_state_;
}

void PollLoop::show(Ticks now) noexcept {
  next_show_ = now + kShowNs;
  display_->show(*this);
}

bool PollLoop::next_failure(Qpn& qpn) noexcept {
  const Qpn* front = failures_.front();
  if (front == nullptr) return false;
  qpn = *front;
  failures_.pop();
  return true;
}

bool PollLoop::next_event(LoopEvent& event) noexcept {
  const LoopEvent* front = events_.front();
  if (front == nullptr) return false;
  event = *front;
  events_.pop();
  return true;
}

}  // namespace uroce::engine
