// ECN marks and CNPs. IBA A17.9.3 ?; Zhu et al., SIGCOMM 2015.
#include <catch2/catch.hpp>

#include "script/remote.h"
#include "support/capture_port.h"
#include "wire/packet.h"

using namespace uroce;
using namespace uroce::test;

namespace {

constexpr std::uint64_t kGapNs = 50'000;
constexpr std::uint8_t kCnpClass = 48 << 2;
constexpr std::uint32_t kFrame = 14 + 20 + 8 + 12 + 16 + 1024 + 4;  // a WRITE of one packet

ScriptConfig controlled(QpType type = QpType::kRc) {
  return {.type = type,
          .timeout = 0,
          .congestion = {.is_on = true, .line_bps = 10'000'000'000, .cnp_gap_ns = kGapNs}};
}

wire::FrameAddress marked(const RcScript& qp, std::uint8_t ecn = 3) {
  wire::FrameAddress address = qp.peer_address();
  address.traffic_class = ecn;
  return address;
}

Packet write_in(RcScript& qp, std::uint32_t psn) {
  return {.opcode = kRcWriteOnly, .psn = psn, .payload = 4, .ack_req = true, .reth = own(qp, 4)};
}

/// Ten WRITEs of 1024 bytes within 100 us, then a CNP: about 440 Mb/s from now on, 20 us a packet.
void slow_down(RcScript& qp) {
  qp.at(0us).together([](RcScript& script) {
    for (int i = 0; i < 10; ++i) script.post_write(1024);
  });
  qp.forget();
  qp.at(100us).in({.opcode = kCnp});
  qp.in(Ack{9});
  qp.forget();
  CHECK(qp.context().congestion->rate.is_limited());
}

}  // namespace

TEST_CASE("a responder answers marks with one CNP a gap, to the peer's QP", "[rc][dcqcn]") {
  RcScript qp{controlled()};
  qp.in_from(marked(qp), write_in(qp, 0), Count::kRxRoce);
  const Bytes cnp = qp.take_frame();
  wire::PacketView view;
  REQUIRE(wire::parse_packet(cnp, view) == wire::ParseResult::kRoce);
  CHECK(view.bth.opcode == kCnp);
  CHECK(view.bth.becn);
  CHECK_FALSE(view.bth.mig_req);
  CHECK_FALSE(view.bth.ack_req);
  CHECK(view.bth.psn == Psn{});
  CHECK(view.bth.dest_qpn == RcScript::kPeer);
  CHECK(view.traffic_class() == kCnpClass);
  CHECK(wire::icrc_ok(view));
  CHECK(cnp.size() == 14 + 60);
  for (std::size_t i = cnp.size() - 20; i < cnp.size() - 4; ++i) CHECK(cnp[i] == std::byte{0});
  qp.out(Ack{0, 1});

  qp.at(49us).in_from(marked(qp), write_in(qp, 1), Count::kRxRoce).out(Ack{1, 2});
  qp.at(50us).in_from(marked(qp), write_in(qp, 2), Count::kRxRoce).out({.opcode = kCnp}).out(Ack{2, 3});
  qp.counted(Count::kMarkedPackets, 3).counted(Count::kCnpsSent, 2);
}

TEST_CASE("a turn of one packet that a CNP has used up is over soon", "[rc][dcqcn]") {
  RcScript qp{controlled()};
  CapturePort port;
  wire::PacketView view;
  const Bytes request = frame_of(write_in(qp, 0), marked(qp), RcScript::kLocal);
  REQUIRE(wire::parse_packet(request, view) == wire::ParseResult::kRoce);
  qp.together([&](RcScript& script) {
    for (int i = 0; i < 10; ++i) script.post_write(1024);
    REQUIRE(qp.qp().on_packet(view, qp.peer_address().dgid, Ticks{1}) == Count::kRxRoce);
    transport::TxContext tx{.port = port, .bulk = port, .now = Ticks{1}, .budget = 1};
    CHECK(qp.qp().transmit(tx));
    CHECK(port.frames.size() == 3);  // the CNP, a WRITE, the ACK
  });
  qp.forget();
}

TEST_CASE("packets that could be marked and are not bring no CNP", "[rc][dcqcn]") {
  RcScript qp{controlled()};
  for (const std::uint8_t ecn : {std::uint8_t{0}, std::uint8_t{1}, std::uint8_t{2}})
    qp.in_from(marked(qp, ecn), write_in(qp, ecn), Count::kRxRoce).out(Ack{ecn, ecn + 1U});
  qp.counted(Count::kMarkedPackets, 0).counted(Count::kCnpsSent, 0);
}

TEST_CASE("a requester answers marks of responses too", "[rc][dcqcn]") {
  RcScript qp{controlled()};
  qp.at(0us).post_read(4).out({.opcode = kRcReadRequest, .psn = 0, .ack_req = true});
  const Packet response{
      .opcode = kRcReadResponseOnly, .psn = 0, .payload = 4, .aeth = wire::Aeth{.syndrome = 0x1f}};
  qp.at(5us).in_from(marked(qp), response, Count::kRxRoce).out({.opcode = kCnp}).completes(1);
}

TEST_CASE("marks of a packet from elsewhere, or sent twice, are no reason to believe it", "[rc][dcqcn]") {
  RcScript qp{controlled()};
  wire::FrameAddress other = marked(qp);
  other.sgid = Gid::from_v4({10, 9, 9, 9});
  qp.in_from(other, write_in(qp, 0), Count::kDropWrongAddress);
  qp.in_from(other, {.opcode = kCnp}, Count::kDropWrongAddress);
  CHECK_FALSE(qp.context().congestion->rate.is_limited());
  qp.counted(Count::kCnpsSent, 0).counted(Count::kCnpsHandled, 0);
}

TEST_CASE("after a CNP requests leave at half of what they did before", "[rc][dcqcn]") {
  RcScript qp{controlled()};
  slow_down(qp);
  const std::uint64_t apart_ns =
      std::uint64_t{kFrame} * 8 * 1'000'000'000 / qp.context().congestion->rate.rate_bps();
  CHECK(apart_ns > 19'000);
  CHECK(apart_ns < 22'000);
  qp.at(150us).together([](RcScript& script) {
    for (int i = 0; i < 4; ++i) script.post_write(1024);
  });
  const auto next = [&](std::uint32_t psn) {
    qp.out({.opcode = kRcWriteOnly, .psn = psn, .payload = 1024, .ack_req = true});
    return qp.left_at();
  };
  CHECK(next(10) == 150us);
  qp.at(300us);
  const auto second = next(11);
  const auto third = next(12);
  const auto fourth = next(13);
  CHECK(second - 150us > 10us);  // it may make up for 8 us
  CHECK(third - second > 12us);  // the rate rises every 55 us
  CHECK(fourth - third > 12us);
  CHECK(fourth - third < 21us);
  qp.in(Ack{13, 14});
  qp.forget();
  CHECK(qp.counters().get(Count::kGatePaced) >= 3);
  qp.counted(Count::kCnpsHandled, 1).counted(Count::kRequesterTimeouts, 0);
}

TEST_CASE("a question about the newest message outlives what is held back and then not sent",
          "[rc][dcqcn][ack]") {
  ScriptConfig config = controlled();
  config.sig_all = false;
  config.probe_floor_ns = 100'000;
  RcScript qp{config};
  slow_down(qp);
  qp.at(200us).post_write(1024).forget();
  qp.at(210us).in({.opcode = kCnp}).in(Ack{10}).post_write(1024).forget();
  qp.post_write(1024);
  Sge nowhere = qp.source.sge(0, 4);
  nowhere.lkey = Lkey{1};
  qp.post({.sges = {&nowhere, 1}});
  qp.at(260us).out({.opcode = kRcWriteOnly, .psn = 12, .payload = 1024}).quiet();
  qp.at(330us).out({.opcode = kRcWriteOnly, .psn = 10, .ack_req = true}).quiet();
  qp.in(Ack{12}).completes(14, WcStatus::kLocProtErr).is_in(QpState::kError);
}

TEST_CASE("a probe allows for the window of another sender ahead in the switch", "[rc][dcqcn][probe]") {
  ScriptConfig config = controlled();
  config.timeout = 19;
  config.probe_floor_ns = 100'000;
  RcScript qp{config};
  constexpr auto kWindow = 209'715ns;  // 256 packets of 1024 bytes at 10 Gb/s
  const auto packet = [](std::uint32_t psn) {
    return Packet{.opcode = kRcWriteOnly, .psn = psn, .payload = 4, .ack_req = true};
  };
  qp.at(0us).post_write(4).out(packet(0));
  qp.at(10us).in(Ack{0}).completes(1);
  qp.at(1ms).post_write(4).out(packet(1));
  qp.at(1ms + 110us + kWindow - 1ns).quiet();
  qp.at(1ms + 110us + kWindow).out(packet(1)).in(Ack{1}).completes(2);
  qp.counted(Count::kRequesterProbes, 1).counted(Count::kRequesterTimeouts, 0);
  qp.at(10s).quiet();
}

TEST_CASE("a QP that is slowed down answers at once all the same", "[rc][dcqcn]") {
  RcScript qp{controlled()};
  slow_down(qp);
  qp.at(150us).together([](RcScript& script) {
    for (int i = 0; i < 3; ++i) script.post_write(1024);
  });
  qp.out({.opcode = kRcWriteOnly, .psn = 10, .payload = 1024, .ack_req = true});
  qp.in(write_in(qp, 0)).out(Ack{0, 1});  // before the second WRITE
  qp.at(400us).in(Ack{12}).forget();
}

TEST_CASE("what a QP that is slowed down answers at once does not hold its requests up", "[rc][dcqcn]") {
  RcScript qp{controlled()};
  slow_down(qp);
  auto now = 100us;
  for (int i = 0; i < 8; ++i) qp.at(now += 50us).in({.opcode = kCnp});
  qp.post_write(1024).out({.opcode = kRcWriteOnly, .psn = 10, .payload = 1024, .ack_req = true});
  const std::uint64_t rate = qp.context().congestion->rate.rate_bps();
  const auto apart = std::chrono::nanoseconds(std::uint64_t{kFrame} * 8 * 1'000'000'000 / rate);
  REQUIRE(apart > 300us);
  const auto begun = now;
  std::uint32_t psn = 0;
  for (; now + 10us < begun + apart; now += 10us, ++psn)
    qp.at(now).in(write_in(qp, psn)).out(Ack{psn, psn + 1});
  qp.post_write(1024).quiet();
  qp.at(begun + apart + 1us).out({.opcode = kRcWriteOnly, .psn = 11, .payload = 1024, .ack_req = true});
}

// IBA 9.7.6.1.3 ?: retry_cnt counts what was sent again.
TEST_CASE("what congestion control does not let go again uses up no retry", "[rc][dcqcn]") {
  ScriptConfig config = controlled();
  config.timeout = 4;  // 65.536 us
  config.retry_cnt = 2;
  RcScript qp{config};
  constexpr auto kTimeout = 65'536ns;
  slow_down(qp);
  auto now = 100us;
  for (int i = 0; i < 8; ++i) qp.at(now += 50us).in({.opcode = kCnp});
  const Packet lost{.opcode = kRcWriteOnly, .psn = 10, .payload = 1024, .ack_req = true};
  qp.post_write(1024).out(lost);
  const std::uint64_t before = qp.counters().get(Count::kRequesterTimeouts);
  const auto timeouts = [&] { return qp.counters().get(Count::kRequesterTimeouts) - before; };
  const std::uint64_t rate = qp.context().congestion->rate.rate_bps();
  const auto apart = std::chrono::nanoseconds(std::uint64_t{kFrame} * 8 * 1'000'000'000 / rate);
  CAPTURE(rate);
  REQUIRE(apart > 4 * kTimeout);
  qp.at(now + apart - 10us).quiet().is_in(QpState::kRts);
  CHECK(timeouts() == 1);
  qp.at(now + apart + 10us).out(lost);
  const auto again = qp.left_at();
  qp.at(again + kTimeout - 1us).quiet();
  CHECK(timeouts() == 1);
  qp.at(again + kTimeout);
  CHECK(timeouts() == 2);
  qp.in(Ack{10}).is_in(QpState::kRts).forget();
}

TEST_CASE("the second of two packets that were lost uses up no retry while it is held back", "[rc][dcqcn]") {
  ScriptConfig config = controlled();
  config.timeout = 7;  // 524 us
  config.retry_cnt = 2;
  RcScript qp{config};
  slow_down(qp);
  qp.at(150us).together([](RcScript& script) {
    for (int i = 0; i < 2; ++i) script.post_write(1024);
  });
  qp.forget();
  qp.at(190us).forget();
  for (auto now = 200us; now < 600us; now += 50us) qp.at(now).in({.opcode = kCnp});
  qp.counted(Count::kRequesterTimeouts, 0).counted(Count::kRequesterMessages, 12);
  qp.at(700us).forget().in(Ack{10}).forget();
  qp.counted(Count::kRequesterTimeouts, 1).counted(Count::kRequesterRepeatedPackets, 1);
  qp.at(1500us).counted(Count::kRequesterTimeouts, 1).counted(Count::kRequesterRepeatedPackets, 1);
  qp.at(1600us).counted(Count::kRequesterTimeouts, 1).counted(Count::kRequesterRepeatedPackets, 2);
  qp.in(Ack{11}).is_in(QpState::kRts).forget();
}

TEST_CASE("READ responses are slowed down like requests, and what follows them waits", "[rc][dcqcn]") {
  RcScript qp{controlled()};
  slow_down(qp);
  const Packet read{.opcode = kRcReadRequest, .psn = 0, .ack_req = true, .reth = own(qp, 3 * 1024)};
  qp.at(150us).in({read, write_in(qp, 3)});
  qp.out({.opcode = kRcReadResponseFirst, .psn = 0, .payload = 1024});
  qp.quiet();
  qp.at(400us);
  qp.out({.opcode = kRcReadResponseMiddle, .psn = 1, .payload = 1024});
  CHECK(qp.left_at() > 160us);
  qp.out({.opcode = kRcReadResponseLast, .psn = 2, .payload = 1024});
  CHECK(qp.left_at() > 170us);
  qp.out(Ack{3, 2});
}

TEST_CASE("a QP that is slowed down answers READs although it has enough to send itself", "[rc][dcqcn]") {
  const bool rings = GENERATE(false, true);  // behind each packet that leaves, long before the next may
  CAPTURE(rings);
  RcScript qp{controlled()};
  slow_down(qp);
  qp.at(150us).together([](RcScript& script) {
    for (int i = 0; i < 10; ++i) script.post_write(1024);
  });
  qp.in({.opcode = kRcReadRequest, .psn = 0, .ack_req = true, .reth = own(qp, 4)});
  int writes_before = 0;
  bool is_answered = false;
  for (auto time = 151us; !is_answered && time < 3ms; qp.at(time), time += 1us) {
    while (qp.waiting() > 0) {
      wire::PacketView view;
      const Bytes frame = qp.take_frame();
      REQUIRE(wire::parse_packet(frame, view) == wire::ParseResult::kRoce);
      is_answered = is_answered || view.bth.opcode == kRcReadResponseOnly;
      if (!is_answered) ++writes_before;
      if (rings) qp.transmit();
    }
  }
  CHECK(is_answered);
  CHECK(writes_before <= 3);
  qp.forget();
}

TEST_CASE("a UC sender is slowed down, a UD one knows nothing of it", "[uc][ud][dcqcn]") {
  RcScript uc{controlled(QpType::kUc)};
  uc.at(0us).together([](RcScript& script) {
    for (int i = 0; i < 10; ++i) script.post_write(1024);
  });
  uc.forget();
  uc.at(100us).in({.opcode = kCnp});
  uc.at(150us).together([](RcScript& script) {
    for (int i = 0; i < 2; ++i) script.post_write(1024);
  });
  uc.out({.opcode = kUcWriteOnly, .psn = 10, .payload = 1024}).completes(11).quiet();
  uc.at(300us).out({.opcode = kUcWriteOnly, .psn = 11, .payload = 1024}).completes(12);
  CHECK(uc.left_at() > 160us);

  RcScript ud{controlled(QpType::kUd)};
  CHECK(ud.context().congestion == nullptr);
  ud.in_refused({.opcode = kCnp}, Count::kDropWrongTransport);
}

TEST_CASE("without congestion control marks mean nothing and CNPs are counted", "[rc][dcqcn]") {
  RcScript qp;
  qp.in_from(marked(qp), write_in(qp, 0), Count::kRxRoce).out(Ack{0, 1});
  qp.in_refused({.opcode = kCnp}, Count::kCnpsIgnored);
  qp.counted(Count::kCnpsSent, 0);
}

TEST_CASE("a QP that is used again has no limit", "[rc][dcqcn]") {
  RcScript qp{controlled()};
  slow_down(qp);
  qp.move_to(QpState::kReset);
  CHECK_FALSE(qp.context().congestion->rate.is_limited());
}
