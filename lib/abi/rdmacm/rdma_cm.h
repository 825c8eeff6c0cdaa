/// The entry points by which the preloaded library reaches the emulation of /dev/infiniband/rdma_cm.
#pragma once

#include <sys/types.h>
#include <cstddef>

#pragma GCC visibility push(default)
extern "C" {

/// As open(), write() and close() of the device: -1 and errno on failure. `fd` is one that open() gave.
/// Threads: any.
int uroce_rdma_cm_open(int flags);
ssize_t uroce_rdma_cm_write(int fd, const void* command, std::size_t bytes);
int uroce_rdma_cm_close(int fd);

}  // extern "C"
#pragma GCC visibility pop
