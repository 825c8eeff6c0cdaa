/// The port's own addresses, and who the next hop to a destination is.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "uroce/types.h"

namespace uroce::engine {

/// An address with the length of its network prefix; for IPv4-mapped GIDs the length counts from the IPv4
/// part.
struct Address {
  Gid gid;
  unsigned prefix_len = 0;  // bits

  [[nodiscard]] bool is_on_link(const Gid& other) const noexcept;
};

/// GID table of a port. Index 0 is the link-local address. IBA A17.
///
/// Threads: read-only after construction.
class Addresses {
 public:
  Addresses() = default;
  Addresses(std::vector<Address> own, std::optional<Gid> gateway) : own_(std::move(own)), gateway_(gateway) {}

  [[nodiscard]] const std::vector<Address>& own() const noexcept { return own_; }
  [[nodiscard]] bool is_own(const Gid& gid) const noexcept {
    return std::any_of(own_.begin(), own_.end(), [&](const Address& a) { return a.gid == gid; });
  }
  /// Whom to ask for the Ethernet address when sending to `destination`.
  [[nodiscard]] Gid next_hop(const Gid& destination) const noexcept;
  /// An own address to ask from.
  [[nodiscard]] const Gid& source_for(const Gid& target) const noexcept;

 private:
  std::vector<Address> own_;
  std::optional<Gid> gateway_;
};

/// fe80::/64 with the EUI-64 of `mac`. RFC 4291 appendix A.
[[nodiscard]] Gid link_local_gid(const MacAddress& mac) noexcept;

}  // namespace uroce::engine
