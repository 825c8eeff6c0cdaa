#include "wire/icrc_ahead.h"

#include <cassert>

#include "base/cpu.h"
#include "wire/icrc.h"

namespace uroce::wire {

/// Not on Intel, where a copy by `rep movsb` is faster than one by vectors, and all lines of the next packet
/// are fetched bit by bit.
void IcrcAhead::copy(const PacketView& packet, std::byte* to, std::span<const std::byte> part,
                     std::uint64_t whole) noexcept {
  assert(part.size() >= kShortestBeside);
  const auto next = std::exchange(next_, {});
  if (next.size() >= kShortest && packet.gid_type == GidType::kRoceV2 && !cpu::is_intel) {
    const auto covered = next.subspan(packet.l3_offset, next.size() - packet.l3_offset - kIcrcSize);
    if (const auto icrc = compute_icrc_beside_copy(covered, packet.is_v6, to, part)) {
      coming_ = {.covered = covered, .icrc = *icrc, .is_v6 = packet.is_v6};
      return;
    }
  }
  copy_part(to, part.data(), part.size(), whole);
}

}  // namespace uroce::wire
