#pragma once

#include "wire/ipv4.h"

namespace uroce::wire {

/// IPv6 header. RFC 8200. The Global Route Header of RoCE v1 has the same shape: see grh.h.
///
///    0-3  version:4 traffic class:8 flow label:20
///    4-5  payload length    6  next header    7  hop limit
///    8-23  source           24-39  destination
struct Ipv6 {
  static constexpr std::size_t kSize = 40;  // bytes

  std::uint8_t version = 6;
  std::uint8_t traffic_class = 0;
  std::uint32_t flow_label = 0;  // 20 bits
  std::uint16_t payload_length = 0;
  IpProtocol next_header = IpProtocol::kUdp;
  std::uint8_t hop_limit = 64;
  Gid src{};
  Gid dst{};

  friend constexpr bool operator==(const Ipv6&, const Ipv6&) = default;

  [[nodiscard]] static constexpr Ipv6 parse(std::span<const std::byte, kSize> in) noexcept {
    const std::uint32_t first = load_be<0, 4>(in);
    return {.version = static_cast<std::uint8_t>(first >> 28),
            .traffic_class = static_cast<std::uint8_t>(first >> 20 & 0xff),
            .flow_label = first & 0xf'ffff,
            .payload_length = load_be<4, 2>(in),
            .next_header = IpProtocol{load_be<6, 1>(in)},
            .hop_limit = load_be<7, 1>(in),
            .src = {load_array<8, 16>(in)},
            .dst = {load_array<24, 16>(in)}};
  }

  constexpr void emit(std::span<std::byte, kSize> out) const noexcept {
    store_be<0, 4>(
        out, std::uint32_t{version} << 28 | std::uint32_t{traffic_class} << 20 | (flow_label & 0xf'ffff));
    store_be<4, 2>(out, payload_length);
    store_be<6, 1>(out, raw(next_header));
    store_be<7, 1>(out, hop_limit);
    store_array<8>(out, src.raw);
    store_array<24>(out, dst.raw);
  }
};

static_assert([] {
  constexpr Ipv6 h{
      .traffic_class = 0x12, .flow_label = 0xa'bcde, .payload_length = 0x0102, .src = {{0xfe, 0x80}}};
  std::array<std::byte, Ipv6::kSize> b{};
  h.emit(b);
  return b[0] == std::byte{0x61} && b[1] == std::byte{0x2a} && b[3] == std::byte{0xde} &&
         b[6] == std::byte{17} && b[8] == std::byte{0xfe} && Ipv6::parse(b) == h;
}());

}  // namespace uroce::wire
