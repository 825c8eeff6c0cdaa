#include "wire/header_pattern.h"

namespace uroce::wire {

namespace {

/// All bits of a word, but for those of the bytes that `open` has.
std::uint64_t all_but(std::array<std::uint8_t, 8> open) noexcept {
  return ~std::bit_cast<std::uint64_t>(open);
}

}  // namespace

void HeaderPattern::learn(const PacketView& packet) noexcept {
  const std::uint8_t port = packet.gid_type == GidType::kRoceV1 ? 0 : 0xff;
  udp_bits_ = all_but({port, port});
  bth_bits_ = all_but({0, 0x80, 0, 0, 0, 0xff, 0xff, 0xff});  // solicited event, destination QPN
  std::memcpy(head_.data(), packet.frame, std::size_t{packet.bth_offset} + Bth::kSize);
  const auto place = [&packet](const std::byte* at) { return static_cast<std::uint16_t>(at - packet.frame); };
  ext_at_ = place(packet.ext);
  payload_at_ = place(packet.payload.data());
  ip_payload_at_ = place(packet.ip_payload.data());
  view_ = packet;
}

}  // namespace uroce::wire
