// Whether a packet is compared with those before or judged in all parts makes no difference to anybody.
#include <catch2/catch.hpp>

#include "base/random.h"
#include "engine/known_packets.h"
#include "engine/loop_fixture.h"

using namespace uroce;
using namespace uroce::test;

namespace {

constexpr Gid kOtherOwn = Gid::from_v4({10, 0, 0, 7});
constexpr Gid kOtherPeer = Gid::from_v4({10, 0, 0, 3});
constexpr Gid kTaggedOwn = Gid::from_v4({10, 0, 5, 1});
constexpr Gid kTaggedPeer = Gid::from_v4({10, 0, 5, 2});
constexpr std::uint16_t kVlan = 5;
const Gid kOwnV6 = *Gid::parse("fe80::1");
const Gid kPeerV6 = *Gid::parse("fe80::2");
constexpr std::uint32_t kPayload = 16;
constexpr transport::QpBounds kBounds{.gid_count = 4, .hardened = 255};

/// A loop with QPs that survive what they are sent: two of one path, others of another peer, of IPv6 and in a
/// VLAN.
struct Receiver {
  Receiver() {
    qps.push_back(connected(0x10, LoopFixture::peer_v4()));
    qps.push_back(connected(0x11, LoopFixture::peer_v4()));
    qps.push_back(connected(0x12, kOtherPeer));
    qps.push_back(connected(0x13, kPeerV6, 0));
    qps.push_back(connected(0x14, kTaggedPeer, 3));
    f.run(1000);
    f.taken();
  }
  ~Receiver() {
    for (const auto& qp : qps) f.loop.remove(*qp, f.now());
  }
  Receiver(const Receiver&) = delete;
  Receiver& operator=(const Receiver&) = delete;

  std::unique_ptr<transport::RcQp> connected(std::uint32_t qpn, const Gid& peer,
                                             std::uint32_t sgid_index = 1) {
    auto qp = f.make_qp(qpn);
    REQUIRE(f.connect(*qp, peer, sgid_index, 8, kBounds.hardened));
    return qp;
  }

  /// Each QP has a receive, whatever it has used.
  void post() {
    for (const auto& qp : qps) {
      transport::RecvQueue& queue = qp->context().receives.own;
      const Sge sge{.addr = reinterpret_cast<std::uint64_t>(memory.data()), .length = kPayload, .lkey = key};
      if (queue.tail() == qp->context().receives.taken() && queue.put({.sges = {&sge, 1}}, 0))
        queue.publish(1);
    }
  }
  /// All that an observer could tell apart.
  [[nodiscard]] std::vector<std::uint64_t> all() {
    std::vector<std::uint64_t> all;
    for (std::size_t i = 0; i < static_cast<std::size_t>(Count::kCount); ++i)
      all.push_back(f.loop.counters().get(Count{static_cast<std::uint8_t>(i)}));
    for (const auto& qp : qps) {
      all.push_back(raw(qp->state()));
      all.push_back(qp->responder().expected_psn().value());
      all.push_back(qp->responder().msn());
    }
    Wc wc;
    while (f.cq.poll({&wc, 1}) != 0) {
      all.push_back(raw(wc.qpn));
      all.push_back(wc.byte_len);
      all.push_back(raw(wc.status));
    }
    return all;
  }

  LoopFixture f{{{kOwnV6, 64},
                 {LoopFixture::local_v4(), 24},
                 {kOtherOwn, 24},
                 {.gid = kTaggedOwn, .prefix_len = 24, .vlan = kVlan}}};
  std::vector<std::byte> memory = std::vector<std::byte>(kPayload);
  Lkey key{*f.keys.insert({reinterpret_cast<std::uint64_t>(memory.data()), memory.size(), 1, access::kAll})};
  std::vector<std::unique_ptr<transport::RcQp>> qps;
};

/// A packet of the peer's or of others, mostly right, some with a byte of their headers changed and sealed
/// again, or not.
Bytes next_frame(Random& random, const Receiver& to) {
  const auto one_of = [&random](auto... values) {
    const std::array all{values...};
    return all[random.below(all.size())];
  };
  const std::size_t which = random.below(to.qps.size());
  const auto& qp = *to.qps[which];
  wire::FrameAddress address = to.f.from_peer();
  switch (random.below(16) == 0 ? random.below(to.qps.size()) : which) {
    case 2:
      address.sgid = kOtherPeer;
      break;
    case 3:
      address.sgid = kPeerV6;
      address.dgid = kOwnV6;
      break;
    case 4:
      address.sgid = kTaggedPeer;
      address.dgid = kTaggedOwn;
      address.vlan_tci = kVlan;
      break;
    default:
      break;
  }
  if (random.below(16) == 0 && address.dgid.is_v4()) address.dgid = kOtherOwn;
  if (random.below(16) == 0) address.vlan_tci = one_of(std::uint16_t{0}, std::uint16_t{0x6000}, kVlan);
  if (random.below(8) == 0) address.udp_src_port = static_cast<std::uint16_t>(random.next());
  Packet packet{
      .opcode = one_of(wire::Opcode::kRcSendOnly, wire::Opcode::kRcSendOnly, wire::Opcode::kRcWriteOnly,
                       wire::Opcode::kRcAck, wire::Opcode::kRcSendOnlyImm, wire::Opcode::kUcSendOnly),
      .psn = qp.responder().expected_psn().value(),
      .ack_req = random.below(2) != 0,
      .solicited = random.below(2) != 0,
      .dest_qpn = random.below(16) == 0 ? Qpn{0x15} : qp.context().qpn};
  if (wire::info(packet.opcode).has_payload) packet.payload = kPayload;
  if (packet.opcode == wire::Opcode::kRcWriteOnly) {
    packet.reth = wire::Reth{.va = reinterpret_cast<std::uint64_t>(to.memory.data()),
                             .rkey = Rkey{raw(to.key)},
                             .length = kPayload};
  }
  if (random.below(8) == 0) packet.psn = (packet.psn + 0xff'ffff + random.below(3)) & 0xff'ffff;
  if (random.below(16) == 0) packet.pkey = static_cast<std::uint16_t>(random.next());
  Bytes frame = frame_of(packet, address, qp.context().qpn);
  if (random.below(4) != 0) return frame;
  wire::PacketView view;
  REQUIRE(wire::parse_packet(frame, view) == wire::ParseResult::kRoce);
  const std::size_t headers = std::size_t{view.bth_offset} + wire::Bth::kSize;
  frame[random.below(headers)] ^= static_cast<std::byte>(1U << random.below(8));
  if (random.below(4) == 0 || wire::parse_packet(frame, view) != wire::ParseResult::kRoce) return frame;
  const std::uint32_t icrc = wire::compute_icrc(view.icrc_covered(), view.is_v6);
  wire::store_icrc(
      std::span<std::byte, wire::kIcrcSize>{frame.data() + view.bth_offset + view.roce_len - wire::kIcrcSize,
                                            wire::kIcrcSize},
      icrc);
  return frame;
}

}  // namespace

TEST_CASE("a loop that knows packets like those before does what one does that knows none",
          "[engine][loop][S8]") {
  const auto seed = GENERATE(range<std::uint64_t>(1, 9));
  CAPTURE(seed);
  Random random(seed);
  Receiver knows;
  Receiver forgets;
  std::uint64_t taken = 0;
  for (int i = 0; i < 500; ++i) {
    CAPTURE(i);
    const std::uint64_t chance = random.next();
    Random one(chance);
    Random other(chance);
    for (Receiver* to : {&knows, &forgets}) to->post();
    knows.f.give(next_frame(one, knows));
    static_cast<void>(forgets.f.loop.modify(*forgets.qps[0], {}, 0, kBounds, forgets.f.now()));
    forgets.f.give(next_frame(other, forgets));
    for (Receiver* to : {&knows, &forgets}) to->f.run(2000);
    REQUIRE(knows.all() == forgets.all());
    taken = knows.f.loop.counters().get(Count::kResponderPackets);
  }
  CHECK(taken > 100);
}

TEST_CASE("packets of one length are known beside each other if their opcodes or their senders differ",
          "[engine][known-packets]") {
  LoopFixture f;
  const auto qp = f.make_qp(0x10);
  REQUIRE(f.connect(*qp, LoopFixture::peer_v4()));
  const auto frame = [&](Opcode opcode, std::uint8_t sender) {
    wire::FrameAddress from = f.from_peer();
    from.src_mac.raw.back() = sender;
    const bool is_first = opcode == Opcode::kRcWriteFirst;
    return frame_of(
        {.opcode = opcode, .payload = 1024, .reth = wire::Reth{.length = is_first ? 2048U : 1024U}}, from,
        qp->context().qpn);
  };
  const std::array frames{frame(Opcode::kRcWriteFirst, 2), frame(Opcode::kRcWriteOnly, 2),
                          frame(Opcode::kRcWriteOnly, 3)};
  engine::KnownPackets known;
  for (const Bytes& one : frames) {
    REQUIRE(one.size() == frames[0].size());
    wire::PacketView packet;
    REQUIRE(wire::parse_packet(one, packet) == wire::ParseResult::kRoce);
    known.learn(packet, qp->context());
  }
  for (const Bytes& one : frames) CHECK(known.of(one).pattern.show(one) != nullptr);
  f.loop.remove(*qp, f.now());
}
