#pragma once

#include "uroce/types.h"
#include "wire/bytes.h"
#include "wire/checksum.h"

namespace uroce::wire {

/// Protocol numbers of IPv4 and next headers of IPv6.
enum class IpProtocol : std::uint8_t {
  kHopByHop = 0,
  kIcmp = 1,
  kIgmp = 2,
  kUdp = 17,
  kIbaGrh = 0x1b,
  kIcmp6 = 58
};

/// The IPv4 address inside a GID of the form ::ffff:a.b.c.d.
[[nodiscard]] constexpr std::array<std::uint8_t, 4> v4_part(const Gid& gid) noexcept {
  return {gid.raw[12], gid.raw[13], gid.raw[14], gid.raw[15]};
}

/// IPv4 header without options, which RoCE does not allow. RFC 791; IBA A17.
///
///    0  version:4 IHL:4    1  TOS           2-3    total length
///    4-5  identification   6-7  flags:3 fragment offset:13
///    8  TTL                9  protocol      10-11  header checksum
///    12-15  source         16-19  destination
struct Ipv4 {
  static constexpr std::size_t kSize = 20;  // bytes
  static constexpr std::uint8_t kVersionIhl = 0x45;
  static constexpr std::uint16_t kDontFragment = 0x4000;
  static constexpr std::uint16_t kFragmentMask = 0x3fff;  // more fragments, offset

  std::uint8_t version_ihl = kVersionIhl;
  std::uint8_t tos = 0;
  std::uint16_t total_length = 0;
  std::uint16_t ident = 0;
  std::uint16_t flags_fragment = kDontFragment;
  std::uint8_t ttl = 64;
  IpProtocol protocol = IpProtocol::kUdp;
  std::uint16_t checksum = 0;
  std::array<std::uint8_t, 4> src{};
  std::array<std::uint8_t, 4> dst{};

  friend constexpr bool operator==(const Ipv4&, const Ipv4&) = default;

  [[nodiscard]] constexpr bool is_fragment() const noexcept { return (flags_fragment & kFragmentMask) != 0; }

  [[nodiscard]] static constexpr Ipv4 parse(std::span<const std::byte, kSize> in) noexcept {
    return {.version_ihl = load_be<0, 1>(in),
            .tos = load_be<1, 1>(in),
            .total_length = load_be<2, 2>(in),
            .ident = load_be<4, 2>(in),
            .flags_fragment = load_be<6, 2>(in),
            .ttl = load_be<8, 1>(in),
            .protocol = IpProtocol{load_be<9, 1>(in)},
            .checksum = load_be<10, 2>(in),
            .src = load_array<12, 4>(in),
            .dst = load_array<16, 4>(in)};
  }

  /// Writes the fields as they are, the checksum too.
  constexpr void emit(std::span<std::byte, kSize> out) const noexcept {
    store_be<0, 1>(out, version_ihl);
    store_be<1, 1>(out, tos);
    store_be<2, 2>(out, total_length);
    store_be<4, 2>(out, ident);
    store_be<6, 2>(out, flags_fragment);
    store_be<8, 1>(out, ttl);
    store_be<9, 1>(out, raw(protocol));
    store_be<10, 2>(out, checksum);
    store_array<12>(out, src);
    store_array<16>(out, dst);
  }

  /// The same header with its checksum set right.
  [[nodiscard]] constexpr Ipv4 with_checksum() const noexcept {
    Ipv4 header = *this;
    header.checksum = 0;
    std::array<std::byte, kSize> bytes{};
    header.emit(bytes);
    header.checksum = finish_sum(add_words(bytes));
    return header;
  }
};

static_assert([] {  // the header of vector A in the tests' terms: checksum 0x1481
  constexpr Ipv4 h =
      Ipv4{.tos = 2, .total_length = 52, .ident = 0x1234, .src = {10, 0, 0, 1}, .dst = {10, 0, 0, 2}}
          .with_checksum();
  std::array<std::byte, Ipv4::kSize> b{};
  h.emit(b);
  return h.checksum == 0x1481 && !h.is_fragment() && fold_sum(add_words(b)) == 0xffff && Ipv4::parse(b) == h;
}());

}  // namespace uroce::wire
