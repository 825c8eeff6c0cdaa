/// Invariant CRC: CRC-32 (IEEE 802.3) over all of a packet that no router may change. IBA 7.8.1, A17.3.3.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <type_traits>

#include "base/fetch_ahead.h"

namespace uroce::wire {

inline constexpr std::size_t kIcrcSize = 4;  // bytes

/// ICRC of a RoCE v2 packet.
///
/// @param covered  from the first byte of the IP header up to the pad, without the ICRC; must hold at least
/// the
///                 IP, UDP and Base Transport Headers
/// @param ahead    as masked_crc32() says
[[nodiscard]] std::uint32_t compute_icrc(std::span<const std::byte> covered, bool is_v6,
                                         FetchAhead* ahead = nullptr) noexcept;

/// compute_icrc(), while `others` are copied to `to`: as masked_crc32_beside_copy() says.
[[nodiscard]] std::optional<std::uint32_t> compute_icrc_beside_copy(
    std::span<const std::byte> covered, bool is_v6, std::byte* to,
    std::span<const std::byte> others) noexcept;

/// ICRC of a RoCE v1 packet.
///
/// @param covered  from the first byte of the GRH up to the pad; must hold at least GRH and BTH
[[nodiscard]] std::uint32_t compute_icrc_v1(std::span<const std::byte> covered) noexcept;

/// Writes an ICRC as it travels: least significant byte first.
constexpr void store_icrc(std::span<std::byte, kIcrcSize> out, std::uint32_t icrc) noexcept {
  for (std::size_t i = 0; i < kIcrcSize; ++i) out[i] = static_cast<std::byte>(icrc >> (8 * i));
}

[[nodiscard]] constexpr std::uint32_t load_icrc(std::span<const std::byte, kIcrcSize> in) noexcept {
  if (!std::is_constant_evaluated() && std::endian::native == std::endian::little) {
    std::uint32_t there = 0;
    std::memcpy(&there, in.data(), sizeof there);
    return there;
  }
  std::uint32_t icrc = 0;
  for (std::size_t i = 0; i < kIcrcSize; ++i) icrc |= std::to_integer<std::uint32_t>(in[i]) << (8 * i);
  return icrc;
}

}  // namespace uroce::wire
