#pragma once

#include <array>

#include "wire/bytes.h"
#include "wire/opcode.h"

namespace uroce::wire {

/// Base Transport Header, the first header of every RoCE packet. IBA 9.2.
///
///    0  opcode            1  SE:1 M:1 PadCnt:2 TVer:4    2-3   P_Key
///    4  FECN:1 BECN:1 0:6                                5-7   destination QPN
///    8  AckReq:1 0:7                                     9-11  PSN
struct Bth {
  static constexpr std::size_t kSize = 12;  // bytes

  Opcode opcode{};
  bool solicited = false;
  bool mig_req = true;   // the state of a QP without alternate path. IBA 17.2.8
  std::uint8_t pad = 0;  // bytes added to reach a multiple of 4: 0..3
  std::uint16_t pkey = 0xffff;
  bool fecn = false;
  bool becn = false;
  Qpn dest_qpn{};
  bool ack_req = false;
  Psn psn{};

  friend constexpr bool operator==(const Bth&, const Bth&) = default;

  /// Cannot fail: the span's extent proves the length. TVer is judged by parse_packet().
  [[nodiscard]] static constexpr Bth parse(std::span<const std::byte, kSize> in) noexcept {
    const std::uint8_t flags = load_be<1, 1>(in);
    const std::uint8_t ecn = load_be<4, 1>(in);
    return {.opcode = Opcode{load_be<0, 1>(in)},
            .solicited = (flags & 0x80) != 0,
            .mig_req = (flags & 0x40) != 0,
            .pad = static_cast<std::uint8_t>(flags >> 4 & 3),
            .pkey = load_be<2, 2>(in),
            .fecn = (ecn & 0x80) != 0,
            .becn = (ecn & 0x40) != 0,
            .dest_qpn = Qpn{load_be<5, 3>(in)},
            .ack_req = (load_be<8, 1>(in) & 0x80) != 0,
            .psn = Psn{load_be<9, 3>(in)}};
  }

  /// Reserved bits and TVer go out as zero.
  [[nodiscard]] constexpr Words<kSize> words() const noexcept {
    const std::uint64_t flags = at_bit<7>(solicited) | at_bit<6>(mig_req) | at_bit<4>(pad & 3U);
    const std::uint64_t ecn = at_bit<7>(fecn) | at_bit<6>(becn);
    return {std::uint64_t{raw(opcode)} | flags << 8 | be_word<2, 2>(pkey) | ecn << 32 |
                be_word<5, 3>(raw(dest_qpn)),
            std::uint64_t{at_bit<7>(ack_req)} | be_word<1, 3>(psn.value())};
  }
};

static_assert([] {  // layout and round trip, at compile time
  constexpr Bth h{.opcode = Opcode::kRcWriteLast,
                  .pad = 2,
                  .dest_qpn = Qpn{0x12'3456},
                  .ack_req = true,
                  .psn = Psn{0xab'cdef}};
  std::array<std::byte, Bth::kSize> b{};
  emit_at(b.data(), h);
  return b[0] == std::byte{0x08} && b[1] == std::byte{0x60} && b[5] == std::byte{0x12} &&
         b[8] == std::byte{0x80} && b[11] == std::byte{0xef} && Bth::parse(b) == h;
}());

}  // namespace uroce::wire
