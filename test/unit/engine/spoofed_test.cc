// Frames that somebody else may have made: each is dropped for its own reason, whatever else is right.
#include <catch2/catch.hpp>
#include <numeric>

#include "engine/loop_fixture.h"

using namespace uroce;
using namespace uroce::test;

namespace {

constexpr Gid kOtherOwn = Gid::from_v4({10, 0, 0, 7});
constexpr std::size_t kIp = 14;  // offsets in an untagged IPv4 frame
constexpr std::size_t kUdp = 34;

/// A connected QP on a port with two IPv4 addresses; it talks from the first to the peer. It has taken a
/// packet of the peer before, so that others are compared with that, or not.
struct Target {
  explicit Target(std::uint32_t hardened = 0) : qp(f.make_qp(0x10)) {
    const bool has_taken = GENERATE(false, true);
    CAPTURE(has_taken);
    QpAttr attr;
    attr.dest_qpn = LoopFixture::kPeerQpn;
    attr.dgid = LoopFixture::peer_v4();
    attr.sgid_index = 1;
    attr.path_mtu = PathMtu::k1024;
    const transport::QpBounds bounds{.gid_count = 3, .hardened = hardened};
    for (const auto& [state, mask] : {std::pair{QpState::kInit, qp_attr::kInitMask},
                                      {QpState::kRtr, qp_attr::kRtrMask},
                                      {QpState::kRts, qp_attr::kRtsMask}}) {
      attr.state = state;
      REQUIRE(f.loop.modify(*qp, attr, mask, bounds, f.now()));
    }
    wire::FrameAddress back = f.from_peer();
    std::swap(back.src_mac, back.dst_mac);
    std::swap(back.sgid, back.dgid);
    qp->context().path->head = wire::FrameTemplate{back};
    qp->set_resolved();
    const Sge none{};
    for (std::uint64_t wr_id = 1; wr_id <= 4; ++wr_id) {
      REQUIRE(qp->context().receives.own.put({.wr_id = wr_id, .sges = {&none, 0}}, 0));
      qp->context().receives.own.publish(1);
    }
    f.run(1000);
    f.taken();  // it asks for the peer's Ethernet address
    if (has_taken) takes(frame());
  }
  ~Target() { f.loop.remove(*qp, f.now()); }
  Target(const Target&) = delete;
  Target& operator=(const Target&) = delete;

  [[nodiscard]] Packet packet(std::uint32_t payload = 0) const {
    return {.opcode = wire::Opcode::kRcSendOnly,
            .psn = qp->responder().expected_psn().value(),
            .payload = payload,
            .ack_req = true,
            .dest_qpn = Qpn{0x10}};
  }
  [[nodiscard]] Bytes frame() const { return frame_of(packet(), f.from_peer(), {}); }
  [[nodiscard]] Bytes frame_from(const wire::FrameAddress& address) const {
    return frame_of(packet(), address, {});
  }

  /// Drop counters, all of them.
  [[nodiscard]] std::uint64_t drops() {
    std::uint64_t sum = 0;
    for (auto i = raw(Count::kDropTooShort); i <= raw(Count::kDropHandOverFull); ++i) {
      sum += f.loop.counters().get(Count{i});
    }
    return sum;
  }

  void reset() { REQUIRE(f.loop.modify(*qp, {.state = QpState::kReset}, qp_attr::kState, {}, f.now())); }

  /// It is counted under `reason` and nowhere else, and changes nothing; the peer's own packet is taken
  /// after.
  void drops(const Bytes& frame, Count reason) {
    INFO(kCounterNames[static_cast<std::size_t>(reason)]);
    const Psn expected = qp->responder().expected_psn();
    f.give(frame);
    f.run(5000);
    CHECK(f.loop.counters().get(reason) == 1);
    CHECK(drops() == 1);
    CHECK(f.taken().empty());
    CHECK(f.cq.is_empty());
    CHECK(qp->state() == QpState::kRts);
    CHECK(qp->responder().expected_psn() == expected);
    takes(this->frame());
    CHECK(drops() == 1);
  }
  void takes(const Bytes& frame) {
    f.give(frame);
    f.run(5000);
    Wc wc;
    REQUIRE(f.cq.poll({&wc, 1}) == 1);
    CHECK(wc.ok());
    CHECK(f.taken().size() == 1);  // its ACK
  }

  LoopFixture f{{{*Gid::parse("fe80::1"), 64}, {LoopFixture::local_v4(), 24}, {kOtherOwn, 24}}};
  std::unique_ptr<transport::RcQp> qp;
};

void put16(Bytes& frame, std::size_t at, std::size_t value) {
  frame[at] = static_cast<std::byte>(value >> 8);
  frame[at + 1] = static_cast<std::byte>(value);
}

/// The checksum of an IPv4 header of `len` bytes is right again.
void mend_ip(Bytes& frame, std::size_t len = 20) {
  put16(frame, kIp + 10, 0);
  std::size_t sum = 0;
  for (std::size_t i = kIp; i < kIp + len; i += 2) {
    sum += std::to_integer<std::size_t>(frame[i]) << 8 | std::to_integer<std::size_t>(frame[i + 1]);
  }
  while (sum > 0xffff) sum = (sum & 0xffff) + (sum >> 16);
  put16(frame, kIp + 10, ~sum & 0xffff);
}

Bytes insert(Bytes frame, std::size_t at, std::string_view digits) {
  const Bytes more = hex(digits);
  frame.insert(frame.begin() + static_cast<std::ptrdiff_t>(at), more.begin(), more.end());
  return frame;
}

}  // namespace

TEST_CASE("a packet between other addresses than the connection's is dropped and counted so",
          "[engine][loop][S8]") {
  Target target;
  wire::FrameAddress address = target.f.from_peer();
  SECTION("another source in the same network") {
    address.sgid = Gid::from_v4({10, 0, 0, 9});
  }
  SECTION("our own address as source") {
    address.sgid = LoopFixture::local_v4();
  }
  SECTION("another address of ours as destination") {
    address.dgid = kOtherOwn;
  }
  SECTION("an address of nobody as destination") {
    address.dgid = Gid::from_v4({10, 0, 0, 200});
  }
  SECTION("the broadcast address as destination") {
    address.dgid = Gid::from_v4({255, 255, 255, 255});
  }
  SECTION("IPv6 to a connection over IPv4") {
    address.sgid = *Gid::parse("fe80::2");
    address.dgid = *Gid::parse("fe80::1");
  }
  target.drops(target.frame_from(address), Count::kDropWrongAddress);
}

TEST_CASE("a fragment is dropped and counted so", "[engine][loop][S8]") {
  Target target;
  Bytes frame = target.frame();
  SECTION("the first one") {
    put16(frame, kIp + 6, 0x2000);
  }
  SECTION("one in the middle") {
    put16(frame, kIp + 6, 0x2001);
  }
  SECTION("the last one") {
    put16(frame, kIp + 6, 0x0001);
  }
  mend_ip(frame);
  target.drops(frame, Count::kDropFragment);
}

TEST_CASE("a header that is not as RoCE makes it is dropped as malformed", "[engine][loop][S8]") {
  Target target;
  Bytes frame = target.frame();
  const std::size_t total = frame.size() - kIp;
  SECTION("IP options") {
    frame = insert(std::move(frame), kUdp, "94040000");  // router alert
    frame[kIp] = std::byte{0x46};
    put16(frame, kIp + 2, total + 4);
    mend_ip(frame, 24);
  }
  SECTION("IP version 5") {
    frame[kIp] = std::byte{0x55};
    mend_ip(frame);
  }
  SECTION("a wrong IP checksum") {
    frame[kIp + 10] ^= std::byte{1};
  }
  SECTION("a UDP length above that of IP") {
    put16(frame, kUdp + 4, total - 20 + 4);
  }
  SECTION("a UDP length below that of IP") {
    put16(frame, kUdp + 4, total - 20 - 4);
  }
  SECTION("a pad count above the payload") {
    frame[kUdp + 8 + 1] |= std::byte{0x30};
  }
  SECTION("IPv4 where RoCE v1 has its GRH") {
    frame = target.frame();
    put16(frame, 12, 0x8915);
  }
  target.drops(frame, Count::kDropMalformed);
}

TEST_CASE("a frame that does not carry RoCE is dropped and counted so", "[engine][loop][S8]") {
  Target target;
  Bytes frame = target.frame();
  SECTION("another UDP port") {
    put16(frame, kUdp + 2, 4792);
  }
  SECTION("TCP") {
    frame[kIp + 9] = std::byte{6};
    mend_ip(frame);
  }
  SECTION("another ethertype") {
    put16(frame, 12, 0x88cc);
  }
  SECTION("two VLAN tags") {
    frame = insert(std::move(frame), 12, "8100000181000001");
  }
  SECTION("a provider's VLAN tag") {
    frame = insert(std::move(frame), 12, "88a80001");
  }
  SECTION("an IPv6 fragment header") {
    wire::FrameAddress address = target.f.from_peer();
    address.sgid = *Gid::parse("fe80::2");
    address.dgid = *Gid::parse("fe80::1");
    frame = insert(target.frame_from(address), kIp + 40, "1100000100000001");
    frame[kIp + 6] = std::byte{44};
    put16(frame, kIp + 4, frame.size() - kIp - 40);
  }
  target.drops(frame, Count::kDropNotRoce);
}

TEST_CASE("a frame that is shorter than its headers say is dropped and counted so", "[engine][loop][S8]") {
  Target target;
  Bytes frame = target.frame();
  SECTION("cut") {
    frame.resize(frame.size() - 1);
  }
  SECTION("an IP length beyond its end") {
    put16(frame, kIp + 2, 9000);
    mend_ip(frame);
  }
  target.drops(frame, Count::kDropTooShort);
}

TEST_CASE("a packet that is not for this QP is dropped and counted so", "[engine][loop][S8]") {
  Target target;
  Packet packet = target.packet();
  Count reason{};
  SECTION("a number that nobody has") {
    packet.dest_qpn = Qpn{0x11};
    reason = Count::kDropUnknownQpn;
  }
  SECTION("another partition") {
    packet.pkey = 0x8001;
    reason = Count::kDropBadPkey;
  }
  SECTION("another transport") {
    packet.opcode = wire::Opcode::kUcSendOnly;
    reason = Count::kDropWrongTransport;
  }
  target.drops(frame_of(packet, target.f.from_peer(), {}), reason);
}

TEST_CASE("a packet above the path MTU writes nothing", "[engine][loop][S8]") {
  // The QP believes it to be its peer's at once, or after as many as it tolerates
  const std::uint32_t payload = GENERATE(1025U, 2048U, 4096U);
  SECTION("to a hardened QP") {
    Target target(1);
    target.f.give(frame_of(target.packet(payload), target.f.from_peer(), {}));
    target.f.run(5000);
    CHECK(target.f.loop.counters().get(Count::kResponderTolerated) == 1);
    CHECK(target.f.taken().empty());
    CHECK(target.f.cq.is_empty());
    target.takes(target.frame());
  }
  SECTION("to an ordinary QP") {
    Target target;
    target.f.give(frame_of(target.packet(payload), target.f.from_peer(), {}));
    target.f.run(5000);
    CHECK(target.f.loop.counters().get(Count::kResponderFatalNaks) == 1);
    CHECK(target.qp->state() == QpState::kError);
  }
}

TEST_CASE("what routers and switches may change in a packet does not matter", "[engine][loop][S8]") {
  Target target;
  wire::FrameAddress address = target.f.from_peer();
  SECTION("hop limit and traffic class") {
    address.hop_limit = 2;
    address.traffic_class = 0xff;
  }
  SECTION("the UDP source port") {
    address.udp_src_port = 1;
  }
  SECTION("a priority tag without VLAN") {
    address.vlan_tci = 0xa000;
  }
  target.takes(target.frame_from(address));
  CHECK(target.drops() == 0);
}

TEST_CASE("a packet tagged for a VLAN that the QP is not in is dropped", "[engine][loop][S8]") {
  Target target;
  wire::FrameAddress address = target.f.from_peer();
  address.vlan_tci = 100;
  target.f.give(target.frame_from(address));
  target.f.run(5000);
  CHECK(target.drops() == 1);
  CHECK(target.f.loop.counters().get(Count::kDropWrongVlan) == 1);
  CHECK(target.f.cq.is_empty());
}

TEST_CASE("a packet like those before is judged anew once something has changed", "[engine][loop][S8]") {
  Target target;
  target.takes(target.frame());
  const Bytes next = target.frame();
  Count reason = Count::kDropWrongAddress;
  SECTION("the QP has another peer") {
    target.reset();
    REQUIRE(target.f.connect(*target.qp, Gid::from_v4({10, 0, 0, 3})));
  }
  SECTION("the QP talks from another address") {
    target.reset();
    REQUIRE(target.f.connect(*target.qp, LoopFixture::peer_v4(), 2));
  }
  SECTION("the port has another address there") {
    engine::Addresses others({{*Gid::parse("fe80::1"), 64}, {kOtherOwn, 24}, {LoopFixture::local_v4(), 24}},
                             {});
    target.f.loop.set_addresses(std::move(others), target.f.now());
  }
  SECTION("the QP receives nothing any more") {
    target.reset();
    reason = Count::kDropQpState;
  }
  SECTION("the QP is gone") {
    target.f.loop.remove(*target.qp, target.f.now());
    reason = Count::kDropUnknownQpn;
  }
  SECTION("the QP has failed") {
    target.qp->context().fail(transport::Fault::kFlushed);
    target.f.give(next);
    target.f.run(5000);
    REQUIRE(target.qp->state() == QpState::kError);
    reason = Count::kDropQpState;
  }
  target.f.give(next);
  target.f.run(5000);
  CHECK(target.f.loop.counters().get(reason) == 1);
  CHECK(target.drops() == 1);
}

TEST_CASE("what one QP takes, another takes only from the same peer", "[engine][loop][S8]") {
  Target target;
  target.takes(target.frame());
  const auto other = target.f.make_qp(0x11);
  Packet packet = target.packet();
  packet.psn = 0;
  packet.dest_qpn = Qpn{0x11};
  SECTION("of the same path") {
    REQUIRE(target.f.connect(*other));
    target.takes(target.frame());  // the path is known again
    target.f.give(frame_of(packet, target.f.from_peer(), {}));
    target.f.run(5000);
    CHECK(target.f.loop.counters().get(Count::kResponderRnrNaks) == 1);  // it has no receive
    CHECK(target.drops() == 0);
  }
  SECTION("of another path") {
    REQUIRE(target.f.connect(*other, Gid::from_v4({10, 0, 0, 3})));
    target.f.run(5000);
    target.f.taken();  // it asks for that peer's Ethernet address
    target.takes(target.frame());
    target.f.give(frame_of(packet, target.f.from_peer(), {}));
    target.f.run(5000);
    CHECK(target.f.loop.counters().get(Count::kDropWrongAddress) == 1);
    CHECK(target.drops() == 1);
  }
  SECTION("of no path") {
    target.takes(target.frame());
    target.f.give(frame_of(packet, target.f.from_peer(), {}));
    target.f.run(5000);
    CHECK(target.f.loop.counters().get(Count::kDropQpState) == 1);
    CHECK(target.drops() == 1);
  }
  target.f.loop.remove(*other, target.f.now());
}

TEST_CASE("a packet like those before is none if its ICRC is wrong", "[engine][loop][S8]") {
  Target target;
  Bytes frame = target.frame();
  const std::size_t at = GENERATE(kUdp + 8 + 5, kUdp + 8 + 8, kUdp + 8 + 11, kUdp + 8 + 12);  // QPN to ICRC
  frame[at] ^= std::byte{1};
  target.f.give(frame);
  target.f.run(5000);
  CHECK(target.f.loop.counters().get(Count::kDropBadIcrc) == 1);
  CHECK(target.drops() == 1);
  target.takes(target.frame());
}
