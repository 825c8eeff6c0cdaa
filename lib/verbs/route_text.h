/// Why nobody may be found at an address: told to whoever waits for an answer in vain.
#pragma once

#include <string>

#include "engine/addresses.h"
#include "uroce/ah_attr.h"

namespace uroce {

/// Empty if there is a route.
[[nodiscard]] inline std::string describe_route(const engine::Addresses& addresses, const AhAttr& to) {
  if (addresses.has_route(to.dgid, to.sgid_index)) return "";
  return host_text(to.dgid) +
         " is in no prefix of this port (--ip) and there is no gateway to it: use --gateway";
}

/// Nobody has said where the peer is.
[[nodiscard]] inline std::string describe_unresolved(const engine::Addresses& addresses, const AhAttr& to) {
  if (const std::string trouble = describe_route(addresses, to); !trouble.empty()) return "; " + trouble;
  const bool is_far = !addresses.is_on_link(to.dgid, to.sgid_index);
  return "; nobody answers for the Ethernet address of " + (is_far ? "the gateway to " : std::string()) +
         host_text(to.dgid) + ": is it up, on this link and in this VLAN?";
}

}  // namespace uroce
