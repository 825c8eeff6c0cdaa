#include "transport/cq_ring.h"

#include <new>

namespace uroce::transport {

bool CqRing::put_off(LateCompletion one, Qpn qpn) noexcept try {
  one.wc.qpn = qpn;
  if (has_timestamps_) one.wc.timestamp_ns = now_->ns();
  catch_up();
  if (has_room()) {
    take_in(one);
    return true;
  }
  const CqSize is = size();
  const bool is_large_enough = is.demand != 0 && is.demand <= is.entries;
  const bool is_bounded = one.queue == nullptr && is_behind();  // sends are, by their queues
  if (!is_large_enough || (is_bounded && late_->receives() >= is.entries)) return false;
  if (!is_behind()) late_ = std::make_unique<LateCompletions>();
  late_->add(one);
  shows_late_.store(true, std::memory_order_release);  // pairs with shows_late()
  has_news_ = true;
  return true;
} catch (const std::bad_alloc&) {
  end_if_none_is_late();
  return false;
}

void CqRing::take_in(const LateCompletion& one) noexcept {
  // First, because who sees the completion may post at once.
  if (one.queue != nullptr && !one.queue->is_retired(one.next)) one.queue->retire(one.next);
  if (!one.is_told) return;
  Cqe& cqe = slots_[tail_ & mask_];
  cqe.store(one.wc);
  publish(cqe, one.is_solicited, one.wc.ok());
}

void CqRing::catch_up() noexcept {
  if (!is_behind()) return;
  while (!late_->empty() && has_free_place()) {
    const LateCompletion one = late_->first();
    late_->pop();
    take_in(one);
  }
  end_if_none_is_late();
}

void CqRing::forget_late(Qpn qpn) noexcept {
  if (!is_behind()) return;
  late_->forget(qpn);
  end_if_none_is_late();
}

void CqRing::end_if_none_is_late() noexcept {
  if (!is_behind() || !late_->empty()) return;
  late_.reset();
  shows_late_.store(false, std::memory_order_release);  // pairs with shows_late()
}

}  // namespace uroce::transport
