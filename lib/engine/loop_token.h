/// Who may run a loop: a try-lock that costs its usual holder no locked instruction.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/asymmetric_barrier.h"

namespace uroce::engine {

/// Exclusive ownership that mostly one thread takes, again and again: after a number of takes in a row that
/// thread becomes the favourite and takes it with plain stores. Another one that wants it first ends the
/// favour, with a heavy_barrier().
///
/// The reason is not the locked instruction but what it waits for: all earlier stores, those into a link's
/// shared memory with them. Measured on shm: 64 B SEND round trip 0.86 -> 0.72 us.
///
/// Threads: any. Never blocks.
class LoopToken {
 public:
  [[nodiscard]] bool try_take() noexcept {
    const void* const me = this_thread();
    if (favourite_.load(std::memory_order_relaxed) == me) {
      busy_.store(true, std::memory_order_relaxed);
      light_barrier();  // pairs with end_favour()
      if (favourite_.load(std::memory_order_relaxed) == me) {
        taken_by_favour_ = true;
        return true;
      }
      busy_.store(false, std::memory_order_release);
    }
    return try_take_contended(me);
  }

  void release() noexcept {
    if (taken_by_favour_) {
      busy_.store(false, std::memory_order_release);  // pairs with try_take_contended()
    } else {
      owned_.store(false, std::memory_order_release);  // likewise
    }
  }

 private:
  static constexpr std::uint32_t kFirstStreak = 32;
  static constexpr std::uint32_t kLongestStreak = 1U << 20U;

  /// An address that no other living thread has.
  [[nodiscard]] static const void* this_thread() noexcept {
    thread_local constinit char here = 0;
    return &here;
  }
  bool try_take_contended(const void* me) noexcept;
  void end_favour() noexcept;

  alignas(64) std::atomic<const void*> favourite_{nullptr};  // changed by the holder of `owned_` only
  std::atomic<bool> busy_{false};                            // the favourite holds the token
  std::atomic<bool> owned_{false};  // somebody holds it in the ordinary way, or tries to
  // The holder's own.
  bool taken_by_favour_ = false;
  const void* last_ = nullptr;  // who took it in the ordinary way
  std::uint32_t streak_ = 0;    // how often in a row
  std::uint32_t needed_ = kFirstStreak;
};

}  // namespace uroce::engine
