/// A memory barrier whose cost lies all on one side.
#pragma once

#include <atomic>

namespace uroce {

namespace detail {
/// Whether the kernel makes all threads of the process pass a barrier on demand: membarrier(2), Linux 4.14.
extern const bool kHasMembarrier;
}  // namespace detail

/// Whether light_barrier() costs nothing.
[[nodiscard]] inline bool has_light_barrier() noexcept {
  return detail::kHasMembarrier;
}

/// Keeps this thread's earlier stores and its later loads in order for any thread that runs heavy_barrier()
/// between its own store and load. Costs nothing where the kernel helps, a full barrier otherwise.
inline void light_barrier() noexcept {
  if (detail::kHasMembarrier) {
    std::atomic_signal_fence(std::memory_order_seq_cst);
  } else {
    std::atomic_thread_fence(std::memory_order_seq_cst);
  }
}

/// The other side: microseconds, and an interrupt for every running thread of the process.
void heavy_barrier() noexcept;

/// Instead of an interrupt, should the kernel refuse one: what other cores have stored meanwhile is seen.
/// Takes 50 us and more. No cancellation point.
void await_stores_of_others() noexcept;

}  // namespace uroce
