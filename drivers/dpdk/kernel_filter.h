/// Keeps RoCE frames from the kernel's own stack.
#pragma once

#include <cstddef>
#include <span>
#include <utility>

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
  KernelFilter(KernelFilter&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  KernelFilter& operator=(KernelFilter&& other) noexcept {
    std::swap(fd_, other.fd_);  // the old one ends after the new one has begun
    return *this;
  }
  ~KernelFilter();

  static constexpr std::size_t kMost = 64;

  [[nodiscard]] bool works() const noexcept { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

}  // namespace uroce::drivers::dpdk
