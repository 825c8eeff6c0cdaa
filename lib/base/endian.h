/// Big-endian loads and stores at fixed offsets of a byte span; checked at compile time.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>

namespace uroce {

/// The unsigned integer that holds `Bytes` bytes.
template <std::size_t Bytes>
using UintOf =
    std::conditional_t<Bytes == 1, std::uint8_t,
                       std::conditional_t<Bytes == 2, std::uint16_t,
                                          std::conditional_t<(Bytes <= 4), std::uint32_t, std::uint64_t>>>;

/// `value` with its bytes in opposite order.
template <typename Uint>
[[nodiscard]] constexpr Uint swap_bytes(Uint value) noexcept {
  if constexpr (sizeof(Uint) == 8) return __builtin_bswap64(value);
  if constexpr (sizeof(Uint) == 4) return __builtin_bswap32(value);
  if constexpr (sizeof(Uint) == 2) return __builtin_bswap16(value);
  return value;
}

/// Reads `Bytes` bytes at `Offset`, most significant first.
template <std::size_t Offset, std::size_t Bytes, std::size_t Extent>
[[nodiscard]] constexpr UintOf<Bytes> load_be(std::span<const std::byte, Extent> in) noexcept {
  static_assert(Bytes >= 1 && Bytes <= 8 && Extent != std::dynamic_extent && Offset + Bytes <= Extent);
  if constexpr (Bytes == sizeof(UintOf<Bytes>) && std::endian::native == std::endian::little) {
    if (!std::is_constant_evaluated()) {  // gcc often does not see that the loop is this
      UintOf<Bytes> there = 0;
      std::memcpy(&there, in.data() + Offset, sizeof there);
      return swap_bytes(there);
    }
  }
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < Bytes; ++i) {
    value = value << 8 | std::to_integer<std::uint64_t>(in[Offset + i]);
  }
  return static_cast<UintOf<Bytes>>(value);
}

/// Writes the low `Bytes` bytes of `value` at `Offset`, most significant first.
template <std::size_t Offset, std::size_t Bytes, std::size_t Extent>
constexpr void store_be(std::span<std::byte, Extent> out,
                        std::type_identity_t<UintOf<Bytes>> value) noexcept {
  static_assert(Bytes >= 1 && Bytes <= 8 && Extent != std::dynamic_extent && Offset + Bytes <= Extent);
  const std::uint64_t wide = value;
  for (std::size_t i = 0; i < Bytes; ++i) {
    out[Offset + i] = static_cast<std::byte>(wide >> (8 * (Bytes - 1 - i)));
  }
}

/// Host to network byte order and back.
[[nodiscard]] constexpr std::uint32_t network_order(std::uint32_t value) noexcept {
  return std::endian::native == std::endian::little ? swap_bytes(value) : value;
}

/// `value` moved to bit `Bit` of a byte.
template <unsigned Bit>
[[nodiscard]] constexpr std::uint8_t at_bit(unsigned value) noexcept {
  static_assert(Bit < 8);
  return static_cast<std::uint8_t>(value << Bit);
}

}  // namespace uroce
