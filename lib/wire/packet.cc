#include "wire/packet.h"

#include <array>
#include <cstring>

#include "wire/icrc_ahead.h"

namespace uroce::wire {
namespace {

template <typename T>
T load_native(const std::byte* at) noexcept {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

/// The checksum over the 20 bytes of an IPv4 header without options. The words are added as they lie in
/// memory: their byte order does not matter to a sum that is only compared with all ones. RFC 1071 2(B).
bool ipv4_checksum_ok(const std::byte* header) noexcept {
  constexpr std::uint64_t kLow = 0xffff'ffff;
  const auto a = load_native<std::uint64_t>(header);
  const auto b = load_native<std::uint64_t>(header + 8);
  std::uint64_t sum =
      (a >> 32) + (a & kLow) + (b >> 32) + (b & kLow) + load_native<std::uint32_t>(header + 16);
  sum = (sum >> 32) + (sum & kLow);    // at most 33 bits
  sum = (sum >> 16) + (sum & 0xffff);  // at most 18 bits
  return (sum >> 16) + (sum & 0xffff) == 0xffff;
}

/// The Ethernet header and at most one VLAN tag. @return the ethertype of what lies at out.l3_offset.
EtherType parse_ether(std::span<const std::byte> frame, PacketView& out) noexcept {
  auto type = EtherType{load_be<12, 2>(bytes_at<Ether::kSize>(frame.data()))};
  out.l3_offset = Ether::kSize;
  out.has_vlan = false;
  out.vlan_tci = 0;
  if (type == EtherType::kVlan && frame.size() >= Ether::kSize + Vlan::kSize) [[unlikely]] {
    const auto vlan = parse_at<Vlan>(frame.data() + Ether::kSize);
    out.vlan_tci = vlan.tci;
    out.has_vlan = true;
    out.l3_offset = Ether::kSize + Vlan::kSize;
    type = vlan.type;
  }
  return type;
}

/// @return kRoce if it is UDP; then and for ICMP, out.ip_payload_len is all that the header claims.
ParseResult parse_ipv4(std::span<const std::byte> packet, PacketView& out) noexcept {
  using enum ParseResult;
  if (packet.size() < Ipv4::kSize) return kTooShort;
  const auto header = bytes_at<Ipv4::kSize>(packet.data());
  const std::size_t total = load_be<2, 2>(header);
  if (load_be<0, 1>(header) != Ipv4::kVersionIhl || total < Ipv4::kSize) [[unlikely]] {
    const bool is_igmp =  // which has an IP option
        load_be<0, 1>(header) >> 4 == 4 && IpProtocol{load_be<9, 1>(header)} == IpProtocol::kIgmp;
    return is_igmp ? kIgmp : kBadIpHeader;
  }
  if (!ipv4_checksum_ok(packet.data())) return kBadIpHeader;
  if (total > packet.size()) return kTooShort;
  if ((load_be<6, 2>(header) & Ipv4::kFragmentMask) != 0) return kFragment;

  out.is_v6 = false;
  out.ip_payload_len = static_cast<std::uint32_t>(total - Ipv4::kSize);
  const auto protocol = IpProtocol{load_be<9, 1>(header)};
  if (protocol == IpProtocol::kUdp) return kRoce;
  if (protocol == IpProtocol::kIgmp) return kIgmp;
  return protocol == IpProtocol::kIcmp ? kIcmp : kNotUdp;
}

ParseResult parse_ipv6(std::span<const std::byte> packet, PacketView& out) noexcept {
  using enum ParseResult;
  if (packet.size() < Ipv6::kSize) return kTooShort;
  const auto header = bytes_at<Ipv6::kSize>(packet.data());
  const std::size_t length = load_be<4, 2>(header);
  if (load_be<0, 1>(header) >> 4 != 6) return kBadIpHeader;
  if (length > packet.size() - Ipv6::kSize) return kTooShort;

  out.is_v6 = true;
  out.ip_payload_len = static_cast<std::uint32_t>(length);
  const auto next = IpProtocol{load_be<6, 1>(header)};
  if (next == IpProtocol::kUdp) return kRoce;
  if (next == IpProtocol::kHopByHop) return kMld;
  return next == IpProtocol::kIcmp6 ? kIcmp6 : kNotUdp;
}

/// The BTH, and the lengths that the opcode demands. `ib` is all behind UDP or the GRH.
ParseResult parse_roce(std::span<const std::byte> ib, PacketView& out) noexcept {
  using enum ParseResult;
  if (ib.size() < Bth::kSize + kIcrcSize) return kBadLength;
  const auto header = bytes_at<Bth::kSize>(ib.data());
  out.bth = Bth::parse(header);
  out.op = &info(out.bth.opcode);
  if (!out.op->known) return kUnknownOpcode;
  if ((load_be<1, 1>(header) & 0x0f) != 0) return kBadVersion;

  const std::size_t headers = out.op->header_bytes;
  const std::size_t around = headers + out.bth.pad + kIcrcSize;
  if (ib.size() < around) return kBadLength;
  if (ib.size() % 4 != 0) return kBadPad;
  const std::size_t payload = ib.size() - around;
  if (!out.op->has_payload && payload + out.bth.pad != 0) return kBadLength;

  out.roce_len = static_cast<std::uint32_t>(ib.size());
  out.ext = ib.data() + Bth::kSize + (out.op->has_xrceth() ? Xrceth::kSize : 0);
  out.payload = ib.subspan(headers, payload);
  return kRoce;
}

/// IBA 8.3: the payload length counts from the BTH up to and with the ICRC.
ParseResult parse_roce_v1(std::span<const std::byte> packet, PacketView& out) noexcept {
  using enum ParseResult;
  if (packet.size() < Ipv6::kSize) return kTooShort;
  const auto header = bytes_at<Ipv6::kSize>(packet.data());
  const std::size_t length = load_be<4, 2>(header);
  const bool is_grh =
      load_be<0, 1>(header) >> 4 == 6 && IpProtocol{load_be<6, 1>(header)} == IpProtocol::kIbaGrh;
  if (!is_grh) return kBadIpHeader;
  if (length > packet.size() - Ipv6::kSize) return kTooShort;

  out.is_v6 = true;
  out.gid_type = GidType::kRoceV1;
  out.ip_payload_len = static_cast<std::uint32_t>(length);
  out.bth_offset = static_cast<std::uint16_t>(out.l3_offset + Ipv6::kSize);
  return parse_roce(out.ip_payload(), out);
}

}  // namespace

std::string_view name(ParseResult result) noexcept {
  constexpr std::array<std::string_view, kParseResults> kNames{
      "roce",          "arp",           "icmp",     "icmp6",   "igmp",          "mld",     "too_short",
      "bad_ethertype", "bad_ip_header", "fragment", "not_udp", "not_roce_port", "bad_udp", "unknown_opcode",
      "bad_version",   "bad_length",    "bad_pad"};
  return kNames[raw(result)];
}
static_assert(raw(ParseResult::kBadPad) + 1 == kParseResults);

ParseResult parse_packet(std::span<const std::byte> frame, PacketView& out) noexcept {
  using enum ParseResult;
  if (frame.size() < Ether::kSize) return kTooShort;
  out.frame = frame.data();
  out.frame_len = static_cast<std::uint32_t>(frame.size());
  out.gid_type = GidType::kRoceV2;
  const EtherType type = parse_ether(frame, out);
  const auto packet = frame.subspan(out.l3_offset);

  ParseResult result = kBadEthertype;
  if (type == EtherType::kIpv4) {
    result = parse_ipv4(packet, out);
  } else if (type == EtherType::kIpv6) {
    result = parse_ipv6(packet, out);
  } else if (type == EtherType::kArp) {
    return kArp;
  } else if (type == EtherType::kRoceV1) {
    return parse_roce_v1(packet, out);
  }
  if (result != kRoce) return result;

  const auto datagram = out.ip_payload();
  if (datagram.size() < Udp::kSize) return kBadUdp;
  const auto udp = bytes_at<Udp::kSize>(datagram.data());
  if (load_be<2, 2>(udp) != kRoceUdpPort) return kNotRocePort;
  if (load_be<4, 2>(udp) != datagram.size()) return kBadUdp;
  out.bth_offset = static_cast<std::uint16_t>(datagram.data() + Udp::kSize - frame.data());
  return parse_roce(datagram.subspan(Udp::kSize), out);
}

std::optional<Guess> guess(std::span<const std::byte> frame) noexcept {
  constexpr std::size_t kUdpV4 = Ether::kSize + Ipv4::kSize + Udp::kSize;
  constexpr std::size_t kUdpV6 = Ether::kSize + Ipv6::kSize + Udp::kSize;
  if (frame.size() < kUdpV4 + Bth::kSize) return std::nullopt;
  const bool is_v4 = load_be<12, 2>(bytes_at<Ether::kSize>(frame.data())) == raw(EtherType::kIpv4);
  const std::size_t at = is_v4 ? kUdpV4 : kUdpV6;
  if (frame.size() < at + Bth::kSize) return std::nullopt;
  const auto bth = parse_at<Bth>(frame.data() + at);
  const OpcodeInfo& op = info(bth.opcode);
  Guess guess{.qpn = bth.dest_qpn, .is_response = op.is_response};
  if (op.has_reth && frame.size() >= at + Bth::kSize + Reth::kSize)
    guess.reth = parse_at<Reth>(frame.data() + at + Bth::kSize);
  return guess;
}

bool icrc_ok(const PacketView& packet, FetchAhead* ahead) noexcept {
  if (packet.gid_type == GidType::kRoceV1) [[unlikely]]
    return compute_icrc_v1(packet.icrc_covered()) == packet.icrc();
  if (packet.frame_len >= IcrcAhead::kShortest && packet.ahead != nullptr && packet.ahead->approves(packet))
      [[unlikely]]
    return true;
  return compute_icrc(packet.icrc_covered(), packet.is_v6, ahead) == packet.icrc();
}

PacketView PacketView::first_of_joint_acks() const noexcept {
  PacketView one = *this;
  one.bth.opcode = op->transport == Transport::kXrc ? xrc(Opcode::kRcAck) : Opcode::kRcAck;
  one.op = &info(one.bth.opcode);
  one.payload = {};
  return one;
}

void PacketView::show_joint_ack(std::size_t i, PacketView& one) const noexcept {
  const std::byte* const at = payload.data() + (i - 1) * AckEth::kSize;
  const auto ack = parse_at<AckEth>(at);
  one.bth.dest_qpn = ack.dest_qpn;
  one.bth.psn = ack.psn;
  one.ext = at + AckEth::kAethAt;
}

Gid PacketView::src_gid() const noexcept {
  return is_v6 ? Gid{load_array<8, 16>(bytes_at<Ipv6::kSize>(l3()))}
               : Gid::from_v4(load_array<12, 4>(bytes_at<Ipv4::kSize>(l3())));
}

Gid PacketView::dst_gid() const noexcept {
  return is_v6 ? Gid{load_array<24, 16>(bytes_at<Ipv6::kSize>(l3()))}
               : Gid::from_v4(load_array<16, 4>(bytes_at<Ipv4::kSize>(l3())));
}

std::uint8_t PacketView::traffic_class() const noexcept {
  if (!is_v6) return std::to_integer<std::uint8_t>(l3()[1]);
  return static_cast<std::uint8_t>(load_be<0, 2>(bytes_at<2>(l3())) >> 4 & 0xff);
}

}  // namespace uroce::wire
