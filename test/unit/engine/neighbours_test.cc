#include <catch2/catch.hpp>

#include "engine/loop_fixture.h"
#include "wire/arp.h"
#include "wire/multicast.h"
#include "wire/nd.h"

using namespace uroce;
using namespace uroce::test;

namespace {

std::vector<wire::Arp> arps(const std::vector<Bytes>& frames) {
  std::vector<wire::Arp> found;
  for (const Bytes& frame : frames) {
    wire::PacketView view;
    if (wire::parse_packet(frame, view) != wire::ParseResult::kArp) continue;
    found.push_back(wire::parse_arp(frame, view.l3_offset).value());
  }
  return found;
}

std::vector<wire::PacketView> roce_views(const std::vector<Bytes>& frames) {
  std::vector<wire::PacketView> found;
  for (const Bytes& frame : frames) {
    wire::PacketView view;
    if (wire::parse_packet(frame, view) == wire::ParseResult::kRoce) found.push_back(view);
  }
  return found;
}

Bytes arp_frame(const MacAddress& from, const wire::Arp& arp) {
  const wire::LinkAddress link{.src = from, .dst = {{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}}};
  Bytes frame(wire::arp_frame_len(link));
  wire::emit_arp_frame(frame.data(), link, arp);
  return frame;
}

/// "`ip` is at `mac`", as an answer to us or unasked.
Bytes arp_reply(const MacAddress& mac, const Gid& ip, const MacAddress& to_mac = {}) {
  const wire::Arp arp{.operation = wire::Arp::Operation::kReply,
                      .sender_mac = mac,
                      .sender_ip = wire::v4_part(ip),
                      .target_mac = to_mac,
                      .target_ip = wire::v4_part(LoopFixture::local_v4())};
  return arp_frame(mac, arp);
}

constexpr MacAddress kOther{{2, 9, 9, 9, 9, 9}};

/// Where a SEND of `qp` goes.
MacAddress mac_that_gets_a_send(LoopFixture& f, transport::RcQp& qp) {
  f.post_send(qp);
  f.run(10'000);
  const auto frames = f.taken();
  REQUIRE(roce_views(frames).size() == 1);
  return roce_views(frames)[0].dst_mac();
}

}  // namespace

TEST_CASE("a loop asks for the peer's Ethernet address when a QP needs it, and sends once it is told",
          "[engine][neighbours]") {
  // RFC 826
  LoopFixture f;
  auto qp = f.make_qp(0x10);
  f.run(1'000'000);
  CHECK(f.taken().empty());
  REQUIRE(f.connect(*qp));
  f.post_send(*qp);
  f.run(10'000);
  const auto questions = arps(f.taken());
  REQUIRE(questions.size() == 1);
  CHECK(questions[0].operation == wire::Arp::Operation::kRequest);
  CHECK(questions[0].sender_mac == f.port->info().mac);
  CHECK(questions[0].sender_ip == std::array<std::uint8_t, 4>{10, 0, 0, 1});
  CHECK(questions[0].target_ip == std::array<std::uint8_t, 4>{10, 0, 0, 2});
  f.give(arp_reply(f.peer_mac(), f.peer_v4()));
  f.run(10'000);
  const auto frames = f.taken();
  const auto packets = roce_views(frames);
  REQUIRE(packets.size() == 1);
  CHECK(packets[0].dst_mac() == f.peer_mac());
  f.loop.remove(*qp, f.now());
}

TEST_CASE("a loop asks again, ever more rarely, and gives up with the QP", "[engine][neighbours]") {
  LoopFixture f;
  auto qp = f.make_qp(0x10);
  REQUIRE(f.connect(*qp));
  f.post_send(*qp);
  f.run(20'000'000);
  const std::size_t count = arps(f.taken()).size();
  CHECK(count >= 3);
  CHECK(count <= 20);
  CHECK(qp->state() == QpState::kError);  // 8 periods of 1 ms without an address
  Wc wc;
  REQUIRE(f.cq.poll({&wc, 1}) == 1);
  CHECK(wc.status == WcStatus::kRetryExcErr);
  f.run(2'000'000'000);
  CHECK(arps(f.taken()).size() <= 25);  // at most one per asking interval
  f.loop.remove(*qp, f.now());
}

TEST_CASE("a loop follows a peer whose Ethernet address changes", "[engine][neighbours]") {
  // R5
  LoopFixture f;
  auto qp = f.make_qp(0x10);
  REQUIRE(f.connect(*qp));
  f.give(arp_reply(f.peer_mac(), f.peer_v4()));
  f.run(10'000);
  f.taken();
  f.give(arp_reply(kOther, f.peer_v4()));
  f.run(10'000);
  f.post_send(*qp);
  f.run(10'000);
  const auto frames = f.taken();
  const auto packets = roce_views(frames);
  REQUIRE(packets.size() == 1);
  CHECK(packets[0].dst_mac() == kOther);
  f.loop.remove(*qp, f.now());
}

TEST_CASE("a loop asks a silent peer for its address again, and keeps the old one meanwhile",
          "[engine][neighbours]") {
  LoopFixture f;
  auto qp = f.make_qp(0x10);
  REQUIRE(f.connect(*qp));
  f.give(arp_reply(f.peer_mac(), f.peer_v4()));
  f.run(10'000);
  f.taken();
  f.post_send(*qp);
  f.run(3'000'000);  // the ack timer has fired at least once
  const auto frames = f.taken();
  CHECK(roce_views(frames).size() >= 2);
  const auto questions = arps(frames);
  CHECK_FALSE(questions.empty());
  CHECK(questions.size() <= 3);
  f.loop.remove(*qp, f.now());
}

TEST_CASE("an address that has not been heard of for a while is asked for when somebody needs it again",
          "[engine][neighbours]") {
  LoopFixture f;
  auto qp = f.make_qp(0x10);
  REQUIRE(f.connect(*qp));
  introduce(f);
  const auto need = [&](std::uint32_t number) {
    f.loop.add_handle(AhId{std::uint64_t{number} << 32}, 1, {.dgid = f.peer_v4()}, f.now());
    CHECK(f.loop.is_resolved(AhId{std::uint64_t{number} << 32}));  // by what was known
    f.run(10'000);
    return arps(f.taken()).size();
  };
  CHECK(need(1) == 0);
  f.run(2'000'000'000);
  f.taken();
  CHECK(need(2) == 1);
  f.give(arp_reply(kOther, f.peer_v4()));  // it has moved
  f.run(10'000);
  f.post_send(*qp);
  f.run(10'000);
  const auto frames = f.taken();
  REQUIRE(roce_views(frames).size() == 1);
  CHECK(roce_views(frames)[0].dst_mac() == kOther);
  CHECK(need(3) == 0);
  f.loop.remove(*qp, f.now());
}

TEST_CASE("addresses that change without end change once a second", "[engine][neighbours]") {
  // S9: each change is told to all QPs
  LoopFixture f;
  auto qp = f.make_qp(0x10);
  REQUIRE(f.connect(*qp, f.peer_v4(), 1, 0));
  const auto sends_to = [&] { return mac_that_gets_a_send(f, *qp); };
  introduce(f);
  for (int i = 0; i < 1000; ++i) {
    f.give(arp_reply(i % 2 == 0 ? kOther : f.peer_mac(), f.peer_v4()));
    f.run(1000);
  }
  const auto& counters = f.loop.counters();
  CHECK(counters.get(Count::kDropNeighbourFlap) >= 499);
  CHECK(sends_to() == kOther);  // the first of them
  f.run(1'000'000'000);
  f.give(arp_reply(f.peer_mac(), f.peer_v4()));
  f.run(1000);
  CHECK(sends_to() == f.peer_mac());
  f.loop.remove(*qp, f.now());
}

TEST_CASE("an answer counts at once, however lately the address has changed", "[engine][neighbours]") {
  LoopFixture f;
  auto qp = f.make_qp(0x10);
  REQUIRE(f.connect(*qp));
  introduce(f);
  f.give(arp_reply(kOther, f.peer_v4()));
  f.run(10'000);
  f.post_send(*qp);
  std::size_t questions = 0;
  for (int i = 0; i < 6 && questions == 0; ++i) {
    f.run(1'000'000);
    questions = arps(f.taken()).size();
  }
  REQUIRE(questions > 0);
  f.give(arp_reply(f.peer_mac(), f.peer_v4()));
  f.run(3'000'000);
  const auto frames = f.taken();
  REQUIRE_FALSE(roce_views(frames).empty());
  CHECK(roce_views(frames).back().dst_mac() == f.peer_mac());
  CHECK(f.loop.counters().get(Count::kDropNeighbourFlap) == 0);
  f.loop.remove(*qp, f.now());
}

TEST_CASE("nothing from the wire makes an entry or takes memory", "[engine][neighbours]") {
  // S8, S9
  LoopFixture f;
  for (unsigned i = 0; i < 1000; ++i) {
    const Gid stranger =
        Gid::from_v4({10, 0, static_cast<std::uint8_t>(i >> 8), static_cast<std::uint8_t>(i)});
    f.give(arp_reply(kOther, stranger));
    if (i % 32 == 0) f.run(1000);
  }
  auto qp = f.make_qp(0x10);
  REQUIRE(f.connect(*qp));
  f.post_send(*qp);
  f.run(10'000);
  const auto frames = f.taken();
  CHECK(roce_views(frames).empty());  // what was told unasked is not believed
  CHECK(arps(frames).size() == 1);
  f.loop.remove(*qp, f.now());
}

TEST_CASE("why a QP is in Error its peer hears once its Ethernet address is known",
          "[engine][neighbours][nak]") {
  // IBA 9.7.4.1.4: remote access error
  LoopFixture f;
  auto qp = f.make_qp(0x10);
  REQUIRE(f.connect(*qp));
  f.give(frame_of({.opcode = wire::Opcode::kRcWriteOnly,
                   .payload = 4,
                   .ack_req = true,
                   .reth = wire::Reth{.va = 0x1000, .rkey = Rkey{1}, .length = 4}},
                  f.from_peer(), qp->context().qpn));
  f.run(10'000);
  CHECK(qp->state() == QpState::kError);
  CHECK(roce_views(f.taken()).empty());
  f.give(arp_reply(f.peer_mac(), f.peer_v4()));
  f.run(10'000);
  const auto frames = f.taken();
  const auto packets = roce_views(frames);
  REQUIRE(packets.size() == 1);
  CHECK(packets[0].bth.opcode == wire::Opcode::kRcAck);
  CHECK(packets[0].aeth().syndrome == 0x62);
  f.loop.remove(*qp, f.now());
}

TEST_CASE("a loop answers questions for its own addresses only", "[engine][neighbours]") {
  LoopFixture f;
  const auto ask = [&](const Gid& target) {
    f.give(arp_frame(kOther, wire::make_arp_request(kOther, f.peer_v4(), target)));
    f.run(10'000);
    return arps(f.taken());
  };
  const auto answers = ask(f.local_v4());
  REQUIRE(answers.size() == 1);
  CHECK(answers[0].operation == wire::Arp::Operation::kReply);
  CHECK(answers[0].sender_mac == f.port->info().mac);
  CHECK(answers[0].target_mac == kOther);
  CHECK(ask(Gid::from_v4({10, 0, 0, 3})).empty());
}

TEST_CASE("a group address is nobody's Ethernet address", "[engine][neighbours]") {
  LoopFixture f;
  auto qp = f.make_qp(0x10);
  REQUIRE(f.connect(*qp));
  wire::Arp arp{.operation = wire::Arp::Operation::kReply,
                .sender_mac = {{1, 0, 0x5e, 0, 0, 1}},
                .sender_ip = {10, 0, 0, 2},
                .target_ip = {10, 0, 0, 1}};
  f.give(arp_frame(kOther, arp));
  f.post_send(*qp);
  f.run(10'000);
  CHECK(roce_views(f.taken()).empty());
  f.loop.remove(*qp, f.now());
}

TEST_CASE("a loop speaks neighbour discovery for IPv6 peers", "[engine][neighbours]") {
  // RFC 4861
  const Gid own = *Gid::parse("fd99::1");
  const Gid peer = *Gid::parse("fd99::2");
  LoopFixture f({{*Gid::parse("fe80::1"), 64}, {own, 64}});
  auto qp = f.make_qp(0x10);
  REQUIRE(f.connect(*qp, peer));
  f.post_send(*qp);
  f.run(10'000);
  const auto questions = f.taken();
  REQUIRE(questions.size() == 1);
  wire::PacketView view;
  REQUIRE(wire::parse_packet(questions[0], view) == wire::ParseResult::kIcmp6);
  const auto solicitation = wire::parse_neighbour(view);
  REQUIRE(solicitation.has_value());
  CHECK(solicitation->target == peer);
  CHECK(solicitation->src == own);
  CHECK(view.dst_mac() == wire::multicast_mac(solicitation->dst));

  const auto answer = wire::make_advertisement(*solicitation, f.peer_mac());
  const wire::LinkAddress link{.src = f.peer_mac(), .dst = f.port->info().mac};
  Bytes frame(wire::neighbour_frame_len(link, answer));
  wire::emit_neighbour_frame(frame.data(), link, answer);
  f.give(frame);
  f.run(10'000);
  const auto frames = f.taken();
  const auto packets = roce_views(frames);
  REQUIRE(packets.size() == 1);
  CHECK(packets[0].dst_mac() == f.peer_mac());
  CHECK(packets[0].is_v6);

  const auto malformed = [&] { return f.loop.counters().get(Count::kDropMalformed); };
  CHECK(malformed() == 0);
  Bytes damaged = frame;
  damaged.back() ^= std::byte{1};
  f.give(damaged);
  f.run(10'000);
  CHECK(malformed() == 1);
  Bytes routed = frame;
  routed[21] = std::byte{254};  // RFC 4861 7.1.2: the hop limit is 255; the checksum does not cover it
  f.give(routed);
  f.run(10'000);
  CHECK(malformed() == 2);
  f.loop.remove(*qp, f.now());
}

namespace {

Gid peer_number(unsigned i) {
  return Gid::from_v4(
      {10, 0, static_cast<std::uint8_t>(1 + i / 200), static_cast<std::uint8_t>(1 + i % 200)});
}

}  // namespace

TEST_CASE("addresses that nobody needs any more are not asked for", "[engine][neighbours]") {
  LoopFixture f({{*Gid::parse("fe80::1"), 64}, {LoopFixture::local_v4(), 16}});
  for (unsigned i = 0; i < 500; ++i) {  // handles that come and go, and nobody answers
    const AhId id{std::uint64_t{i + 1} << 32};
    f.loop.add_handle(id, 1, {.dgid = peer_number(i)}, f.now());
    f.loop.remove_handle(id);
  }
  auto qp = f.make_qp(0x10);
  REQUIRE(f.connect(*qp));
  f.loop.remove(*qp, f.now());
  f.run(1'000'000);
  CHECK(f.taken().empty());
  CHECK(f.loop.neighbours().size() == 0);
}

TEST_CASE("who waits for a gateway is told of it, also where the way has changed meanwhile",
          "[engine][neighbours][gid]") {
  const Gid far = Gid::from_v4({10, 0, 1, 9});
  const Gid gateway = Gid::from_v4({10, 0, 0, 254});
  std::vector<engine::Address> own{{*Gid::parse("fe80::1"), 64}, {LoopFixture::local_v4(), 24}};
  LoopFixture f(own);
  f.loop.set_addresses(engine::Addresses(own, gateway), f.now());
  auto qp = f.make_qp(0x10);
  REQUIRE(f.connect(*qp, far));
  f.loop.add_handle(AhId{1ULL << 32}, 1, {.dgid = far}, f.now());
  own.push_back({Gid::from_v4({10, 0, 1, 1}), 24});  // now `far` is on the link
  f.loop.set_addresses(engine::Addresses(own, gateway), f.now());
  f.post_send(*qp);
  f.give(arp_reply(f.peer_mac(), gateway));
  f.run(10'000);
  const auto frames = f.taken();
  const auto packets = roce_views(frames);
  REQUIRE(packets.size() == 1);
  CHECK(packets[0].dst_mac() == f.peer_mac());
  const auto* handle = qp->context().handles->find(AhId{1ULL << 32});
  REQUIRE(handle != nullptr);
  CHECK(handle->resolved);
  f.loop.remove(*qp, f.now());
}

TEST_CASE("nobody is asked in the name of an address that was removed", "[engine][neighbours][gid]") {
  LoopFixture f;
  auto qp = f.make_qp(0x10);
  REQUIRE(f.connect(*qp));
  engine::Addresses addresses = f.addresses;
  REQUIRE(addresses.remove(f.local_v4(), 0));
  f.loop.set_addresses(addresses, f.now());
  f.post_send(*qp);
  f.run(10'000);
  const auto questions = arps(f.taken());
  REQUIRE(questions.size() == 1);
  CHECK(questions[0].sender_ip == std::array<std::uint8_t, 4>{});  // RFC 5227 2.1.1
  CHECK(questions[0].target_ip == std::array<std::uint8_t, 4>{10, 0, 0, 2});
  f.loop.remove(*qp, f.now());
}

TEST_CASE("an address is kept for whoever still needs it", "[engine][neighbours]") {
  LoopFixture f;
  auto first = f.make_qp(0x10);
  auto second = f.make_qp(0x11);
  REQUIRE(f.connect(*first));
  REQUIRE(f.connect(*second));
  f.loop.add_handle(AhId{1ULL << 32}, 1, {.dgid = f.peer_v4()}, f.now());
  CHECK(f.loop.neighbours().size() == 1);
  f.loop.remove(*first, f.now());
  f.loop.remove_handle(AhId{1ULL << 32});
  f.loop.remove_handle(AhId{1ULL << 32});  // again
  f.run(10'000);
  CHECK_FALSE(f.taken().empty());  // the second still asks
  const transport::QpBounds bounds{.gid_count = 2};
  REQUIRE(f.loop.modify(*second, {.state = QpState::kReset}, qp_attr::kState, bounds, f.now()));
  CHECK(f.loop.neighbours().size() == 0);
  f.loop.remove(*second, f.now());
}

namespace {

/// "`target` is at `mac`", unasked.
Bytes advertisement(const MacAddress& mac, const Gid& target, std::uint16_t vlan = 0,
                    bool override_old = true) {
  const wire::NeighbourMessage message{.is_advertisement = true,
                                       .override_old = override_old,
                                       .src = target,
                                       .dst = *Gid::parse("ff02::1"),
                                       .target = target,
                                       .link_address = mac};
  const wire::LinkAddress link{
      .src = mac, .dst = wire::multicast_mac(message.dst), .vlan_tci = wire::vlan_tag(vlan)};
  Bytes frame(wire::neighbour_frame_len(link, message));
  wire::emit_neighbour_frame(frame.data(), link, message);
  return frame;
}

}  // namespace

TEST_CASE("an advertisement that may not override replaces no known Ethernet address",
          "[engine][neighbours]") {
  // RFC 4861 7.2.5
  const Gid peer = *Gid::parse("fd99::2");
  LoopFixture f({{*Gid::parse("fe80::1"), 64}, {*Gid::parse("fd99::1"), 64}});
  auto qp = f.make_qp(0x10);
  REQUIRE(f.connect(*qp, peer, 1, 0));
  f.run(10'000);
  f.taken();
  const auto tell = [&](const MacAddress& mac, bool override_old) {
    f.give(advertisement(mac, peer, 0, override_old));
    f.run(10'000);
  };
  const auto sends_to = [&] { return mac_that_gets_a_send(f, *qp); };
  const auto questions = [&] {
    f.run(3'000'000);
    return f.taken().size();
  };
  tell(f.peer_mac(), false);  // none was known
  CHECK(sends_to() == f.peer_mac());
  tell(kOther, false);
  CHECK(sends_to() == f.peer_mac());
  CHECK(questions() == 0);
  CHECK(f.loop.counters().get(Count::kDropNeighbourFlap) == 0);

  f.run(2'000'000'000);  // not heard of for a while
  f.loop.add_handle(AhId{1ULL << 32}, 1, {.dgid = peer}, f.now());
  f.run(10'000);
  CHECK(f.taken().size() == 1);
  tell(kOther, false);
  CHECK(questions() > 0);  // it has not answered
  CHECK(sends_to() == f.peer_mac());

  f.run(2'000'000'000);
  f.taken();
  f.loop.add_handle(AhId{2ULL << 32 | 1}, 1, {.dgid = peer}, f.now());
  f.run(10'000);
  CHECK(f.taken().size() == 1);
  tell(f.peer_mac(), false);  // that is an answer
  CHECK(questions() == 0);
  tell(kOther, true);
  CHECK(sends_to() == kOther);
  f.loop.remove(*qp, f.now());
}

TEST_CASE("another station that has an address of ours is counted", "[engine][neighbours]") {
  // C3; RFC 5227 2.4, RFC 4862 5.4.4
  const Gid own_v6 = *Gid::parse("fd99::1");
  LoopFixture f({{*Gid::parse("fe80::1"), 64}, {LoopFixture::local_v4(), 24}, {own_v6, 64, 5}});
  const auto conflicts_after = [&](const Bytes& frame) {
    const std::uint64_t before = f.loop.counters().get(Count::kAddressConflicts);
    f.give(frame);
    f.run(10'000);
    return f.loop.counters().get(Count::kAddressConflicts) - before;
  };
  const MacAddress own_mac = f.port->info().mac;
  CHECK(conflicts_after(arp_reply(kOther, f.local_v4())) == 1);
  CHECK(conflicts_after(arp_frame(kOther, wire::make_arp_request(kOther, f.local_v4(), f.peer_v4()))) == 1);
  CHECK(conflicts_after(arp_reply(own_mac, f.local_v4())) == 0);  // our own, by some way round
  CHECK(conflicts_after(arp_reply(kOther, f.peer_v4())) == 0);
  CHECK(conflicts_after(arp_frame(kOther, wire::make_arp_request(kOther, Gid::from_v4({}), f.local_v4()))) ==
        0);  // a probe, which is answered
  CHECK(conflicts_after(advertisement(kOther, own_v6, 5)) == 1);
  CHECK(conflicts_after(advertisement(kOther, own_v6)) == 0);  // in another VLAN than ours
  CHECK(conflicts_after(advertisement(own_mac, own_v6, 5)) == 0);
  CHECK(conflicts_after(advertisement(kOther, *Gid::parse("fd99::2"), 5)) == 0);
  engine::Addresses addresses = f.addresses;
  REQUIRE(addresses.remove(f.local_v4(), 0));
  f.loop.set_addresses(addresses, f.now());
  CHECK(conflicts_after(arp_reply(kOther, f.local_v4())) == 0);  // no longer ours
}

TEST_CASE("another station that has an address of ours is counted by one loop of the device",
          "[engine][neighbours]") {
  TwoLoops both;
  both.give(arp_reply(kOther, LoopFixture::local_v4()));
  both.run(4);
  CHECK(both.loops[0]->counters().get(Count::kAddressConflicts) == 1);
  CHECK(both.loops[1]->counters().get(Count::kRxArp) == 1);
  CHECK(both.loops[1]->counters().get(Count::kAddressConflicts) == 0);
}

TEST_CASE("what is heard of one peer is not believed of another", "[engine][neighbours]") {
  LoopFixture f;
  const AhId first{1ULL << 32};
  const AhId second{2ULL << 32 | 1};
  f.loop.add_handle(first, 1, {.dgid = f.peer_v4()}, f.now());
  f.loop.add_handle(second, 1, {.dgid = Gid::from_v4({10, 0, 0, 77})}, f.now());
  f.run(10'000);
  f.give(arp_reply(f.peer_mac(), f.peer_v4()));
  f.run(10'000);
  CHECK(f.loop.is_resolved(first));
  CHECK_FALSE(f.loop.is_resolved(second));
}

TEST_CASE("known addresses outlive their users, in bounds", "[engine][neighbours]") {
  LoopFixture f({{*Gid::parse("fe80::1"), 64}, {LoopFixture::local_v4(), 16}});
  for (unsigned i = 0; i < 300; ++i) {
    const AhId id{std::uint64_t{i + 1} << 32};
    f.loop.add_handle(id, 1, {.dgid = peer_number(i)}, f.now());
    f.give(arp_reply(f.peer_mac(), peer_number(i)));
    f.run(1000);
    f.loop.remove_handle(id);
  }
  CHECK(f.loop.neighbours().size() == 64);
  f.taken();
  f.loop.add_handle(AhId{1000ULL << 32}, 1, {.dgid = peer_number(299)}, f.now());
  f.run(10'000);
  CHECK(f.taken().empty());  // still known
  f.loop.add_handle(AhId{1001ULL << 32}, 1, {.dgid = peer_number(0)}, f.now());
  f.run(10'000);
  CHECK(arps(f.taken()).size() == 1);  // long forgotten
}
