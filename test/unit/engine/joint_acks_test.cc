/// ACKs of several QPs in one packet, out and in: wire/joint_ack.h.
#include <catch2/catch.hpp>

#include <memory>
#include <numeric>
#include <vector>

#include "base/random.h"
#include "engine/loop_fixture.h"
#include "transport/joint_acks.h"
#include "transport/xrc_domain.h"
#include "transport/xrc_qp.h"
#include "uroce/ece.h"

using namespace uroce;
using namespace uroce::test;
using wire::AckEth;
using wire::Opcode;

namespace {

using Acks = std::vector<AckEth>;

constexpr std::uint32_t kFirst = 0x100;       // number of the first QP, of those behind it the next ones
constexpr std::uint32_t kFirstPeer = 0x2'00;  // and of its peer

struct Options {
  std::size_t qps = 3;
  PathMtu mtu = PathMtu::k4096;
  std::uint32_t ece = ece::kJointAcks;
  drivers::LoopbackConfig link{.delay_ns = 1};
};

/// A loop with connected QPs.
class Company {
 public:
  explicit Company(const Options& options = {})
      : f({{*Gid::parse("fe80::1"), 64}, {LoopFixture::local_v4(), 24}}, options.link) {
    for (std::uint32_t i = 0; i < options.qps; ++i) {
      qps.push_back(f.make_qp(kFirst + i));
      connect(*qps.back(), i, options);
    }
    introduce(f);
  }
  ~Company() {
    for (auto& qp : qps) f.loop.remove(*qp, f.now());
  }
  Company(const Company&) = delete;
  Company& operator=(const Company&) = delete;

  void connect(transport::RcQp& qp, std::uint32_t i, const Options& options) {
    qp.grant(options.ece);
    QpAttr attr;
    attr.dest_qpn = Qpn{kFirstPeer + i};
    attr.dgid = LoopFixture::peer_v4();
    attr.sgid_index = 1;
    attr.access_flags = access::kAll;
    attr.timeout = 14;
    attr.path_mtu = options.mtu;
    REQUIRE(to_rts(f.loop, qp, attr, {.gid_count = 2}, f.now()));
  }
  /// The peers of these QPs WRITE nothing, all at once.
  void give_writes(std::uint32_t first, std::uint32_t count, std::uint32_t psn = 0) {
    for (std::uint32_t i = first; i < first + count; ++i) {
      f.give(frame_of({.opcode = Opcode::kRcWriteOnly,
                       .psn = psn,
                       .ack_req = true,
                       .reth = wire::Reth{},
                       .dest_qpn = Qpn{kFirst + i}},
                      f.from_peer(), {}));
    }
  }
  void post_all() {
    for (auto& qp : qps) f.post_send(*qp, raw(qp->context().qpn));
    f.run(1000);
    f.taken();
  }
  /// The numbers of the QPs whose sends have completed since the last call; none has failed.
  std::vector<std::uint64_t> completed() {
    std::vector<std::uint64_t> ids;
    Wc wc;
    while (f.cq.poll({&wc, 1}) == 1) {
      CHECK(wc.ok());
      ids.push_back(wc.wr_id);
    }
    return ids;
  }
  [[nodiscard]] std::uint64_t count(Count what) { return f.loop.counters().get(what); }

  LoopFixture f;
  std::vector<std::unique_ptr<transport::RcQp>> qps;
};

AckEth ack(std::uint32_t qpn, std::uint32_t psn = 0, std::uint32_t msn = 1) {
  return {.dest_qpn = Qpn{qpn}, .psn = Psn{psn}, .aeth = {.msn = msn}};
}

/// What a packet acknowledges, and whether it does so as one alone.
Acks acks_of(const wire::PacketView& packet) {
  if (packet.bth.opcode == Opcode::kRcAck) return {{packet.bth.dest_qpn, packet.bth.psn, packet.aeth()}};
  REQUIRE(packet.bth.opcode == Opcode::kRcJointAck);
  Acks acks;
  wire::PacketView one = packet.first_of_joint_acks();
  for (std::size_t i = 0; i < packet.joint_acks(); ++i) {
    if (i > 0) packet.show_joint_ack(i, one);
    CHECK(one.op == &wire::info(Opcode::kRcAck));
    CHECK(one.bth.opcode == Opcode::kRcAck);
    CHECK(one.payload.empty());
    CHECK(one.bth.dest_qpn == packet.joint_ack(i).dest_qpn);
    acks.push_back({one.bth.dest_qpn, one.bth.psn, one.aeth()});
  }
  return acks;
}

/// Of each packet that has left. @pre all are ACKs
std::vector<Acks> sent_acks(LoopFixture& f) {
  std::vector<Acks> found;
  for (const Bytes& frame : f.taken()) {
    wire::PacketView view;
    if (wire::parse_packet(frame, view) != wire::ParseResult::kRoce) continue;
    CHECK(wire::icrc_ok(view));
    found.push_back(acks_of(view));
  }
  return found;
}

/// A joint ACK of the peer. @param more  bytes that its payload is longer than it should be
Bytes joint_ack(const wire::FrameAddress& from, const Acks& acks, std::size_t more = 0,
                Opcode opcode = Opcode::kRcJointAck) {
  Bytes others((acks.size() - 1) * AckEth::kSize + more);
  for (std::size_t i = 1; i < acks.size(); ++i) {
    wire::emit_at(others.data() + (i - 1) * AckEth::kSize, acks[i]);
  }
  const wire::FrameTemplate head{from};
  const auto payload = static_cast<std::uint32_t>(others.size());
  const std::uint8_t pad = wire::pad_for(payload);
  const std::uint32_t size = head.frame_len(wire::Bth::kSize + wire::Aeth::kSize, payload, pad);
  Bytes frame(size);
  std::byte* at = head.emit_head(frame.data(), size - head.overhead());
  at = wire::emit_at(
      at, wire::Bth{.opcode = opcode, .pad = pad, .dest_qpn = acks[0].dest_qpn, .psn = acks[0].psn});
  at = wire::emit_at(at, acks[0].aeth);
  std::copy(others.begin(), others.end(), at);
  head.seal(frame.data(), size);
  return frame;
}

Acks acks_for(std::uint32_t first, std::uint32_t count, std::uint32_t psn = 0) {
  Acks acks;
  for (std::uint32_t i = 0; i < count; ++i) acks.push_back(ack(first + i, psn));
  return acks;
}

}  // namespace

TEST_CASE("ACKs that are due at the same time leave in one packet", "[engine][joint]") {
  Company company;
  company.give_writes(0, 3);
  company.f.run(2000);
  CHECK(sent_acks(company.f) == std::vector<Acks>{acks_for(kFirstPeer, 3)});
  CHECK(company.count(Count::kResponderAcks) == 3);
  CHECK(company.count(Count::kResponderJointAcks) == 3);
  company.give_writes(1, 1, 1);
  company.f.run(2000);
  const auto alone = company.f.taken();
  REQUIRE(alone.size() == 1);
  wire::PacketView view;
  REQUIRE(wire::parse_packet(alone[0], view) == wire::ParseResult::kRoce);
  CHECK(view.bth.opcode == Opcode::kRcAck);
  CHECK(acks_of(view) == Acks{ack(kFirstPeer + 1, 1, 2)});
  CHECK(company.count(Count::kResponderJointAcks) == 3);
}

TEST_CASE("only QPs that have agreed on it have their ACKs among those of others", "[engine][joint][T30]") {
  Company company({.qps = 2});
  const Options plain{.ece = GENERATE(0U, ece::kSelectiveRepeat)};
  company.qps.push_back(company.f.make_qp(kFirst + 2));
  company.connect(*company.qps.back(), 2, plain);
  company.give_writes(0, 3);
  company.f.run(2000);
  auto sent = sent_acks(company.f);
  std::sort(sent.begin(), sent.end(), [](const auto& a, const auto& b) { return a.size() < b.size(); });
  CHECK(sent == std::vector<Acks>{acks_for(kFirstPeer + 2, 1), acks_for(kFirstPeer, 2)});
}

TEST_CASE("a joint ACK has no more payload than the path MTU, and 32 ACKs at most", "[engine][joint]") {
  const auto [mtu, most] =
      GENERATE(table<PathMtu, std::uint32_t>({{PathMtu::k256, 22}, {PathMtu::k512, 32}}));
  constexpr std::uint32_t kQps = 40;
  Company company({.qps = kQps, .mtu = mtu});
  Acks all;
  for (int turn = 0; turn < 3; ++turn) {
    company.give_writes(0, kQps, static_cast<std::uint32_t>(turn));
    company.f.run(3000);
    std::size_t longest = 0;
    for (const auto& acks : sent_acks(company.f)) {
      longest = std::max(longest, acks.size());
      all.insert(all.end(), acks.begin(), acks.end());
    }
    CHECK(longest <= most);
    CHECK(longest >= 20);  // of the bursts of 32 that the port shows
  }
  REQUIRE(all.size() == 3 * kQps);
  for (std::uint32_t i = 0; i < kQps; ++i) {
    CHECK(std::count(all.begin(), all.end(), ack(kFirstPeer + i, 2, 3)) == 1);
  }
}

TEST_CASE("ACKs for which the port has no room leave when it has, also behind the end of their QPs",
          "[engine][joint]") {
  Company company({.link = {.delay_ns = 1, .queue_frames = 4}});
  auto stuck = company.f.make_qp(0x90);
  REQUIRE(company.f.connect(*stuck));
  introduce(company.f);
  for (std::uint64_t i = 0; i < 16; ++i) company.f.post_send(*stuck, i);
  company.f.run(2000);  // the link is full
  company.give_writes(0, 3);
  company.f.run(5000);
  CHECK(company.count(Count::kResponderPackets) == 3);
  CHECK(company.f.loop.has_work());
  const bool ends = GENERATE(false, true);
  if (ends) {
    company.f.loop.remove(*company.qps.back(), company.f.now());
    company.qps.pop_back();
  }
  Acks acks;
  for (int i = 0; i < 20; ++i) {
    for (const Bytes& frame : company.f.taken()) {
      wire::PacketView view;
      REQUIRE(wire::parse_packet(frame, view) == wire::ParseResult::kRoce);
      if (!view.op->is_ack) continue;
      for (const AckEth& one : acks_of(view)) acks.push_back(one);
    }
    company.f.run(1000);
  }
  std::sort(acks.begin(), acks.end(),
            [](const AckEth& a, const AckEth& b) { return a.dest_qpn < b.dest_qpn; });
  CHECK(acks.size() >= (ends ? 2U : 3U));
  for (const std::uint32_t peer : {kFirstPeer, kFirstPeer + 1}) {
    CHECK(std::count(acks.begin(), acks.end(), ack(peer)) == 1);
  }
  CHECK(acks.back().dest_qpn <= Qpn{kFirstPeer + 2});
  company.f.loop.remove(*stuck, company.f.now());
}

TEST_CASE("QPs that all end while their ACKs wait leave nothing behind", "[engine][joint]") {
  Company company({.link = {.delay_ns = 1, .queue_frames = 4}});
  auto stuck = company.f.make_qp(0x90);
  REQUIRE(company.f.connect(*stuck, Gid::from_v4({10, 0, 0, 3})));  // another path
  company.f.give(frame_of({.opcode = Opcode::kRcAck}, company.f.from_peer(), {}));
  for (int i = 0; i < 6; ++i) static_cast<void>(company.f.port->tx_claim(64)), company.f.port->tx_commit();
  company.give_writes(0, 3);
  company.f.run(5000);
  for (auto& qp : company.qps) company.f.loop.remove(*qp, company.f.now());
  company.qps.clear();
  company.f.taken();
  company.f.run(5000);
  CHECK(sent_acks(company.f).empty());
  company.f.loop.remove(*stuck, company.f.now());
  CHECK_FALSE(company.f.loop.has_work());
}

namespace {

/// A way to a peer that has room or has not, and counts what opcodes it has taken.
struct Way : port::FrameSink {
  std::byte* tx_claim(std::uint32_t len) noexcept override {
    if (!has_room) return nullptr;
    frame.assign(len, std::byte{0});
    return frame.data();
  }
  void tx_commit() noexcept override {
    wire::PacketView view;
    if (wire::parse_packet(frame, view) == wire::ParseResult::kRoce) opcodes.push_back(view.bth.opcode);
  }

  bool has_room = false;
  Bytes frame;
  std::vector<Opcode> opcodes;
};

}  // namespace

TEST_CASE("ACKs that one peer has no room for hold up nobody else's", "[engine][joint]") {
  Way way;
  transport::Path shut;  // to a peer that does not read
  Company company({.qps = 2});
  auto other = company.f.make_qp(kFirst + 2);
  other->grant(ece::kJointAcks);
  REQUIRE(company.f.connect(*other, LoopFixture::peer_v4(), 1, 20));
  introduce(company.f);
  shut = *company.qps[0]->context().path;
  shut.sink = &way;
  company.qps[0]->context().path = company.qps[1]->context().path = &shut;
  company.give_writes(0, 3);
  company.f.run(5000);
  CHECK(sent_acks(company.f) == std::vector<Acks>{{ack(raw(LoopFixture::kPeerQpn))}});
  CHECK(way.opcodes.empty());
  CHECK(company.f.loop.has_work());
  way.has_room = true;
  company.f.run(2000);
  CHECK(way.opcodes == std::vector{Opcode::kRcJointAck});
  CHECK_FALSE(company.f.loop.has_work());
  company.f.loop.remove(*other, company.f.now());
}

TEST_CASE("ACKs that were left over leave before what others send then", "[engine][joint]") {
  Way way;
  transport::Path shut;
  Company company;
  shut = *company.qps[0]->context().path;
  shut.sink = &way;
  for (auto& qp : company.qps) qp->context().path = &shut;
  company.give_writes(0, 2);
  company.f.run(2000);
  company.f.post_send(*company.qps[2]);
  company.f.run(2000);
  CHECK(way.opcodes.empty());
  way.has_room = true;
  company.f.run(2000);
  CHECK(way.opcodes == std::vector{Opcode::kRcJointAck, Opcode::kRcSendOnly});
}

TEST_CASE("an ACK that must not overtake the response of a READ or atomic leaves alone",
          "[engine][joint][read]") {
  // Others' packets may take another way, and an ACK beyond a READ without its response is an implied NAK.
  Company company({.qps = 3});
  alignas(8) std::array<std::byte, 4096> memory{};
  const auto key =
      company.f.keys.insert({reinterpret_cast<std::uint64_t>(memory.data()), memory.size(), 1, access::kAll});
  REQUIRE(key);
  const std::uint32_t length = GENERATE(8U, 4096U);
  company.f.give(frame_of({.opcode = Opcode::kRcReadRequest,
                           .psn = 0,
                           .reth = wire::Reth{.va = reinterpret_cast<std::uint64_t>(memory.data()),
                                              .rkey = Rkey{raw(Lkey{*key})},
                                              .length = length},
                           .dest_qpn = Qpn{kFirst}},
                          company.f.from_peer(), {}));
  company.give_writes(0, 1, 1);
  company.give_writes(1, 2);
  company.f.run(3000);
  std::vector<Opcode> opcodes;
  for (const Bytes& frame : company.f.taken()) {
    wire::PacketView view;
    REQUIRE(wire::parse_packet(frame, view) == wire::ParseResult::kRoce);
    opcodes.push_back(view.bth.opcode);
  }
  std::sort(opcodes.begin(), opcodes.end());
  CHECK(opcodes == std::vector{Opcode::kRcReadResponseOnly, Opcode::kRcAck, Opcode::kRcJointAck});
  for (std::uint32_t psn = 1; psn <= 4097; ++psn) {  // no requester has as much in flight
    company.give_writes(0, 1, psn + 1);
    if (psn % 16 == 0) company.f.run(200), company.f.taken();
  }
  company.f.run(2000);
  company.f.taken();
  company.give_writes(0, 1, 4099);
  company.give_writes(1, 2, 1);
  company.f.run(3000);
  CHECK(sent_acks(company.f).size() == 1);
}

TEST_CASE("a joint ACK is an ACK to each QP that it names", "[engine][joint]") {
  const std::uint32_t count = GENERATE(1U, 2U, 3U, 32U, 300U);  // beyond 256 the timers of QPs are taken back
  Company company({.qps = count});
  company.post_all();
  std::vector<std::uint64_t> done;
  for (std::uint32_t first = 0; first < count; first += wire::kMostInJointAck) {
    const std::uint32_t some = std::min(count - first, wire::kMostInJointAck);
    company.f.give(joint_ack(company.f.from_peer(), acks_for(kFirst + first, some)));
    company.f.run(2000);
    for (const std::uint64_t id : company.completed()) done.push_back(id);
  }
  REQUIRE(done.size() == count);
  for (std::uint32_t i = 0; i < count; ++i) CHECK(done[i] == kFirst + i);
  CHECK(company.count(Count::kRequesterGhostResponses) == 0);
}

TEST_CASE("a joint ACK finds its QPs in whatever order it names them, while QPs come and go",
          "[engine][joint]") {
  const std::uint64_t seed = GENERATE(1U, 2U, 3U);
  CAPTURE(seed);
  Random random(seed);
  const Options options{.qps = 24};
  Company company(options);
  std::vector<std::uint32_t> sent(options.qps, 0);  // by each of the QPs
  std::vector<std::size_t> order(options.qps);
  std::iota(order.begin(), order.end(), 0);
  std::uint32_t next = kFirst + static_cast<std::uint32_t>(options.qps);
  for (int round = 0; round < 60; ++round) {
    const auto luck = random.below(4);  // mostly they keep their order
    if (luck == 0) std::swap(order[random.below(order.size())], order[random.below(order.size())]);
    if (luck == 1) {
      const std::size_t i = random.below(company.qps.size());
      company.f.loop.remove(*company.qps[i], company.f.now());
      company.qps[i] = company.f.make_qp(next++);
      company.connect(*company.qps[i], static_cast<std::uint32_t>(i), options);
      sent[i] = 0;
    }
    company.post_all();
    Acks acks;
    std::vector<std::uint64_t> expected;
    for (const std::size_t i : order) {
      acks.push_back(ack(raw(company.qps[i]->context().qpn), sent[i], sent[i] + 1));
      ++sent[i];
      expected.push_back(raw(acks.back().dest_qpn));
    }
    company.f.give(joint_ack(company.f.from_peer(), acks));
    company.f.run(2000);
    REQUIRE(company.completed() == expected);
  }
}

TEST_CASE("what a joint ACK says to one QP does not hang on what it says to others", "[engine][joint]") {
  Company company({.qps = 4});
  company.post_all();
  auto acks = acks_for(kFirst, 4);
  std::vector<std::uint64_t> expected{kFirst, kFirst + 1, kFirst + 2, kFirst + 3};
  const std::size_t odd = GENERATE(0U, 1U, 3U);
  Count reason{};
  SECTION("a QP that is not there") {
    acks[odd].dest_qpn = Qpn{0x3333};
    reason = Count::kDropUnknownQpn;
  }
  SECTION("a QP that has not agreed on it") {
    company.qps[odd]->grant(0);
    reason = Count::kDropUnknownOpcode;
  }
  SECTION("a PSN that is not in flight") {
    acks[odd].psn = Psn{7};
    reason = Count::kRequesterGhostResponses;
  }
  SECTION("a QP of another peer") {
    auto other = company.f.make_qp(0x900);
    other->grant(ece::kJointAcks);
    REQUIRE(company.f.connect(*other, Gid::from_v4({10, 0, 0, 9})));
    acks[odd].dest_qpn = Qpn{0x900};
    reason = Count::kDropWrongAddress;
    company.qps.push_back(std::move(other));
  }
  SECTION("a QP that is no longer connected") {
    REQUIRE(company.f.loop.modify(*company.qps[odd], {}, qp_attr::kState, {}, company.f.now()));
    company.qps[odd]->grant(ece::kJointAcks);
    reason = Count::kDropQpState;
  }
  expected.erase(expected.begin() + static_cast<std::ptrdiff_t>(odd));
  company.f.give(joint_ack(company.f.from_peer(), acks));
  company.f.run(2000);
  CHECK(company.completed() == expected);
  CHECK(company.count(reason) == 1);
}

TEST_CASE("a joint ACK that is not made as one is dropped whole", "[engine][joint]") {
  Company company;
  company.post_all();
  auto acks = acks_for(kFirst, 3);
  Count reason = Count::kDropMalformed;
  Bytes frame;
  SECTION("bytes behind the last") {
    frame = joint_ack(company.f.from_peer(), acks, GENERATE(1U, 4U, 8U, 11U));
  }
  SECTION("more than there may be") {
    acks.resize(wire::kMostInJointAck + 1, ack(kFirst));
    frame = joint_ack(company.f.from_peer(), acks);
  }
  SECTION("damaged") {
    frame = joint_ack(company.f.from_peer(), acks);
    frame[frame.size() - 9] ^= std::byte{1};  // of the last AETH
    reason = Count::kDropBadIcrc;
  }
  SECTION("another transport's") {
    frame = joint_ack(company.f.from_peer(), acks, 0, wire::xrc(Opcode::kRcJointAck));
    reason = Count::kDropWrongTransport;
  }
  company.f.give(frame);
  company.f.run(2000);
  CHECK(company.completed().empty());
  CHECK(company.count(reason) == (reason == Count::kDropWrongTransport ? 3 : 1));
}

TEST_CASE("each loop of a device takes of a joint ACK what is for its QPs", "[engine][joint][hand-over]") {
  TwoLoops two;
  mem::KeyTable keys(1, [] {});
  transport::CqRing cqs[2]{transport::CqRing(16), transport::CqRing(16)};
  std::vector<std::unique_ptr<transport::RcQp>> qps;
  for (std::uint32_t i = 0; i < 4; ++i) {
    engine::PollLoop& loop = *two.loops[i % 2];
    qps.push_back(std::make_unique<transport::RcQp>(Qpn{kFirst + i}, 1, QpInitAttr{.sq_sig_all = true}, keys,
                                                    loop.counters(), cqs[i % 2], cqs[i % 2]));
    loop.add(*qps.back());
    qps.back()->grant(ece::kJointAcks);
    QpAttr attr{.dest_qpn = Qpn{kFirstPeer + i}, .dgid = LoopFixture::peer_v4()};
    attr.sgid_index = 1;
    attr.timeout = 14;
    REQUIRE(to_rts(loop, *qps.back(), attr, {.gid_count = 2}, two.now));
    REQUIRE(qps.back()->context().sq.put({.wr_id = i}, 0));
    qps.back()->context().sq.publish(1);
    loop.ring(*qps.back());
  }
  const MacAddress peer_mac = two.ends[0]->info().mac;
  const wire::LinkAddress link{.src = peer_mac, .dst = {{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}}};
  Bytes arp(wire::arp_frame_len(link));
  wire::emit_arp_frame(arp.data(), link,
                       wire::make_arp_request(peer_mac, LoopFixture::peer_v4(), LoopFixture::local_v4()));
  two.give(arp);
  two.run(5);
  const wire::FrameAddress from_peer{.src_mac = peer_mac,
                                     .dst_mac = two.ports[0]->info().mac,
                                     .sgid = LoopFixture::peer_v4(),
                                     .dgid = LoopFixture::local_v4()};
  auto acks = acks_for(kFirst, 4);
  if (GENERATE(false, true)) std::rotate(acks.begin(), acks.begin() + 1, acks.end());
  two.give(joint_ack(from_peer, acks));
  two.run(5);
  for (std::uint64_t i = 0; i < 4; ++i) {
    Wc wc;
    REQUIRE(cqs[i % 2].poll({&wc, 1}) == 1);
    CHECK(wc.ok());
    CHECK(wc.wr_id % 2 == i % 2);
  }
  CHECK(two.loops[0]->counters().get(Count::kHandedOver) == 2);  // that, and the ARP request
  for (const auto& loop : two.loops) CHECK(loop->counters().get(Count::kDropUnknownQpn) == 0);
  for (std::uint32_t i = 0; i < 4; ++i) two.loops[i % 2]->remove(*qps[i], two.now);
}

TEST_CASE("joint ACKs of XRC have an opcode of their own", "[engine][joint][xrc]") {
  LoopFixture f;
  transport::SharedReceives receives(1, 1, 8, 1);
  transport::XrcDomain domain;
  domain.add(receives, f.cq);
  std::vector<std::unique_ptr<transport::XrcRecvQp>> qps;
  for (std::uint32_t i = 0; i < 2; ++i) {
    qps.push_back(std::make_unique<transport::XrcRecvQp>(
        Qpn{kFirst + i}, 1, QpInitAttr{.type = QpType::kXrcRecv}, f.keys, f.loop.counters(), f.cq, f.cq));
    qps.back()->context().domain = &domain;
    f.loop.add(*qps.back());
    qps.back()->grant(ece::kJointAcks);
    QpAttr attr{
        .dest_qpn = Qpn{kFirstPeer + i}, .access_flags = access::kAll, .dgid = LoopFixture::peer_v4()};
    attr.sgid_index = 1;
    REQUIRE(to_rtr(f.loop, *qps.back(), attr, {.gid_count = 2}, f.now()));
  }
  introduce(f);
  for (std::uint32_t i = 0; i < 2; ++i) {
    f.give(frame_of({.opcode = wire::xrc(Opcode::kRcWriteOnly),
                     .ack_req = true,
                     .srq = 1,
                     .reth = wire::Reth{},
                     .dest_qpn = Qpn{kFirst + i}},
                    f.from_peer(), {}));
  }
  f.run(2000);
  const auto frames = f.taken();
  REQUIRE(frames.size() == 1);
  wire::PacketView view;
  REQUIRE(wire::parse_packet(frames[0], view) == wire::ParseResult::kRoce);
  CHECK(view.bth.opcode == wire::xrc(Opcode::kRcJointAck));
  REQUIRE(view.joint_acks() == 2);
  wire::PacketView second = view.first_of_joint_acks();
  view.show_joint_ack(1, second);
  CHECK(second.bth.opcode == wire::xrc(Opcode::kRcAck));
  CHECK(second.bth.dest_qpn == Qpn{kFirstPeer + 1});
  for (auto& qp : qps) f.loop.remove(*qp, f.now());
}
