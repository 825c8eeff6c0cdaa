/// Management datagrams: the header that all of them begin with.
#pragma once

#include "wire/bytes.h"

namespace uroce::wire {

/// Bytes of every management datagram, header included. IBA 13.4.2.
inline constexpr std::size_t kMadBytes = 256;
using Mad = std::array<std::byte, kMadBytes>;

/// Common MAD header. IBA 13.4.2.
///
///    0  base version   1  management class   2  class version   3  R:1 method:7
///    4-5  status       6-7  class specific   8-15  transaction id
///    16-17  attribute id   18-19  0          20-23  attribute modifier
struct MadHeader {
  static constexpr std::size_t kSize = 24;  // bytes

  std::uint8_t base_version = 1;
  std::uint8_t mgmt_class = 0;
  std::uint8_t class_version = 0;
  std::uint8_t method = 0;
  std::uint16_t status = 0;
  std::uint64_t transaction_id = 0;
  std::uint16_t attribute_id = 0;
  std::uint32_t attribute_modifier = 0;

  friend constexpr bool operator==(const MadHeader&, const MadHeader&) = default;

  [[nodiscard]] static constexpr MadHeader parse(std::span<const std::byte, kSize> in) noexcept {
    return {.base_version = load_be<0, 1>(in),
            .mgmt_class = load_be<1, 1>(in),
            .class_version = load_be<2, 1>(in),
            .method = load_be<3, 1>(in),
            .status = load_be<4, 2>(in),
            .transaction_id = load_be<8, 8>(in),
            .attribute_id = load_be<16, 2>(in),
            .attribute_modifier = load_be<20, 4>(in)};
  }

  constexpr void emit(std::span<std::byte, kSize> out) const noexcept {
    store_be<0, 1>(out, base_version);
    store_be<1, 1>(out, mgmt_class);
    store_be<2, 1>(out, class_version);
    store_be<3, 1>(out, method);
    store_be<4, 2>(out, status);
    store_be<6, 2>(out, 0);
    store_be<8, 8>(out, transaction_id);
    store_be<16, 2>(out, attribute_id);
    store_be<18, 2>(out, 0);
    store_be<20, 4>(out, attribute_modifier);
  }
};

static_assert([] {
  constexpr MadHeader h{.mgmt_class = 7,
                        .class_version = 2,
                        .method = 3,
                        .transaction_id = 0x0123'4567'89ab'cdef,
                        .attribute_id = 0x10,
                        .attribute_modifier = 0xfedc'ba98};
  std::array<std::byte, MadHeader::kSize> b{};
  h.emit(b);
  return b[1] == std::byte{7} && b[8] == std::byte{0x01} && b[17] == std::byte{0x10} &&
         b[20] == std::byte{0xfe} && MadHeader::parse(b) == h;
}());

}  // namespace uroce::wire
