#pragma once

#include <algorithm>

#include "wire/packet.h"

namespace uroce::wire {

/// Global Route Header: the network header of RoCE v1, and the first 40 bytes of every UD receive. IBA 8.3.
/// Same layout as IPv6, next header 0x1b; the payload length counts from the BTH up to and with the ICRC.
struct Grh {
  static constexpr std::size_t kSize = 40;  // bytes

  std::uint8_t traffic_class = 0;
  std::uint32_t flow_label = 0;  // 20 bits
  std::uint16_t payload_length = 0;
  std::uint8_t hop_limit = 1;
  Gid sgid{};
  Gid dgid{};

  friend constexpr bool operator==(const Grh&, const Grh&) = default;

  /// Version and next header are not judged.
  [[nodiscard]] static constexpr Grh parse(std::span<const std::byte, kSize> in) noexcept {
    const Ipv6 header = Ipv6::parse(in);
    return {.traffic_class = header.traffic_class,
            .flow_label = header.flow_label,
            .payload_length = header.payload_length,
            .hop_limit = header.hop_limit,
            .sgid = header.src,
            .dgid = header.dst};
  }

  constexpr void emit(std::span<std::byte, kSize> out) const noexcept {
    Ipv6{.traffic_class = traffic_class,
         .flow_label = flow_label,
         .payload_length = payload_length,
         .next_header = IpProtocol::kIbaGrh,
         .hop_limit = hop_limit,
         .src = sgid,
         .dst = dgid}
        .emit(out);
  }
};

/// Writes what a UD receive shows before its payload: the IPv6 header or GRH, or 20 zero bytes and the IPv4
/// header with its checksum, by which a reader tells the two apart. IBA A17.4.5.1.
inline void emit_receive_grh(const PacketView& packet, std::span<std::byte, Grh::kSize> out) noexcept {
  const std::size_t size = packet.is_v6 ? Ipv6::kSize : Ipv4::kSize;
  const std::size_t zeros = Grh::kSize - size;
  std::fill_n(out.begin(), zeros, std::byte{0});
  std::copy_n(packet.l3(), size, out.begin() + static_cast<std::ptrdiff_t>(zeros));
}

static_assert([] {
  constexpr Grh h{.flow_label = 0x1'2345, .payload_length = 24, .sgid = {{0xfe, 0x80}}};
  std::array<std::byte, Grh::kSize> b{};
  h.emit(b);
  return b[0] == std::byte{0x60} && b[6] == std::byte{0x1b} && b[7] == std::byte{1} && Grh::parse(b) == h;
}());

}  // namespace uroce::wire
