#pragma once

#include "uroce/types.h"
#include "wire/bytes.h"

namespace uroce::wire {

/// Masks of a masked atomic; follows its AtomicETH. Not of IBA: an extension of this library, which both ends
/// of a connection must have switched on (uroce/ece.h). Its opcodes are of those that IBA 9.2.1 leaves to
/// manufacturers: 0xd3 masked compare-and-swap, 0xd4 masked fetch-and-add; in XRC 0xf3 and 0xf4. The
/// operations are those of ConnectX's extended atomics, whose packets are not published; what answers is a
/// plain ATOMIC ACKNOWLEDGE.
///
///    0-7  compare: bits that are compared; fetch-and-add: bits out of which nothing is carried
///    8-15 swap: bits that are replaced; fetch-and-add: zero, not looked at
///
/// Both operate on 8 bytes at a multiple of 8 and answer the value before:
///
///    if (((word ^ compare) & compare_mask) == 0) word = (word & ~swap_mask) | (swap & swap_mask)
///    word = add(word, addend), with each set bit of the mask the highest of a field of its own
struct AtomicMaskEth {
  static constexpr std::size_t kSize = 16;  // bytes

  std::uint64_t compare = 0;
  std::uint64_t swap = 0;

  friend constexpr bool operator==(const AtomicMaskEth&, const AtomicMaskEth&) = default;

  [[nodiscard]] static constexpr AtomicMaskEth parse(std::span<const std::byte, kSize> in) noexcept {
    return {.compare = load_be<0, 8>(in), .swap = load_be<8, 8>(in)};
  }

  [[nodiscard]] constexpr Words<kSize> words() const noexcept {
    return {be_word<0, 8>(compare), be_word<0, 8>(swap)};
  }
};

static_assert([] {
  constexpr AtomicMaskEth h{.compare = 0x1000'0000'0000'0010, .swap = 0x20};
  std::array<std::byte, AtomicMaskEth::kSize> b{};
  emit_at(b.data(), h);
  return b[0] == std::byte{0x10} && b[7] == std::byte{0x10} && b[15] == std::byte{0x20} &&
         AtomicMaskEth::parse(b) == h;
}());

}  // namespace uroce::wire
