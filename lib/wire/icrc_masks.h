/// Which bits of a packet's headers the ICRC takes as ones. IBA 7.8.1, A17.3.3.
#pragma once

#include "wire/bth.h"
#include "wire/crc32.h"
#include "wire/ipv4.h"
#include "wire/ipv6.h"
#include "wire/udp.h"

namespace uroce::wire {

/// CRC-32 of the eight 0xff bytes which stand for the Local Route Header that RoCE does not have.
inline constexpr std::uint32_t kIcrcPrefix = 0x2144'df1c;

namespace detail {

constexpr void mask_byte(CrcMask& mask, std::size_t at, std::uint8_t ones = 0xff) noexcept {
  mask.ones[at] = std::byte{ones};
}

constexpr void mask_ipv4(CrcMask& mask) noexcept {
  mask_byte(mask, 1);   // TOS
  mask_byte(mask, 8);   // TTL
  mask_byte(mask, 10);  // checksum
  mask_byte(mask, 11);
}

/// IPv6 header or GRH.
constexpr void mask_ipv6(CrcMask& mask) noexcept {
  mask_byte(mask, 0, 0x0f);  // traffic class and flow label
  for (std::size_t at = 1; at < 4; ++at) mask_byte(mask, at);
  mask_byte(mask, 7);  // hop limit
}

constexpr void mask_udp(CrcMask& mask, std::size_t udp) noexcept {
  mask_byte(mask, udp + 6);  // checksum
  mask_byte(mask, udp + 7);
}

/// FECN, BECN and six reserved bits.
constexpr void mask_bth(CrcMask& mask, std::size_t bth) noexcept {
  mask_byte(mask, bth + 4);
}

/// Of packets from their IP header or GRH on, which `mask_l3` masks.
constexpr CrcMask icrc_mask(void (*mask_l3)(CrcMask&) noexcept, std::size_t l3_bytes, bool has_udp) noexcept {
  CrcMask mask;
  mask_l3(mask);
  if (has_udp) mask_udp(mask, l3_bytes);
  mask_bth(mask, l3_bytes + (has_udp ? Udp::kSize : 0));
  return mask;
}

}  // namespace detail

inline constexpr CrcMask kIcrcMaskV4 = detail::icrc_mask(detail::mask_ipv4, Ipv4::kSize, true);
inline constexpr CrcMask kIcrcMaskV6 = detail::icrc_mask(detail::mask_ipv6, Ipv6::kSize, true);
/// RoCE v1, from the GRH on.
inline constexpr CrcMask kIcrcMaskV1 = detail::icrc_mask(detail::mask_ipv6, Ipv6::kSize, false);

static_assert(Ipv6::kSize + Udp::kSize + Bth::kSize <= CrcMask::kReach);

}  // namespace uroce::wire
