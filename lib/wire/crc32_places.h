/// The CRC-32 of short inputs, vector by vector: each is multiplied by what its place before the end asks
/// for, so that none waits for another, they come in any order, and the last need not be whole.
#pragma once

#if defined(__x86_64__)
#include <array>
#include <cstddef>
#include <cstdint>

#include "wire/crc32_fold.h"

// Vectors of 64 bytes, of 32, and blocks of 16.
#define UROCE_WIDE \
  [[gnu::target("avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,vpclmulqdq,gfni,pclmul,sse4.1")]]
#define UROCE_PAIRS [[gnu::target("avx2,vpclmulqdq,pclmul,sse4.1")]]
#define UROCE_BLOCKS [[gnu::target("avx2,pclmul,sse4.1")]]

namespace uroce::wire {

/// The longest such input, bytes.
inline constexpr std::size_t kLongestByPlaces = 640;

namespace detail {

inline constexpr std::size_t kPlaceWords = kLongestByPlaces / 8;

/// The polynomial's inverse modulo 2^64 (carry-less): what 64 bits are multiplied by to find the multiple of
/// the polynomial that ends in them.
inline constexpr std::uint64_t kInverse = [] {
  std::uint64_t inverse = 0;
  std::uint64_t product = 0;
  for (unsigned bit = 0; bit < 64; ++bit) {
    if (((product ^ 1) >> bit & 1) == 0) continue;
    inverse |= std::uint64_t{1} << bit;
    product ^= std::uint64_t{kReflected} << bit;
  }
  return inverse;
}();

/// For each remainder of the length by 8: what words are multiplied by, in the order in which they come, up
/// to those behind the end, which are zero. Each stands 32 bits low, as in crc32_fold.h, and is x^64 too
/// high, which remainder_of() takes away again.
using PlacePowers = std::array<std::array<std::int64_t, kPlaceWords + 8>, 8>;

alignas(64) inline constexpr PlacePowers kPlacePowers = [] {
  constexpr std::uint64_t kPolynomial = 0x1'04c1'1db7;
  constexpr auto over_x = [](std::uint64_t rest) {
    return ((rest & 1) != 0 ? rest ^ kPolynomial : rest) >> 1;
  };
  constexpr auto times_x = [](std::uint64_t rest) {
    return rest << 1 ^ ((rest >> 31 & 1) != 0 ? kPolynomial : 0);
  };
  std::uint64_t power = 1;  // of the last word, the eighth behind the end
  for (unsigned i = 0; i < 512 + 32 - 64; ++i) power = over_x(power);
  PlacePowers powers{};
  for (auto& row : powers) {
    std::uint64_t rest = power;
    for (auto word = row.rbegin(); word != row.rend(); ++word) {
      std::uint64_t reflected = 0;
      for (unsigned bit = 0; bit < 32; ++bit) reflected |= (rest >> bit & 1) << (32 - bit);
      *word = static_cast<std::int64_t>(reflected);
      for (unsigned i = 0; i < 64; ++i) rest = times_x(rest);
    }
    for (unsigned i = 0; i < 8; ++i) power = times_x(power);
  }
  return powers;
}();
static_assert(kPlacePowers[0][kPlaceWords - 5] == kPowerOfX<256 - 32 + 64> &&
              kPlacePowers[4][0] == kPowerOfX<8 * 636 - 32 + 64>);

/// The products have 96 bits. Their low 64 vanish when the multiple of the polynomial that ends in them is
/// added (Montgomery's reduction); what is left is the remainder.
[[gnu::target("pclmul,sse4.1"), gnu::always_inline]] inline std::uint32_t remainder_of(__m128i sum) noexcept {
  const __m128i factors = _mm_set_epi64x(kReflected, static_cast<std::int64_t>(kInverse));
  const __m128i quotient = _mm_clmulepi64_si128(sum, factors, 0x00);
  const __m128i multiple = _mm_clmulepi64_si128(quotient, factors, 0x10);
  return static_cast<std::uint32_t>(_mm_extract_epi32(_mm_xor_si128(sum, multiple), 2));
}

/// Ones behind zeros.
inline constexpr auto kOnes = [] {
  std::array<std::uint8_t, 64> bytes{};
  for (std::size_t i = bytes.size() / 2; i < bytes.size(); ++i) bytes[i] = 0xff;
  return bytes;
}();

}  // namespace detail

/// A mask of the last `bytes` of a block, at most as many as it has.
[[nodiscard]] inline const std::uint8_t* last_bytes(std::size_t bytes) noexcept {
  return &detail::kOnes[detail::kOnes.size() / 2 - 16 + bytes];
}
/// Likewise, of a vector of 32.
[[nodiscard]] inline const std::uint8_t* last_bytes_of_pair(std::size_t bytes) noexcept {
  return &detail::kOnes[bytes];
}

/// What the word is multiplied by that begins `bytes` before the end, at most kLongestByPlaces, and behind it
/// what those behind it are.
[[nodiscard]] inline const std::int64_t* place_powers(std::size_t bytes) noexcept {
  // Row bytes % 8, word kPlaceWords - bytes / 8, as gcc does not see that it can be had.
  constexpr std::size_t kRow = sizeof detail::kPlacePowers[0] + 1;
  const void* const table = detail::kPlacePowers.data();
  const void* const word =
      static_cast<const std::byte*>(table) + 8 * detail::kPlaceWords + kRow * (bytes % 8) - bytes;
  return static_cast<const std::int64_t*>(word);
}

/// Sums up an input.
class CrcByPlaces {
 public:
  /// @param end  bytes of the input
  UROCE_WIDE [[gnu::always_inline]] explicit CrcByPlaces(std::size_t end) noexcept
      : powers_(place_powers(end)) {}

  /// Adds 64 bytes, the first of them the input's byte 64 `i`. What is behind the end is zero.
  UROCE_WIDE [[gnu::always_inline]] void add(std::size_t i, __m512i vector) noexcept {
    const __m512i powers = _mm512_loadu_si512(powers_ + 8 * i);
    sum_ = _mm512_ternarylogic_epi64(sum_, _mm512_clmulepi64_epi128(vector, powers, 0x00),
                                     _mm512_clmulepi64_epi128(vector, powers, 0x11), 0x96);
  }
  /// @return the remainder, not inverted
  [[nodiscard]] UROCE_WIDE [[gnu::always_inline]] std::uint32_t rest() const noexcept {
    const __m256i half = _mm256_xor_si256(_mm512_maskz_extracti64x4_epi64(0xff, sum_, 0),
                                          _mm512_maskz_extracti64x4_epi64(0xff, sum_, 1));
    const __m128i sum = _mm_xor_si128(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
    return detail::remainder_of(sum);
  }

 private:
  const std::int64_t* powers_;
  __m512i sum_ = _mm512_setzero_si512();
};

/// The same by vectors of 32 bytes.
class CrcByPairs {
 public:
  UROCE_PAIRS [[gnu::always_inline]] CrcByPairs() noexcept : sum_(_mm256_setzero_si256()) {}

  /// @param powers  place_powers() of where the vector begins
  UROCE_PAIRS [[gnu::always_inline]] void add(const std::int64_t* powers, __m256i vector) noexcept {
    const void* const from = powers;
    const __m256i by = _mm256_loadu_si256(static_cast<const __m256i*>(from));
    sum_ = _mm256_xor_si256(sum_, _mm256_xor_si256(_mm256_clmulepi64_epi128(vector, by, 0x00),
                                                   _mm256_clmulepi64_epi128(vector, by, 0x11)));
  }
  [[nodiscard]] UROCE_PAIRS [[gnu::always_inline]] std::uint32_t rest() const noexcept {
    return detail::remainder_of(
        _mm_xor_si128(_mm256_castsi256_si128(sum_), _mm256_extracti128_si256(sum_, 1)));
  }

 private:
  __m256i sum_;
};

/// The same by blocks of 16 bytes.
class CrcByBlocks {
 public:
  UROCE_BLOCKS [[gnu::always_inline]] CrcByBlocks() noexcept : sum_(_mm_setzero_si128()) {}

  UROCE_BLOCKS [[gnu::always_inline]] void add(__m128i powers, __m128i block) noexcept {
    sum_ = _mm_xor_si128(sum_, _mm_xor_si128(_mm_clmulepi64_si128(block, powers, 0x00),
                                             _mm_clmulepi64_si128(block, powers, 0x11)));
  }
  /// @param powers  place_powers() of where the block begins
  UROCE_BLOCKS [[gnu::always_inline]] void add(const std::int64_t* powers, __m128i block) noexcept {
    const void* const from = powers;
    add(_mm_loadu_si128(static_cast<const __m128i*>(from)), block);
  }
  [[nodiscard]] UROCE_BLOCKS [[gnu::always_inline]] std::uint32_t rest() const noexcept {
    return detail::remainder_of(sum_);
  }

 private:
  __m128i sum_;
};

/// The mask of a vector's first `bytes`, if it has so many.
UROCE_WIDE [[gnu::always_inline]] inline __mmask64 first_bytes(std::size_t bytes) noexcept {
  return bytes >= 64 ? ~__mmask64{0} : (__mmask64{1} << bytes) - 1;
}

}  // namespace uroce::wire

#endif
