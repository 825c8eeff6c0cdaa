/// The Internet checksum: one's complement of the one's complement sum of 16-bit words. RFC 1071.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace uroce::wire {

/// Adds the 16-bit big-endian words of `in` to `sum`; an odd last byte counts as the high half of a word.
[[nodiscard]] constexpr std::uint64_t add_words(std::span<const std::byte> in,
                                                std::uint64_t sum = 0) noexcept {
  std::size_t i = 0;
  for (; i + 1 < in.size(); i += 2) {
    sum += std::to_integer<std::uint32_t>(in[i]) << 8 | std::to_integer<std::uint32_t>(in[i + 1]);
  }
  if (i < in.size()) sum += std::to_integer<std::uint32_t>(in[i]) << 8;
  return sum;
}

/// The sum folded to 16 bits, not inverted: 0xffff over data with a right checksum.
[[nodiscard]] constexpr std::uint16_t fold_sum(std::uint64_t sum) noexcept {
  sum = (sum >> 32) + (sum & 0xffff'ffff);
  sum = (sum >> 32) + (sum & 0xffff'ffff);
  sum = (sum >> 16) + (sum & 0xffff);
  sum = (sum >> 16) + (sum & 0xffff);
  return static_cast<std::uint16_t>((sum >> 16) + (sum & 0xffff));
}

/// The checksum for a header or message whose checksum field is zero.
[[nodiscard]] constexpr std::uint16_t finish_sum(std::uint64_t sum) noexcept {
  return static_cast<std::uint16_t>(~fold_sum(sum));
}

/// Likewise, of two parts by the sums that fold_sum() gave of them.
[[nodiscard]] constexpr std::uint16_t finish_sums(std::uint16_t a, std::uint16_t b) noexcept {
  const std::uint32_t sum = std::uint32_t{a} + b;
  return static_cast<std::uint16_t>(~(sum + (sum >> 16)));
}

static_assert(finish_sums(0xffff, 0xffff) == finish_sum(0x1'fffe) &&
              finish_sums(1, 0xffff) == finish_sum(0x1'0000));
static_assert(fold_sum(0x1'fffe) == 0xffff && fold_sum(0xffff'ffff'ffff'ffff) == 0xffff &&
              finish_sum(0) == 0xffff);

}  // namespace uroce::wire
