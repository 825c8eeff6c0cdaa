#include "engine/poll_loop.h"

#include <catch2/catch.hpp>

#include "engine/loop_fixture.h"
#include "support/given_frames.h"
#include "transport/rc_qp.h"
#include "wire/arp.h"
#include "wire/icmp.h"

using namespace uroce;
using namespace uroce::test;

namespace {

Packet send_only(Qpn to, std::uint32_t psn = 0) {
  return {.opcode = wire::Opcode::kRcSendOnly, .psn = psn, .ack_req = true, .dest_qpn = to};
}

/// Shows what it is given, and knows what it has got back.
class GivingPort final : public port::Port {
 public:
  [[nodiscard]] const port::PortInfo& info() const noexcept override { return info_; }
  unsigned rx_burst(std::span<port::RxFrame> frames) noexcept override {
    is_asked_early = is_asked_early || held != 0;
    return held = given.show(frames);
  }
  void rx_release() noexcept override { held = 0; }
  [[nodiscard]] std::byte* tx_claim(std::uint32_t) noexcept override { return nullptr; }
  void tx_commit() noexcept override {}
  void tx_flush() noexcept override {}
  [[nodiscard]] port::PortCounters counters() const noexcept override { return {}; }

  GivenFrames given;
  unsigned held = 0;            ///< frames
  bool is_asked_early = false;  ///< for more while some are held

 private:
  port::PortInfo info_{.name = "giving", .mac = {{2, 0, 0, 0, 0, 1}}, .link_mtu = 4200};
};

/// Puts the one's complement checksum over `len` bytes from `first` on into the two bytes at `at`.
void mend_checksum(Bytes& frame, std::size_t first, std::size_t len, std::size_t at) {
  frame[at] = frame[at + 1] = std::byte{0};
  std::uint32_t sum = 0;
  for (std::size_t i = first; i < first + len; i += 2) {
    sum += std::to_integer<std::uint32_t>(frame[i]) << 8 | std::to_integer<std::uint32_t>(frame[i + 1]);
  }
  while (sum > 0xffff) sum = (sum & 0xffff) + (sum >> 16);
  frame[at] = static_cast<std::byte>(~sum >> 8);
  frame[at + 1] = static_cast<std::byte>(~sum);
}

std::vector<wire::Bth> roce(const std::vector<Bytes>& frames) {
  std::vector<wire::Bth> found;
  for (const Bytes& frame : frames) {
    wire::PacketView view;
    if (wire::parse_packet(frame, view) == wire::ParseResult::kRoce) found.push_back(view.bth);
  }
  return found;
}

/// The loop's owner posts a SEND. @return packets that leave at once
std::size_t post(LoopFixture& f, transport::RcQp& qp, std::uint8_t flags = 0) {
  REQUIRE(qp.context().sq.put({.wr_id = 1, .flags = flags}, 0));
  qp.context().sq.publish(1);
  f.loop.post(qp, f);
  return roce(f.taken()).size();
}

/// An iteration, 100 ns later. @return packets that leave
std::size_t iterate(LoopFixture& f) {
  f.link.advance_to(f.now_ns += 100);
  f.loop.run_once(f.now());
  return roce(f.taken()).size();
}

}  // namespace

TEST_CASE("each frame that a loop drops is counted with its reason", "[engine][loop][S8]") {
  LoopFixture f;
  auto qp = f.make_qp(0x10);
  REQUIRE(f.connect(*qp));
  introduce(f);
  Bytes frame = frame_of(send_only(Qpn{0x10}), f.from_peer(), {});
  Count reason{};
  SECTION("a damaged ICRC") {
    frame.back() ^= std::byte{1};
    reason = Count::kDropBadIcrc;
  }
  SECTION("a QP number that nobody has") {
    frame = frame_of(send_only(Qpn{0x11}), f.from_peer(), {});
    reason = Count::kDropUnknownQpn;
  }
  SECTION("a QP number that nobody has, at an address that is another's") {
    auto other = f.from_peer();
    other.dgid = Gid::from_v4({10, 0, 0, 77});
    frame = frame_of(send_only(Qpn{0x11}), other, {});
    reason = Count::kDropWrongAddress;
  }
  SECTION("an opcode that nobody knows") {
    frame[42] = std::byte{0x15};
    reason = Count::kDropUnknownOpcode;
  }
  SECTION("another transport version") {
    frame[43] |= std::byte{1};
    reason = Count::kDropBadVersion;
  }
  SECTION("a fragment") {
    frame[20] = std::byte{0x20};
    mend_checksum(frame, 14, 20, 24);
    reason = Count::kDropFragment;
  }
  SECTION("a bad IP checksum") {
    frame[24] ^= std::byte{1};
    reason = Count::kDropMalformed;
  }
  SECTION("another ethertype") {
    frame[12] = std::byte{0x88};
    reason = Count::kDropNotRoce;
  }
  SECTION("a cut frame") {
    frame.resize(frame.size() - 1);
    reason = Count::kDropTooShort;
  }
  SECTION("another source address") {
    wire::FrameAddress stranger = f.from_peer();
    stranger.sgid = Gid::from_v4({10, 0, 0, 9});
    frame = frame_of(send_only(Qpn{0x10}), stranger, {});
    reason = Count::kDropWrongAddress;
  }
  SECTION("an ACK before the QP is ready") {
    QpAttr attr;
    REQUIRE(f.loop.modify(*qp, attr, qp_attr::kState, {}, f.now()));  // RESET
    reason = Count::kDropQpState;
  }
  f.give(frame);
  f.run(5000);
  CHECK(f.loop.counters().get(reason) == 1);
  CHECK(roce(f.taken()).empty());
  CHECK(qp->responder().msn() == 0);
  f.loop.remove(*qp, f.now());
}

TEST_CASE("a packet for a QP that was never connected is dropped, also on a port with one address",
          "[engine][loop]") {
  LoopFixture f({{LoopFixture::local_v4(), 24}});
  auto qp = f.make_qp(0x10);
  f.give(frame_of(send_only(Qpn{0x10}), f.from_peer(), {}));
  f.run(5000);
  CHECK(f.loop.counters().get(Count::kDropQpState) == 1);
  f.loop.remove(*qp, f.now());
}

TEST_CASE("a loop answers echo requests to its addresses", "[engine][loop]") {
  LoopFixture f;
  // 10.0.0.2 pings 10.0.0.1: a frame of Linux ping with 8 bytes of data
  Bytes frame =
      hex("020000000001020000000002080045000024000040004001"
          "26d5"
          "0a0000020a00000108000000123400010011223344556677");
  mend_checksum(frame, 34, frame.size() - 34, 36);
  mend_checksum(frame, 14, 20, 24);
  f.give(frame);
  f.run(5000);
  const auto replies = f.taken();
  REQUIRE(replies.size() == 1);
  CHECK(replies[0][34] == std::byte{0});  // echo reply
  CHECK(std::equal(replies[0].end() - 8, replies[0].end(), frame.end() - 8));
  frame[33] = std::byte{3};  // to 10.0.0.3
  mend_checksum(frame, 14, 20, 24);
  f.give(frame);
  f.run(5000);
  CHECK(f.taken().empty());
  CHECK(f.loop.counters().get(Count::kDropMalformed) == 0);
  frame.back() ^= std::byte{1};  // RFC 792: the checksum covers the data
  f.give(frame);
  f.run(5000);
  CHECK(f.loop.counters().get(Count::kDropMalformed) == 1);
}

namespace {

/// Lets in whatever comes, and has room for its own MTU only.
class NarrowPort final : public port::Port {
 public:
  explicit NarrowPort(port::Port& wide) : wide_(wide), info_(wide.info()) { info_.link_mtu = 576; }
  const port::PortInfo& info() const noexcept override { return info_; }
  unsigned rx_burst(std::span<port::RxFrame> frames) noexcept override { return wide_.rx_burst(frames); }
  void rx_release() noexcept override { wide_.rx_release(); }
  std::byte* tx_claim(std::uint32_t len) noexcept override {
    longest = std::max(longest, len);
    return wide_.tx_claim(len);
  }
  void tx_commit() noexcept override { wide_.tx_commit(); }
  void tx_flush() noexcept override { wide_.tx_flush(); }
  port::PortCounters counters() const noexcept override { return {}; }
  std::uint32_t longest = 0;

 private:
  port::Port& wide_;
  port::PortInfo info_;
};

}  // namespace

TEST_CASE("an echo request that came through but cannot go back is dropped and counted", "[engine][loop]") {
  LoopFixture f;
  NarrowPort narrow(*f.port);
  engine::PollLoop loop({}, narrow, f.addresses, LoopFixture::kAskNs);
  for (const std::uint32_t bytes : {500U, 700U}) {  // of data
    Bytes frame =
        hex("020000000001020000000002080045000000000040004001"
            "00000a0000020a00000108000000123400010011223344556677");
    frame.resize(42 + bytes);
    frame[16] = static_cast<std::byte>((bytes + 28) >> 8);
    frame[17] = static_cast<std::byte>(bytes + 28);
    mend_checksum(frame, 34, frame.size() - 34, 36);
    mend_checksum(frame, 14, 20, 24);
    f.give(frame);
    f.link.advance_to(f.now_ns += 1000);
    loop.run_once(f.now());
  }
  CHECK(loop.counters().get(Count::kRxEcho) == 1);
  CHECK(loop.counters().get(Count::kDropMalformed) == 1);
  CHECK(narrow.longest == 542);
}

TEST_CASE("what the owner of a loop posts leaves before the next iteration while little is in flight",
          "[engine][loop]") {
  LoopFixture f;
  auto qp = f.make_qp(0x10);
  REQUIRE(f.connect(*qp));
  introduce(f);
  CHECK(post(f, *qp) == 1);
  CHECK(post(f, *qp) == 1);
  CHECK(post(f, *qp) == 1);
  CHECK(post(f, *qp) == 0);  // three are unacknowledged: the rest leaves together
  CHECK(post(f, *qp) == 0);
  f.run(1);
  CHECK(roce(f.taken()).size() == 2);

  // What may be the reply to a message leaves at once, though five are unacknowledged.
  f.give(frame_of({.opcode = wire::Opcode::kRcWriteOnly, .reth = wire::Reth{}, .dest_qpn = Qpn{0x10}},
                  f.from_peer(), {}));
  f.run(1);
  CHECK(post(f, *qp) == 1);
  CHECK(post(f, *qp) == 0);
}

TEST_CASE("what is posted to a QP that has an answer to send leaves with it", "[engine][loop]") {
  LoopFixture f;
  auto qp = f.make_qp(0x10, false);
  REQUIRE(f.connect(*qp));
  introduce(f);
  for (int i = 0; i < 3; ++i) REQUIRE(post(f, *qp) == 1);
  f.give(frame_of(
      {.opcode = wire::Opcode::kRcWriteOnly, .ack_req = true, .reth = wire::Reth{}, .dest_qpn = Qpn{0x10}},
      f.from_peer(), {}));
  REQUIRE(iterate(f) == 0);
  CHECK(post(f, *qp) == 1);  // perhaps the reply
  CHECK(post(f, *qp) == 0);  // too much is in flight already
  CHECK(iterate(f) == 2);
  CHECK(iterate(f) == 0);
}

TEST_CASE("an application that posts long after the last iteration has the whole ack timeout before it",
          "[engine][loop][timer]") {
  LoopFixture f;
  auto qp = f.make_qp(0x10);
  REQUIRE(f.connect(*qp));  // timeout code 8: 1.048576 ms
  introduce(f);
  f.link.advance_to(f.now_ns += 1'000'000'000);
  REQUIRE(post(f, *qp) == 1);
  f.run(1'040'000);
  CHECK(f.taken().empty());
  CHECK(f.loop.counters().get(Count::kRequesterTimeouts) == 0);
  f.run(20'000);
  CHECK(f.loop.counters().get(Count::kRequesterTimeouts) == 1);
  f.loop.remove(*qp, f.now());
}

TEST_CASE(
    "a QP whose last two sends were signaled answers in the iteration that receives, others in the next",
    "[engine][loop]") {
  const bool is_signaled = GENERATE(false, true);
  const bool was_signaled = GENERATE(false, true);  // one of many: then they are not waited for
  const bool kernel_sends = GENERATE(false, true);  // then all answer in the next
  CAPTURE(is_signaled, was_signaled, kernel_sends);
  const bool is_at_once = is_signaled && was_signaled && !kernel_sends;
  LoopFixture f({{*Gid::parse("fe80::1"), 64}, {LoopFixture::local_v4(), 24}},
                {.delay_ns = 1, .kernel_sends = kernel_sends});
  auto qp = f.make_qp(0x10, false);
  REQUIRE(f.connect(*qp));
  introduce(f);
  for (const bool signaled : {was_signaled, is_signaled})
    REQUIRE(post(f, *qp, signaled ? send_flag::kSignaled : std::uint8_t{0}) == 1);
  f.give(frame_of(
      {.opcode = wire::Opcode::kRcWriteOnly, .ack_req = true, .reth = wire::Reth{}, .dest_qpn = Qpn{0x10}},
      f.from_peer(), {}));
  CHECK(iterate(f) == (is_at_once ? 1 : 0));
  CHECK(iterate(f) == (is_at_once ? 0 : 1));
  CHECK(iterate(f) == 0);
}

TEST_CASE("what is posted to a QP in Error by the owner of its loop is flushed at once", "[engine][loop]") {
  LoopFixture f;
  auto qp = f.make_qp(0x10);
  REQUIRE(f.connect(*qp));
  REQUIRE(f.loop.modify(*qp, {.state = QpState::kError}, qp_attr::kState, {}, f.now()));
  REQUIRE(qp->context().sq.put({.wr_id = 9}, 0));
  qp->context().sq.publish(1);
  f.loop.post(*qp, f);
  std::array<Wc, 2> wcs;
  REQUIRE(f.cq.poll(wcs) == 1);
  CHECK(wcs[0].wr_id == 9);
  CHECK(wcs[0].status == WcStatus::kWrFlushErr);
}

TEST_CASE("a burst of WRITEs finds its regions among many, and the one without harms nobody",
          "[engine][loop]") {
  constexpr std::uint32_t kRegions = 20'000;
  constexpr std::uint32_t kBytes = 4;
  LoopFixture f;
  constexpr std::byte kUntouched{0xee};
  std::vector<std::byte> memory(std::size_t{kRegions} * kBytes, kUntouched);
  std::vector<std::uint32_t> rkeys;
  const auto address = [&memory](std::size_t region) {
    return reinterpret_cast<std::uint64_t>(memory.data()) + region * kBytes;
  };
  for (std::size_t i = 0; i < kRegions; ++i) {
    rkeys.push_back(
        f.keys.insert({.addr = address(i), .length = kBytes, .pd = 1, .access = access::kAll}).value());
  }
  REQUIRE(f.keys.is_large());
  auto qp = f.make_qp(0x10);
  REQUIRE(f.connect(*qp));
  introduce(f);
  const std::uint32_t first = qp->context().attr.rq_psn.value();
  constexpr std::uint32_t kWrites = 12;  // a burst; the last is for no region
  for (std::uint32_t i = 0; i < kWrites; ++i) {
    const bool is_last = i + 1 == kWrites;
    const std::size_t region = i * 1601;
    const wire::Reth reth{.va = is_last ? ~std::uint64_t{0} / 3 : address(region),
                          .rkey = Rkey{is_last ? 0x12345 : rkeys[region]},
                          .length = kBytes};
    f.give(frame_of({.opcode = wire::Opcode::kRcWriteOnly,
                     .psn = first + i,
                     .payload = kBytes,
                     .reth = reth,
                     .dest_qpn = Qpn{0x10}},
                    f.from_peer(), {}));
  }
  f.run(1);
  std::size_t written = 0;
  for (std::size_t i = 0; i < kRegions; ++i) {
    const bool is_written = memory[i * kBytes] != kUntouched;
    if (is_written != (i % 1601 == 0 && i / 1601 + 1 < kWrites)) FAIL("region " << i);
    written += is_written ? 1 : 0;
  }
  CHECK(written == kWrites - 1);
  f.loop.remove(*qp, f.now());
  f.run(1);
}

TEST_CASE("where a burst shows one long frame of many, one ACK answers for four, and the last at once",
          "[engine][loop][ack]") {
  // IBA 9.7.5.1.2 ?: an ACK acknowledges all before it; when one is sent is the responder's choice.
  LoopFixture f({{*Gid::parse("fe80::1"), 64}, {LoopFixture::local_v4(), 24}},
                {.delay_ns = 1, .burst_frames = 1});
  Bytes memory(4096);
  const auto memory_at = reinterpret_cast<std::uint64_t>(memory.data());
  const std::uint32_t rkey =
      f.keys.insert({.addr = memory_at, .length = memory.size(), .pd = 1, .access = access::kAll}).value();
  auto qp = f.make_qp(0x10);
  auto other = f.make_qp(0x11);
  REQUIRE((f.connect(*qp) && f.connect(*other)));
  introduce(f);
  const auto give = [&](const transport::RcQp& to, std::uint32_t psn, std::uint32_t bytes = 4096) {
    f.give(frame_of({.opcode = wire::Opcode::kRcWriteOnly,
                     .psn = psn,
                     .payload = bytes,
                     .ack_req = true,
                     .reth = wire::Reth{.va = memory_at, .rkey = Rkey{rkey}, .length = bytes},
                     .dest_qpn = to.context().qpn},
                    f.from_peer(), {}));
  };
  using Psns = std::vector<std::uint32_t>;
  const auto acks_of = [&f](unsigned iterations) {
    std::vector<Psns> acks(iterations);
    for (Psns& psns : acks) {
      f.link.advance_to(f.now_ns += 100);
      f.loop.run_once(f.now());
      for (const wire::Bth& bth : roce(f.taken())) psns.push_back(bth.psn.value());
    }
    return acks;
  };
  SECTION("of one QP") {
    for (std::uint32_t psn = 0; psn < 6; ++psn) give(*qp, psn);
    CHECK(acks_of(8) == std::vector<Psns>{{}, {}, {}, {}, {3}, {}, {5}, {}});
  }
  SECTION("one of another QP sends what waits") {
    give(*qp, 0);
    give(*other, 0);
    give(*other, 1);
    CHECK(acks_of(5) == std::vector<Psns>{{}, {}, {0}, {1}, {}});
  }
  SECTION("a short one is answered at once, whatever follows") {
    give(*qp, 0, 64);
    give(*qp, 1, 64);
    give(*qp, 2);
    CHECK(acks_of(4) == std::vector<Psns>{{}, {0}, {1}, {2}});
  }
  SECTION("a QP that is ended meanwhile") {
    give(*qp, 0);
    give(*qp, 1);
    CHECK(acks_of(1) == std::vector<Psns>{{}});
    CHECK(f.loop.has_work());
    f.loop.remove(*qp, f.now());
    qp.reset();
    CHECK(acks_of(3) == std::vector<Psns>{{0}, {}, {}});
    CHECK_FALSE(f.loop.has_work());
  }
}

TEST_CASE("a QP that the application ends still sends the ACK of what it has taken", "[engine][loop]") {
  // What was taken is known to the application, which may end the QP before the loop's next iteration.
  const auto end = GENERATE(QpState::kError, QpState::kReset, QpState::kRts);
  const bool is_asked = GENERATE(true, false);
  CAPTURE(raw(end), is_asked);
  LoopFixture f;
  auto qp = f.make_qp(0x10);
  REQUIRE(f.connect(*qp));
  introduce(f);
  f.give(frame_of({.opcode = wire::Opcode::kRcWriteOnly,
                   .ack_req = is_asked,
                   .reth = wire::Reth{},
                   .dest_qpn = Qpn{0x10}},
                  f.from_peer(), {}));
  f.link.advance_to(f.now_ns += 100);
  f.loop.run_once(f.now());
  REQUIRE(qp->responder().msn() == 1);
  REQUIRE(f.taken().empty());
  if (end == QpState::kRts) {
    f.loop.remove(*qp, f.now());
  } else {
    REQUIRE(f.loop.modify(*qp, {.state = end}, qp_attr::kState, {}, f.now()));
  }
  f.run(5000);
  const auto acks = roce(f.taken());
  REQUIRE(acks.size() == 1);
  CHECK(acks[0].opcode == wire::Opcode::kRcAck);
  CHECK(acks[0].psn == Psn{0});
  if (end != QpState::kRts) f.loop.remove(*qp, f.now());
}

TEST_CASE("what waited for the peer's Ethernet address is sent once, however late and often it is told",
          "[engine][loop][neighbours]") {
  LoopFixture f;
  auto qp = f.make_qp(0x10);
  REQUIRE(f.connect(*qp, f.peer_v4(), 1, 14));  // ack timeout 67 ms
  for (std::uint64_t i = 0; i < 64; ++i) f.post_send(*qp, i);
  f.run(300'000'000);
  REQUIRE(roce(f.taken()).empty());
  for (int reply = 0; reply < 9; ++reply) introduce(f, false);
  f.run(20'000'000);
  CHECK(roce(f.taken()).size() == 64);
  f.loop.remove(*qp, f.now());
}

TEST_CASE("a timer fires after its period and at most a few microseconds late", "[engine][loop][timer]") {
  LoopFixture f;
  auto qp = f.make_qp(0x10);
  REQUIRE(f.connect(*qp));  // timeout code 8: 1.048576 ms
  introduce(f);
  f.post_send(*qp);
  f.run(1000);
  REQUIRE(roce(f.taken()).size() == 1);
  const std::uint64_t sent = f.now_ns;
  while (f.taken().empty() && f.now_ns < sent + 3'000'000) f.run(1000);
  CHECK(f.now_ns - sent >= 1'048'576 - 2000);
  CHECK(f.now_ns - sent <= 1'048'576 + 12'000);
  f.loop.remove(*qp, f.now());
}

TEST_CASE("a timer does not fire before all that had come by then has been looked at",
          "[engine][loop][timer]") {
  LoopFixture f;
  auto qp = f.make_qp(0x10);
  REQUIRE(f.connect(*qp));  // timeout code 8: 1.048576 ms
  introduce(f);
  f.post_send(*qp);
  f.run(1000);
  REQUIRE(roce(f.taken()).size() == 1);
  const Bytes other = frame_of(send_only(Qpn{0x11}), f.from_peer(), {});
  SECTION("the answer is in the next burst") {
    for (unsigned i = 0; i < port::kBurst; ++i) f.give(other);
    f.give(frame_of({.opcode = wire::Opcode::kRcAck, .psn = 0, .dest_qpn = Qpn{0x10}}, f.from_peer(), {}));
    f.now_ns += 2'000'000;
    f.run(10'000);
    CHECK(f.taken().empty());
    CHECK(f.loop.counters().get(Count::kRequesterTimeouts) == 0);
  }
  SECTION("there is none, and so much else that it never ends") {
    f.now_ns += 2'000'000;
    std::size_t handled = 0;
    while (f.taken().empty() && handled < 10 * engine::kRxBacklog) {
      for (unsigned i = 0; i <= port::kBurst; ++i, handled += other.size()) f.give(other);
      f.link.advance_to(f.now_ns += 5000);
      f.loop.run_once(f.now());
    }
    CHECK(handled > engine::kRxBacklog / 4);
    CHECK(handled < 2 * engine::kRxBacklog);
    CHECK(f.loop.counters().get(Count::kRequesterTimeouts) == 1);
  }
  f.loop.remove(*qp, f.now());
}

TEST_CASE("nothing refers to a QP after its removal, whatever it was doing", "[engine][loop][lifetime]") {
  // Run with the address sanitizer this is the test
  const int doing = GENERATE(range(0, 6));
  LoopFixture f;
  auto victim = f.make_qp(0x10);
  auto other = f.make_qp(0x20);
  REQUIRE(f.connect(*victim));
  REQUIRE(f.connect(*other));
  introduce(f);
  switch (doing) {
    case 0:  // a doorbell was rung
      f.post_send(*victim);
      break;
    case 1:  // its timer is armed
      f.post_send(*victim);
      f.run(1000);
      break;
    case 2:  // it is on the list of those ready to send
      f.give(frame_of(send_only(Qpn{0x10}), f.from_peer(), {}));
      f.link.advance_to(f.now_ns += 100);
      f.loop.run_once(f.now());
      break;
    case 3:  // it had the last packet
      f.give(frame_of(send_only(Qpn{0x10}), f.from_peer(), {}));
      f.run(1000);
      break;
    case 4:  // packets for it are on their way
      f.give(frame_of(send_only(Qpn{0x10}), f.from_peer(), {}));
      break;
    default:  // it is in Error, waiting for late posts
      f.post_send(*victim);
      f.give(frame_of({.opcode = wire::Opcode::kRcSendLast, .payload = 4, .dest_qpn = Qpn{0x10}},
                      f.from_peer(), {}));
      f.run(1000);
      CHECK(victim->state() == QpState::kError);
  }
  f.post_send(*other);
  f.loop.remove(*victim, f.now());
  victim.reset();
  f.give(frame_of(send_only(Qpn{0x10}), f.from_peer(), {}));
  f.run(20'000'000);
  CHECK(f.loop.counters().get(Count::kDropUnknownQpn) >= 1);
  CHECK_FALSE(f.loop.knows(Qpn{0x10}));
  CHECK(f.loop.knows(Qpn{0x20}));
  CHECK_FALSE(roce(f.taken()).empty());  // the other one works on
  f.loop.remove(*other, f.now());
}

TEST_CASE("of all loops one answers who asks for an address", "[engine][loop][hand-over][neighbours]") {
  TwoLoops two;
  const MacAddress mac = two.ends[0]->info().mac;
  const wire::LinkAddress link{.src = mac, .dst = {{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}}};
  Bytes frame(wire::arp_frame_len(link));
  wire::emit_arp_frame(frame.data(), link,
                       wire::make_arp_request(mac, LoopFixture::peer_v4(), LoopFixture::local_v4()));
  two.give(frame);
  two.run(3);
  CHECK(two.loops[0]->counters().get(Count::kTxArp) == 1);
  CHECK(two.loops[1]->counters().get(Count::kRxArp) == 1);  // it learns
  CHECK(two.loops[1]->counters().get(Count::kTxArp) == 0);
}

TEST_CASE("two loops hand packets over that arrived at the wrong one", "[engine][loop][hand-over]") {
  TwoLoops two;
  auto& loops = two.loops;
  mem::KeyTable keys(1, [] {});
  transport::CqRing cq(16);
  transport::RcQp qp(Qpn{0x11}, 1, {}, keys, loops[1]->counters(), cq, cq);  // odd: the second loop's
  loops[1]->add(qp);
  QpAttr attr;
  attr.dest_qpn = LoopFixture::kPeerQpn;
  attr.dgid = LoopFixture::peer_v4();
  REQUIRE(to_rtr(*loops[1], qp, attr, {.gid_count = 2}, two.now));
  REQUIRE(qp.context().receives.own.put({.wr_id = 5}, 0));
  qp.context().receives.own.publish(1);

  const wire::FrameAddress address{.src_mac = two.ends[0]->info().mac,
                                   .dst_mac = two.ports[0]->info().mac,
                                   .sgid = LoopFixture::peer_v4(),
                                   .dgid = LoopFixture::local_v4()};
  const Bytes frame = frame_of(send_only(Qpn{0x11}), address, {});
  for (int time = 0; time < 300; ++time) {  // more than the ring between them holds
    two.give(frame);
    if (time % 30 == 0) loops[0]->run_once(two.now);
  }
  two.run(50);
  Wc wc;
  REQUIRE(cq.poll({&wc, 1}) == 1);  // the first; the rest are duplicates
  CHECK(wc.wr_id == 5);
  CHECK(wc.ok());
  CHECK(cq.is_empty());
  const std::uint64_t handed = loops[0]->counters().get(Count::kHandedOver);
  const std::uint64_t dropped = loops[0]->counters().get(Count::kDropHandOverFull);
  CHECK(handed + dropped == 300);
  CHECK(loops[1]->counters().get(Count::kRxRoce) == handed);
  loops[1]->remove(qp, two.now);
}

TEST_CASE("ten thousand idle QPs cost the busy one nothing", "[engine][loop][R9]") {
  // R9: no work that grows with the number of QPs on the packet path
  LoopFixture f;
  std::vector<std::unique_ptr<transport::RcQp>> idle;
  for (std::uint32_t i = 0; i < 10'000; ++i) {
    idle.push_back(std::make_unique<transport::RcQp>(Qpn{0x1000 + i}, 1,
                                                     QpInitAttr{.max_send_wr = 1, .max_recv_wr = 1}, f.keys,
                                                     f.loop.counters(), f.cq, f.cq));
    f.loop.add(*idle.back());
  }
  auto qp = f.make_qp(0x10);
  REQUIRE(f.connect(*qp));
  introduce(f);
  for (std::uint32_t psn = 0; psn < 1000; ++psn) {
    f.post_send(*qp, psn);
    f.run(100);
    REQUIRE(roce(f.taken()).size() == 1);
    f.give(frame_of({.opcode = wire::Opcode::kRcAck, .psn = psn, .aeth = wire::Aeth{}, .dest_qpn = Qpn{0x10}},
                    f.from_peer(), {}));
    f.run(100);
    Wc wc;
    REQUIRE(f.cq.poll({&wc, 1}) == 1);
    REQUIRE(wc.wr_id == psn);
  }
  for (auto& each : idle) f.loop.remove(*each, f.now());
  f.loop.remove(*qp, f.now());
}

TEST_CASE("the timer of one of many QPs waits for an answer, and no longer", "[engine][loop][timer]") {
  LoopFixture f;
  const bool are_many = GENERATE(false, true);
  std::vector<std::unique_ptr<transport::RcQp>> others;
  for (std::uint32_t i = 0; are_many && i < 300; ++i) others.push_back(f.make_qp(0x1000 + i));
  auto qp = f.make_qp(0x10);
  REQUIRE(f.connect(*qp, f.peer_v4(), 1, 7));  // ack timeout 0.524288 ms
  introduce(f);
  for (std::uint32_t psn = 0; psn < 3; ++psn) {
    f.post_send(*qp, psn);
    f.run(1000);
    REQUIRE(roce(f.taken()).size() == 1);
    CHECK(qp->context().TimerNode::due.is_set());
    f.give(frame_of({.opcode = wire::Opcode::kRcAck, .psn = psn, .aeth = wire::Aeth{}, .dest_qpn = Qpn{0x10}},
                    f.from_peer(), {}));
    f.run(1000);
    CHECK(qp->context().TimerNode::due.is_set() == !are_many);
  }
  f.post_send(*qp, 3);
  f.run(1000);
  REQUIRE(roce(f.taken()).size() == 1);
  const std::uint64_t sent = f.now_ns;
  while (f.taken().empty() && f.now_ns < sent + 3'000'000) f.run(1000);
  CHECK(f.now_ns - sent >= 524'288 - 2000);
  CHECK(f.now_ns - sent <= 524'288 + 12'000);
  for (auto& each : others) f.loop.remove(*each, f.now());
  f.loop.remove(*qp, f.now());
}

TEST_CASE("frames are given back after the application's turn, before others are asked for",
          "[engine][loop]") {
  GivingPort port;
  const engine::Addresses addresses({{LoopFixture::local_v4(), 24}}, std::nullopt);
  engine::PollLoop loop({}, port, addresses, LoopFixture::kAskNs);
  for (int i = 0; i < 2; ++i) port.given.give(Bytes(64));
  for (std::uint64_t iteration = 1; iteration <= 2; ++iteration) {
    CHECK(loop.run_once(Ticks{iteration}) == 1);
    CHECK(port.held == 1);
  }
  CHECK(loop.run_once(Ticks{3}) == 0);
  CHECK(port.held == 0);
  CHECK_FALSE(port.is_asked_early);
}
