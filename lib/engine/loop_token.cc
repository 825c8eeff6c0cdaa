#include "engine/loop_token.h"

#include <algorithm>
#include <memory>
#include <mutex>
#include <new>
#include <vector>

namespace uroce::engine {

/// A thread's Taker, for as long as the thread lives. Takers are never freed, but used again: a token may
/// look at its former favourite after that thread has ended.
class LoopToken::Enrolment {
 public:
  Enrolment() noexcept = default;
  /// Without memory for it the thread remains without, and takes tokens like a stranger.
  void join() noexcept try {
    Pool& pool = the_pool();
    const std::lock_guard lock(pool.mutex);
    if (pool.idle.empty()) {
      pool.idle.reserve(pool.all.size() + 1);
      here = pool.all.emplace_back(std::make_unique<Taker>()).get();
    } else {
      here = pool.idle.back();
      pool.idle.pop_back();
    }
    here->belong_to(this_thread());
  } catch (const std::bad_alloc&) {
    return;
  }
  ~Enrolment() {
    if (here == nullptr) return;
    Pool& pool = the_pool();
    const std::lock_guard lock(pool.mutex);
    here->belong_to(0);
    pool.idle.push_back(here);
    here = nullptr;
  }
  Enrolment(const Enrolment&) = delete;
  Enrolment& operator=(const Enrolment&) = delete;

 private:
  struct Pool {
    std::mutex mutex;
    std::vector<std::unique_ptr<Taker>> all;
    std::vector<Taker*> idle;
  };
  static Pool& the_pool() {
    static Pool* const pool = new Pool;  // outlives every thread
    return *pool;
  }
};

bool LoopToken::try_take_contended() noexcept {
  static thread_local Enrolment enrolment;
  if (here == nullptr) enrolment.join();
  // A look first: failing costs nobody a cache line.
  Taker* const favourite = favourite_.load(std::memory_order_acquire);
  if (owned_.load(std::memory_order_relaxed) || (favourite != nullptr && favourite->is_busy())) return false;
  if (owned_.exchange(true, std::memory_order_acquire)) return false;
  if (Taker* const present = favourite_.load(std::memory_order_relaxed)) end_favour(*present);
  if (former_ != nullptr && former_->is_busy()) {  // perhaps still at it
    owned_.store(false, std::memory_order_release);
    return false;
  }
  former_ = nullptr;
  holder_.store(nullptr, std::memory_order_relaxed);
  streak_ = last_.load(std::memory_order_relaxed) == here ? streak_ + 1 : 0;
  last_.store(here, std::memory_order_relaxed);
  if (streak_ >= needed_ && here != nullptr)
    favourite_.store(here, std::memory_order_release);  // with the Taker it points to
  return true;
}

/// The more often favours are ended, the longer it takes to become the favourite.
void LoopToken::end_favour(Taker& favourite) noexcept {
  favourite_.store(nullptr, std::memory_order_relaxed);
  former_ = &favourite;
  streak_ = 0;
  needed_ = std::min(2 * needed_, longest_);
  heavy_barrier();  // from here on the favourite sees that it is none, or is seen to be busy
}

}  // namespace uroce::engine
