/// What both ways of folding a CRC-32 share: the constants, the end, and what is copied meanwhile.
///
/// Gopal et al., "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ Instruction", Intel 2009, for
/// the reflected polynomial P = 0x1db710641.
#pragma once

#if defined(__x86_64__)
#include <immintrin.h>

#include <cstddef>
#include <cstdint>

namespace uroce::wire {

inline constexpr std::int64_t kReflected = 0x1'db71'0641;  ///< P, reflected

/// x^kExponent mod P, reflected: what moves bits on by so many. A block of 128 bits moves on by n if its low
/// half is multiplied by the power n + 32, its high half by n - 32.
template <unsigned kExponent>
inline constexpr std::int64_t kPowerOfX = [] {
  constexpr std::uint64_t kPolynomial = 0x1'04c1'1db7;
  std::uint64_t rest = 1;
  for (unsigned i = 0; i < kExponent; ++i) {
    rest <<= 1;
    if ((rest >> 32) != 0) rest ^= kPolynomial;
  }
  std::uint64_t reflected = 0;
  for (unsigned bit = 0; bit < 32; ++bit) reflected |= (rest >> bit & 1) << (32 - bit);
  return static_cast<std::int64_t>(reflected);
}();
static_assert(kPowerOfX<512 + 32> == 0x1'5444'2bd4 && kPowerOfX<512 - 32> == 0x1'c6e4'1596);
static_assert(kPowerOfX<128 + 32> == 0x1'7519'97d0 && kPowerOfX<128 - 32> == 0x0'ccaa'009e);
static_assert(kPowerOfX<64> == 0x1'63cd'6124);

/// Other bytes, which are copied while some are folded.
struct OtherBytes {
  std::byte* to;
  const std::byte* from;
  std::size_t left;

  [[gnu::always_inline]] void skip(std::size_t bytes) noexcept {
    to += bytes;
    from += bytes;
    left -= bytes;
  }
};

/// The remainder of a folded block: 128 bits to 64 to 32, then Barrett's division.
[[gnu::target("pclmul,sse4.1")]] inline std::uint32_t reduce(__m128i sum) noexcept {
  constexpr std::int64_t kBarrett = 0x1'f701'1641;  // floor(x^64 / P)
  const __m128i low32 = _mm_set_epi32(0, 0, 0, -1);
  const __m128i folds = _mm_set_epi64x(kPowerOfX<64>, kPowerOfX<96>);
  const __m128i division = _mm_set_epi64x(kBarrett, kReflected);
  sum = _mm_xor_si128(_mm_srli_si128(sum, 8), _mm_clmulepi64_si128(sum, folds, 0x00));
  sum = _mm_xor_si128(_mm_srli_si128(sum, 4), _mm_clmulepi64_si128(_mm_and_si128(sum, low32), folds, 0x10));
  const __m128i quotient = _mm_clmulepi64_si128(_mm_and_si128(sum, low32), division, 0x10);
  const __m128i product = _mm_clmulepi64_si128(_mm_and_si128(quotient, low32), division, 0x00);
  return static_cast<std::uint32_t>(_mm_extract_epi32(_mm_xor_si128(sum, product), 1));
}

}  // namespace uroce::wire

#endif
