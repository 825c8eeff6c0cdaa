/// Header prediction: packets of a connection look alike but for a few fields, so that what was parsed once
/// need only be compared. Van Jacobson, 1990, for TCP.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "wire/packet.h"

namespace uroce::wire {

/// The headers of a packet that was parsed, to know others of the same length by which differ from it in
/// nothing but UDP source port, destination QPN, AckReq and the reserved bits beside it, PSN, solicited
/// event, and what is behind the BTH.
///
/// A value. Threads: one.
class HeaderPattern {
 public:
  /// From now on `packet`, which parse_packet() called kRoce, is the pattern.
  void learn(const PacketView& packet) noexcept;

  /// What parse_packet() would fill for `frame`, if that fits; else nullptr. Where it is ends with the next
  /// call.
  [[nodiscard]] const PacketView* show(std::span<const std::byte> frame) noexcept {
    if (frame.size() != view_.frame_len || !fits(frame.data())) return nullptr;
    move_to(frame.data());
    return &view_;
  }
  /// Whether `packet` is what show() returned.
  [[nodiscard]] bool is_shown_by(const PacketView& packet) const noexcept { return &packet == &view_; }

 private:
  static constexpr std::size_t kMost = 66 + Bth::kSize;  // bytes: Ethernet, VLAN, IPv6, UDP, BTH

  // Bits that must be the same, in the eight bytes before the BTH and in its first ones.
  static constexpr std::uint64_t kUdpBits =
      ~std::bit_cast<std::uint64_t>(std::array<std::uint8_t, 8>{0xff, 0xff});  // but for the source port
  static constexpr std::uint64_t kBthBits = ~std::bit_cast<std::uint64_t>(std::array<std::uint8_t, 8>{
      0, 0x80, 0, 0, 0, 0xff, 0xff, 0xff});  // but for solicited event and destination QPN

  [[nodiscard]] static std::uint64_t word_at(const std::byte* at) noexcept {
    std::uint64_t word = 0;
    std::memcpy(&word, at, sizeof word);
    return word;
  }
  [[nodiscard]] std::uint64_t difference(const std::byte* frame, std::size_t at) const noexcept {
    return word_at(frame + at) ^ word_at(head_.data() + at);
  }
  [[nodiscard]] bool fits(const std::byte* frame) const noexcept {
    const std::size_t bth = view_.bth_offset;
    const std::size_t before = bth - Udp::kSize;
    static_assert(Ether::kSize + Ipv4::kSize > 32);  // the least of it
    const std::uint64_t udp_bits = view_.gid_type == GidType::kRoceV1 ? ~std::uint64_t{0} : kUdpBits;
    std::uint64_t differ = difference(frame, 0) | difference(frame, 8) | difference(frame, 16) |
                           difference(frame, 24) | difference(frame, before - 8) |
                           (difference(frame, before) & udp_bits) | (difference(frame, bth) & kBthBits);
    for (std::size_t at = 32; at + 8 < before; at += 8) differ |= difference(frame, at);
    return differ == 0;
  }
  /// Shows what is in another frame.
  void move_to(const std::byte* frame) noexcept {
    view_.frame = frame;
    view_.ext = frame + ext_at_;
    view_.payload = {frame + payload_at_, view_.payload.size()};
    const auto bth = bytes_at<Bth::kSize>(frame + view_.bth_offset);
    const std::uint64_t last = load_be<4, 8>(bth);
    view_.bth.dest_qpn = Qpn{static_cast<std::uint32_t>(last >> 32 & 0xff'ffff)};
    view_.bth.ack_req = (last >> 31 & 1) != 0;
    view_.bth.psn = Psn{static_cast<std::uint32_t>(last & Psn::kMask)};
    view_.bth.solicited = load_be<1, 1>(bth) >> 7 != 0;
  }

  std::array<std::byte, kMost> head_{};
  std::uint16_t ext_at_ = 0;  // in the frame, like those below
  std::uint16_t payload_at_ = 0;
  PacketView view_{.frame_len = UINT32_MAX};  // nothing was learned
};

}  // namespace uroce::wire
