/// ICMP and ICMPv6: the common header, its checksums, and the answer to an echo request. RFC 792, RFC 4443.
#pragma once

#include "wire/packet.h"

namespace uroce::wire {

/// First bytes of every ICMP and ICMPv6 message.
///
///    0  type    1  code    2-3  checksum    4-7  depends on the type; for echo: identifier, sequence number
struct Icmp {
  static constexpr std::size_t kSize = 8;  // bytes

  enum class Type : std::uint8_t {
    kEchoReply = 0,
    kEchoRequest = 8,
    kEchoRequest6 = 128,
    kEchoReply6 = 129,
    kNeighbourSolicitation = 135,
    kNeighbourAdvertisement = 136,
  };

  Type type{};
  std::uint8_t code = 0;
  std::uint16_t checksum = 0;
  std::uint32_t rest = 0;

  friend constexpr bool operator==(const Icmp&, const Icmp&) = default;

  [[nodiscard]] static constexpr Icmp parse(std::span<const std::byte, kSize> in) noexcept {
    return {.type = Type{load_be<0, 1>(in)},
            .code = load_be<1, 1>(in),
            .checksum = load_be<2, 2>(in),
            .rest = load_be<4, 4>(in)};
  }

  constexpr void emit(std::span<std::byte, kSize> out) const noexcept {
    store_be<0, 1>(out, raw(type));
    store_be<1, 1>(out, code);
    store_be<2, 2>(out, checksum);
    store_be<4, 4>(out, rest);
  }
};

/// Sum of an ICMPv6 message with its pseudo header: fold_sum() of it is 0xffff if the checksum inside is
/// right, finish_sum() is the checksum if that field is 0. RFC 4443 2.3.
[[nodiscard]] constexpr std::uint64_t icmp6_sum(const Gid& src, const Gid& dst,
                                                std::span<const std::byte> message) noexcept {
  std::uint64_t sum = add_words(message, message.size() + raw(IpProtocol::kIcmp6));
  for (std::size_t i = 0; i < 16; i += 2) {
    sum += static_cast<std::uint32_t>(src.raw[i] << 8 | src.raw[i + 1]);
    sum += static_cast<std::uint32_t>(dst.raw[i] << 8 | dst.raw[i + 1]);
  }
  return sum;
}

/// Whether a packet that parse_packet() called kIcmp or kIcmp6 has a header and the right checksum. RFC 792;
/// RFC 4443 2.3.
[[nodiscard]] bool is_sound_icmp(const PacketView& packet) noexcept;

/// Length of the answer to a packet that parse_packet() called kIcmp or kIcmp6.
///
/// @return bytes of the whole frame; 0 if no answer is due: not an echo request, a wrong checksum, sent to or
///         by a group, a broadcast or no address
[[nodiscard]] std::uint32_t echo_reply_len(const PacketView& request) noexcept;

/// Writes the answer, echo_reply_len() bytes: addresses swapped, the same identifier, sequence number and
/// data.
void emit_echo_reply(const PacketView& request, std::byte* frame) noexcept;

static_assert([] {
  constexpr Icmp h{.type = Icmp::Type::kEchoRequest6, .checksum = 0x1234, .rest = 0xaabb'ccdd};
  std::array<std::byte, Icmp::kSize> b{};
  h.emit(b);
  return b[0] == std::byte{128} && b[2] == std::byte{0x12} && b[7] == std::byte{0xdd} && Icmp::parse(b) == h;
}());

}  // namespace uroce::wire
