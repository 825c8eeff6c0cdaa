#pragma once

#include "wire/bytes.h"

namespace uroce::wire {

/// The UDP destination port of RoCE v2. IBA A17.
inline constexpr std::uint16_t kRoceUdpPort = 4791;

/// UDP header. RFC 768.
///
///    0-1  source port    2-3  destination port    4-5  length with this header    6-7  checksum
struct Udp {
  static constexpr std::size_t kSize = 8;  // bytes

  std::uint16_t src_port = 0;
  std::uint16_t dst_port = kRoceUdpPort;
  std::uint16_t length = 0;
  std::uint16_t checksum = 0;  // RoCE sends none, over IPv6 neither: the ICRC protects more

  friend constexpr bool operator==(const Udp&, const Udp&) = default;

  [[nodiscard]] static constexpr Udp parse(std::span<const std::byte, kSize> in) noexcept {
    return {.src_port = load_be<0, 2>(in),
            .dst_port = load_be<2, 2>(in),
            .length = load_be<4, 2>(in),
            .checksum = load_be<6, 2>(in)};
  }

  constexpr void emit(std::span<std::byte, kSize> out) const noexcept {
    store_be<0, 2>(out, src_port);
    store_be<2, 2>(out, dst_port);
    store_be<4, 2>(out, length);
    store_be<6, 2>(out, checksum);
  }
};

static_assert([] {
  constexpr Udp h{.src_port = 0xc123, .length = 32};
  std::array<std::byte, Udp::kSize> b{};
  h.emit(b);
  return b[0] == std::byte{0xc1} && b[2] == std::byte{0x12} && b[3] == std::byte{0xb7} && Udp::parse(b) == h;
}());

}  // namespace uroce::wire
