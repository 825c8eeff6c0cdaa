// VLANs, RoCE v1 and groups: whole frames in and out of a loop, to the bit.
#include <catch2/catch.hpp>

#include "support/link_script.h"

namespace uroce::test {
namespace {

using enum wire::Opcode;
using Tag = std::optional<std::uint16_t>;

const Gid kLinkLocal = *Gid::parse("fe80::1");
const Gid kOwn4 = *Gid::parse("10.0.0.1");
const Gid kPeer4 = *Gid::parse("10.0.0.2");
const Gid kOwn6 = *Gid::parse("fd99::1");
const Gid kPeer6 = *Gid::parse("fd99::2");
const Gid kGroup4 = *Gid::parse("239.129.2.3");
const Gid kGroup6 = *Gid::parse("ff1e::1:2:3");

/// GIDs of a port: the same addresses untagged, in VLAN 5 and, as IPv4, in VLAN 6; as RoCE v2 and v1.
enum Index : std::uint32_t { kLocal, kPlain4, kPlain6, k4In5, k6In5, k4In6, kV1Plain4, kV1Plain6, kV1In5 };

std::vector<engine::Address> all_kinds() {
  constexpr auto kV1 = GidType::kRoceV1;
  return {{kLinkLocal, 64}, {kOwn4, 24},         {kOwn6, 64},         {kOwn4, 24, 5},     {kOwn6, 64, 5},
          {kOwn4, 24, 6},   {kOwn4, 24, 0, kV1}, {kOwn6, 64, 0, kV1}, {kOwn4, 24, 5, kV1}};
}

struct Envelope {
  Tag tag = std::nullopt;
  bool is_v4 = true;
  GidType type = GidType::kRoceV2;
  std::uint8_t traffic_class = 0;
  std::uint8_t hop_limit = 64;
  std::uint32_t flow_label = 0;
};

wire::FrameAddress to_peer(const Envelope& envelope) {
  return {.src_mac = LinkScript::kOwnMac,
          .dst_mac = LinkScript::kPeerMac,
          .vlan_tci = envelope.tag,
          .type = envelope.type,
          .sgid = envelope.is_v4 ? kOwn4 : kOwn6,
          .dgid = envelope.is_v4 ? kPeer4 : kPeer6,
          .traffic_class = envelope.traffic_class,
          .hop_limit = envelope.hop_limit,
          .flow_label = envelope.flow_label};
}

wire::FrameAddress from_peer(const Envelope& envelope) {
  wire::FrameAddress address = to_peer(envelope);
  std::swap(address.src_mac, address.dst_mac);
  std::swap(address.sgid, address.dgid);
  return address;
}

Packet request(std::uint32_t psn = 0, std::uint32_t payload = 4) {
  return {.opcode = kRcSendOnly,
          .psn = psn,
          .payload = payload,
          .ack_req = true,
          .data = Pattern{3, 0},
          .dest_qpn = Qpn{0x10}};
}

Packet acknowledgement(std::uint32_t psn, std::uint32_t msn) {
  return {.opcode = kRcAck, .psn = psn, .aeth = wire::Aeth{.syndrome = 0x1f, .msn = msn}};
}

Wc received(std::uint64_t wr_id, std::uint32_t bytes) {
  return {.wr_id = wr_id, .byte_len = bytes, .opcode = WcOpcode::kRecv};
}

Packet datagram(std::uint32_t payload, std::uint32_t qpn = 0xff'ffff) {
  return {.opcode = kUdSendOnly,
          .payload = payload,
          .deth = wire::Deth{LinkScript::kQkey, LinkScript::kPeer},
          .data = Pattern{3, 0},
          .dest_qpn = Qpn{qpn}};
}

}  // namespace

TEST_CASE("requests and answers carry the tag of the GID's VLAN and the SL as priority", "[link][vlan]") {
  // IEEE 802.1Q 9.6 ?
  LinkScript link(all_kinds());
  const auto sl = static_cast<std::uint8_t>(GENERATE(range(0, 8)));
  const bool is_v4 = GENERATE(true, false);
  auto& qp = link.rc(0x10, {.dgid = is_v4 ? kPeer4 : kPeer6,
                            .sgid_index = is_v4 ? k4In5 : k6In5,
                            .traffic_class = 0x68,
                            .sl = sl});
  const Envelope envelope{
      .tag = static_cast<std::uint16_t>(sl << 13 | 5), .is_v4 = is_v4, .traffic_class = 0x68};
  link.post_send(qp, 2000)
      .out({.opcode = kRcSendFirst, .psn = 0, .payload = 1024}, to_peer(envelope))
      .out({.opcode = kRcSendLast, .psn = 1, .payload = 976, .ack_req = true}, to_peer(envelope));
  link.in({.opcode = kRcAck, .psn = 1, .aeth = wire::Aeth{.syndrome = 0x1f, .msn = 1}, .dest_qpn = Qpn{0x10}},
          from_peer(envelope))
      .completes({.wr_id = 1, .opcode = WcOpcode::kSend});
  link.post_recv(qp, 4).in(request(), from_peer(envelope)).completes(received(2, 4));
  link.out(acknowledgement(0, 1), to_peer(envelope)).quiet();
}

TEST_CASE("whatever priority a frame has, its VLAN is that of the QP's GID, or it is refused",
          "[link][vlan][S8]") {
  LinkScript link(all_kinds());
  const auto index = GENERATE(kPlain4, k4In5, k4In6);
  const std::uint16_t vlan = index == kPlain4 ? 0 : index == k4In5 ? 5 : 6;
  auto& qp = link.rc(0x10, {.dgid = kPeer4, .sgid_index = index});
  const Tag own_tag = vlan == 0 ? std::nullopt : Tag{vlan};
  std::uint32_t psn = 0;
  const auto takes = [&](Tag tag) {
    link.post_recv(qp, 4).in(request(psn), from_peer({.tag = tag}));
    link.completes(received(psn + 1, 4)).out(acknowledgement(psn, psn + 1), to_peer({.tag = own_tag}));
    ++psn;
  };
  for (const unsigned priority : {0U, 3U, 7U}) {
    for (const unsigned other : {0U, 5U, 6U, 7U}) {
      const auto tag = static_cast<std::uint16_t>(priority << 13 | other);
      if (other == vlan) {
        takes(tag);
      } else {
        link.in_refused(request(psn), from_peer({.tag = tag}), Count::kDropWrongVlan);
      }
    }
  }
  if (vlan == 0) {
    takes(std::nullopt);
  } else {
    link.in_refused(request(psn), from_peer({}), Count::kDropWrongVlan);
  }
  link.quiet();
}

TEST_CASE("a drop-eligible tag and Ethernet padding change nothing", "[link][vlan]") {
  LinkScript link(all_kinds());
  auto& qp = link.rc(0x10, {.dgid = kPeer4, .sgid_index = k4In5});
  link.post_recv(qp, 0);
  Bytes frame = frame_of(request(0, 0), from_peer({.tag = 0x1005}), Qpn{0x10});
  frame.resize(64, std::byte{0x77});
  link.in(frame).completes(received(1, 0)).out(acknowledgement(0, 1), to_peer({.tag = 5})).quiet();
}

TEST_CASE("a GRH has version 6, next header 1b, and the path's class, flow label and hop limit",
          "[link][v1][grh]") {
  // IBA 8.3, A16 ?
  LinkScript link(all_kinds());
  const auto index = GENERATE(kV1Plain4, kV1Plain6, kV1In5);
  const bool is_v4 = index != kV1Plain6;
  auto& qp = link.rc(0x10, {.dgid = is_v4 ? kPeer4 : kPeer6,
                            .sgid_index = index,
                            .traffic_class = 0xa9,
                            .hop_limit = 17,
                            .flow_label = 0xa'bcde,
                            .sl = 6});
  const Envelope envelope{.tag = index == kV1In5 ? Tag{0xc005} : std::nullopt,
                          .is_v4 = is_v4,
                          .type = GidType::kRoceV1,
                          .traffic_class = 0xa9,
                          .hop_limit = 17,
                          .flow_label = 0xa'bcde};
  link.post_send(qp, 2001)
      .out({.opcode = kRcSendFirst, .psn = 0, .payload = 1024}, to_peer(envelope))
      .out({.opcode = kRcSendLast, .psn = 1, .payload = 977, .ack_req = true}, to_peer(envelope));
  // Go-back-N, in the same frames.
  link.in({.opcode = kRcAck, .psn = 1, .aeth = wire::Aeth{.syndrome = 0x60, .msn = 0}, .dest_qpn = Qpn{0x10}},
          from_peer(envelope))
      .out({.opcode = kRcSendLast, .psn = 1, .payload = 977, .ack_req = true}, to_peer(envelope));
  link.in({.opcode = kRcAck, .psn = 1, .aeth = wire::Aeth{.syndrome = 0x1f, .msn = 1}, .dest_qpn = Qpn{0x10}},
          from_peer(envelope))
      .completes({.wr_id = 1, .opcode = WcOpcode::kSend});
  link.post_recv(qp, 5).in(request(0, 5), from_peer(envelope)).completes(received(2, 5));
  link.out(acknowledgement(0, 1), to_peer(envelope)).quiet();
  CHECK(link.inbox.holds(0, 5, Pattern{3, 0}));
}

TEST_CASE("a QP takes frames of its GID's version only, and the others are counted", "[link][v1][S8]") {
  LinkScript link(all_kinds());
  const auto index = GENERATE(kPlain4, kPlain6, k4In5, kV1Plain4, kV1Plain6, kV1In5);
  const bool is_v1 = index >= kV1Plain4;
  Envelope right{.tag = index == k4In5 || index == kV1In5 ? Tag{5} : std::nullopt,
                 .is_v4 = index != kPlain6 && index != kV1Plain6,
                 .type = is_v1 ? GidType::kRoceV1 : GidType::kRoceV2};
  auto& qp = link.rc(0x10, {.dgid = right.is_v4 ? kPeer4 : kPeer6, .sgid_index = index});
  Envelope wrong = right;
  wrong.type = is_v1 ? GidType::kRoceV2 : GidType::kRoceV1;
  link.in_refused(request(), from_peer(wrong), Count::kDropWrongGidType);
  wrong.tag = 6;  // that is looked at first
  link.in_refused(request(), from_peer(wrong), Count::kDropWrongVlan);
  link.post_recv(qp, 4).in(request(), from_peer(right)).completes(received(1, 4));
  link.out(acknowledgement(0, 1), to_peer(right)).quiet();
}

TEST_CASE("a frame from or to another address of the same version is refused", "[link][v1][address]") {
  LinkScript link(all_kinds());
  const auto index = GENERATE(kV1Plain4, kV1Plain6);
  const bool is_v4 = index == kV1Plain4;
  link.rc(0x10, {.dgid = is_v4 ? kPeer4 : kPeer6, .sgid_index = index});
  const wire::FrameAddress right = from_peer({.is_v4 = is_v4, .type = GidType::kRoceV1});
  wire::FrameAddress stranger = right;
  stranger.sgid.raw[15] ^= 1;
  link.in_refused(request(), stranger, Count::kDropWrongAddress);
  wire::FrameAddress elsewhere = right;
  elsewhere.dgid.raw[15] ^= 7;
  link.in_refused(request(), elsewhere, Count::kDropWrongAddress);
}

TEST_CASE("the ICRC of RoCE v1 covers the GRH but for class, flow label and hop limit", "[link][v1][icrc]") {
  // IBA 7.8.1 ?
  LinkScript link(all_kinds());
  const Tag tag = GENERATE(Tag{}, Tag{5});
  const std::size_t l3 = tag ? 18 : 14;
  auto& qp = link.rc(0x10, {.dgid = kPeer4, .sgid_index = tag ? kV1In5 : kV1Plain4});
  const Envelope envelope{.tag = tag, .type = GidType::kRoceV1};
  const Bytes right = frame_of(request(0, 5), from_peer(envelope), Qpn{0x10});
  const auto damaged = [&](std::size_t at, unsigned bits) {
    Bytes frame = right;
    frame[at] ^= static_cast<std::byte>(bits);
    return frame;
  };
  const std::size_t bth = l3 + 40;
  for (const std::size_t at :
       {l3 + 8, l3 + 23, l3 + 24, l3 + 39, bth + 2, bth + 8, bth + 9, bth + 12, bth + 16, right.size() - 1}) {
    INFO(at - l3);
    link.in_refused(damaged(at, 1), Count::kDropBadIcrc);
  }
  CHECK(link.counted(Count::kResponderPackets) == 0);
  Bytes changed = right;  // what routers and switches may change
  changed[l3] ^= std::byte{0x0a};
  changed[l3 + 1] ^= std::byte{0xff};
  changed[l3 + 2] ^= std::byte{0x12};
  changed[l3 + 3] ^= std::byte{0x34};
  changed[l3 + 7] = std::byte{1};
  changed[bth + 4] ^= std::byte{0x40};  // BECN
  link.post_recv(qp, 5).in(changed).completes(received(1, 5));
  link.out(acknowledgement(0, 1), to_peer(envelope)).quiet();
}

TEST_CASE("a GRH that is none is dropped under its reason", "[link][v1][drop]") {
  LinkScript link(all_kinds());
  link.rc(0x10, {.dgid = kPeer4, .sgid_index = kV1Plain4});
  const Bytes right = frame_of(request(0, 5), from_peer({.type = GidType::kRoceV1}), Qpn{0x10});
  Bytes frame = right;
  Count reason = Count::kDropMalformed;
  SECTION("another version") {
    frame[14] = std::byte{0x40};
  }
  SECTION("another next header") {
    frame[20] = std::byte{0x11};
  }
  SECTION("a length beyond the frame") {
    frame[19] = static_cast<std::byte>(std::to_integer<unsigned>(frame[19]) + 4);
    reason = Count::kDropTooShort;
  }
  SECTION("cut off in the GRH") {
    frame.resize(40);
    reason = Count::kDropTooShort;
  }
  SECTION("another transport version in the BTH") {
    frame[14 + 40 + 1] ^= std::byte{1};
    reason = Count::kDropBadVersion;
  }
  link.in_refused(frame, reason).quiet();
}

TEST_CASE("datagrams to a group reach its members in every kind of frame that the port speaks",
          "[link][multicast][vlan][v1][T17]") {
  LinkScript link(all_kinds());
  const bool is_v4 = GENERATE(true, false);
  const Gid group = is_v4 ? kGroup4 : kGroup6;
  auto& first = link.ud(0x10, {group});
  auto& second = link.ud(0x11, {kGroup4, kGroup6});
  link.others();  // reports of membership
  const Tag tag = GENERATE(Tag{}, Tag{0x6005}, Tag{0xe006});
  const auto type = GENERATE(GidType::kRoceV2, GidType::kRoceV1);
  if (tag == Tag{0xe006} && type == GidType::kRoceV1) return;  // has no address there
  wire::FrameAddress address = from_peer({.tag = tag, .is_v4 = is_v4, .type = type});
  address.dgid = group;
  address.dst_mac = is_v4 ? MacAddress{{0x01, 0x00, 0x5e, 0x01, 0x02, 0x03}}
                          : MacAddress{{0x33, 0x33, 0x00, 0x02, 0x00, 0x03}};
  link.post_recv(first, 140).post_recv(second, 140).in(datagram(100), address);
  for (const std::uint64_t wr_id : {1U, 2U}) {
    Wc wc = received(wr_id, 140);
    wc.flags = wc_flag::kGrh;
    wc.vlan = tag.value_or(0) & 0xfff;
    wc.sl = static_cast<std::uint8_t>(tag.value_or(0) >> 13);
    link.completes(wc);
  }
  CHECK(link.inbox.holds(40, 100, Pattern{3, 0}));
  CHECK(link.inbox.holds(180, 100, Pattern{3, 0}));
  if (type == GidType::kRoceV1) CHECK(link.inbox.bytes()[6] == std::byte{0x1b});
  CHECK(link.counted(Count::kMulticastCopies) == 2);
  link.quiet();
}

TEST_CASE("datagrams to groups are dropped for their VLAN, version, group, Q_Key or QP number",
          "[link][multicast][vlan][v1][drop]") {
  LinkScript link({{kLinkLocal, 64}, {kOwn4, 24}, {kOwn4, 24, 5}, {kOwn4, 24, 5, GidType::kRoceV1}});
  link.ud(0x10, {kGroup4});
  Packet packet = datagram(100);
  Envelope envelope;
  Gid group = kGroup4;
  Count reason{};
  SECTION("a VLAN that the port is not in") {
    envelope.tag = 7;
    reason = Count::kDropWrongVlan;
  }
  SECTION("RoCE v1 where the port speaks it in another VLAN only") {
    envelope.type = GidType::kRoceV1;
    reason = Count::kDropWrongGidType;
  }
  SECTION("a group that nobody is attached to") {
    group = *Gid::parse("239.1.2.4");
    reason = Count::kDropNoGroupMember;
  }
  SECTION("the same as an IPv6 group") {
    group = kGroup6;
    envelope.is_v4 = false;
    reason = Count::kDropNoGroupMember;
  }
  SECTION("another Q_Key") {
    packet.deth = wire::Deth{LinkScript::kQkey + 1, LinkScript::kPeer};
    reason = Count::kDropBadQkey;
  }
  SECTION("the number of the member") {
    packet.dest_qpn = Qpn{0x10};
    reason = Count::kDropGroupToUnicastQpn;
  }
  wire::FrameAddress address = from_peer(envelope);
  address.dgid = group;
  link.in_refused(packet, address, reason).quiet();
}

TEST_CASE("a datagram to a group leaves for the group's Ethernet address, in the handle's kind of frame",
          "[link][multicast][vlan][v1]") {
  // RFC 1112 6.4, RFC 2464 7
  LinkScript link(all_kinds());
  struct Row {
    std::uint32_t index;
    Envelope envelope;
    Gid group;
  };
  constexpr auto kV1 = GidType::kRoceV1;
  const Row row =
      GENERATE(Row{kPlain4, {}, kGroup4}, Row{kPlain6, {.is_v4 = false}, kGroup6},
               Row{k4In5, {.tag = 0x6005}, kGroup4}, Row{k6In5, {.tag = 0x6005, .is_v4 = false}, kGroup6},
               Row{kV1Plain4, {.type = kV1}, kGroup6}, Row{kV1In5, {.tag = 0x6005, .type = kV1}, kGroup4});
  auto& sender = link.ud(0x10, {row.group});  // wants nothing of its own
  auto& member = link.ud(0x11, {row.group});
  link.others();
  const AhId ah = link.handle(
      {.dgid = row.group, .sgid_index = row.index, .hop_limit = 3, .flow_label = 0x1'2345, .sl = 3});
  wire::FrameAddress address = to_peer(row.envelope);
  address.dgid = row.group;
  address.dst_mac = row.group.is_v4() ? MacAddress{{0x01, 0x00, 0x5e, 0x01, 0x02, 0x03}}
                                      : MacAddress{{0x33, 0x33, 0x00, 0x02, 0x00, 0x03}};
  address.hop_limit = 3;
  address.flow_label = 0x1'2345;
  link.post_recv(member, 140);
  const Sge sge = link.source.sge(0, 100);
  link.post(sender,
            {.sges = {&sge, 1}, .ah = ah, .remote_qpn = Qpn{0xff'ffff}, .remote_qkey = LinkScript::kQkey});
  link.out({.opcode = kUdSendOnly,
            .payload = 100,
            .deth = wire::Deth{LinkScript::kQkey, Qpn{0x10}},
            .data = link.source.initial()},
           address);
  link.completes({.wr_id = 2, .opcode = WcOpcode::kSend});
  Wc copy = received(1, 140);
  copy.flags = wc_flag::kGrh;
  copy.vlan = row.envelope.tag.value_or(0) & 0xfff;
  copy.sl = row.envelope.tag ? 3 : 0;
  link.completes(copy).quiet();
  CHECK(link.inbox.holds(40, 100, link.source.initial()));
  CHECK(link.counted(Count::kDropOwnMulticast) == 1);
}

}  // namespace uroce::test
