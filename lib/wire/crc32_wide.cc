#include "wire/crc32_wide.h"

#include <array>
#include <bit>
#include <cassert>

#include "base/copy.h"
#include "wire/crc32_affine.h"
#include "wire/crc32_fold.h"
#include "wire/crc32_places.h"

#if defined(__x86_64__)

namespace uroce::wire {
namespace {

// The folding of crc32_fold.h, by vectors of four blocks.

constexpr std::size_t kVector = 64;  // bytes
constexpr std::size_t kChains = 8;   // one alone waits for its multiplications
constexpr std::size_t kTurn = kChains * kVector;
constexpr std::size_t kShortestByImages = 1024;
constexpr std::uint32_t kLinesAhead = 4;  // fetched in a turn
static_assert(kVector == kShortestWide && kVector == CrcMask::kReach && kVector <= kShortestBeside);

/// What moves blocks on by `kBytes`.
template <unsigned kBytes>
UROCE_WIDE inline __m512i step() noexcept {
  constexpr std::int64_t kLow = kPowerOfX<8 * kBytes + 32>;
  constexpr std::int64_t kHigh = kPowerOfX<8 * kBytes - 32>;
  return _mm512_set_epi64(kHigh, kLow, kHigh, kLow, kHigh, kLow, kHigh, kLow);
}

UROCE_WIDE inline __m512i xor3(__m512i a, __m512i b, __m512i c) noexcept {
  return _mm512_ternarylogic_epi64(a, b, c, 0x96);
}

/// Moves what was folded so far on, by the distance for which `k` holds the constants, and adds the vector
/// there.
UROCE_WIDE inline __m512i fold(__m512i k, __m512i sum, __m512i vector) noexcept {
  return xor3(_mm512_clmulepi64_epi128(sum, k, 0x00), _mm512_clmulepi64_epi128(sum, k, 0x11), vector);
}

// What is done beside, turn by turn:

struct Nothing {
  UROCE_WIDE [[gnu::always_inline]] void turn() noexcept {}
};

struct Fetching {
  FetchAhead ahead = {};

  UROCE_WIDE [[gnu::always_inline]] void turn() noexcept { ahead.template fetch_each<kLinesAhead>(); }
};

/// Copies as many of others as a turn takes of its own, while there are so many.
struct Copying : OtherBytes {
  UROCE_WIDE [[gnu::always_inline]] void turn() noexcept {
    if (left < kTurn) return;
#pragma GCC unroll 8
    for (std::size_t at = 0; at < kTurn; at += kVector)
      _mm512_storeu_si512(to + at, _mm512_loadu_si512(from + at));
    skip(kTurn);
  }
  /// So many first ones that whole lines are written from then on.
  UROCE_WIDE [[gnu::always_inline]] void align() noexcept {
    assert(left >= kVector);
    _mm512_storeu_si512(to, _mm512_loadu_si512(from));
    skip(-std::bit_cast<std::uintptr_t>(to) % kVector);
  }
};

/// Where the next bytes come from and, if they are copied, go to.
template <bool kCopies, class Beside = Nothing>
struct Cursor {
  const std::byte* from;
  std::byte* to;
  std::size_t left;  // bytes
  [[no_unique_address]] Beside beside = {};

  /// The next whole vector.
  UROCE_WIDE __m512i next() noexcept {
    const __m512i vector = _mm512_loadu_si512(from);
    if constexpr (kCopies) {
      _mm512_storeu_si512(to, vector);
      to += kVector;
    }
    from += kVector;
    left -= kVector;
    return vector;
  }
  /// All that is left, less than a vector, at the upper end of one.
  UROCE_WIDE __m512i rest(__mmask64 is_rest) noexcept {
    const std::size_t before = kVector - left;
    const __m512i vector = _mm512_maskz_loadu_epi8(is_rest, from - before);
    if constexpr (kCopies) _mm512_mask_storeu_epi8(to - before, is_rest, vector);
    return vector;
  }
};

/// One of the images of crc32_affine.h.
template <std::size_t kImage>
UROCE_WIDE inline __m512i image(__m512i vector) noexcept {
  return _mm512_gf2p8affine_epi64_epi8(vector, _mm512_set1_epi64(kAffineMatrices<kVector>[kImage]), 0);
}

/// Eight vectors in a row.
using Chains = __m512i[kChains];

/// A sum of vectors, three at a time.
class Sum {
 public:
  UROCE_WIDE [[gnu::always_inline]] explicit Sum(__m512i first) noexcept : sum_(first), last_(first) {}
  UROCE_WIDE [[gnu::always_inline]] void add(__m512i vector) noexcept {
    if (is_even_) sum_ = xor3(sum_, last_, vector);
    last_ = vector;
    is_even_ = !is_even_;
  }
  [[nodiscard]] UROCE_WIDE [[gnu::always_inline]] __m512i total() const noexcept {
    return is_even_ ? _mm512_xor_si512(sum_, last_) : sum_;
  }

 private:
  __m512i sum_;
  __m512i last_;
  bool is_even_ = false;  ///< known to the compiler, once all is unrolled
};

/// A turn of which kImages vectors, evenly spread, are made up for by images 4, 6, 7 and 8 vectors further
/// on, the others by multiplication, a whole turn further on.
template <std::size_t kImages>
struct Turn {
  static_assert(kAffineSteps[3] == kChains && kAffineSteps[0] >= kChains / 2);

  static constexpr bool by_images(std::size_t i) {
    return (i + 1) * kImages / kChains != i * kImages / kChains;
  }
  /// Adds what this image of the vector so far before brings to the vector at `i`.
  template <std::size_t kImage>
  UROCE_WIDE [[gnu::always_inline]] static void add_image(const Chains& chain, std::size_t i,
                                                          Sum& sum) noexcept {
    const std::size_t before = (i + kChains - kAffineSteps[kImage]) % kChains;
    if (by_images(before)) sum.add(image<kImage>(chain[before]));
  }
  /// Adds to the last vectors of a turn the images of its first, or takes them away again: they will only be
  /// made up for in the next turn.
  UROCE_WIDE [[gnu::always_inline]] static void begin(Chains& chain) noexcept {
#pragma GCC unroll 8
    for (std::size_t i = kAffineSteps[0]; i < kChains; ++i) {
      Sum sum{chain[i]};
      add_image<0>(chain, i, sum);
      if (i >= kAffineSteps[1]) add_image<1>(chain, i, sum);
      if (i >= kAffineSteps[2]) add_image<2>(chain, i, sum);
      chain[i] = sum.total();
    }
  }
  template <class Cursor>
  UROCE_WIDE [[gnu::always_inline]] static void turn(Chains& chain, Cursor& cursor) noexcept {
    const __m512i by_turn = step<kTurn>();
#pragma GCC unroll 8
    for (std::size_t i = 0; i < kChains; ++i) {
      Sum sum{by_images(i) ? cursor.next() : fold(by_turn, chain[i], cursor.next())};
      add_image<3>(chain, i, sum);
      add_image<2>(chain, i, sum);
      add_image<1>(chain, i, sum);
      add_image<0>(chain, i, sum);
      chain[i] = sum.total();
    }
  }
  UROCE_WIDE [[gnu::always_inline]] static void end(Chains& chain) noexcept {
    begin(chain);
  }
};

/// The whole turns of what is left behind `first`.
template <std::size_t kImages, class Cursor>
UROCE_WIDE [[gnu::always_inline]] inline __m512i fold_turns_by(__m512i first, Cursor& cursor) noexcept {
  Cursor here = cursor;  // in registers: the bytes that are stored could be anybody's
  Chains chain = {first};
#pragma GCC unroll 8
  for (std::size_t i = 1; i < kChains; ++i) chain[i] = here.next();
  Turn<kImages>::begin(chain);
  while (here.left >= kTurn) {
    here.beside.turn();
    Turn<kImages>::turn(chain, here);
  }
  Turn<kImages>::end(chain);
  cursor = here;
#pragma GCC unroll 8
  for (std::size_t i = 0; i < 4; ++i) chain[i] = fold(step<kTurn / 2>(), chain[i], chain[i + 4]);
#pragma GCC unroll 8
  for (std::size_t i = 0; i < 2; ++i) chain[i] = fold(step<kTurn / 4>(), chain[i], chain[i + 2]);
  return fold(step<kVector>(), chain[0], chain[1]);
}

template <class Cursor>
UROCE_WIDE [[gnu::always_inline]] inline __m512i fold_turns(__m512i first, Cursor& cursor,
                                                            Folding how) noexcept {
  switch (how) {
    case Folding::kThreeImages:
      return fold_turns_by<3>(first, cursor);
    case Folding::kFiveImages:
      return fold_turns_by<5>(first, cursor);
    case Folding::kImages:
      return fold_turns_by<8>(first, cursor);
    default:
      return fold_turns_by<0>(first, cursor);
  }
}

alignas(kVector) constexpr auto kPlaces = [] {
  std::array<std::uint8_t, kVector> places{};
  for (std::size_t i = 0; i < kVector; ++i) places[i] = static_cast<std::uint8_t>(i);
  return places;
}();

/// The last bytes, less than a vector: what was folded so far moves up in front of them.
template <class Cursor>
UROCE_WIDE inline __m512i fold_rest(__m512i sum, Cursor& cursor) noexcept {
  const __mmask64 is_rest = ~__mmask64{0} << (kVector - cursor.left);
  const __m512i rest = cursor.rest(is_rest);
  // Indices count modulo 64.
  const __m512i up =
      _mm512_add_epi8(_mm512_load_si512(kPlaces.data()), _mm512_set1_epi8(static_cast<char>(cursor.left)));
  return fold(step<kVector>(), _mm512_maskz_permutexvar_epi8(is_rest, up, sum),
              _mm512_mask_permutexvar_epi8(rest, ~is_rest, up, sum));
}

/// The remainder of a folded vector, by way of one block.
UROCE_WIDE inline std::uint32_t reduce_vector(__m512i sum) noexcept {
  const __m512i k = _mm512_set_epi64(0, 0, kPowerOfX<128 - 32>, kPowerOfX<128 + 32>, kPowerOfX<256 - 32>,
                                     kPowerOfX<256 + 32>, kPowerOfX<384 - 32>, kPowerOfX<384 + 32>);
  const __m512i moved = fold(k, sum, _mm512_maskz_mov_epi64(0xc0, sum));
  const __m256i half = _mm256_xor_si256(_mm512_maskz_extracti64x4_epi64(0xff, moved, 0),
                                        _mm512_maskz_extracti64x4_epi64(0xff, moved, 1));
  return reduce(_mm_xor_si128(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1)));
}

/// @param first  the first vector, already taken
template <class Cursor>
UROCE_WIDE [[gnu::always_inline]] inline std::uint32_t crc_of(std::uint32_t crc, __m512i first,
                                                              Cursor& cursor, Folding how) noexcept {
  __m512i sum = _mm512_xor_si512(first, _mm512_zextsi128_si512(_mm_cvtsi32_si128(static_cast<int>(~crc))));
  if (cursor.left < kShortestByImages) how = Folding::kMultiply;
  if (cursor.left >= kTurn - kVector) sum = fold_turns(sum, cursor, how);
  while (cursor.left >= kVector) sum = fold(step<kVector>(), sum, cursor.next());
  if (cursor.left > 0) sum = fold_rest(sum, cursor);
  return ~reduce_vector(sum);
}

/// Of an input that is short.
UROCE_WIDE [[gnu::always_inline]] inline std::uint32_t crc_by_places(std::uint32_t crc,
                                                                     std::span<const std::byte> in,
                                                                     const CrcMask& mask) noexcept {
  const std::byte* from = in.data();
  std::size_t left = in.size();
  CrcByPlaces sum(left);
  const __mmask64 first = first_bytes(left);
  const __m512i state = _mm512_zextsi128_si512(_mm_cvtsi32_si128(static_cast<int>(~crc)));
  sum.add(0, _mm512_xor_si512(_mm512_or_si512(_mm512_maskz_loadu_epi8(first, from),
                                              _mm512_maskz_loadu_epi8(first, mask.ones.data())),
                              state));
  for (std::size_t i = 1; left > kVector; ++i) {
    left -= kVector;
    from += kVector;
    sum.add(i, _mm512_maskz_loadu_epi8(first_bytes(left), from));
  }
  return ~sum.rest();
}

}  // namespace

bool has_wide_crc32() noexcept {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("avx512vbmi") && __builtin_cpu_supports("vpclmulqdq") &&
         __builtin_cpu_supports("gfni") && __builtin_cpu_supports("pclmul");
}

UROCE_WIDE std::uint32_t wide_masked_crc32(std::uint32_t crc, std::span<const std::byte> in,
                                           const CrcMask& mask, Folding how, FetchAhead* ahead) noexcept {
  if (in.size() <= kLongestByPlaces) return crc_by_places(crc, in, mask);
  Cursor<false, Fetching> cursor{.from = in.data(), .to = nullptr, .left = in.size()};
  if (ahead != nullptr) cursor.beside.ahead = *ahead;
  const __m512i first = _mm512_or_si512(cursor.next(), _mm512_loadu_si512(mask.ones.data()));
  crc = crc_of(crc, first, cursor, how);
  if (ahead != nullptr) *ahead = cursor.beside.ahead;
  return crc;
}

UROCE_WIDE std::uint32_t wide_masked_crc32_beside_copy(std::uint32_t crc, std::span<const std::byte> in,
                                                       const CrcMask& mask, Folding how, std::byte* to,
                                                       std::span<const std::byte> others) noexcept {
  assert(in.size() >= kShortestBeside);
  Cursor<false, Copying> cursor{.from = in.data(),
                                .to = nullptr,
                                .left = in.size(),
                                .beside = {{.to = to, .from = others.data(), .left = others.size()}}};
  cursor.beside.align();
  const __m512i first = _mm512_or_si512(cursor.next(), _mm512_loadu_si512(mask.ones.data()));
  crc = crc_of(crc, first, cursor, how);
  copy_payload(cursor.beside.to, cursor.beside.from, cursor.beside.left);
  return crc;
}

UROCE_WIDE std::uint32_t wide_copy_crc32(std::uint32_t crc, std::byte* to, std::span<const std::byte> from,
                                         Folding how) noexcept {
  assert(from.size() >= kShortestWide);
  Cursor<true> cursor{.from = from.data(), .to = to, .left = from.size()};
  const __m512i first = cursor.next();
  return crc_of(crc, first, cursor, how);
}

}  // namespace uroce::wire

#else

namespace uroce::wire {

bool has_wide_crc32() noexcept {
  return false;
}

std::uint32_t wide_masked_crc32(std::uint32_t crc, std::span<const std::byte> in, const CrcMask& mask,
                                Folding, FetchAhead*) noexcept {
  return portable_masked_crc32(crc, in, mask);
}

std::uint32_t wide_masked_crc32_beside_copy(std::uint32_t crc, std::span<const std::byte>, const CrcMask&,
                                            Folding, std::byte*, std::span<const std::byte>) noexcept {
  assert(false);
  return crc;
}

std::uint32_t wide_copy_crc32(std::uint32_t crc, std::byte*, std::span<const std::byte>, Folding) noexcept {
  assert(false);
  return crc;
}

}  // namespace uroce::wire

#endif
