/// What masked atomics leave in memory.
#pragma once

#include <cstdint>

namespace uroce::transport {

/// The word after a masked compare-and-swap.
/// @param mask_compare  bits that must be equal  @param mask_swap  bits that are replaced
struct MaskedSwap {
  std::uint64_t compare = 0;
  std::uint64_t swap = 0;
  std::uint64_t mask_compare = 0;
  std::uint64_t mask_swap = 0;

  [[nodiscard]] constexpr std::uint64_t after(std::uint64_t word) const noexcept {
    if (((word ^ compare) & mask_compare) != 0) return word;
    return (word & ~mask_swap) | (swap & mask_swap);
  }
};

/// The sum of each field of two words; the set bits of `boundary` are the highest of their fields, as is
/// bit 63.
[[nodiscard]] constexpr std::uint64_t add_fields(std::uint64_t a, std::uint64_t b,
                                                 std::uint64_t boundary) noexcept {
  // Without its boundary bits a field cannot overflow; these then take part without a carry out.
  return ((a & ~boundary) + (b & ~boundary)) ^ ((a ^ b) & boundary);
}

static_assert(add_fields(0xff, 1, 0) == 0x100 && add_fields(0xff, 1, 0x80) == 0);
static_assert(add_fields(~0ULL, 1, 1ULL << 63) == 0 && add_fields(~0ULL, 1, 0) == 0);
static_assert(add_fields(0x00ff'00ff, 0x0001'0001, 0x0080'0080) == 0 && add_fields(5, 3, ~0ULL) == (5 ^ 3));

}  // namespace uroce::transport
