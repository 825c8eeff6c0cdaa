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
  const bool is_send = one.queue != nullptr;  // then its queue bounds how many wait
  const std::uint32_t demand = is_send ? send_demand() : size().demand;
  if (demand == 0 || demand > entries()) return false;
  if (!is_send && is_behind() && late_->receives() >= entries()) return false;
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
