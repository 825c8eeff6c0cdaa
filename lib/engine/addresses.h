/// The port's own addresses, and who the next hop to a destination is.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "transport/next_hop.h"
#include "uroce/types.h"

namespace uroce::engine {

/// An address with the length of its network prefix; for IPv4-mapped GIDs the length counts from the IPv4
/// part. The same address may stand in several VLANs, and for both kinds of frames.
struct Address {
  Gid gid;
  unsigned prefix_len = 0;  // bits
  std::uint16_t vlan = 0;   // 0: frames without tag
  GidType type = GidType::kRoceV2;
  bool removed = false;  // no longer ours; what was made from it goes on

  [[nodiscard]] bool is_on_link(const Gid& other) const noexcept;
};

/// Whether frames from `own`, if it is ours, can name `destination`: IP headers hold addresses of one family,
/// a GRH any group.
[[nodiscard]] constexpr bool can_reach(const Address& own, const Gid& destination) noexcept {
  if (own.removed) return false;
  if (own.type == GidType::kRoceV1 && destination.is_multicast()) return true;
  return own.gid.is_v4() == destination.is_v4();
}

using transport::NextHop;

/// GID table of a port. Index 0 is the link-local address, which is in no VLAN. IBA A17.
///
/// Threads: const members from any thread while nobody changes it; each loop has its own copy.
class Addresses {
 public:
  Addresses() = default;
  Addresses(std::vector<Address> own, std::optional<Gid> gateway) : own_(std::move(own)), gateway_(gateway) {}

  [[nodiscard]] const std::vector<Address>& own() const noexcept { return own_; }
  [[nodiscard]] bool is_own(const Gid& gid, std::uint16_t vlan) const noexcept {
    return std::any_of(own_.begin(), own_.end(),
                       [&](const Address& a) { return a.gid == gid && a.vlan == vlan && !a.removed; });
  }
  /// Whether any address is in that VLAN.
  [[nodiscard]] bool is_in_vlan(std::uint16_t vlan) const noexcept {
    return std::any_of(own_.begin(), own_.end(), [&](const Address& a) { return a.vlan == vlan; });
  }
  /// Those that frames without VLAN tag reach over IP.
  [[nodiscard]] std::vector<Gid> untagged() const;
  /// Indices never change: a new one comes last or, if it was there before, where it was.
  /// @return false if it is there.
  bool add(const Address& address);
  /// Both kinds of frames; not the link-local address of index 0. @return false if it is not there.
  bool remove(const Gid& gid, std::uint16_t vlan) noexcept;
  /// Whether `destination` is in the prefix of an address that is in the VLAN of own()[`sgid_index`].
  [[nodiscard]] bool is_on_link(const Gid& destination, std::size_t sgid_index) const noexcept;
  /// Whether that is so, or the gateway leads there: any other is asked for on the link, where nobody has to
  /// answer for it.
  [[nodiscard]] bool has_route(const Gid& destination, std::size_t sgid_index) const noexcept {
    return is_on_link(destination, sgid_index) || leads_to(destination, sgid_index);
  }
  /// Whether the gateway is in the prefix of own()[`sgid_index`].
  [[nodiscard]] bool has_gateway(std::size_t sgid_index) const noexcept {
    return gateway_.has_value() && own_[sgid_index].is_on_link(*gateway_);
  }
  /// Whom to ask for the Ethernet address when sending from own()[`sgid_index`] to `destination`. RoCE v1 is
  /// not routed.
  [[nodiscard]] NextHop next_hop(const Gid& destination, std::size_t sgid_index) const noexcept;
  /// An own address of the target's VLAN to ask from. Where there is none of its family: 0.0.0.0, as somebody
  /// without address asks (RFC 5227 2.1.1, RFC 3376 4.2.13), or the link-local one.
  [[nodiscard]] Gid source_for(const NextHop& target) const noexcept;

 private:
  /// Of the gateway, where `destination` is not on the link.
  [[nodiscard]] bool leads_to(const Gid& destination, std::size_t sgid_index) const noexcept {
    return own_[sgid_index].type == GidType::kRoceV2 && gateway_.has_value() &&
           gateway_->is_v4() == destination.is_v4();
  }

  std::vector<Address> own_;
  std::optional<Gid> gateway_;
};

/// fe80::/64 with the EUI-64 of `mac`. RFC 4291 appendix A.
[[nodiscard]] Gid link_local_gid(const MacAddress& mac) noexcept;
/// The Ethernet address in a link-local GID that link_local_gid() may have made.
[[nodiscard]] std::optional<MacAddress> link_local_mac(const Gid& gid) noexcept;

}  // namespace uroce::engine
