/// Options of connections beyond the standard, and how two ends agree on them. Standard library only.
#pragma once

#include <cstdint>

namespace uroce {

/// Options of enhanced connection establishment, of one vendor. Same meaning as struct ibv_ece.
struct Ece {
  std::uint32_t vendor_id = 0;
  std::uint32_t options = 0;
};

/// Options of this library. The application that connects asks its QP for them with Qp::set_ece(), sends
/// what Qp::query_ece() grants to its peer, which sets that and sends back what it grants in turn; that is
/// set last. What both ends have set so is switched on once they are connected.
namespace ece {
/// Under which they are known: 24 bits, as an OUI, of those that anybody may use.
inline constexpr std::uint32_t kVendor = 0x02'7572;
/// Masked atomics, WrOpcode::kMaskedCmpAndSwp and kMaskedFetchAndAdd. RC and XRC.
inline constexpr std::uint32_t kMaskedAtomics = 1U << 0;
/// Selective repeat: what arrives behind a lost packet is held, and only what was lost is sent again. RC and
/// XRC. Costs memory for 256 packets where requests arrive, for 512 where READs are asked; see
/// Config::selective_repeat.
inline constexpr std::uint32_t kSelectiveRepeat = 1U << 1;
/// Joint ACKs: those of several QPs to the same peer that are due at the same time leave in one packet. RC
/// and XRC. See Config::joint_acks.
inline constexpr std::uint32_t kJointAcks = 1U << 2;
inline constexpr std::uint32_t kAll = kMaskedAtomics | kSelectiveRepeat | kJointAcks;
}  // namespace ece

}  // namespace uroce
