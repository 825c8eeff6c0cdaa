/// Lets multicast frames into an interface of the kernel.
#pragma once

#include <span>

#include "drivers/dpdk/owned_fd.h"
#include "uroce/types.h"

namespace uroce::drivers::dpdk {

/// A packet socket that receives nothing, but whose memberships the kernel puts into the interface's filter.
/// They end with the socket, also when the process is killed.
///
/// Threads: one at a time.
class GroupSocket {
 public:
  GroupSocket() noexcept = default;
  /// Where the kernel refuses, the interface filters as before.
  GroupSocket(unsigned interface_index, std::span<const MacAddress> groups) noexcept;

 private:
  OwnedFd fd_;
};

}  // namespace uroce::drivers::dpdk
