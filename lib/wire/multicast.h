/// Group addresses, and the Ethernet addresses that stand for them.
#pragma once

#include "uroce/types.h"

namespace uroce::wire {

/// All nodes of the link, ff02::1.
inline constexpr Gid kAllNodes{{0xff, 0x02, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}};

/// The group in which a node with this IPv6 address listens for solicitations. RFC 4291 2.7.1.
[[nodiscard]] constexpr Gid solicited_node_group(const Gid& address) noexcept {
  Gid group{{0xff, 0x02, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff}};
  for (std::size_t i = 13; i < 16; ++i) group.raw[i] = address.raw[i];
  return group;
}

/// The Ethernet address of a group: the low 23 bits of an IPv4 group (RFC 1112 6.4), the low 32 of an IPv6
/// one (RFC 2464 7).
[[nodiscard]] constexpr MacAddress multicast_mac(const Gid& group) noexcept {
  const auto& raw = group.raw;
  if (group.is_v4()) {
    return {{0x01, 0x00, 0x5e, static_cast<std::uint8_t>(raw[13] & 0x7f), raw[14], raw[15]}};
  }
  return {{0x33, 0x33, raw[12], raw[13], raw[14], raw[15]}};
}

/// Broadcast or multicast.
[[nodiscard]] constexpr bool is_group(const MacAddress& mac) noexcept {
  return (mac.raw[0] & 1) != 0;
}

static_assert(multicast_mac(Gid::from_v4({239, 129, 2, 3})) ==
              MacAddress{{0x01, 0x00, 0x5e, 0x01, 0x02, 0x03}});
static_assert(multicast_mac(kAllNodes) == MacAddress{{0x33, 0x33, 0, 0, 0, 1}} &&
              is_group(multicast_mac(kAllNodes)));
static_assert(solicited_node_group(Gid{{0xfd, 0x99, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xaa, 0xbb, 0xcc}}) ==
              Gid{{0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, 0xaa, 0xbb, 0xcc}});

}  // namespace uroce::wire
