/// What IGMP and MLD have in common: who listens to which multicast group.
#pragma once

#include <cstdint>

#include "uroce/types.h"
#include "wire/ether.h"
#include "wire/multicast.h"

namespace uroce::wire {

/// One group in an IGMPv3 or MLDv2 report. We listen to all sources or to none, so no sources are named.
/// RFC 3376 4.2.12, RFC 3810 5.2.12.
struct GroupRecord {
  enum class Type : std::uint8_t {
    kIsInclude = 1,
    kIsExclude = 2,  ///< answers a query: a member
    kToInclude = 3,  ///< has left
    kToExclude = 4,  ///< has joined
  };

  Type type = Type::kIsExclude;
  Gid group{};

  friend constexpr bool operator==(const GroupRecord&, const GroupRecord&) = default;
};

/// Who tells of groups: an interface, with its address in a VLAN.
struct GroupReporter {
  MacAddress mac{};
  Gid own{};               ///< IGMP: 0.0.0.0 if it has none; MLD: link-local
  std::uint16_t vlan = 0;  ///< 0: frames without tag

  /// From it to a group.
  [[nodiscard]] constexpr LinkAddress link_to(const Gid& group) const noexcept {
    return {.src = mac, .dst = multicast_mac(group), .vlan_tci = vlan_tag(vlan)};
  }
};

/// A message that concerns a listener.
struct GroupMessage {
  enum class Kind : std::uint8_t {
    kQuery,   ///< of a router
    kReport,  ///< of another listener, in an older protocol version
    kOther,   ///< valid, but meant for routers
  };

  Kind kind = Kind::kOther;
  std::uint8_t version = 0;        ///< of the protocol: IGMP 1 to 3, MLD 1 or 2
  Gid group{};                     ///< zero: a general query
  std::uint64_t max_delay_ns = 0;  ///< of a query: answers come within it

  friend constexpr bool operator==(const GroupMessage&, const GroupMessage&) = default;
};

/// A floating-point code of max response times: `bits` of mantissa below 3 bits of exponent and a flag.
/// RFC 3376 4.1.1, RFC 3810 5.1.3.
[[nodiscard]] constexpr std::uint32_t from_delay_code(std::uint32_t code, unsigned bits) noexcept {
  if (code >> (bits + 3) == 0) return code;
  const std::uint32_t mantissa = (code & ((1U << bits) - 1)) | 1U << bits;
  return mantissa << ((code >> bits & 7) + 3);
}
static_assert(from_delay_code(100, 4) == 100 && from_delay_code(0x80, 4) == 128 &&
              from_delay_code(0xff, 4) == 31744);
static_assert(from_delay_code(0x7fff, 12) == 0x7fff && from_delay_code(0x8000, 12) == 32768 &&
              from_delay_code(0xffff, 12) == 8387584);

}  // namespace uroce::wire
