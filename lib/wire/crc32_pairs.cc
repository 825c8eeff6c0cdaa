#include "wire/crc32_pairs.h"

#include <cassert>

#include "base/copy.h"
#include "wire/crc32_fold.h"
#include "wire/crc32_places.h"

#if defined(__x86_64__)

namespace uroce::wire {
namespace {

constexpr std::size_t kVector = 32;  // bytes
constexpr std::size_t kChains = 4;   // one alone waits for its multiplications
constexpr std::size_t kTurn = kChains * kVector;
constexpr std::size_t kShortestByTurns = 3 * kTurn;  // bytes; measured
static_assert(kShortestByTurns <= kLongestByPlaces && 2 * kTurn <= kLongestByPlaces);
static_assert(kTurn >= CrcMask::kReach && CrcMask::kReach == 2 * kVector && kShortestPairs == 2 * kVector);

UROCE_PAIRS [[gnu::always_inline]] inline __m256i load(const void* from) noexcept {
  return _mm256_loadu_si256(static_cast<const __m256i*>(from));
}
UROCE_PAIRS [[gnu::always_inline]] inline void store(void* to, __m256i vector) noexcept {
  _mm256_storeu_si256(static_cast<__m256i*>(to), vector);
}

/// What is summed up and, if it is copied, where it goes.
template <bool kCopies>
struct Bytes {
  const std::byte* from;
  std::byte* to;
  std::size_t size;
  const CrcMask* mask;  // of what is not copied

  /// The whole vector that begins at byte `at`.
  UROCE_PAIRS [[gnu::always_inline]] __m256i at(std::size_t at) const noexcept {
    const __m256i vector = load(from + at);
    if constexpr (kCopies) store(to + at, vector);
    return vector;
  }
  /// Likewise, one of the first two.
  UROCE_PAIRS [[gnu::always_inline]] __m256i masked_at(std::size_t at) const noexcept {
    if constexpr (kCopies) return this->at(at);
    return _mm256_or_si256(load(from + at), load(mask->ones.data() + at));
  }
  /// The last `bytes`, less than a vector, behind zeros.
  UROCE_PAIRS [[gnu::always_inline]] __m256i last(std::size_t bytes) const noexcept {
    __m256i vector = load(from + size - kVector);
    if constexpr (kCopies) {
      store(to + size - kVector, vector);
    } else if (size < CrcMask::kReach) {
      vector = _mm256_or_si256(vector, load(mask->ones.data() + size - kVector));
    }
    return _mm256_and_si256(vector, load(last_bytes_of_pair(bytes)));
  }
};

/// Adds what is behind the last whole vector. First of all: what it shares with that is stored by both, and
/// may change in between.
template <bool kCopies>
UROCE_PAIRS [[gnu::always_inline]] inline CrcByPairs begin(const Bytes<kCopies>& bytes) noexcept {
  CrcByPairs sum;
  if (const std::size_t left = bytes.size % kVector; left > 0)
    sum.add(place_powers(kVector), bytes.last(left));
  return sum;
}
/// Adds the whole vectors from byte `at` on, fewer than are in kLongestByPlaces.
template <bool kCopies>
UROCE_PAIRS [[gnu::always_inline]] inline std::uint32_t finish(CrcByPairs& sum, const Bytes<kCopies>& bytes,
                                                               std::size_t at) noexcept {
  const std::int64_t* powers = place_powers(bytes.size - at);
  for (; at + kVector <= bytes.size; at += kVector, powers += kVector / 8) sum.add(powers, bytes.at(at));
  return ~sum.rest();
}

UROCE_PAIRS [[gnu::always_inline]] inline __m256i state_of(std::uint32_t crc) noexcept {
  return _mm256_zextsi128_si256(_mm_cvtsi32_si128(static_cast<int>(~crc)));
}

/// Moves what was folded so far on by a turn, as crc32_fold.h says, and adds the vector there.
UROCE_PAIRS [[gnu::always_inline]] inline __m256i fold(__m256i sum, __m256i vector) noexcept {
  constexpr std::int64_t kLow = kPowerOfX<8 * kTurn + 32>;
  constexpr std::int64_t kHigh = kPowerOfX<8 * kTurn - 32>;
  const __m256i k = _mm256_set_epi64x(kHigh, kLow, kHigh, kLow);
  const __m256i high = _mm256_xor_si256(_mm256_clmulepi64_epi128(sum, k, 0x11), vector);
  return _mm256_xor_si256(_mm256_clmulepi64_epi128(sum, k, 0x00), high);
}

// What is done beside, turn by turn:

struct Nothing {
  UROCE_PAIRS [[gnu::always_inline]] void turn() noexcept {}
};

struct Fetching {
  FetchAhead ahead;

  UROCE_PAIRS [[gnu::always_inline]] void turn() noexcept { ahead.fetch_each<1>(); }
};

/// Copies as many of others as a turn takes of its own, while there are so many.
struct Copying : OtherBytes {
  UROCE_PAIRS [[gnu::always_inline]] void turn() noexcept {
    if (left < kTurn) return;
#pragma GCC unroll 4
    for (std::size_t at = 0; at < kTurn; at += kVector) store(to + at, load(from + at));
    skip(kTurn);
  }
};

/// Of a long input.
template <bool kCopies, class Beside>
UROCE_PAIRS [[gnu::always_inline]] inline std::uint32_t crc_by_turns(std::uint32_t crc,
                                                                     const Bytes<kCopies>& bytes,
                                                                     Beside& beside) noexcept {
  CrcByPairs sum = begin(bytes);
  __m256i chain[kChains] = {_mm256_xor_si256(bytes.masked_at(0), state_of(crc)), bytes.masked_at(kVector),
                            bytes.at(2 * kVector), bytes.at(3 * kVector)};
  Beside here = beside;  // in registers: the bytes that are stored could be anybody's
  std::size_t at = kTurn;
  for (; bytes.size - at >= kTurn; at += kTurn) {
    here.turn();
#pragma GCC unroll 4
    for (std::size_t i = 0; i < kChains; ++i) chain[i] = fold(chain[i], bytes.at(at + i * kVector));
  }
  beside = here;
  const std::int64_t* const powers = place_powers(kTurn + bytes.size - at);
#pragma GCC unroll 4
  for (std::size_t i = 0; i < kChains; ++i) sum.add(powers + i * kVector / 8, chain[i]);
  return finish(sum, bytes, at);
}

}  // namespace

bool has_pairs_crc32() noexcept {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("vpclmulqdq") &&
         __builtin_cpu_supports("pclmul");
}

UROCE_PAIRS std::uint32_t pairs_masked_crc32(std::uint32_t crc, std::span<const std::byte> in,
                                             const CrcMask& mask, FetchAhead* ahead) noexcept {
  assert(in.size() >= kVector);
  const Bytes<false> bytes{.from = in.data(), .to = nullptr, .size = in.size(), .mask = &mask};
  if (bytes.size >= kShortestByTurns) {
    Fetching fetching{ahead == nullptr ? FetchAhead{} : *ahead};
    crc = crc_by_turns(crc, bytes, fetching);
    if (ahead != nullptr) *ahead = fetching.ahead;
    return crc;
  }
  CrcByPairs sum = begin(bytes);
  const std::int64_t* const powers = place_powers(bytes.size);
  sum.add(powers, _mm256_xor_si256(bytes.masked_at(0), state_of(crc)));
  if (bytes.size < CrcMask::kReach) return finish(sum, bytes, kVector);
  sum.add(powers + kVector / 8, bytes.masked_at(kVector));
  return finish(sum, bytes, 2 * kVector);
}

UROCE_PAIRS std::uint32_t pairs_masked_crc32_beside_copy(std::uint32_t crc, std::span<const std::byte> in,
                                                         const CrcMask& mask, std::byte* to,
                                                         std::span<const std::byte> others) noexcept {
  static_assert(kShortestBeside >= kShortestByTurns);
  assert(in.size() >= kShortestBeside);
  const Bytes<false> bytes{.from = in.data(), .to = nullptr, .size = in.size(), .mask = &mask};
  Copying copying{{.to = to, .from = others.data(), .left = others.size()}};
  crc = crc_by_turns(crc, bytes, copying);
  copy_payload(copying.to, copying.from, copying.left);
  return crc;
}

UROCE_PAIRS std::uint32_t pairs_copy_crc32(std::uint32_t crc, std::byte* to,
                                           std::span<const std::byte> from) noexcept {
  assert(from.size() >= kShortestPairs);
  const Bytes<true> bytes{.from = from.data(), .to = to, .size = from.size(), .mask = nullptr};
  Nothing nothing;
  if (bytes.size >= kShortestByTurns) return crc_by_turns(crc, bytes, nothing);
  CrcByPairs sum = begin(bytes);
  sum.add(place_powers(bytes.size), _mm256_xor_si256(bytes.at(0), state_of(crc)));
  return finish(sum, bytes, kVector);
}

}  // namespace uroce::wire

#else

namespace uroce::wire {

bool has_pairs_crc32() noexcept {
  return false;
}

std::uint32_t pairs_masked_crc32(std::uint32_t crc, std::span<const std::byte> in, const CrcMask& mask,
                                 FetchAhead*) noexcept {
  return portable_masked_crc32(crc, in, mask);
}

std::uint32_t pairs_masked_crc32_beside_copy(std::uint32_t crc, std::span<const std::byte>, const CrcMask&,
                                             std::byte*, std::span<const std::byte>) noexcept {
  assert(false);
  return crc;
}

std::uint32_t pairs_copy_crc32(std::uint32_t crc, std::byte*, std::span<const std::byte>) noexcept {
  assert(false);
  return crc;
}

}  // namespace uroce::wire

#endif
