#include "wire/icrc.h"

#include <cassert>

#include "wire/bth.h"
#include "wire/crc32.h"
#include "wire/ipv6.h"
#include "wire/udp.h"

namespace uroce::wire {
namespace {

/// CRC-32 of the eight 0xff bytes which stand for the Local Route Header that RoCE does not have.
constexpr std::uint32_t kPrefixCrc = 0x2144'df1c;

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

constexpr CrcMask kMaskV4 = [] {
  CrcMask mask;
  mask_ipv4(mask);
  mask_udp(mask, Ipv4::kSize);
  mask_bth(mask, Ipv4::kSize + Udp::kSize);
  return mask;
}();

constexpr CrcMask kMaskV6 = [] {
  CrcMask mask;
  mask_ipv6(mask);
  mask_udp(mask, Ipv6::kSize);
  mask_bth(mask, Ipv6::kSize + Udp::kSize);
  return mask;
}();

constexpr CrcMask kMaskV1 = [] {
  CrcMask mask;
  mask_ipv6(mask);
  mask_bth(mask, Ipv6::kSize);
  return mask;
}();

static_assert(Ipv6::kSize + Udp::kSize + Bth::kSize <= CrcMask::kReach);

}  // namespace

std::uint32_t compute_icrc(std::span<const std::byte> covered, bool is_v6) noexcept {
  assert(covered.size() >= (is_v6 ? Ipv6::kSize : Ipv4::kSize) + Udp::kSize + Bth::kSize);
  return masked_crc32(kPrefixCrc, covered, is_v6 ? kMaskV6 : kMaskV4);
}

std::uint32_t compute_icrc_v1(std::span<const std::byte> covered) noexcept {
  assert(covered.size() >= Ipv6::kSize + Bth::kSize);
  return masked_crc32(kPrefixCrc, covered, kMaskV1);
}

}  // namespace uroce::wire
