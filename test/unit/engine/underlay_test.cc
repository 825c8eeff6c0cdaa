// VLANs and both versions of RoCE on one port: each GID has its own kind of frames, and hears no other.
#include <catch2/catch.hpp>

#include "engine/loop_fixture.h"
#include "support/capture_port.h"
#include "transport/unreliable_qp.h"
#include "wire/arp.h"
#include "wire/grh.h"
#include "wire/nd.h"

using namespace uroce;
using namespace uroce::test;

namespace {

constexpr std::uint32_t kQkey = 0x1234;
constexpr std::uint16_t kTagOf5 = 0x6005;  // priority 3
const Gid kLocal6 = *Gid::parse("fd99::1");
const Gid kPeer6 = *Gid::parse("fd99::2");

/// GIDs of a port: the same address without VLAN, in VLANs 5 and 6, and as RoCE v1.
enum Index : std::uint32_t { kLinkLocal, kPlain, kIn5, kIn6, kSix5, kV1, kV1In5, kV1LinkLocal };

std::vector<engine::Address> own() {
  const Gid v4 = LoopFixture::local_v4();
  return {{*Gid::parse("fe80::1"), 64},
          {v4, 24},
          {v4, 24, 5},
          {v4, 24, 6},
          {kLocal6, 64, 5},
          {v4, 24, 0, GidType::kRoceV1},
          {v4, 24, 5, GidType::kRoceV1},
          {*Gid::parse("fe80::1"), 64, 0, GidType::kRoceV1}};
}

struct Net : LoopFixture {
  Net() : LoopFixture(own()) {}
  ~Net() {
    for (auto& qp : qps) loop.remove(*qp, now());
  }

  transport::RcQp& connected(std::uint32_t qpn, std::uint32_t sgid_index, std::uint8_t sl = 0,
                             const Gid& peer = peer_v4()) {
    qps.push_back(make_qp(qpn));
    QpAttr attr;
    attr.dest_qpn = kPeerQpn;
    attr.dgid = peer;
    attr.sgid_index = sgid_index;
    attr.timeout = 14;
    attr.sl = sl;
    attr.traffic_class = 0x68;
    const transport::QpBounds bounds{.gid_count = static_cast<std::uint32_t>(addresses.own().size())};
    for (const auto& [state, mask] : {std::pair{QpState::kInit, qp_attr::kInitMask},
                                      {QpState::kRtr, qp_attr::kRtrMask},
                                      {QpState::kRts, qp_attr::kRtsMask}}) {
      attr.state = state;
      REQUIRE(loop.modify(*qps.back(), attr, mask, bounds, now()));
    }
    return *qps.back();
  }

  /// "10.0.0.2 is at the peer", told in a VLAN.
  void tell(std::optional<std::uint16_t> tag) {
    const wire::LinkAddress between{.src = peer_mac(), .dst = wire::kBroadcastMac, .vlan_tci = tag};
    Bytes frame(wire::arp_frame_len(between));
    const wire::Arp arp{.operation = wire::Arp::Operation::kReply,
                        .sender_mac = peer_mac(),
                        .sender_ip = wire::v4_part(peer_v4()),
                        .target_ip = wire::v4_part(local_v4())};
    wire::emit_arp_frame(frame.data(), between, arp);
    give(frame);
    run(5000);
  }

  /// A SEND to `qpn` as a peer with these properties would send it.
  void send_to(std::uint32_t qpn, std::optional<std::uint16_t> tag, GidType type = GidType::kRoceV2,
               std::uint32_t psn = 0) {
    wire::FrameAddress address = from_peer();
    address.vlan_tci = tag;
    address.type = type;
    give(frame_of({.opcode = wire::Opcode::kRcSendOnly, .psn = psn, .ack_req = true}, address, Qpn{qpn}));
    run(5000);
  }
  void receive(transport::QueuePair& qp, std::uint64_t wr_id) {
    REQUIRE(qp.context().receives.own.put({.wr_id = wr_id}, 0));
    qp.context().receives.own.publish(1);
  }
  [[nodiscard]] std::uint64_t count(Count what) { return loop.counters().get(what); }

  std::vector<std::unique_ptr<transport::RcQp>> qps;
};

std::optional<std::uint16_t> tag_of(const Bytes& frame) {
  wire::PacketView view;
  REQUIRE_FALSE(wire::is_drop(wire::parse_packet(frame, view)));
  return view.link().vlan_tci;
}

}  // namespace

TEST_CASE("questions and packets of a GID in a VLAN carry its tag, and the priority of the SL",
          "[engine][vlan]") {
  // IEEE 802.1Q 9.6 ?; PCP is the SL, as the kernel has it
  Net net;
  auto& qp = net.connected(0x10, kIn5, 3);
  net.post_send(qp);
  net.run(5000);
  auto frames = net.taken();
  REQUIRE(frames.size() == 1);
  CHECK(tag_of(frames[0]) == 5);  // the question
  net.tell(5);
  frames = net.taken();
  REQUIRE(frames.size() == 1);
  CHECK(tag_of(frames[0]) == kTagOf5);
  wire::PacketView view;
  REQUIRE(wire::parse_packet(frames[0], view) == wire::ParseResult::kRoce);
  CHECK(view.traffic_class() == 0x68);
  CHECK(view.bth.mig_req);
}

TEST_CASE("a GID without VLAN sends no tag, whatever the SL", "[engine][vlan]") {
  Net net;
  auto& qp = net.connected(0x10, kPlain, 7);
  net.tell(std::nullopt);
  net.taken();
  net.post_send(qp);
  net.run(5000);
  const auto frames = net.taken();
  REQUIRE(frames.size() == 1);
  CHECK(tag_of(frames[0]) == std::nullopt);
}

TEST_CASE("what is heard in one VLAN says nothing about the same address in another",
          "[engine][vlan][neighbours]") {
  Net net;
  auto& in5 = net.connected(0x10, kIn5);
  auto& in6 = net.connected(0x20, kIn6);
  auto& plain = net.connected(0x30, kPlain);
  net.tell(6);
  CHECK_FALSE(in5.context().resolved);
  CHECK(in6.context().resolved);
  CHECK_FALSE(plain.context().resolved);
  net.tell(std::nullopt);
  CHECK_FALSE(in5.context().resolved);
  CHECK(plain.context().resolved);
  net.tell(5);
  CHECK(in5.context().resolved);
}

TEST_CASE("a priority tag is no VLAN", "[engine][vlan][neighbours]") {
  Net net;
  auto& plain = net.connected(0x30, kPlain);
  net.tell(0xe000);
  CHECK(plain.context().resolved);
  net.receive(plain, 1);
  net.send_to(0x30, 0xe000);
  CHECK(net.count(Count::kResponderPackets) == 1);
}

TEST_CASE("packets are taken in the VLAN of the QP's GID only", "[engine][vlan][S8]") {
  Net net;
  const std::uint32_t index = GENERATE(kPlain, kIn5, kIn6);
  auto& qp = net.connected(0x10, index);
  net.receive(qp, 1);
  const auto wrong = [&](std::optional<std::uint16_t> tag) {
    const auto before = net.count(Count::kDropWrongVlan);
    net.send_to(0x10, tag);
    CHECK(net.count(Count::kDropWrongVlan) == before + 1);
  };
  if (index != kPlain) wrong(std::nullopt);
  if (index != kPlain) wrong(0x8000);
  if (index != kIn5) wrong(kTagOf5);
  if (index != kIn6) wrong(6);
  wrong(7);  // nobody is there
  CHECK(net.count(Count::kResponderPackets) == 0);
  constexpr std::optional<std::uint16_t> kRight[]{std::nullopt, std::nullopt, kTagOf5, 6};
  net.send_to(0x10, kRight[index]);
  CHECK(net.count(Count::kResponderPackets) == 1);
}

TEST_CASE("ARP and ICMP are answered in the VLAN of the address asked for, and in no other",
          "[engine][vlan][neighbours]") {
  LoopFixture f({{*Gid::parse("fe80::1"), 64}, {LoopFixture::local_v4(), 24, 5}});
  const auto ask = [&](std::optional<std::uint16_t> tag) {
    const wire::LinkAddress link{.src = f.peer_mac(), .dst = wire::kBroadcastMac, .vlan_tci = tag};
    Bytes frame(wire::arp_frame_len(link));
    wire::emit_arp_frame(frame.data(), link, wire::make_arp_request(f.peer_mac(), f.peer_v4(), f.local_v4()));
    f.give(frame);
    f.run(5000);
    return f.taken();
  };
  CHECK(ask(std::nullopt).empty());
  CHECK(ask(0xe000).empty());
  CHECK(ask(6).empty());
  CHECK(f.loop.counters().get(Count::kDropWrongVlan) ==
        1);  // only of VLAN 6 it is plain that nobody is there
  const auto answers = ask(kTagOf5);
  REQUIRE(answers.size() == 1);
  CHECK(tag_of(answers[0]) == 5);
}

TEST_CASE("neighbour discovery goes by VLAN too", "[engine][vlan][neighbours]") {
  Net net;
  auto& qp = net.connected(0x10, kSix5, 0, kPeer6);
  net.run(5000);
  const auto questions = net.taken();
  REQUIRE(questions.size() == 1);
  CHECK(tag_of(questions[0]) == 5);
  const auto solicit = [&](std::optional<std::uint16_t> tag) {
    const auto message = wire::make_solicitation(net.peer_mac(), kPeer6, kLocal6);
    const wire::LinkAddress link{.src = net.peer_mac(), .dst = net.port->info().mac, .vlan_tci = tag};
    Bytes frame(wire::neighbour_frame_len(link, message));
    wire::emit_neighbour_frame(frame.data(), link, message);
    net.give(frame);
    net.run(5000);
    return net.taken();
  };
  CHECK(solicit(6).empty());
  CHECK_FALSE(qp.context().resolved);
  const auto answers = solicit(5);
  REQUIRE(answers.size() == 1);
  CHECK(tag_of(answers[0]) == 5);
  CHECK(qp.context().resolved);
}

TEST_CASE("a GID of RoCE v1 sends GRHs to the address that ARP tells", "[engine][v1]") {
  // IBA 8.3, A16 ?
  Net net;
  const std::uint32_t index = GENERATE(kV1, kV1In5);
  const std::optional<std::uint16_t> tag = index == kV1In5 ? std::optional<std::uint16_t>{5} : std::nullopt;
  auto& qp = net.connected(0x10, index);
  net.tell(tag);
  net.taken();
  net.post_send(qp);
  net.run(5000);
  const auto frames = net.taken();
  REQUIRE(frames.size() == 1);
  wire::PacketView view;
  REQUIRE(wire::parse_packet(frames[0], view) == wire::ParseResult::kRoce);
  CHECK(view.gid_type == GidType::kRoceV1);
  CHECK(wire::icrc_ok(view));
  CHECK(view.link().vlan_tci == tag);
  CHECK(view.dst_mac() == net.peer_mac());
  CHECK(view.src_gid() == LoopFixture::local_v4());
  CHECK(view.dst_gid() == LoopFixture::peer_v4());
  CHECK(view.traffic_class() == 0x68);
}

TEST_CASE("a link-local GID of RoCE v1 tells its Ethernet address itself", "[engine][v1]") {
  Net net;
  const MacAddress mac{{2, 1, 2, 3, 4, 5}};
  auto& qp = net.connected(0x10, kV1LinkLocal, 0, engine::link_local_gid(mac));
  CHECK(qp.context().resolved);
  net.post_send(qp);
  net.run(5000);
  const auto frames = net.taken();
  REQUIRE(frames.size() == 1);  // no question
  wire::PacketView view;
  REQUIRE(wire::parse_packet(frames[0], view) == wire::ParseResult::kRoce);
  CHECK(view.dst_mac() == mac);
}

TEST_CASE("a QP takes packets of its GID's version only", "[engine][v1][S8]") {
  Net net;
  const bool is_v1 = GENERATE(false, true);
  auto& qp = net.connected(0x10, is_v1 ? kV1 : kPlain);
  net.receive(qp, 1);
  net.send_to(0x10, std::nullopt, is_v1 ? GidType::kRoceV2 : GidType::kRoceV1);
  CHECK(net.count(Count::kDropWrongGidType) == 1);
  CHECK(net.count(Count::kResponderPackets) == 0);
  net.send_to(0x10, std::nullopt, is_v1 ? GidType::kRoceV1 : GidType::kRoceV2);
  CHECK(net.count(Count::kDropWrongGidType) == 1);
  CHECK(net.count(Count::kResponderPackets) == 1);
}

TEST_CASE("a datagram is for any GID of the port with its address, VLAN and version",
          "[engine][vlan][v1][ud]") {
  Net net;
  transport::UdQp qp(Qpn{0x40}, 1, QpInitAttr{.type = QpType::kUd}, net.keys, net.loop.counters(), net.cq,
                     net.cq);
  net.loop.add(qp);
  QpAttr attr;
  attr.qkey = kQkey;
  for (const auto& [state, mask] :
       {std::pair{QpState::kInit, qp_attr::kUdInitMask}, {QpState::kRtr, qp_attr::kState}}) {
    attr.state = state;
    REQUIRE(net.loop.modify(qp, attr, mask, {.gid_count = 8}, net.now()));
  }
  const auto send = [&](std::optional<std::uint16_t> tag, GidType type,
                        const Gid& to = LoopFixture::local_v4()) {
    wire::FrameAddress address = net.from_peer();
    address.vlan_tci = tag;
    address.type = type;
    address.dgid = to;
    if (!to.is_v4()) address.sgid = kPeer6;
    net.give(frame_of({.opcode = wire::Opcode::kUdSendOnly, .deth = wire::Deth{kQkey, Qpn{0x77}}}, address,
                      Qpn{0x40}));
    net.run(5000);
  };
  struct Row {
    std::optional<std::uint16_t> tag;
    GidType type;
    Gid to;
    Count verdict;
  };
  const Gid v4 = LoopFixture::local_v4();
  constexpr auto kV2 = GidType::kRoceV2;
  // No receive is posted: a datagram that gets through is dropped for that.
  for (const Row& row :
       {Row{std::nullopt, kV2, v4, Count::kDropNoReceive},
        Row{std::nullopt, GidType::kRoceV1, v4, Count::kDropNoReceive},
        Row{kTagOf5, kV2, v4, Count::kDropNoReceive},
        Row{kTagOf5, GidType::kRoceV1, v4, Count::kDropNoReceive}, Row{6, kV2, v4, Count::kDropNoReceive},
        Row{6, GidType::kRoceV1, v4, Count::kDropWrongGidType}, Row{5, kV2, kLocal6, Count::kDropNoReceive},
        Row{6, kV2, kLocal6, Count::kDropWrongVlan}, Row{std::nullopt, kV2, kLocal6, Count::kDropWrongVlan},
        Row{5, GidType::kRoceV1, kLocal6, Count::kDropWrongGidType},
        Row{5, kV2, kPeer6, Count::kDropWrongAddress}}) {
    CAPTURE(row.tag.value_or(0), raw(row.type), to_string(row.to));
    const auto before = net.count(row.verdict);
    send(row.tag, row.type, row.to);
    CHECK(net.count(row.verdict) == before + 1);
  }
  net.loop.remove(qp, net.now());
}

TEST_CASE("a port keeps frames without tag to its RoCE v2 addresses from the kernel", "[engine][port]") {
  std::vector<engine::Address> addresses = own();
  const Gid late = *Gid::parse("10.0.0.8");
  addresses.push_back({late, 24, 0, GidType::kRoceV2, true});  // removed
  CapturePort port;
  engine::PollLoop first({0, 2}, port, {addresses, std::nullopt}, LoopFixture::kAskNs);
  CHECK(port.kept == std::vector{*Gid::parse("fe80::1"), LoopFixture::local_v4()});
  addresses.back().removed = false;
  first.set_addresses({addresses, std::nullopt}, Ticks{1});
  CHECK(port.kept == std::vector{*Gid::parse("fe80::1"), LoopFixture::local_v4(), late});

  CapturePort other;  // of the same device, which one port speaks for
  engine::PollLoop second({1, 2}, other, {addresses, std::nullopt}, LoopFixture::kAskNs);
  second.set_addresses({addresses, std::nullopt}, Ticks{1});
  CHECK(other.kept.empty());
}
