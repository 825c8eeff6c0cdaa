#include "transport/cq_ring.h"

#include <new>

namespace uroce::transport {

bool CqRing::put_off(const LateCompletion& one, Qpn qpn) noexcept try {
  const CqSize is = size();
  const bool is_large_enough = is.demand != 0 && is.demand <= is.entries;
  if (!is_large_enough || (is_behind() && late_->size() >= is.entries)) return false;
  if (!is_behind()) late_ = std::make_unique<LateCompletions>();
  late_->add(one, qpn);
  has_news_ = true;
  return true;
} catch (const std::bad_alloc&) {
  if (is_behind() && late_->empty()) late_.reset();
  return false;
}

void CqRing::catch_up() noexcept {
  if (!is_behind()) return;
  while (!late_->empty() && has_free_place()) {
    const LateCompletion one = late_->first();
    late_->pop();
    // First, because who sees the completion may post at once.
    if (one.queue != nullptr && !one.queue->is_retired(one.next)) one.queue->retire(one.next);
    if (one.is_told) append(one.wc, one.is_solicited);
  }
  if (late_->empty()) late_.reset();
}

void CqRing::forget_late(Qpn qpn) noexcept {
  if (!is_behind()) return;
  late_->forget(qpn);
  if (late_->empty()) late_.reset();
}

}  // namespace uroce::transport
