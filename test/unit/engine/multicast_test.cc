// Multicast packets at a loop: each drop under its reason. IBA 10.5.
#include <catch2/catch.hpp>

#include "engine/loop_fixture.h"
#include "transport/unreliable_qp.h"
#include "wire/multicast.h"

using namespace uroce;
using namespace uroce::test;

namespace {

constexpr std::uint32_t kQkey = 0x1111'1111;
const Gid kGroup = *Gid::parse("239.1.2.3");

struct Member {
  Member(LoopFixture& fixture, std::uint32_t qpn, std::uint32_t qkey = kQkey, bool blocks_own = false)
      : f(fixture),
        qp(Qpn{qpn}, 1, {.type = QpType::kUd, .block_own_multicast = blocks_own}, f.keys, f.loop.counters(),
           f.cq, f.cq) {
    f.loop.add(qp);
    QpAttr attr{.qkey = qkey};
    for (const auto& [state, mask] :
         {std::pair{QpState::kInit, qp_attr::kUdInitMask}, {QpState::kRtr, qp_attr::kState}}) {
      attr.state = state;
      REQUIRE(f.loop.modify(qp, attr, mask, {}, f.now()));
    }
  }
  ~Member() {
    detach();
    f.loop.remove(qp, f.now());
  }
  void attach() { f.loop.attach(kGroup, 0, &qp, f.now()); }
  void detach() { f.loop.detach(kGroup, 0, &qp, f.now()); }

  LoopFixture& f;
  transport::UdQp qp;
};

wire::FrameAddress to_group(const LoopFixture& f) {
  wire::FrameAddress address = f.from_peer();
  address.dst_mac = wire::multicast_mac(kGroup);
  address.dgid = kGroup;
  return address;
}

Packet datagram(std::uint32_t qpn = 0xff'ffff) {
  return {.opcode = wire::Opcode::kUdSendOnly,
          .payload = 0,
          .deth = wire::Deth{kQkey, LoopFixture::kPeerQpn},
          .dest_qpn = Qpn{qpn}};
}

}  // namespace

TEST_CASE("multicast packets that concern nobody are counted with their reason",
          "[engine][multicast][drop]") {
  LoopFixture f;
  Member member(f, 0x10);
  member.attach();
  wire::FrameAddress address = to_group(f);
  Packet packet = datagram();
  Count reason{};
  SECTION("a group without members") {
    address.dgid = *Gid::parse("239.1.2.4");
    reason = Count::kDropNoGroupMember;
  }
  SECTION("a group whose last member has left") {
    member.detach();
    reason = Count::kDropNoGroupMember;
  }
  SECTION("the QPN of a QP") {
    packet = datagram(0x10);
    reason = Count::kDropGroupToUnicastQpn;
  }
  SECTION("the address of the port") {
    address.dgid = f.local_v4();
    reason = Count::kDropUnicastToGroupQpn;
  }
  SECTION("another transport") {
    packet = {.opcode = wire::Opcode::kRcSendOnly, .dest_qpn = Qpn{0xff'ffff}};
    reason = Count::kDropWrongTransport;
  }
  SECTION("another Q_Key") {
    packet.deth = wire::Deth{kQkey + 1, LoopFixture::kPeerQpn};
    reason = Count::kDropBadQkey;
  }
  Bytes frame = frame_of(packet, address, {});
  SECTION("a damaged ICRC") {
    frame.back() ^= std::byte{1};
    reason = Count::kDropBadIcrc;
  }
  f.give(frame);
  f.run(5000);
  CHECK(f.loop.counters().get(reason) == 1);
  CHECK(f.loop.counters().get(Count::kMulticastCopies) == 0);
}

TEST_CASE("RC packets to a group are refused as such", "[engine][multicast][drop]") {
  LoopFixture f;
  auto qp = f.make_qp(0x10);
  REQUIRE(f.connect(*qp));
  f.give(frame_of({.opcode = wire::Opcode::kRcSendOnly, .dest_qpn = Qpn{0x10}}, to_group(f), {}));
  f.run(5000);
  CHECK(f.loop.counters().get(Count::kDropGroupToUnicastQpn) == 1);
  f.loop.remove(*qp, f.now());
}

TEST_CASE("each member has its own receives, Q_Key and drops", "[engine][multicast]") {
  LoopFixture f;
  Member first(f, 0x10);
  Member second(f, 0x11);
  Member third(f, 0x12, kQkey + 1);
  for (Member* one : {&first, &second, &third}) one->attach();
  f.give(frame_of(datagram(), to_group(f), {}));
  f.run(5000);
  const Counters& counters = f.loop.counters();
  CHECK(counters.get(Count::kMulticastCopies) == 2);
  CHECK(counters.get(Count::kDropNoReceive) == 2);
  CHECK(counters.get(Count::kDropBadQkey) == 1);
  CHECK(counters.get(Count::kRxRoce) == 1);
}

TEST_CASE("a member that does not want its own packets gets those of all others", "[engine][multicast]") {
  LoopFixture f;
  Member member(f, 0x10, kQkey, true);
  member.attach();
  const auto give = [&](const Gid& from, std::uint32_t qpn) {
    wire::FrameAddress address = to_group(f);
    address.sgid = from;
    Packet packet = datagram();
    packet.deth = wire::Deth{kQkey, Qpn{qpn}};
    f.give(frame_of(packet, address, {}));
    f.run(5000);
  };
  give(LoopFixture::peer_v4(), 0x10);   // has the same number, on another node
  give(LoopFixture::local_v4(), 0x11);  // another QP of this one
  CHECK(f.loop.counters().get(Count::kMulticastCopies) == 2);
  CHECK(f.loop.counters().get(Count::kDropOwnMulticast) == 0);
  give(LoopFixture::local_v4(), 0x10);
  CHECK(f.loop.counters().get(Count::kMulticastCopies) == 2);
  CHECK(f.loop.counters().get(Count::kDropOwnMulticast) == 1);
}

TEST_CASE("a datagram to an address that was removed is dropped", "[engine][gid]") {
  LoopFixture f;
  Member member(f, 0x10);
  f.give(frame_of(datagram(0x10), f.from_peer(), {}));
  f.run(5000);
  REQUIRE(f.loop.counters().get(Count::kDropNoReceive) == 1);
  engine::Addresses addresses = f.addresses;
  REQUIRE(addresses.remove(LoopFixture::local_v4(), 0));
  f.loop.set_addresses(addresses, f.now());
  f.give(frame_of(datagram(0x10), f.from_peer(), {}));
  f.run(5000);
  CHECK(f.loop.counters().get(Count::kDropNoReceive) == 1);
  CHECK(f.loop.counters().get(Count::kDropWrongAddress) == 1);
}

TEST_CASE("a packet is copied to 64 members, each once", "[engine][multicast][T17]") {
  LoopFixture f;
  std::vector<std::unique_ptr<Member>> members;
  for (std::uint32_t i = 0; i < 64; ++i) {
    members.push_back(std::make_unique<Member>(f, 0x100 + i));
    members.back()->attach();
  }
  f.give(frame_of(datagram(), to_group(f), {}));
  f.run(5000);
  CHECK(f.loop.counters().get(Count::kMulticastCopies) == 64);
  members.erase(members.begin() + 10, members.end());
  f.give(frame_of(datagram(), to_group(f), {}));
  f.run(5000);
  CHECK(f.loop.counters().get(Count::kMulticastCopies) == 74);
}

TEST_CASE("a loop reports its groups and reads queries", "[engine][multicast][membership]") {
  LoopFixture f;
  Member member(f, 0x10);
  member.attach();
  f.run(5000);
  const auto reports = f.taken();
  REQUIRE(reports.size() == 1);
  CHECK(reports[0][38] == std::byte{0x22});
  CHECK(f.loop.deadline(f.now()).is_set());
  f.give(hex("01005e000001029900000009080046c00020000040000102f9aa0a630009e0000001940400001164ee9b00000000"));
  f.run(5000);
  CHECK(f.loop.counters().get(Count::kRxMembership) == 1);
  f.give(hex("01005e000001029900000009080046c00020000040000102f9aa0a630009e0000001940400001164ee9b00000001"));
  f.run(5000);
  CHECK(f.loop.counters().get(Count::kDropMalformed) == 1);
}
