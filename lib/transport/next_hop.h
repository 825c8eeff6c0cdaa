/// Who is asked for an Ethernet address.
#pragma once

#include <cstdint>

#include "uroce/types.h"

namespace uroce::transport {

/// Whose Ethernet address is wanted, and in which VLAN.
struct NextHop {
  Gid gid;
  std::uint16_t vlan = 0;

  friend bool operator==(const NextHop&, const NextHop&) = default;
  [[nodiscard]] bool is_set() const noexcept { return !gid.is_zero(); }
};

}  // namespace uroce::transport
