#include "wire/crc32.h"

#include <isa-l/crc.h>

#include <algorithm>
#include <atomic>
#include <cassert>
#include <cstring>
#include <limits>

#include "wire/crc32_fold.h"
#include "wire/crc32_pairs.h"
#include "wire/crc32_wide.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace uroce::wire {
namespace {

/// From here on whole vectors win on every CPU, ISA-L's or ours, bytes.
constexpr std::size_t kLong = 640;

std::uint32_t isal_crc32(std::uint32_t crc, std::span<const std::byte> in) noexcept {
  const void* first = in.data();
  return crc32_gzip_refl(crc, static_cast<const unsigned char*>(first), in.size());
}

/// ISA-L's AVX-512 code leaves the upper halves of the vector registers dirty, after which every SSE
/// instruction of this thread is slow: measured, 150 ns per packet.
void clean_upper_halves() noexcept {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx")) asm volatile("vzeroupper" ::: "memory");
#endif
}

#if defined(__x86_64__)

// The folding of crc32_fold.h, by blocks of 16 bytes.

/// Sixteen bytes from anywhere.
[[gnu::target("pclmul,sse4.1")]] inline __m128i load(const std::byte* at) noexcept {
  const void* from = at;
  return _mm_loadu_si128(static_cast<const __m128i*>(from));
}

/// Moves what was folded so far on, by the distance for which `k` holds the constants, and adds the block
/// there.
[[gnu::target("pclmul,sse4.1")]] inline __m128i fold_by(__m128i k, __m128i sum, __m128i block) noexcept {
  const __m128i low = _mm_clmulepi64_si128(sum, k, 0x00);
  const __m128i high = _mm_clmulepi64_si128(sum, k, 0x11);
  return _mm_xor_si128(_mm_xor_si128(low, high), block);
}

/// By 16 bytes.
[[gnu::target("pclmul,sse4.1")]] inline __m128i fold(__m128i sum, __m128i block) noexcept {
  return fold_by(_mm_set_epi64x(kPowerOfX<128 - 32>, kPowerOfX<128 + 32>), sum, block);
}

/// Folds `count` blocks, four chains at once: one alone waits for its multiplications.
[[gnu::target("pclmul,sse4.1")]] inline __m128i fold_blocks(__m128i sum, const std::byte* at,
                                                            std::size_t count) noexcept {
  if (count >= 8) {
    const __m128i k = _mm_set_epi64x(kPowerOfX<512 - 32>, kPowerOfX<512 + 32>);
    __m128i a = fold(sum, load(at));
    __m128i b = load(at + 16);
    __m128i c = load(at + 32);
    __m128i d = load(at + 48);
    for (at += 64, count -= 4; count >= 4; at += 64, count -= 4) {
      a = fold_by(k, a, load(at));
      b = fold_by(k, b, load(at + 16));
      c = fold_by(k, c, load(at + 32));
      d = fold_by(k, d, load(at + 48));
    }
    sum = fold(fold(fold(a, b), c), d);
  }
  for (; count > 0; at += 16, --count) sum = fold(sum, load(at));
  return sum;
}

/// pshufb indices: loaded at offset r they move a block up by 16 - r bytes and fill with zeros.
constexpr auto kMoveUp = [] {
  std::array<std::byte, 32> table{};
  for (std::size_t i = 0; i < 16; ++i) {
    table[i] = std::byte{0x80};
    table[16 + i] = static_cast<std::byte>(i);
  }
  return table;
}();

/// CRC of at least 32 bytes. The first block is the odd one, 1 to 16 bytes behind zeros, which change
/// nothing: so all others are whole, and the mask is read at the same offset as the bytes.
[[gnu::target("pclmul,sse4.1")]] std::uint32_t clmul_crc32(std::uint32_t crc, std::span<const std::byte> in,
                                                           const CrcMask& mask) noexcept {
  const std::byte* bytes = in.data();
  const std::byte* ones = mask.ones.data();
  const std::size_t size = in.size();
  std::size_t at = (size - 1) % 16 + 1;

  // The state goes into the first four bytes; those that the odd block lacks are in the next one.
  const std::uint32_t state = ~crc;
  const std::uint64_t state_left = std::uint64_t{state} >> (8 * std::min<std::size_t>(at, 4));
  __m128i first = _mm_or_si128(load(bytes), load(ones));
  first = _mm_xor_si128(first, _mm_cvtsi32_si128(static_cast<int>(state)));
  first = _mm_shuffle_epi8(first, load(kMoveUp.data() + at));
  __m128i second = _mm_or_si128(load(bytes + at), load(ones + at));
  second = _mm_xor_si128(second, _mm_cvtsi64_si128(static_cast<std::int64_t>(state_left)));
  __m128i sum = fold(first, second);

  const std::size_t masked = std::min(size, CrcMask::kReach);
  for (at += 16; at < masked; at += 16) sum = fold(sum, _mm_or_si128(load(bytes + at), load(ones + at)));
  return ~reduce(fold_blocks(sum, bytes + at, (size - at) / 16));
}

/// What one turn of ISA-L's loop takes; the rest it takes slowly.
constexpr std::size_t kTurn = 256;

/// The masked head by blocks of 16, so many that whole turns are left.
std::uint32_t clmul_and_isal_crc32(std::uint32_t crc, std::span<const std::byte> in,
                                   const CrcMask& mask) noexcept {
  const std::size_t head = CrcMask::kReach + (in.size() - CrcMask::kReach) % kTurn;
  crc = isal_crc32(clmul_crc32(crc, in.first(head), mask), in.subspan(head));
  clean_upper_halves();
  return crc;
}

#endif

/// kFirst: not known yet, or none of the others.
enum class Way : std::uint8_t { kFirst, kNone, kBlocks, kPairs, kWide };

/// What the next packet takes.
struct alignas(std::uint32_t) Choice {  // loaded and stored as one
  Way way = Way::kFirst;
  Folding folding = Folding::kMultiply;  ///< of wide vectors
  std::uint16_t wide_from = kLong;       ///< bytes from which on wide vectors are faster
};

constinit std::atomic<Choice> choice{};
static_assert(std::atomic<Choice>::is_always_lock_free);

#if defined(__x86_64__)

constexpr std::size_t kMeasured = 4096;  // bytes
constexpr std::size_t kShort = 104;      // bytes: a SEND of 64 B over IPv4
alignas(64) constexpr std::array<std::byte, kMeasured> kAnything{};

/// The least time of some that `crc32` takes for the first `bytes` of kAnything, ns.
template <class Crc32>
std::uint64_t least_time(const Now& now, std::size_t bytes, Crc32 crc32) {
  constexpr int kSamples = 32;
  constexpr int kCalls = 16;  // a sample
  auto least = std::numeric_limits<std::uint64_t>::max();
  const std::span in = std::span{kAnything}.first(bytes);
  for (int sample = 0; sample < kSamples; ++sample) {
    const std::uint64_t begin = now();
    for (int i = 0; i < kCalls; ++i) {
      const std::uint32_t crc = crc32(in);
      asm volatile("" : : "r"(crc) : "memory");
    }
    least = std::min(least, now() - begin);
  }
  return least;
}

Choice measure_wide(const Now& now) {
  const CrcMask none;
  const auto wide = [&none](Folding how) {
    return [&none, how](std::span<const std::byte> in) { return wide_masked_crc32(0, in, none, how); };
  };
  const auto narrow = [&none](std::span<const std::byte> in) { return clmul_crc32(0, in, none); };
  Choice best{.way = Way::kWide};
  auto least = std::numeric_limits<std::uint64_t>::max();
  for (const Folding folding : kFoldings) {
    const std::uint64_t time = least_time(now, kMeasured, wide(folding));
    if (time >= least) continue;
    least = time;
    best.folding = folding;
  }
  const std::uint64_t by_vectors = least_time(now, kShort, wide(best.folding));
  const std::uint64_t by_blocks = least_time(now, kShort, narrow);
  if (by_vectors < by_blocks) best.wide_from = 0;
  return best;
}

#endif

Choice choose_way() noexcept {
  Choice chosen = choice.load(std::memory_order_relaxed);
  if (chosen.way != Way::kFirst) return chosen;
#if defined(__x86_64__)
  if (!__builtin_cpu_supports("pclmul") || !__builtin_cpu_supports("avx2")) return chosen;
  chosen = {.way = has_wide_crc32() ? Way::kWide : has_pairs_crc32() ? Way::kPairs : Way::kBlocks};
  choice.store(chosen, std::memory_order_relaxed);
#endif
  return chosen;
}

/// Every way but the common ones, and the first packet's.
[[gnu::noinline]] std::uint32_t other_crc32(std::uint32_t crc, std::span<const std::byte> in,
                                            const CrcMask& mask) noexcept {
  switch (choose_way().way) {
    case Way::kNone:
      return 0;
    case Way::kFirst:
      return portable_masked_crc32(crc, in, mask);
    case Way::kPairs:
      return pairs_masked_crc32(crc, in, mask);
    default:
      return narrow_masked_crc32(crc, in, mask);
  }
}

}  // namespace

void tune_crc32([[maybe_unused]] const Now& now) {
#if defined(__x86_64__)
  Choice known = choice.load(std::memory_order_relaxed);
  if (known.way == Way::kNone || !has_wide_crc32()) return;
  choice.compare_exchange_strong(known, measure_wide(now), std::memory_order_relaxed);
#endif
}

void leave_out_crc32() noexcept {
  choice.store({.way = Way::kNone}, std::memory_order_relaxed);
}

bool computes_wide_crc32() noexcept {
  return choice.load(std::memory_order_relaxed).way == Way::kWide;
}

bool computes_crc32_of_parts() noexcept {
  return choice.load(std::memory_order_relaxed).way >= Way::kBlocks;
}

bool computes_crc32() noexcept {
  return choice.load(std::memory_order_relaxed).way != Way::kNone;
}

std::uint32_t masked_crc32(std::uint32_t crc, std::span<const std::byte> in, const CrcMask& mask,
                           [[maybe_unused]] FetchAhead* ahead) noexcept {
  assert(in.size() >= 32);
#if defined(__x86_64__)
  const Choice known = choice.load(std::memory_order_relaxed);
  if (known.way == Way::kWide && in.size() >= known.wide_from) [[likely]]
    return wide_masked_crc32(crc, in, mask, known.folding, ahead);
  if (known.way == Way::kPairs) return pairs_masked_crc32(crc, in, mask, ahead);
  if (known.way >= Way::kBlocks && in.size() < kLong) [[likely]]
    return clmul_crc32(crc, in, mask);
#endif
  return other_crc32(crc, in, mask);
}

std::uint32_t copy_crc32(std::uint32_t crc, std::byte* to, std::span<const std::byte> from) noexcept {
  const Choice chosen = choose_way();
  if (chosen.way == Way::kWide && from.size() >= kShortestWide) [[likely]]
    return wide_copy_crc32(crc, to, from, chosen.folding);
  if (chosen.way == Way::kPairs && from.size() >= kShortestPairs) return pairs_copy_crc32(crc, to, from);
  return narrow_copy_crc32(crc, to, from);
}

bool copies_in_one_pass() noexcept {
  return choose_way().way >= Way::kPairs;
}

std::uint32_t narrow_copy_crc32(std::uint32_t crc, std::byte* to, std::span<const std::byte> from) noexcept {
  if (from.empty()) return crc;
  std::memcpy(to, from.data(), from.size());
  crc = isal_crc32(crc, {to, from.size()});
  clean_upper_halves();
  return crc;
}

std::uint32_t narrow_masked_crc32(std::uint32_t crc, std::span<const std::byte> in,
                                  const CrcMask& mask) noexcept {
#if defined(__x86_64__)
  return in.size() < kLong ? clmul_crc32(crc, in, mask) : clmul_and_isal_crc32(crc, in, mask);
#else
  return portable_masked_crc32(crc, in, mask);
#endif
}

std::uint32_t portable_masked_crc32(std::uint32_t crc, std::span<const std::byte> in,
                                    const CrcMask& mask) noexcept {
  std::array<std::byte, CrcMask::kReach> head;
  const auto masked = std::span{head}.first(std::min(in.size(), head.size()));
  for (std::size_t i = 0; i < masked.size(); ++i) masked[i] = in[i] | mask.ones[i];
  return isal_crc32(isal_crc32(crc, masked), in.subspan(masked.size()));
}

}  // namespace uroce::wire
