// Short frames by whole cache lines, put together in AVX-512 registers.

#include <array>
#include <bit>
#include <cassert>

#include "wire/crc32_places.h"
#include "wire/ether.h"
#include "wire/frame_template.h"
#include "wire/frame_words.h"
#include "wire/icrc.h"
#include "wire/icrc_masks.h"

#if defined(__x86_64__)

namespace uroce::wire {
namespace {

using Underlay = FrameTemplate::Underlay;

constexpr std::size_t kLine = 64;
constexpr std::size_t kReach = 2 * kLine;  // of what is not payload

constexpr std::size_t kMostHeaders =
    FrameTemplate::kLead + FrameTemplate::kMaxOverhead + Bth::kSize + FrameParts::kMostExtension;
static_assert(kMostHeaders <= kReach);
static_assert(kMostHeaders + FrameParts::kMostPayload + 3 <= kLongestByPlaces);

// What is not the same in all frames of a template, by its place in a vector.
constexpr std::uint8_t kBthAt = 0;
constexpr std::uint8_t kSourcePortAt = 12;
constexpr std::uint8_t kUdpLengthAt = 14;
constexpr std::uint8_t kExtensionAt = 16;
constexpr std::uint8_t kIpLengthAt = 48;
constexpr std::uint8_t kIpSumAt = 50;
constexpr std::uint8_t kZeroAt = 63;
constexpr std::uint8_t kTemplate = 0x80;  // nowhere there

/// The first bytes of frames with the same headers below the BTH that begin `lead` bytes into a line, one by
/// one.
struct alignas(kLine) Layout {
  using Bytes = std::array<std::uint8_t, kReach>;

  Bytes source{};  ///< where a byte comes from
  Bytes keep{};    ///< bits of it that the ICRC takes as they are
  Bytes flip{};    ///< what it takes besides, with the state that it begins with

  constexpr void take(std::size_t at, std::uint8_t from, std::size_t bytes) noexcept {
    for (std::size_t i = 0; i < bytes; ++i) source[at + i] = static_cast<std::uint8_t>(from + i);
  }
  constexpr void cover(std::size_t at, const CrcMask& mask) noexcept {
    for (std::size_t i = at; i < kReach; ++i) keep[i] = 0xff;
    for (std::size_t i = 0; i < CrcMask::kReach && at + i < kReach; ++i) {
      keep[at + i] = std::to_integer<std::uint8_t>(~mask.ones[i]);
      flip[at + i] = std::to_integer<std::uint8_t>(mask.ones[i]);
    }
    for (std::size_t i = 0; i < 4; ++i) flip[at + i] ^= static_cast<std::uint8_t>(~kIcrcPrefix >> (8 * i));
  }
};

constexpr Layout make_layout(Underlay underlay, bool has_vlan, std::size_t lead) noexcept {
  const std::size_t l3 = lead + Ether::kSize + (has_vlan ? Vlan::kSize : 0);
  const bool is_v4 = underlay == Underlay::kIpv4;
  const bool has_udp = underlay != Underlay::kGrh;
  const std::size_t udp = l3 + (is_v4 ? Ipv4::kSize : Ipv6::kSize);
  const std::size_t bth = udp + (has_udp ? Udp::kSize : 0);
  Layout made;
  made.source.fill(kZeroAt);
  for (std::size_t i = lead; i < bth; ++i) made.source[i] = kTemplate;
  if (is_v4) {
    made.take(l3 + 2, kIpLengthAt, 2);
    made.take(l3 + 10, kIpSumAt, 2);
  } else {
    made.take(l3 + 4, kIpLengthAt, 2);
  }
  if (has_udp) {
    made.take(udp, kSourcePortAt, 2);
    made.take(udp + 4, kUdpLengthAt, 2);
  }
  made.take(bth, kBthAt, Bth::kSize);
  made.take(bth + Bth::kSize, kExtensionAt, FrameParts::kMostExtension);
  made.cover(l3, is_v4 ? kIcrcMaskV4 : has_udp ? kIcrcMaskV6 : kIcrcMaskV1);
  return made;
}

constexpr auto kLayouts = [] {
  std::array<Layout, 12> all{};  // by lead, underlay and VLAN
  for (unsigned i = 0; i < all.size(); ++i)
    all[i] = make_layout(Underlay{static_cast<std::uint8_t>(i / 2 % 3)}, i % 2 != 0,
                         i < 6 ? 0 : FrameTemplate::kLead);
  return all;
}();

/// For moving bytes up in a vector: read `n` before the middle they are the indices that do so by n, and
/// which of the bytes there are none of before.
struct alignas(kLine) Moves {
  std::array<std::uint8_t, 2 * kLine> indices{};
  std::array<std::uint8_t, 2 * kLine> is_moved{};
};
constexpr Moves kMoves = [] {
  Moves made;
  for (std::size_t i = 0; i < 2 * kLine; ++i) {
    made.indices[i] = static_cast<std::uint8_t>(i % kLine);
    made.is_moved[i] = i < kLine ? 0 : 0xff;
  }
  return made;
}();

/// Puts the lines of a frame together, one after the other, and sums up the ICRC.
struct Lines {
  const FrameParts& parts;
  const Layout& layout;
  const std::byte* head;  // of the template, at the place of the first line
  std::size_t payload_at;
  std::size_t payload_end;
  __m512i fields;
  CrcByPlaces sum;

  /// What of the payload is in the line that begins at `begin`.
  UROCE_WIDE [[gnu::always_inline]] __m512i payload_in(std::size_t begin) const noexcept {
    if (payload_at == payload_end || begin >= payload_end || begin + kLine <= payload_at)
      return _mm512_setzero_si512();
    if (begin >= payload_at)
      return _mm512_maskz_loadu_epi8(first_bytes(payload_end - begin), parts.payload + (begin - payload_at));
    const __m512i first = _mm512_maskz_loadu_epi8(first_bytes(parts.payload_bytes), parts.payload);
    const std::size_t by = kLine - (payload_at - begin);
    const __m512i moved =
        _mm512_maskz_permutexvar_epi8(~__mmask64{0}, _mm512_loadu_si512(&kMoves.indices[by]), first);
    return _mm512_and_si512(moved, _mm512_loadu_si512(&kMoves.is_moved[by]));
  }
  /// The first line, or the second one.
  UROCE_WIDE [[gnu::always_inline]] __m512i with_headers(std::size_t line) noexcept {
    const std::size_t begin = line * kLine;
    const __m512i source = _mm512_load_si512(layout.source.data() + begin);
    const __mmask64 fixed = _mm512_movepi8_mask(source);
    const __m512i headers =
        _mm512_mask_permutexvar_epi8(_mm512_maskz_loadu_epi8(fixed, head + begin), ~fixed, source, fields);
    const __m512i bytes = _mm512_or_si512(headers, payload_in(begin));
    sum.add(line, _mm512_xor_si512(_mm512_and_si512(bytes, _mm512_load_si512(layout.keep.data() + begin)),
                                   _mm512_load_si512(layout.flip.data() + begin)));
    return bytes;
  }
  /// Any but the first.
  UROCE_WIDE [[gnu::always_inline]] __m512i next(std::size_t line) noexcept {
    if (line == 1 && payload_at > kLine) return with_headers(1);
    const __m512i bytes = payload_in(line * kLine);
    sum.add(line, bytes);
    return bytes;
  }
};

/// Puts the ICRC into the last line of a frame, and into the one before if it begins there.
UROCE_WIDE [[gnu::always_inline]] inline void put_icrc(std::uint32_t icrc, std::size_t icrc_at,
                                                       __m512i& before, __m512i& last) noexcept {
  const __m512i everywhere =
      _mm512_set1_epi32(static_cast<int>(std::rotl(icrc, static_cast<int>(8 * (icrc_at % 4)))));
  const std::size_t in_line = icrc_at % kLine;
  const __mmask64 from_there = __mmask64{0xf} << in_line;
  if (in_line <= kLine - kIcrcSize) [[likely]] {
    last = _mm512_mask_mov_epi8(last, from_there, everywhere);
  } else {
    before = _mm512_mask_mov_epi8(before, from_there, everywhere);
    last = _mm512_mask_mov_epi8(last, __mmask64{0xf} >> (kLine - in_line), everywhere);
  }
}

/// Writes a frame, its first line last.
UROCE_WIDE [[gnu::always_inline]] inline void write(std::byte* to, Lines& lines,
                                                    std::size_t icrc_at) noexcept {
  const std::size_t count = (icrc_at + kIcrcSize + kLine - 1) / kLine;
  __m512i first = lines.with_headers(0);
  if (count == 1) {
    put_icrc(~lines.sum.rest(), icrc_at, first, first);
    _mm512_store_si512(to, first);
    return;
  }
  __m512i last = lines.next(1);
  if (count == 2) {
    put_icrc(~lines.sum.rest(), icrc_at, first, last);
    _mm512_store_si512(to + kLine, last);
    _mm512_store_si512(to, first);
    return;
  }
  __m512i before = last;
  for (std::size_t line = 2; line < count; ++line) {
    if (line > 2) _mm512_store_si512(to + (line - 2) * kLine, before);
    before = last;
    last = lines.next(line);
  }
  put_icrc(~lines.sum.rest(), icrc_at, before, last);
  _mm512_store_si512(to + (count - 1) * kLine, last);
  _mm512_store_si512(to + (count - 2) * kLine, before);
  _mm512_store_si512(to, first);
}

}  // namespace

UROCE_WIDE void FrameTemplate::write_lines(std::byte* frame, const FrameParts& parts) const noexcept {
  const std::size_t lead = std::bit_cast<std::uintptr_t>(frame) % kLine;
  assert((lead == 0 || lead == kLead) && parts.payload_bytes <= FrameParts::kMostPayload);
  const std::size_t payload_at = lead + overhead_ + parts.header_bytes;
  const std::size_t payload_end = payload_at + parts.payload_bytes;
  const std::size_t icrc_at = payload_end + pad_for(parts.payload_bytes);

  const Lengths len = lengths(static_cast<std::uint32_t>(icrc_at + kIcrcSize - lead - overhead_));
  const std::uint64_t ip = be_word<0, 2>(len.ip) | be_word<2, 2>(len.ip_sum);
  const std::uint64_t udp = be_word<4, 2>(parts.udp_source_port) | be_word<6, 2>(len.udp);
  __m512i fields = _mm512_zextsi128_si512(
      _mm_set_epi64x(static_cast<std::int64_t>(parts.bth[1] | udp), static_cast<std::int64_t>(parts.bth[0])));
  if (parts.header_bytes > Bth::kSize)
    fields = _mm512_inserti64x2(fields, pair(parts.extension[0], parts.extension[1]), 1);
  if (parts.header_bytes > Bth::kSize + 16)
    fields = _mm512_inserti64x2(fields, pair(parts.extension[2], parts.extension[3]), 2);
  fields = _mm512_inserti64x2(fields, _mm_cvtsi64_si128(static_cast<std::int64_t>(ip)), 3);

  Lines lines{
      .parts = parts,
      .layout = kLayouts[(lead == 0 ? 0 : 6) + 2 * raw(underlay_) + (l3_offset_ == Ether::kSize ? 0 : 1)],
      .head = head_.data() - lead,
      .payload_at = payload_at,
      .payload_end = payload_end,
      .fields = fields,
      .sum = CrcByPlaces(icrc_at)};
  write(frame - lead, lines, icrc_at);
}

}  // namespace uroce::wire

#else

namespace uroce::wire {

void FrameTemplate::write_lines(std::byte*, const FrameParts&) const noexcept {
  assert(false);
}

}  // namespace uroce::wire

#endif
