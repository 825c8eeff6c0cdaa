/// Mutual exclusion of application threads.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>

#include "base/this_thread.h"

namespace uroce::abi {

/// verbs promise that every call may be made from any thread, the C++ API asks for one at a time. Objects of
/// a thread domain do without.
///
/// The first thread to lock it goes on to do so with plain stores; once another comes, it is a mutex for
/// good. A locked instruction waits for all stores before it, those into a link's shared memory with them:
/// measured on shm, mutexes were a sixth of a round trip.
///
/// Threads: any.
class Lock {
 public:
  explicit Lock(bool is_needed) noexcept;

  void lock() {
    if (owner_.load(std::memory_order_relaxed) == this_thread()) [[likely]] {
      is_held_.store(true, std::memory_order_relaxed);
      std::atomic_signal_fence(std::memory_order_seq_cst);  // pairs with the barrier in revoke()
      if (!is_mutex_.load(std::memory_order_relaxed)) return;
      is_held_.store(false, std::memory_order_release);
    }
    if (is_needed_) lock_mutex();
  }
  void unlock() {
    if (!is_by_mutex_) {
      is_held_.store(false, std::memory_order_release);  // pairs with revoke()
    } else {
      is_by_mutex_ = false;
      mutex_.unlock();
    }
  }

 private:
  void lock_mutex();
  void revoke() noexcept;

  const bool is_needed_;
  std::atomic<bool> is_mutex_;
  std::atomic<bool> is_held_{false};      // by the owner, with plain stores
  std::atomic<std::uintptr_t> owner_{0};  // changed by the holder of the mutex
  bool is_by_mutex_ = false;              // how it is held; by whoever holds it
  std::mutex mutex_;
};

}  // namespace uroce::abi
