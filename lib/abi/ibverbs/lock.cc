#include "abi/ibverbs/lock.h"

#include <sched.h>

#include "base/asymmetric_barrier.h"

namespace uroce::abi {

Lock::Lock(bool is_needed) noexcept : is_needed_(is_needed), is_mutex_(!is_needed || !has_light_barrier()) {}

void Lock::lock_mutex() {
  mutex_.lock();
  const std::uintptr_t owner = owner_.load(std::memory_order_relaxed);
  if (owner == 0) {
    owner_.store(this_thread(), std::memory_order_relaxed);
  } else if (owner != this_thread() && !is_mutex_.load(std::memory_order_relaxed)) {
    revoke();
  }
  is_by_mutex_ = true;
}

/// After the barrier the owner either is seen to hold the lock, or sees that it is a mutex now.
void Lock::revoke() noexcept {
  is_mutex_.store(true, std::memory_order_relaxed);
  heavy_barrier();
  while (is_held_.load(std::memory_order_acquire)) sched_yield();
}

}  // namespace uroce::abi
