#include "base/asymmetric_barrier.h"

#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <ctime>

namespace uroce {

const bool detail::kHasMembarrier =
    syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0;

void heavy_barrier() noexcept {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (!detail::kHasMembarrier) return;
  // A process may have lost the right to it since, by seccomp(2).
  if (syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0) != 0) await_stores_of_others();
}

void await_stores_of_others() noexcept {
  timespec left{.tv_sec = 0, .tv_nsec = 50'000};  // far longer than a store can stay in a store buffer
  while (syscall(SYS_nanosleep, &left, &left) != 0 && errno == EINTR) continue;
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

}  // namespace uroce
