#include "wire/icrc.h"

#include <isa-l/crc.h>

#include <array>
#include <cassert>
#include <cstring>

#include "wire/bth.h"
#include "wire/ipv6.h"
#include "wire/udp.h"

namespace uroce::wire {
namespace {

constexpr std::byte kOnes{0xff};
constexpr std::size_t kBthEcn = 4;       // FECN, BECN and reserved bits
constexpr std::size_t kUdpChecksum = 6;  // two bytes

/// CRC-32 of the eight 0xff bytes which stand for the Local Route Header that RoCE does not have.
constexpr std::uint32_t kPrefixCrc = 0x2144'df1c;

/// Continues `crc`, given and returned in its final (inverted) form.
std::uint32_t extend(std::uint32_t crc, std::span<const std::byte> in) noexcept {
  // std::byte may alias everything, but ISA-L spells bytes otherwise.
  const void* first = in.data();
  return crc32_gzip_refl(crc, static_cast<const unsigned char*>(first), in.size());
}

/// CRC of a packet whose first `HeadSize` bytes are replaced by a masked copy: they hold all fields that may
/// change on the way, and the end of the BTH is the end of them.
template <std::size_t HeadSize, typename Mask>
std::uint32_t crc_with_masked_head(std::span<const std::byte> covered, Mask mask) noexcept {
  assert(covered.size() >= HeadSize);
  std::array<std::byte, HeadSize> head;
  std::memcpy(head.data(), covered.data(), HeadSize);
  mask(head);
  return extend(extend(kPrefixCrc, head), covered.subspan(HeadSize));
}

template <std::size_t N>
void mask_ipv4(std::array<std::byte, N>& head) noexcept {
  head[1] = kOnes;              // TOS
  head[8] = kOnes;              // TTL
  head[10] = head[11] = kOnes;  // checksum
}

/// IPv6 header or GRH.
template <std::size_t N>
void mask_ipv6(std::array<std::byte, N>& head) noexcept {
  head[0] |= std::byte{0x0f};  // traffic class, flow label
  head[1] = head[2] = head[3] = kOnes;
  head[7] = kOnes;  // hop limit
}

template <std::size_t N>
void mask_udp_bth(std::array<std::byte, N>& head, std::size_t udp) noexcept {
  head[udp + kUdpChecksum] = head[udp + kUdpChecksum + 1] = kOnes;
  head[udp + Udp::kSize + kBthEcn] = kOnes;
}

}  // namespace

std::uint32_t compute_icrc(std::span<const std::byte> covered, bool is_v6) noexcept {
  if (is_v6) {
    return crc_with_masked_head<Ipv6::kSize + Udp::kSize + Bth::kSize>(covered, [](auto& head) {
      mask_ipv6(head);
      mask_udp_bth(head, Ipv6::kSize);
    });
  }
  return crc_with_masked_head<Ipv4::kSize + Udp::kSize + Bth::kSize>(covered, [](auto& head) {
    mask_ipv4(head);
    mask_udp_bth(head, Ipv4::kSize);
  });
}

std::uint32_t compute_icrc_v1(std::span<const std::byte> covered) noexcept {
  return crc_with_masked_head<Ipv6::kSize + Bth::kSize>(covered, [](auto& head) {
    mask_ipv6(head);
    head[Ipv6::kSize + kBthEcn] = kOnes;
  });
}

}  // namespace uroce::wire
