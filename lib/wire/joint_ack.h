#pragma once

#include <cstdint>

#include "uroce/types.h"
#include "wire/aeth.h"
#include "wire/bytes.h"

namespace uroce::wire {

/// What a joint ACK says to one more QP. A joint ACK is an ACK whose payload are up to kMostInJointAck - 1 of
/// these, and no more than the path MTU has room for; each means what an ACK to that QP would mean that came
/// alone. Not of IBA: an extension of this library, which both ends of all these connections must have
/// switched on (uroce/ece.h). Its opcode is one of those that IBA 9.2.1 leaves to manufacturers: 0xd2, in XRC
/// 0xf2.
///
///    0     reserved
///    1-3   number of the QP
///    4     reserved
///    5-7   PSN
///    8-11  AETH
struct AckEth {
  static constexpr std::size_t kSize = 12;   // bytes
  static constexpr std::size_t kAethAt = 8;  // bytes

  Qpn dest_qpn{};
  Psn psn{};
  Aeth aeth{};

  friend constexpr bool operator==(const AckEth&, const AckEth&) = default;

  [[nodiscard]] static constexpr AckEth parse(std::span<const std::byte, kSize> in) noexcept {
    return {.dest_qpn = Qpn{load_be<1, 3>(in)},
            .psn = Psn{load_be<5, 3>(in)},
            .aeth = Aeth::parse(in.subspan<kAethAt, Aeth::kSize>())};
  }
  [[nodiscard]] constexpr Words<kSize> words() const noexcept {
    return {be_word<1, 3>(raw(dest_qpn)) | be_word<5, 3>(psn.value()), aeth.words()[0]};
  }
};

/// ACKs in a joint one, at most.
inline constexpr std::uint32_t kMostInJointAck = 32;

static_assert([] {
  constexpr AckEth h{
      .dest_qpn = Qpn{0x12'3456}, .psn = Psn{0x78'9abc}, .aeth = {.syndrome = 5, .msn = 0xde'f012}};
  std::array<std::byte, AckEth::kSize> b{};
  emit_at(b.data(), h);
  return b[0] == std::byte{0} && b[1] == std::byte{0x12} && b[3] == std::byte{0x56} && b[4] == std::byte{0} &&
         b[5] == std::byte{0x78} && b[8] == std::byte{5} && b[11] == std::byte{0x12} && AckEth::parse(b) == h;
}());

}  // namespace uroce::wire
