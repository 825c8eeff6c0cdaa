#pragma once

#include <array>

#include "uroce/types.h"
#include "wire/bytes.h"

namespace uroce::wire {

/// Requests that a responder has received ahead of the one that it misses; follows the AETH of a selective
/// NAK, whose syndrome is a PSN sequence error and whose PSN that of the missing one. Not of IBA: an
/// extension of this library, which both ends of a connection must have switched on (uroce/ece.h). Its opcode
/// is one of those that IBA 9.2.1 leaves to manufacturers: 0xd1, in XRC 0xf1. To know what is held is an
/// advice: only PSNs acknowledge, and the responder may drop what it holds.
///
///    0-31  bit i, from the lowest of the first byte on: the packet with the NAK's PSN + 1 + i is held
struct HeldEth {
  static constexpr std::size_t kSize = 32;        // bytes
  static constexpr std::uint32_t kPackets = 256;  // bits

  std::array<std::uint8_t, kSize> bits{};

  friend constexpr bool operator==(const HeldEth&, const HeldEth&) = default;

  [[nodiscard]] constexpr bool has(std::uint32_t i) const noexcept { return (bits[i / 8] >> i % 8 & 1) != 0; }
  constexpr void add(std::uint32_t i) noexcept {
    bits[i / 8] = static_cast<std::uint8_t>(bits[i / 8] | 1U << i % 8);
  }

  [[nodiscard]] static constexpr HeldEth parse(std::span<const std::byte, kSize> in) noexcept {
    return {load_array<0, kSize>(in)};
  }
  [[nodiscard]] constexpr Words<kSize> words() const noexcept {
    Words<kSize> words{};
    for (std::size_t i = 0; i < kSize; ++i) words[i / 8] |= std::uint64_t{bits[i]} << (8 * (i % 8));
    return words;
  }
};

static_assert([] {
  HeldEth h;
  h.add(0);
  h.add(9);
  h.add(255);
  std::array<std::byte, HeldEth::kSize> b{};
  emit_at(b.data(), h);
  return b[0] == std::byte{1} && b[1] == std::byte{2} && b[31] == std::byte{0x80} && HeldEth::parse(b) == h &&
         h.has(255) && !h.has(1);
}());

}  // namespace uroce::wire
