/// What RDMA-CM puts in front of an application's private data, and its service ids. IBA A11.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "base/endian.h"
#include "uroce/cm_types.h"

namespace uroce::cm {

/// Service id of an IP port.
[[nodiscard]] constexpr std::uint64_t service_id(PortSpace space, std::uint16_t port) noexcept {
  return std::uint64_t{raw(space)} << 16 | port;
}

/// Addresses of both ends, in the first 36 bytes of private data of REQ and SIDR_REQ. IBA A11.
///
///    0  version   1  IP version:4 0:4   2-3  source port   4-19  source IP   20-35  destination IP
struct IpHeader {
  static constexpr std::size_t kSize = 36;  // bytes

  std::uint16_t source_port = 0;
  Gid source;
  Gid destination;

  friend constexpr bool operator==(const IpHeader&, const IpHeader&) = default;

  /// @return nothing for another version of it or of IP.
  [[nodiscard]] static constexpr std::optional<IpHeader> parse(
      std::span<const std::byte, kSize> in) noexcept {
    const auto ip = load_be<1, 1>(in) >> 4;
    if (load_be<0, 1>(in) != 0 || (ip != 4 && ip != 6)) return std::nullopt;
    return IpHeader{.source_port = load_be<2, 2>(in),
                    .source = load_ip<4>(in, ip == 4),
                    .destination = load_ip<20>(in, ip == 4)};
  }

  constexpr void emit(std::span<std::byte, kSize> out) const noexcept {
    store_be<0, 1>(out, 0);
    store_be<1, 1>(out, destination.is_v4() ? 0x40 : 0x60);
    store_be<2, 2>(out, source_port);
    store_ip<4>(out, source);
    store_ip<20>(out, destination);
  }

 private:
  template <std::size_t Offset>
  static constexpr Gid load_ip(std::span<const std::byte, kSize> in, bool is_v4) noexcept {
    Gid ip = is_v4 ? Gid::from_v4({}) : Gid{};
    for (std::size_t i = is_v4 ? 12 : 0; i < 16; ++i)
      ip.raw[i] = std::to_integer<std::uint8_t>(in[Offset + i]);
    return ip;
  }
  template <std::size_t Offset>
  static constexpr void store_ip(std::span<std::byte, kSize> out, const Gid& ip) noexcept {
    for (std::size_t i = 0; i < 16; ++i)
      out[Offset + i] = ip.is_v4() && i < 12 ? std::byte{0} : std::byte{ip.raw[i]};
  }
};

}  // namespace uroce::cm
