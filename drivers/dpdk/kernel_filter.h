/// Keeps RoCE frames from the kernel's own stack.
#pragma once

#include <cstddef>
#include <span>

#include "base/owned_fd.h"
#include "uroce/types.h"

namespace uroce::drivers::dpdk {

/// A BPF program at the entry of an interface, behind the packet sockets that have their copies by then. It
/// drops RoCE v2 frames without VLAN tag to given addresses; all others take their way. Without it the kernel
/// looks for somebody who listens to UDP port 4791, finds nobody, and says so to the sender: in the sender's
/// system call where the interface is a veth, a third of what a frame costs there. It ends with the object,
/// also when the process is killed.
///
/// Needs Linux 6.6 and CAP_BPF and CAP_NET_ADMIN; without these it does nothing.
///
/// Threads: one at a time.
class KernelFilter {
 public:
  KernelFilter() noexcept = default;
  /// @param interface_index  in the network namespace of this thread
  /// @param addresses        at most kMost count
  KernelFilter(unsigned interface_index, std::span<const Gid> addresses) noexcept;

  static constexpr std::size_t kMost = 64;

  [[nodiscard]] bool works() const noexcept { return link_.is_open(); }

 private:
  OwnedFd link_;
};

}  // namespace uroce::drivers::dpdk
