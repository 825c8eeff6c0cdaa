#include "wire/crc32.h"

#include <isa-l/crc.h>

#include <algorithm>
#include <atomic>
#include <cassert>
#include <cstring>
#include <limits>

#include "wire/crc32_pairs.h"
#include "wire/crc32_places.h"
#include "wire/crc32_wide.h"

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

constexpr std::size_t kBlock = 16;  // bytes
static_assert(kLong <= kLongestByPlaces);

/// Sixteen bytes from anywhere.
UROCE_BLOCKS [[gnu::always_inline]] inline __m128i load(const void* from) noexcept {
  return _mm_loadu_si128(static_cast<const __m128i*>(from));
}

/// Of at least 32 bytes, block by block. The last that is not whole is behind zeros, which change nothing.
UROCE_BLOCKS std::uint32_t blocks_crc32(std::uint32_t crc, std::span<const std::byte> in,
                                        const CrcMask& mask) noexcept {
  const std::byte* const bytes = in.data();
  const std::byte* const ones = mask.ones.data();
  const std::int64_t* const powers = place_powers(in.size());
  CrcByBlocks sum;
  const __m128i first = _mm_or_si128(load(bytes), load(ones));
  sum.add(powers, _mm_xor_si128(first, _mm_cvtsi32_si128(static_cast<int>(~crc))));
  std::size_t at = kBlock;
  const std::size_t masked = std::min(in.size(), CrcMask::kReach);
  for (; at + kBlock <= masked; at += kBlock)
    sum.add(powers + at / 8, _mm_or_si128(load(bytes + at), load(ones + at)));
  for (; at + kBlock <= in.size(); at += kBlock) sum.add(powers + at / 8, load(bytes + at));
  if (at < in.size()) {
    const std::size_t last = in.size() - kBlock;
    __m128i block = load(bytes + last);
    if (last < CrcMask::kReach) block = _mm_or_si128(block, load(ones + last));
    sum.add(place_powers(kBlock), _mm_and_si128(block, load(last_bytes(in.size() - at))));
  }
  return ~sum.rest();
}

/// What one turn of ISA-L's loop takes; the rest it takes slowly.
constexpr std::size_t kTurn = 256;

/// The masked head by blocks, so many that whole turns are left.
std::uint32_t blocks_and_isal_crc32(std::uint32_t crc, std::span<const std::byte> in,
                                    const CrcMask& mask) noexcept {
  const std::size_t head = CrcMask::kReach + (in.size() - CrcMask::kReach) % kTurn;
  crc = isal_crc32(blocks_crc32(crc, in.first(head), mask), in.subspan(head));
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
  const auto narrow = [&none](std::span<const std::byte> in) { return blocks_crc32(0, in, none); };
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
  if (known.way == Way::kNone) return;
  if (!has_wide_crc32()) {
    choose_way();
    return;
  }
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
    return blocks_crc32(crc, in, mask);
#endif
  return other_crc32(crc, in, mask);
}

std::optional<std::uint32_t> masked_crc32_beside_copy(std::uint32_t crc, std::span<const std::byte> in,
                                                      const CrcMask& mask, std::byte* to,
                                                      std::span<const std::byte> others) noexcept {
  assert(in.size() >= kShortestBeside && others.size() >= kShortestBeside);
  const Choice known = choice.load(std::memory_order_relaxed);
  if (known.way == Way::kWide) return wide_masked_crc32_beside_copy(crc, in, mask, known.folding, to, others);
  if (known.way == Way::kPairs) return pairs_masked_crc32_beside_copy(crc, in, mask, to, others);
  return std::nullopt;
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
  return in.size() < kLong ? blocks_crc32(crc, in, mask) : blocks_and_isal_crc32(crc, in, mask);
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
