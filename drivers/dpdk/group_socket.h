/// Lets multicast frames into an interface of the kernel.
#pragma once

#include <span>
#include <vector>

#include "base/owned_fd.h"
#include "uroce/types.h"

namespace uroce::drivers::dpdk {

/// A packet socket that receives nothing, but whose memberships the kernel puts into the interface's filter.
/// They end with the socket, also when the process is killed.
///
/// Threads: one at a time.
class GroupSocket {
 public:
  /// To these groups and no others. Where the kernel refuses one, or there is no memory, the interface
  /// filters as before; it needs a descriptor only the first time.
  /// @param interface_index  the same each time
  void listen(unsigned interface_index, std::span<const MacAddress> groups) noexcept;

 private:
  /// @param what  PACKET_ADD_MEMBERSHIP or PACKET_DROP_MEMBERSHIP
  bool change(int what, unsigned interface_index, const MacAddress& group) const noexcept;

  OwnedFd fd_;
  std::vector<MacAddress> heard_;  ///< in order
};

}  // namespace uroce::drivers::dpdk
