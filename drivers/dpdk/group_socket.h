/// Lets multicast frames into an interface of the kernel.
#pragma once

#include <span>
#include <utility>

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
  GroupSocket(GroupSocket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  GroupSocket& operator=(GroupSocket&& other) noexcept {
    std::swap(fd_, other.fd_);  // the old memberships end after the new ones have begun
    return *this;
  }
  ~GroupSocket();

 private:
  int fd_ = -1;
};

}  // namespace uroce::drivers::dpdk
