/// Attributes of address handles. Standard library only.
#pragma once

#include <cstddef>
#include <cstdint>

#include "uroce/types.h"

namespace uroce {

/// Same meaning as struct ibv_ah_attr with its GRH.
struct AhAttr {
  Gid dgid{};
  std::uint32_t sgid_index = 1;
  std::uint8_t traffic_class = 0;  ///< DSCP << 2 | ECN
  std::uint8_t hop_limit = 64;     ///< 0 and 1 mean 64
  std::uint32_t flow_label = 0;    ///< 20 bits; 0: from the QP numbers
  std::uint8_t sl = 0;             ///< 0..7: priority in the VLAN tag; a GID without VLAN sends none

  friend bool operator==(const AhAttr&, const AhAttr&) = default;
};

/// The first bytes of every UD receive: the sender's network header. IBA A17.4.5.1.
inline constexpr std::size_t kGrhBytes = 40;

}  // namespace uroce
