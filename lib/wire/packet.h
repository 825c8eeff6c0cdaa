/// Whole frame -> PacketView. parse_packet() is the only place that checks lengths.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string_view>

#include "uroce/types.h"
#include "wire/aeth.h"
#include "wire/atomic_ack_eth.h"
#include "wire/atomic_eth.h"
#include "wire/atomic_mask_eth.h"
#include "wire/bth.h"
#include "wire/deth.h"
#include "wire/ether.h"
#include "wire/feth.h"
#include "wire/held_eth.h"
#include "wire/icrc.h"
#include "wire/ieth.h"
#include "wire/imm_dt.h"
#include "wire/ipv4.h"
#include "wire/ipv6.h"
#include "wire/joint_ack.h"
#include "wire/reth.h"
#include "wire/udp.h"
#include "wire/xrceth.h"

namespace uroce::wire {

/// The lowest two bits of the traffic class. RFC 3168, 5.
inline constexpr std::uint8_t kEcnMask = 3;
inline constexpr std::uint8_t kEct0 = 2;                   ///< the sender heeds marks
inline constexpr std::uint8_t kCongestionExperienced = 3;  ///< a mark

/// What a frame is, or why it is dropped; each value owns a telemetry counter.
enum class ParseResult : std::uint8_t {
  kRoce,   ///< RoCE of either version; the ICRC is not yet checked
  kArp,    ///< ethertype only; parse_arp() judges the rest
  kIcmp,   ///< ICMP in a valid IPv4 header
  kIcmp6,  ///< ICMPv6 in a valid IPv6 header
  kIgmp,   ///< protocol number only; parse_igmp() judges the rest
  kMld,    ///< IPv6 with hop-by-hop options; parse_mld() judges the rest
  // From here on: reasons to drop, in the order of the checks.
  kTooShort,      ///< ends within the Ethernet, IP or UDP header, or before the end that the IP header states
  kBadEthertype,  ///< neither ARP, IPv4, IPv6 nor RoCE v1
  kBadIpHeader,   ///< version, options, total length or checksum; a GRH before something else than a BTH
  kFragment,      ///< part of an IPv4 datagram
  kNotUdp,        ///< another IP protocol, or IPv6 extension headers
  kNotRocePort,   ///< UDP to another port
  kBadUdp,        ///< UDP length is not the IP payload's
  kUnknownOpcode,  ///< or RD and other vendors' opcodes, which are not spoken here
  kBadVersion,     ///< TVer is not 0
  kBadLength,      ///< shorter than the headers of the opcode, or payload where it allows none
  kBadPad,         ///< payload and pad are no multiple of 4
};
inline constexpr std::size_t kParseResults = 17;

[[nodiscard]] std::string_view name(ParseResult result) noexcept;
[[nodiscard]] constexpr bool is_drop(ParseResult result) noexcept {
  return result >= ParseResult::kTooShort;
}

class IcrcAhead;

/// A parsed frame, shown in place. Filled only as far as the frame goes: all of it for kRoce; up to `is_v6`
/// and `ip_payload` for kIcmp and kIcmp6; up to `l3_offset` for kArp, kIgmp and
/// kMld.
///
/// Lifetime: points into the frame. The accessors of extension headers may be called only if `op` has that
/// header.
struct PacketView {
  const std::byte* frame = nullptr;
  std::uint32_t frame_len = 0;  ///< bytes as received, with Ethernet padding
  std::uint16_t l3_offset = 0;
  std::uint16_t bth_offset = 0;
  std::uint16_t vlan_tci = 0;  ///< 0 without a tag
  bool has_vlan = false;
  bool is_v6 = false;  ///< IPv6, or the GRH of RoCE v1, which has its layout
  GidType gid_type = GidType::kRoceV2;
  std::uint32_t roce_len = 0;        ///< bytes, BTH up to and with the ICRC
  std::uint32_t ip_payload_len = 0;  ///< bytes, all that the IP header or GRH claims behind itself
  Bth bth{};
  const OpcodeInfo* op = nullptr;
  const std::byte* ext = nullptr;        ///< first byte behind the BTH and the XRCETH
  std::span<const std::byte> payload{};  ///< without pad
  IcrcAhead* ahead = nullptr;            ///< of who shows it, if he knows what comes next

  [[nodiscard]] Reth reth() const noexcept { return parse_at<Reth>(ext + (op->is_flush ? Feth::kSize : 0)); }
  [[nodiscard]] Feth feth() const noexcept { return parse_at<Feth>(ext); }
  [[nodiscard]] AtomicEth atomic_eth() const noexcept { return parse_at<AtomicEth>(ext); }
  [[nodiscard]] AtomicMaskEth atomic_mask_eth() const noexcept {
    return parse_at<AtomicMaskEth>(ext + AtomicEth::kSize);
  }
  [[nodiscard]] Xrceth xrceth() const noexcept { return parse_at<Xrceth>(ext - Xrceth::kSize); }
  [[nodiscard]] Deth deth() const noexcept { return parse_at<Deth>(ext); }
  [[nodiscard]] Aeth aeth() const noexcept { return parse_at<Aeth>(ext); }
  [[nodiscard]] AtomicAckEth atomic_ack_eth() const noexcept {
    return parse_at<AtomicAckEth>(ext + Aeth::kSize);
  }
  [[nodiscard]] HeldEth held_eth() const noexcept { return parse_at<HeldEth>(ext + Aeth::kSize); }
  /// Of a joint ACK: how many QPs it is for; 0 if it is not made as one is.
  [[nodiscard]] std::size_t joint_acks() const noexcept {
    const std::size_t others = payload.size() / AckEth::kSize;
    const bool is_whole = bth.pad == 0 && payload.size() % AckEth::kSize == 0;
    return is_whole && others < kMostInJointAck ? 1 + others : 0;
  }
  /// And what it says to one of these, of joint_acks().
  [[nodiscard]] AckEth joint_ack(std::size_t i) const noexcept {
    return i == 0 ? AckEth{.dest_qpn = bth.dest_qpn, .psn = bth.psn, .aeth = aeth()}
                  : parse_at<AckEth>(payload.data() + (i - 1) * AckEth::kSize);
  }
  /// The ACK for the first of them, as if it had come alone but for its length.
  [[nodiscard]] PacketView first_of_joint_acks() const noexcept;
  /// Makes of `one`, an ACK of theirs, that for number `i`, not the first.
  void show_joint_ack(std::size_t i, PacketView& one) const noexcept;
  /// ImmDt and IETH are always the last header.
  [[nodiscard]] ImmDt imm() const noexcept { return parse_at<ImmDt>(last_header(ImmDt::kSize)); }
  [[nodiscard]] Ieth ieth() const noexcept { return parse_at<Ieth>(last_header(Ieth::kSize)); }

  [[nodiscard]] Ether ether() const noexcept { return parse_at<Ether>(frame); }
  [[nodiscard]] LinkAddress link() const noexcept {
    return {.src = src_mac(),
            .dst = dst_mac(),
            .vlan_tci = has_vlan ? std::optional<std::uint16_t>{vlan_tci} : std::nullopt};
  }
  [[nodiscard]] MacAddress src_mac() const noexcept {
    return {load_array<6, 6>(bytes_at<Ether::kSize>(frame))};
  }
  [[nodiscard]] MacAddress dst_mac() const noexcept {
    return {load_array<0, 6>(bytes_at<Ether::kSize>(frame))};
  }
  /// 802.1Q VLAN identifier; 0 without a tag, and with one that tells the priority only.
  [[nodiscard]] std::uint16_t vlan_id() const noexcept { return vlan_tci & 0xfff; }
  /// 0 without a tag.
  [[nodiscard]] std::uint8_t priority() const noexcept { return static_cast<std::uint8_t>(vlan_tci >> 13); }

  [[nodiscard]] const std::byte* l3() const noexcept { return frame + l3_offset; }
  [[nodiscard]] std::span<const std::byte> ip_payload() const noexcept {
    return {l3() + (is_v6 ? Ipv6::kSize : Ipv4::kSize), ip_payload_len};
  }
  [[nodiscard]] Ipv4 ipv4() const noexcept { return parse_at<Ipv4>(l3()); }
  [[nodiscard]] Ipv6 ipv6() const noexcept { return parse_at<Ipv6>(l3()); }
  /// RoCE v2 only.
  [[nodiscard]] Udp udp() const noexcept { return parse_at<Udp>(frame + bth_offset - Udp::kSize); }
  [[nodiscard]] std::uint16_t udp_src_port() const noexcept { return udp().src_port; }

  /// Addresses of the IP header or GRH as GIDs: IPv4 as ::ffff:a.b.c.d.
  [[nodiscard]] Gid src_gid() const noexcept;
  [[nodiscard]] Gid dst_gid() const noexcept;
  [[nodiscard]] bool comes_from(const Gid& gid) const noexcept { return has_address(gid, is_v6 ? 8 : 12); }
  [[nodiscard]] bool goes_to(const Gid& gid) const noexcept { return has_address(gid, is_v6 ? 24 : 16); }
  /// IPv4 TOS, or traffic class of IPv6 or GRH: DSCP:6 ECN:2.
  [[nodiscard]] std::uint8_t traffic_class() const noexcept;
  /// RFC 3168: 0 not ECN capable, 1 and 2 capable, 3 congestion experienced.
  [[nodiscard]] std::uint8_t ecn() const noexcept { return traffic_class() & kEcnMask; }
  [[nodiscard]] std::uint8_t hop_limit() const noexcept {
    return std::to_integer<std::uint8_t>(l3()[is_v6 ? 7 : 8]);
  }

  /// From the IP header or GRH up to the pad: what the ICRC covers.
  [[nodiscard]] std::span<const std::byte> icrc_covered() const noexcept {
    return {l3(), std::size_t{bth_offset} - l3_offset + roce_len - kIcrcSize};
  }
  /// The ICRC that the packet carries.
  [[nodiscard]] std::uint32_t icrc() const noexcept {
    return load_icrc(bytes_at<kIcrcSize>(frame + bth_offset + roce_len - kIcrcSize));
  }

 private:
  [[nodiscard]] const std::byte* last_header(std::size_t size) const noexcept {
    return payload.data() - size;
  }
  /// @param at  where the address is in the IP header
  [[nodiscard]] bool has_address(const Gid& gid, std::size_t at) const noexcept {
    if (is_v6) [[unlikely]]
      return std::memcmp(gid.raw.data(), l3() + at, gid.raw.size()) == 0;
    const auto halves = std::bit_cast<std::array<std::uint64_t, 2>>(gid);
    constexpr auto kV4 = std::bit_cast<std::array<std::uint32_t, 4>>(Gid::from_v4({}));
    std::array<std::uint32_t, 2> lower{kV4[2]};
    std::memcpy(&lower[1], l3() + at, sizeof lower[1]);
    return halves[0] == 0 && halves[1] == std::bit_cast<std::uint64_t>(lower);
  }
};

/// Tells what `frame` is and, for RoCE, fills `out`, all but `ahead`. Reads nothing beyond the frame, takes
/// all lengths from the IP and UDP headers or the GRH and ignores what follows them. One VLAN tag is
/// accepted. Any UDP source port and any UDP checksum is accepted.
[[nodiscard]] ParseResult parse_packet(std::span<const std::byte> frame, PacketView& out) noexcept;

/// What a frame is about, if it is a RoCE v2 packet without a VLAN tag; else anything. Hints for prefetching.
struct Guess {
  Qpn qpn{};
  bool is_response = false;
  std::optional<Reth> reth = std::nullopt;  ///< where it would be
};
[[nodiscard]] std::optional<Guess> guess(std::span<const std::byte> frame) noexcept;

/// Whether a packet that parse_packet() called kRoce arrived as it was sent.
/// @param ahead  as masked_crc32() says
[[nodiscard]] bool icrc_ok(const PacketView& packet, FetchAhead* ahead = nullptr) noexcept;

}  // namespace uroce::wire
