#include "engine/loop_token.h"

#include <algorithm>

namespace uroce::engine {

bool LoopToken::try_take_contended(const void* me) noexcept {
  // A look first: failing costs nobody a cache line.
  if (owned_.load(std::memory_order_relaxed) || busy_.load(std::memory_order_relaxed)) return false;
  if (owned_.exchange(true, std::memory_order_acquire)) return false;
  if (favourite_.load(std::memory_order_relaxed) != nullptr) end_favour();
  if (busy_.load(std::memory_order_acquire)) {  // the former favourite is still at it
    owned_.store(false, std::memory_order_release);
    return false;
  }
  taken_by_favour_ = false;
  streak_ = last_ == me ? streak_ + 1 : 0;
  last_ = me;
  if (streak_ >= needed_) favourite_.store(me, std::memory_order_relaxed);
  return true;
}

/// The more often favours are ended, the longer it takes to become the favourite.
void LoopToken::end_favour() noexcept {
  favourite_.store(nullptr, std::memory_order_relaxed);
  streak_ = 0;
  needed_ = std::min(2 * needed_, kLongestStreak);
  heavy_barrier();  // from here on the favourite sees that it is none, or its `busy_` is seen
}

}  // namespace uroce::engine
