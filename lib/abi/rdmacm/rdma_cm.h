/// The entry points by which the preloaded library reaches the emulation of /dev/infiniband/rdma_cm.
#pragma once

#include <sys/types.h>
#include <cstddef>

#pragma GCC visibility push(default)
extern "C" {

/// As open() and write() of the device: -1 and errno on failure. `fd` is one that open() gave. Threads: any.
int uroce_rdma_cm_open(int flags);
ssize_t uroce_rdma_cm_write(int fd, const void* command, std::size_t bytes);
/// All that close() of the device does but to close the descriptor, which the caller does then: a thread that
/// comes back for the next event meanwhile is to find the device there. -1 and EBADF: another thread is
/// first.
int uroce_rdma_cm_end(int fd);

}  // extern "C"
#pragma GCC visibility pop
