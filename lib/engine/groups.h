/// The multicast groups of a device, as one of its loops knows them.
#pragma once

#include <cstdint>
#include <vector>

#include "transport/queue_pair.h"
#include "uroce/types.h"

namespace uroce::engine {

/// Destination QPN of every multicast packet. IBA 9.8.3 ?
inline constexpr Qpn kMulticastQpn{0xff'ffff};

/// A group that some QP of the device is attached to.
struct Group {
  Gid gid;
  std::vector<transport::QueuePair*> members;  ///< those of this loop
  std::vector<std::uint32_t> attached;         ///< number of members, by loop
};

/// Table of groups. IBA 10.5.
///
/// Threads: loop; attach() and detach() are control calls of whoever owns it.
class Groups {
 public:
  explicit Groups(unsigned loops) noexcept : loops_(loops) {}

  [[nodiscard]] bool is_empty() const noexcept { return groups_.empty(); }
  [[nodiscard]] const Group* find(const Gid& gid) const noexcept;

  /// A QP of loop `owner` is attached; `member` is that QP if it is one of this loop. Not twice for one QP.
  /// Throws bad_alloc, and nothing has changed then.
  void attach(const Gid& gid, unsigned owner, transport::QueuePair* member);
  /// The reverse. Does nothing if it was not attached.
  void detach(const Gid& gid, unsigned owner, transport::QueuePair* member) noexcept;

 private:
  unsigned loops_;
  std::vector<Group> groups_;  // by GID
};

}  // namespace uroce::engine
