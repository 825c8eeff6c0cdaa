#include "wire/describe.h"

#include <fmt/format.h>

#include <array>
#include <iterator>

#include "wire/arp.h"
#include "wire/nd.h"

namespace uroce::wire {
namespace {

using Line = std::back_insert_iterator<std::string>;

/// "10.0.0.1" for IPv4, else IPv6 notation.
std::string address_text(const Gid& gid) {
  if (!gid.is_v4()) return to_string(gid);
  const auto v4 = v4_part(gid);
  return fmt::format("{}.{}.{}.{}", v4[0], v4[1], v4[2], v4[3]);
}

void append_extension_headers(Line line, const PacketView& packet) {
  const OpcodeInfo& op = *packet.op;
  if (op.has_deth) {
    const Deth deth = packet.deth();
    fmt::format_to(line, " deth qkey {:#010x} src_qpn {:#08x}", deth.qkey, raw(deth.src_qpn));
  }
  if (op.has_xrceth()) fmt::format_to(line, " srq {:#08x}", packet.xrceth().srq);
  if (op.is_flush) {
    const Feth feth = packet.feth();
    fmt::format_to(line, " feth placement {} selectivity {}", feth.placement, feth.selectivity);
  }
  if (op.has_reth) {
    const Reth reth = packet.reth();
    fmt::format_to(line, " reth va {:#x} rkey {:#010x} len {}", reth.va, raw(reth.rkey), reth.length);
  }
  if (op.is_atomic_request) {
    const AtomicEth atomic = packet.atomic_eth();
    fmt::format_to(line, " atomic_eth va {:#x} rkey {:#010x} swap_add {:#x} compare {:#x}", atomic.va,
                   raw(atomic.rkey), atomic.swap_add, atomic.compare);
  }
  if (op.is_masked()) {
    const AtomicMaskEth masks = packet.atomic_mask_eth();
    fmt::format_to(line, " masks compare {:#x} swap {:#x}", masks.compare, masks.swap);
  }
  if (op.has_aeth) {
    const Aeth aeth = packet.aeth();
    fmt::format_to(line, " aeth {} msn {}", describe_syndrome(aeth.syndrome), aeth.msn);
  }
  if (op.is_selective_nak()) {
    const HeldEth held = packet.held_eth();
    fmt::format_to(line, " held");
    for (std::uint32_t i = 0; i < HeldEth::kPackets; ++i) {
      if (held.has(i)) fmt::format_to(line, " {}", (packet.bth.psn + 1 + i).value());
    }
  }
  if (op.is_joint_ack()) {
    PacketView ack = packet.first_of_joint_acks();
    for (std::size_t i = 1; i < packet.joint_acks(); ++i) {
      packet.show_joint_ack(i, ack);
      const Aeth aeth = ack.aeth();
      fmt::format_to(line, " and qpn {:#08x} psn {:#08x} aeth {} msn {}", raw(ack.bth.dest_qpn),
                     ack.bth.psn.value(), describe_syndrome(aeth.syndrome), aeth.msn);
    }
  }
  if (op.is_atomic_ack) fmt::format_to(line, " original {:#x}", packet.atomic_ack_eth().original);
  if (op.has_imm) fmt::format_to(line, " imm {:#010x}", packet.imm().value);
  if (op.has_ieth) fmt::format_to(line, " ieth rkey {:#010x}", raw(packet.ieth().rkey));
}

std::string describe_arp(std::span<const std::byte> frame, const PacketView& packet) {
  const auto arp = parse_arp(frame, packet.l3_offset);
  if (!arp) return "malformed ARP";
  const std::string sender = address_text(Gid::from_v4(arp->sender_ip));
  const std::string target = address_text(Gid::from_v4(arp->target_ip));
  if (arp->operation == Arp::Operation::kRequest)
    return fmt::format("ARP who has {} tell {}", target, sender);
  return fmt::format("ARP {} is at {}", sender, to_string(arp->sender_mac));
}

std::string describe_icmp6(const PacketView& packet) {
  const auto message = parse_neighbour(packet);
  if (!message) return "ICMPv6";
  const std::string target = to_string(message->target);
  const std::string mac = message->link_address ? to_string(*message->link_address) : "an untold address";
  if (!message->is_advertisement) return fmt::format("ND who has {} tell {}", target, mac);
  return fmt::format("ND {} is at {}", target, mac);
}

}  // namespace

std::string describe_syndrome(std::uint8_t value) {
  constexpr std::array<std::string_view, 5> kNaks{"psn_sequence", "invalid_request", "remote_access",
                                                  "remote_op", "invalid_rd_request"};
  const std::uint8_t code = syndrome::code(value);
  switch (syndrome::classify(value)) {
    case syndrome::Kind::kAck:
      return code == syndrome::kNoCredits ? "ack" : fmt::format("ack credits {}", code);
    case syndrome::Kind::kRnrNak:
      return fmt::format("rnr_nak timer {}", code);
    case syndrome::Kind::kNak:
      return fmt::format("nak {}", kNaks[code]);
    case syndrome::Kind::kReserved:
      break;
  }
  return fmt::format("reserved syndrome {:#04x}", value);
}

std::string describe(const PacketView& packet) {
  const Bth& bth = packet.bth;
  const OpcodeInfo& op = *packet.op;
  std::string text;
  const Line line{text};
  if (op.transport != Transport::kCnp) fmt::format_to(line, "{} ", name(op.transport));
  fmt::format_to(line, "{} qpn {:#08x} psn {:#08x}", op.name, raw(bth.dest_qpn), bth.psn.value());
  if (bth.ack_req) text += " ack_req";
  if (bth.solicited) text += " solicited";
  if (bth.fecn) text += " fecn";
  if (bth.becn) text += " becn";
  if (bth.pkey != 0xffff) fmt::format_to(line, " pkey {:#06x}", bth.pkey);
  append_extension_headers(line, packet);
  if (op.has_payload) fmt::format_to(line, " payload {}", packet.payload.size());
  if (packet.ecn() == kCongestionExperienced) text += " ce";
  return text;
}

std::string describe_frame(std::span<const std::byte> frame) {
  PacketView packet;
  const ParseResult result = parse_packet(frame, packet);
  switch (result) {
    case ParseResult::kArp:
      return describe_arp(frame, packet);
    case ParseResult::kIcmp6:
      return fmt::format("{} > {} {}", to_string(packet.src_gid()), to_string(packet.dst_gid()),
                         describe_icmp6(packet));
    case ParseResult::kIcmp:
      return fmt::format("{} > {} ICMP", address_text(packet.src_gid()), address_text(packet.dst_gid()));
    case ParseResult::kIgmp:
    case ParseResult::kMld:
      return fmt::format("{}, {} bytes", name(result), frame.size());
    case ParseResult::kRoce:
      return fmt::format("{} > {} {}{}", address_text(packet.src_gid()), address_text(packet.dst_gid()),
                         describe(packet), icrc_ok(packet) ? "" : " bad icrc");
    default:
      return fmt::format("dropped: {}, {} bytes", name(result), frame.size());
  }
}

}  // namespace uroce::wire
