#include "wire/icrc.h"

#include <cassert>

#include "wire/crc32.h"
#include "wire/icrc_masks.h"

namespace uroce::wire {

std::uint32_t compute_icrc(std::span<const std::byte> covered, bool is_v6, FetchAhead* ahead) noexcept {
  assert(covered.size() >= (is_v6 ? Ipv6::kSize : Ipv4::kSize) + Udp::kSize + Bth::kSize);
  return masked_crc32(kIcrcPrefix, covered, is_v6 ? kIcrcMaskV6 : kIcrcMaskV4, ahead);
}

std::optional<std::uint32_t> compute_icrc_beside_copy(std::span<const std::byte> covered, bool is_v6,
                                                      std::byte* to,
                                                      std::span<const std::byte> others) noexcept {
  return masked_crc32_beside_copy(kIcrcPrefix, covered, is_v6 ? kIcrcMaskV6 : kIcrcMaskV4, to, others);
}

std::uint32_t compute_icrc_v1(std::span<const std::byte> covered) noexcept {
  assert(covered.size() >= Ipv6::kSize + Bth::kSize);
  return masked_crc32(kIcrcPrefix, covered, kIcrcMaskV1);
}

}  // namespace uroce::wire
