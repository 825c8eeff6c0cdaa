// Short frames stored piece by piece, each of which is added to the ICRC from the register that it is stored
// from.

#include <array>
#include <cassert>
#include <cstring>

#include "wire/crc32_places.h"
#include "wire/ether.h"
#include "wire/frame_template.h"
#include "wire/frame_words.h"
#include "wire/icrc.h"
#include "wire/ipv6.h"

#if defined(__x86_64__)

namespace uroce::wire {
namespace {

using Underlay = FrameTemplate::Underlay;

constexpr std::size_t kBlock = 16;  // bytes

constexpr std::size_t kMostHeaders =
    FrameTemplate::kMaxOverhead - Ether::kSize + Bth::kSize + FrameParts::kMostExtension;
static_assert(kMostHeaders + FrameParts::kMostPayload + 3 <= kLongestByPlaces);

UROCE_BLOCKS [[gnu::always_inline]] inline __m128i load(const void* from) noexcept {
  return _mm_loadu_si128(static_cast<const __m128i*>(from));
}
UROCE_BLOCKS [[gnu::always_inline]] inline __m256i load_two(const void* from) noexcept {
  return _mm256_loadu_si256(static_cast<const __m256i*>(from));
}
UROCE_BLOCKS [[gnu::always_inline]] inline void store(void* to, __m128i block) noexcept {
  _mm_storeu_si128(static_cast<__m128i*>(to), block);
}
UROCE_BLOCKS [[gnu::always_inline]] inline void store(void* to, __m256i two) noexcept {
  _mm256_storeu_si256(static_cast<__m256i*>(to), two);
}
/// Of two words that lie apart.
UROCE_BLOCKS [[gnu::always_inline]] inline __m128i words_of(const std::int64_t* low,
                                                            const std::int64_t* high) noexcept {
  return _mm_insert_epi64(_mm_loadu_si64(low), *high, 1);
}
template <class Word>
[[gnu::always_inline]] inline void store_word(std::byte* to, std::uint64_t word) noexcept {
  const auto low = static_cast<Word>(word);
  std::memcpy(to, &low, sizeof low);
}
template <class Word>
[[nodiscard, gnu::always_inline]] inline std::uint64_t load_word(const std::byte* from) noexcept {
  Word word = 0;
  std::memcpy(&word, from, sizeof word);
  return word;
}

/// Writes the first `bytes` of two words, a multiple of four.
[[gnu::always_inline]] inline void store_few(std::byte* to, std::uint64_t low, std::uint64_t high,
                                             std::size_t bytes) noexcept {
  if (bytes >= 8) {
    store_word<std::uint64_t>(to, low);
    to += 8;
    bytes -= 8;
    low = high;
  }
  if (bytes >= 8) {
    store_word<std::uint64_t>(to, low);
  } else if (bytes != 0) {
    store_word<std::uint32_t>(to, low);
  }
}

/// Less than a block, with zeros behind it. What is read twice counts once: it may change in between.
std::array<std::uint64_t, 2> load_few(const std::byte* from, std::size_t bytes) noexcept {
  if (bytes >= 8) {
    const std::uint64_t last = load_word<std::uint64_t>(from + bytes - 8);
    return {load_word<std::uint64_t>(from), bytes == 8 ? 0 : last >> (8 * (kBlock - bytes))};
  }
  if (bytes >= 4) {
    const std::uint64_t last = load_word<std::uint32_t>(from + bytes - 4) >> (8 * (8 - bytes));
    return {load_word<std::uint32_t>(from) | last << 32, 0};
  }
  std::uint64_t word = 0;
  for (std::size_t i = 0; i < bytes; ++i) word |= load_word<std::uint8_t>(from + i) << (8 * i);
  return {word, 0};
}

/// Writes a payload of at least a block, but for the first, which it returns, and its pad. The application
/// may change it meanwhile: whatever is stored last anywhere is what was added.
UROCE_BLOCKS [[gnu::always_inline]] inline __m128i write_blocks(std::byte* to, const FrameParts& parts,
                                                                std::size_t pad, CrcByBlocks& sum) noexcept {
  const std::byte* const from = parts.payload;
  const std::size_t bytes = parts.payload_bytes;
  const std::int64_t* powers = place_powers(bytes + pad);
  if (const std::size_t left = bytes % kBlock; left != 0) {
    const __m128i last = load(from + bytes - kBlock);
    store(to + bytes - kBlock, last);
    sum.add(place_powers(kBlock + pad), _mm_and_si128(last, load(last_bytes(left))));
  }
  if (pad != 0) store_word<std::uint32_t>(to + bytes, 0);  // some of it where the ICRC will be
  const __m128i first = load(from);
  sum.add(powers, first);
  std::size_t at = kBlock;
  for (; at + 2 * kBlock <= bytes; at += 2 * kBlock) {
    const __m256i two = load_two(from + at);
    store(to + at, two);
    sum.add(powers + at / 8, _mm256_castsi256_si128(two));
    sum.add(powers + at / 8 + 2, _mm256_extracti128_si256(two, 1));
  }
  if (at + kBlock <= bytes) {
    const __m128i block = load(from + at);
    store(to + at, block);
    sum.add(powers + at / 8, block);
  }
  return first;
}

/// Writes the headers behind the BTH.
UROCE_BLOCKS [[gnu::always_inline]] inline void store_extension(
    std::byte* to, const Words<FrameParts::kMostExtension>& words, std::size_t bytes) noexcept {
  if (bytes >= kBlock) {
    store(to, pair(words[0], words[1]));
    store_few(to + kBlock, words[2], words[3], bytes - kBlock);
  } else if (bytes != 0) {
    store_few(to, words[0], words[1], bytes);
  }
}

/// A template's bytes, and what of them is not the same in all frames.
struct Head {
  const std::byte* bytes;
  std::size_t overhead;
  std::size_t l3;
  Underlay underlay;
  std::uint64_t ip_length;  ///< as it travels
  std::uint64_t ip_sum;     ///< likewise
  std::uint64_t udp;        ///< all of it, likewise
};

/// Writes them.
UROCE_BLOCKS [[gnu::always_inline]] inline void write_head(std::byte* frame, const Head& head) noexcept {
  static_assert(Ether::kSize + 2 == kBlock);  // so IPv4's length begins a block, and IPv6's lies two bytes in
  const bool is_v4 = head.underlay == Underlay::kIpv4;
  const std::size_t vlan_bits = 8 * (head.l3 - Ether::kSize);
  const std::uint64_t low = head.ip_length << (vlan_bits + (is_v4 ? 0 : 16));
  const __m256i lengths =
      _mm256_inserti128_si256(_mm256_setzero_si256(), pair_of(low, head.ip_sum << vlan_bits), 1);
  store(frame, _mm256_or_si256(load_two(head.bytes), lengths));
  const std::size_t addresses = head.l3 + Ipv6::kSize - 2 * sizeof(Gid);
  if (!is_v4) store(frame + addresses, load_two(head.bytes + addresses));
  if (head.underlay == Underlay::kGrh) return;
  const std::size_t last = head.overhead - kBlock;
  store(frame + last, pair_of(load_word<std::uint64_t>(head.bytes + last), head.udp));
}

}  // namespace

UROCE_BLOCKS void FrameTemplate::write_pieces(std::byte* frame, const FrameParts& parts) const noexcept {
  assert(parts.payload_bytes <= FrameParts::kMostPayload);
  const std::size_t payload_at = overhead_ + parts.header_bytes;
  const std::size_t pad = pad_for(parts.payload_bytes);
  const std::size_t icrc_at = payload_at + parts.payload_bytes + pad;
  const Lengths len = lengths(static_cast<std::uint32_t>(icrc_at + kIcrcSize - overhead_));
  std::byte* const bth = frame + overhead_;
  std::byte* const payload = frame + payload_at;
  CrcByBlocks sum;

  __m128i first = _mm_setzero_si128();
  std::array<std::uint64_t, 2> few{};
  if (parts.payload_bytes >= kBlock) {
    first = write_blocks(payload, parts, pad, sum);
  } else if (parts.payload_bytes != 0) {
    few = load_few(parts.payload, parts.payload_bytes);
    sum.add(place_powers(parts.payload_bytes + pad), pair_of(few[0], few[1]));
  }
  const std::size_t extension_bytes = parts.header_bytes - Bth::kSize;
  const auto& extension = parts.extension;
  if (extension_bytes != 0) {
    const std::int64_t* const powers = place_powers(icrc_at - overhead_ - Bth::kSize);
    sum.add(powers, pair(extension[0], extension[1]));
    if (extension_bytes > kBlock) sum.add(powers + 2, pair(extension[2], extension[3]));
  }
  // What the ICRC takes as ones, and the state that it comes in from the IP header.
  const std::uint64_t udp =
      be_word<0, 2>(parts.udp_source_port) | be_word<2, 2>(kRoceUdpPort) | be_word<4, 2>(len.udp);
  std::uint64_t udp_covered = (udp | be_word<6, 2>(0xffff)) ^ crc_state_;
  std::uint64_t bth_covered = parts.bth[0] | be_word<4, 1>(0xff);
  if (underlay_ == Underlay::kGrh) {
    udp_covered = 0;
    bth_covered ^= crc_state_;
  }
  const std::uint64_t ip_covered =
      underlay_ == Underlay::kIpv4 ? be_word<2, 2>(len.ip) : be_word<4, 2>(len.ip);
  const std::int64_t* const powers = place_powers(icrc_at - overhead_);
  sum.add(powers - 1, pair_of(udp_covered, bth_covered));
  sum.add(words_of(powers + 1, place_powers(icrc_at - l3_offset_)), pair_of(parts.bth[1], ip_covered));
  store_word<std::uint32_t>(frame + icrc_at, ~sum.rest());

  // The head last: it fills most of the first line, or all.
  if (parts.payload_bytes >= kBlock) {
    store(payload, first);
  } else {
    store_few(payload, few[0], few[1], parts.payload_bytes + pad);
  }
  store_extension(bth + Bth::kSize, extension, extension_bytes);
  store_word<std::uint64_t>(bth, parts.bth[0]);
  store_word<std::uint32_t>(bth + 8, parts.bth[1]);
  write_head(frame, {.bytes = head_.data(),
                     .overhead = overhead_,
                     .l3 = l3_offset_,
                     .underlay = underlay_,
                     .ip_length = be_word<0, 2>(len.ip),
                     .ip_sum = be_word<0, 2>(len.ip_sum),
                     .udp = udp});
}

}  // namespace uroce::wire

#else

namespace uroce::wire {

void FrameTemplate::write_pieces(std::byte*, const FrameParts&) const noexcept {
  assert(false);
}

}  // namespace uroce::wire

#endif
