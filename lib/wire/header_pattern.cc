#include "wire/header_pattern.h"

namespace uroce::wire {

void HeaderPattern::learn(const PacketView& packet) noexcept {
  std::memcpy(head_.data(), packet.frame, std::size_t{packet.bth_offset} + Bth::kSize);
  const auto place = [&packet](const std::byte* at) { return static_cast<std::uint16_t>(at - packet.frame); };
  ext_at_ = place(packet.ext);
  payload_at_ = place(packet.payload.data());
  view_ = packet;
}

}  // namespace uroce::wire
