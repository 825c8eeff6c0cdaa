#include "base/asymmetric_barrier.h"

#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace uroce {

const bool detail::kHasMembarrier =
    syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0;

void heavy_barrier() noexcept {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (detail::kHasMembarrier) syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0);
}

}  // namespace uroce
