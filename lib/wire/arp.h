#pragma once

#include <optional>

#include "wire/ether.h"
#include "wire/ipv4.h"

namespace uroce::wire {

/// ARP message for IPv4 over Ethernet. RFC 826.
///
///    0-1  hardware type 1    2-3  protocol type 0x0800    4  6    5  4    6-7  operation
///    8-13  sender MAC        14-17  sender IP             18-23  target MAC    24-27  target IP
struct Arp {
  static constexpr std::size_t kSize = 28;  // bytes
  static constexpr std::uint64_t kEthernetIpv4 = 0x0001'0800'0604;

  enum class Operation : std::uint16_t { kRequest = 1, kReply = 2 };

  std::uint64_t types = kEthernetIpv4;  // the first six bytes
  Operation operation = Operation::kRequest;
  MacAddress sender_mac{};
  std::array<std::uint8_t, 4> sender_ip{};
  MacAddress target_mac{};
  std::array<std::uint8_t, 4> target_ip{};

  friend constexpr bool operator==(const Arp&, const Arp&) = default;

  [[nodiscard]] static constexpr Arp parse(std::span<const std::byte, kSize> in) noexcept {
    return {.types = load_be<0, 6>(in),
            .operation = Operation{load_be<6, 2>(in)},
            .sender_mac = {load_array<8, 6>(in)},
            .sender_ip = load_array<14, 4>(in),
            .target_mac = {load_array<18, 6>(in)},
            .target_ip = load_array<24, 4>(in)};
  }

  constexpr void emit(std::span<std::byte, kSize> out) const noexcept {
    store_be<0, 6>(out, types);
    store_be<6, 2>(out, raw(operation));
    store_array<8>(out, sender_mac.raw);
    store_array<14>(out, sender_ip);
    store_array<18>(out, target_mac.raw);
    store_array<24>(out, target_ip);
  }
};

/// Who has `target_ip`? Goes to the broadcast address.
[[nodiscard]] constexpr Arp make_arp_request(const MacAddress& own_mac, const Gid& own,
                                             const Gid& target) noexcept {
  return {.sender_mac = own_mac, .sender_ip = v4_part(own), .target_ip = v4_part(target)};
}

/// The answer to `request`, whose target is ours. Goes to request.sender_mac.
[[nodiscard]] constexpr Arp make_arp_reply(const Arp& request, const MacAddress& own_mac) noexcept {
  return {.operation = Arp::Operation::kReply,
          .sender_mac = own_mac,
          .sender_ip = request.target_ip,
          .target_mac = request.sender_mac,
          .target_ip = request.sender_ip};
}

/// Reads a frame that parse_packet() called kArp.
///
/// @param l3_offset  PacketView::l3_offset
/// @return nothing if it is cut short, not IPv4 over Ethernet, neither request nor reply, or sent by a group
/// address
[[nodiscard]] std::optional<Arp> parse_arp(std::span<const std::byte> frame, std::size_t l3_offset) noexcept;

/// Bytes of an ARP frame on `link`, without padding.
[[nodiscard]] constexpr std::uint32_t arp_frame_len(const LinkAddress& link) noexcept {
  return link.header_bytes() + static_cast<std::uint32_t>(Arp::kSize);
}

/// Writes the whole frame, arp_frame_len() bytes.
void emit_arp_frame(std::byte* frame, const LinkAddress& link, const Arp& arp) noexcept;

static_assert([] {
  constexpr Arp h{.sender_mac = {{2, 0, 0, 0, 0, 1}}, .sender_ip = {10, 0, 0, 1}, .target_ip = {10, 0, 0, 2}};
  std::array<std::byte, Arp::kSize> b{};
  h.emit(b);
  return b[1] == std::byte{1} && b[2] == std::byte{8} && b[4] == std::byte{6} && b[7] == std::byte{1} &&
         b[13] == std::byte{1} && b[27] == std::byte{2} && Arp::parse(b) == h;
}());

}  // namespace uroce::wire
