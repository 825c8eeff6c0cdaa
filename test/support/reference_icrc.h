/// ICRC as the standard words it: one bit after another over an explicitly masked copy. Slow on purpose.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace uroce::test {

/// CRC-32 of IEEE 802.3, reflected, initial value and final xor all ones.
inline std::uint32_t reference_crc32(std::span<const std::byte> in) {
  std::uint32_t crc = 0xffff'ffff;
  for (const std::byte byte : in) {
    crc ^= std::to_integer<std::uint32_t>(byte);
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (0xedb8'8320U & (0U - (crc & 1U)));
  }
  return ~crc;
}

/// What lies below the BTH.
enum class Underlay { kIpv4, kIpv6, kGrh };

/// ICRC over `covered`: IP header or GRH, UDP header (v2), BTH and all that follows up to the pad.
inline std::uint32_t reference_icrc(std::span<const std::byte> covered, Underlay underlay) {
  constexpr std::size_t kLrh = 8;
  std::vector<std::byte> bytes(kLrh + covered.size(), std::byte{0xff});
  std::copy(covered.begin(), covered.end(), bytes.begin() + kLrh);
  const auto mask = [&](std::size_t offset, unsigned ones = 0xff) {
    bytes[kLrh + offset] |= static_cast<std::byte>(ones);
  };

  std::size_t bth = 40;
  if (underlay == Underlay::kIpv4) {
    for (const std::size_t offset : {1U, 8U, 10U, 11U}) mask(offset);  // TOS, TTL, checksum
    bth = 28;
  } else {
    mask(0, 0x0f);                                                   // high half of the traffic class
    for (const std::size_t offset : {1U, 2U, 3U, 7U}) mask(offset);  // the rest, flow label, hop limit
    if (underlay == Underlay::kIpv6) bth = 48;
  }
  if (underlay != Underlay::kGrh) {
    mask(bth - 2);  // UDP checksum
    mask(bth - 1);
  }
  mask(bth + 4);  // FECN, BECN, reserved
  return reference_crc32(bytes);
}

}  // namespace uroce::test
