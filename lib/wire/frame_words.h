/// What the ways of writing a short frame at once share.
#pragma once

#include "wire/crc32_places.h"

#if defined(__x86_64__)
#include <bit>
#include <cstdint>

namespace uroce::wire {

/// Sixteen bytes of words that were stored one by one, and must be loaded so.
UROCE_BLOCKS [[gnu::always_inline]] inline __m128i pair(const std::uint64_t& low,
                                                        const std::uint64_t& high) noexcept {
  static_assert(std::endian::native == std::endian::little);
  const __m128i first = _mm_loadu_si64(&low);
  __m128i both;
  asm("vmovhps %2, %1, %0" : "=x"(both) : "x"(first), "m"(high));
  return both;
}

/// Likewise, of words in registers.
UROCE_BLOCKS [[gnu::always_inline]] inline __m128i pair_of(std::uint64_t low, std::uint64_t high) noexcept {
  return _mm_set_epi64x(static_cast<std::int64_t>(high), static_cast<std::int64_t>(low));
}

}  // namespace uroce::wire

#endif
