// Answers that are late by what round trips take: the oldest packet goes once more, long before the ack
// timeout.
#include <catch2/catch.hpp>

#include "script/remote.h"

using namespace uroce;
using namespace uroce::test;

namespace {

constexpr std::uint64_t kFloorNs = 100'000;
constexpr Pattern kData{0x3c, 0};

/// Ack timeout 2.15 s, as RDMA-CM's default has it.
ScriptConfig probing(std::uint32_t mtu = 256) {
  return {.mtu = mtu, .timeout = 19, .probe_floor_ns = kFloorNs};
}

Packet write_only(std::uint32_t psn) {
  return {.opcode = kRcWriteOnly, .psn = psn, .payload = 4, .ack_req = true};
}

/// One WRITE that takes 10 us: PSN 0. Probes are due 10 us + 100 us after what they ask for.
void measure(RcScript& qp) {
  qp.at(0us).post_write(4).out(write_only(0));
  qp.at(10us).in(Ack{0}).completes(1);
}

}  // namespace

TEST_CASE("requester sends a packet again when its answer is later than round trips take", "[rc][probe]") {
  RcScript qp{probing()};
  measure(qp);
  qp.at(1ms).post_write(4).out(write_only(1));
  qp.at(1ms + 110us - 1ns).quiet();
  qp.at(1ms + 110us).out(write_only(1));
  qp.at(1ms + 120us).in(Ack{1}).completes(2);
  qp.counted(Count::kRequesterProbes, 1).counted(Count::kRequesterTimeouts, 0);
  qp.at(10s).quiet();
}

TEST_CASE("requester asks for no ACK of what nobody waits for if it has just asked", "[rc][probe][ack]") {
  // IBA 9.7.5.1.2 ?: when AckReq is set is the requester's choice.
  ScriptConfig config = probing();
  config.sig_all = false;
  config.send_wrs = 16;
  RcScript qp{config};
  const auto unasked = [](std::uint32_t psn) {
    Packet packet = write_only(psn);
    packet.ack_req = false;
    return packet;
  };
  qp.at(0us).post_write(4).out(write_only(0)).post_write(4).out(write_only(1));  // no round trip is known
  qp.at(10us).in(Ack{1});

  SECTION("for 50 us, and not if it is signaled") {
    qp.at(100us).post_write(4).out(write_only(2));
    qp.at(150us - 1ns).post_write(4).out(unasked(3));
    qp.post_write(4, send_flag::kSignaled).out(write_only(4)).in(Ack{4}).completes(5);
    qp.at(200us - 2ns).post_write(4).out(unasked(5));
    qp.at(200us - 1ns).post_write(4).out(write_only(6)).in(Ack{6});
  }
  SECTION("until half of the send queue is in use") {
    qp.at(100us).post_write(4).out(write_only(2));
    for (std::uint32_t psn = 3; psn <= 9; ++psn) qp.post_write(4).out(unasked(psn));
    qp.post_write(4).out(write_only(10));
    qp.in(Ack{9}).post_write(4).out(unasked(11));
  }
  SECTION("beyond that at every quarter of it") {
    qp.at(100us).post_write(4).out(write_only(2));
    for (std::uint32_t psn = 3; psn <= 9; ++psn) qp.post_write(4).out(unasked(psn));
    for (const std::uint32_t psn : {10U, 14U}) {
      qp.post_write(4).out(write_only(psn));
      for (std::uint32_t next = psn + 1; next < psn + 4; ++next) qp.post_write(4).out(unasked(next));
    }
  }
  SECTION("if nothing more follows a question does, 16 us later") {
    qp.at(100us).post_write(4).out(write_only(2)).post_write(4).out(unasked(3));
    qp.at(110us).in(Ack{2}).post_write(4).out(unasked(4));
    qp.at(110us + 16'383ns).quiet();
    qp.at(110us + 16'384ns).out({.opcode = kRcWriteOnly, .psn = 2, .ack_req = true}).quiet();
    qp.at(130us).in(Ack{4}).counted(Count::kRequesterTailQuestions, 1).counted(Count::kRequesterProbes, 0);
    qp.at(10s).quiet();
  }
  SECTION("no question if the next message asks") {
    qp.at(100us).post_write(4).out(write_only(2)).post_write(4).out(unasked(3));
    qp.at(110us).post_write(4, send_flag::kSignaled).out(write_only(4));
    qp.at(130us).in(Ack{4}).completes(5);
    qp.at(10s).quiet();
  }
  SECTION("what the question shows to be lost is probed for") {
    qp.at(100us).post_write(4).out(write_only(2)).post_write(4).out(unasked(3));
    qp.at(101us).in(Ack{2});
    qp.at(100us + 16'384ns).out({.opcode = kRcWriteOnly, .psn = 2, .ack_req = true}).in(Ack{2});
    qp.at(209'875ns - 1ns).quiet();  // 9/8 us less for the round trip of PSN 2
    qp.at(209'875ns).out(write_only(3)).in(Ack{3});
    qp.at(10s).quiet();
  }
  SECTION("what is sent again asks") {
    qp.at(100us).post_write(4).out(write_only(2)).post_write(4).out(unasked(3)).post_write(4).out(unasked(4));
    qp.at(110us).in(NakSequence{2}).out(write_only(2)).out(write_only(3)).out(write_only(4));
  }
}

TEST_CASE("requester asks about what nobody waits for if the next request waits for it", "[rc][probe][ack]") {
  // IBA 10.6.5.1 ?, 10.3.1.6 ?, 9.9.2.3; without an ack timeout nothing else would end the wait
  ScriptConfig config = probing();
  config.sig_all = false;
  config.timeout = GENERATE(std::uint8_t{19}, std::uint8_t{0});
  RcScript qp{config};
  constexpr Packet kQuestion{.opcode = kRcWriteOnly, .psn = 1, .ack_req = true};
  Packet unasked = write_only(3);
  unasked.ack_req = false;
  qp.at(0us).post_write(4).out(write_only(0)).post_write(4).out(write_only(1));
  qp.at(10us).in(Ack{1});
  qp.at(100us).post_write(4).out(write_only(2)).post_write(4).out(unasked);

  SECTION("a local invalidate") {
    const std::uint32_t key = qp.keys()
                                  .insert({.addr = qp.target.addr(),
                                           .length = 64,
                                           .pd = RcScript::kPd,
                                           .access = kAllRights | access::kInvalidatable})
                                  .value();
    qp.post({.opcode = WrOpcode::kLocalInv, .flags = send_flag::kSignaled, .invalidate_rkey = Rkey{key}});
    qp.at(116'383ns).quiet();
    qp.at(116'384ns).out(kQuestion).quiet();
    qp.in(Ack{3}).completes({.wr_id = 5, .opcode = WcOpcode::kLocalInv});
  }
  SECTION("one that is posted while the queue drains") {
    qp.move_to(QpState::kSqd).post_write(4);
    qp.at(116'384ns).out(kQuestion).quiet();
    qp.in(Ack{3}).raises(AsyncEventType::kSqDrained);
  }
  SECTION("one that cannot be sent") {
    Sge nowhere = qp.source.sge(0, 4);
    nowhere.lkey = Lkey{1};
    qp.post({.sges = {&nowhere, 1}});
    qp.at(116'384ns).out(kQuestion).quiet();
    qp.in(Ack{3}).completes(5, WcStatus::kLocProtErr).is_in(QpState::kError);
  }
  SECTION("also if that is posted when the loop looks already") {
    Sge nowhere = qp.source.sge(0, 4);
    nowhere.lkey = Lkey{1};
    REQUIRE(qp.context().sq.put({.wr_id = 5, .sges = {&nowhere, 1}}, 0));
    qp.context().sq.publish(1);
    qp.at(116'384ns).quiet();
    qp.at(132'768ns).out(kQuestion).quiet();
    qp.in(Ack{3}).completes(5, WcStatus::kLocProtErr).is_in(QpState::kError);
  }
  SECTION("not before the address of a new path is known") {
    qp.move_to(QpState::kSqd);
    QpAttr attr{.state = QpState::kSqd, .dgid = qp.peer_address().sgid};
    REQUIRE(qp.modify(attr, qp_attr::kState | qp_attr::kAv));
    qp.at(200us).quiet();
    qp.qp().set_resolved();
    qp.transmit().forget();
    qp.in(Ack{3}).raises(AsyncEventType::kSqDrained);
  }
  qp.counted(Count::kRequesterProbes, 0);
}

TEST_CASE("requester probes with one packet, and sends the rest of a lost tail as answers come",
          "[rc][probe]") {
  RcScript qp{probing()};
  measure(qp);
  qp.at(1ms).together([](RcScript& script) {
    for (int i = 0; i < 5; ++i) script.post_write(4);
  });
  qp.forget();  // all five are lost
  qp.at(1ms + 110us).out(write_only(1)).quiet();
  qp.in(Ack{1}).completes(2).out(write_only(2)).out(write_only(3)).quiet();
  qp.in(Ack{3}).completes(3).completes(4).out(write_only(4)).out(write_only(5)).quiet();
  qp.in(Ack{5}).completes(5).completes(6);
  qp.counted(Count::kRequesterProbes, 1).counted(Count::kRequesterGoBacks, 1);
}

TEST_CASE("requester goes on where it was if a probe shows that only the ACK was lost", "[rc][probe]") {
  RcScript qp{{.mtu = 256, .timeout = 19, .max_unacked = 8, .probe_floor_ns = kFloorNs}};
  measure(qp);
  qp.at(1ms).post_write(16 * 256).forget();  // eight packets leave
  qp.at(1ms + 110us)
      .out({.opcode = kRcWriteFirst, .psn = 1, .payload = 256, .ack_req = true, .reth = remote(16 * 256)})
      .quiet();
  qp.in(Ack{8});
  for (std::uint32_t i = 9; i < 16; ++i) {  // the whole window again
    qp.out({.opcode = kRcWriteMiddle,
            .psn = i,
            .payload = 256,
            .ack_req = i % 2 == 0,
            .data = qp.source.initial((i - 1) * 256)});
  }
  qp.out({.opcode = kRcWriteLast,
          .psn = 16,
          .payload = 256,
          .ack_req = true,
          .data = qp.source.initial(15 * 256)});
  qp.in(Ack{16}).completes(2);
}

TEST_CASE("requester doubles the time from probe to probe, and fails when the ack timeouts are over",
          "[rc][probe][timeout][T11]") {
  // IBA 9.7.6.1.3: probes neither use up retries nor prolong them.
  RcScript qp{{.mtu = 256, .timeout = 10, .retry_cnt = 1, .probe_floor_ns = kFloorNs}};  // 4.19 ms
  measure(qp);
  constexpr auto kTimeout = std::chrono::nanoseconds{4096 << 10};
  const auto start = std::chrono::nanoseconds{1ms};
  qp.at(start).post_write(4).out(write_only(1));
  for (const auto base : {start, start + kTimeout}) {
    for (const auto after : {110us, 330us, 770us, 1650us, 3410us}) {
      qp.at(base + after - 1ns).quiet();
      qp.at(base + after).out(write_only(1));
    }
    qp.at(base + kTimeout - 1ns).quiet();
    qp.at(base + kTimeout);
    if (base == start) qp.out(write_only(1));
  }
  qp.completes(2, WcStatus::kRetryExcErr).is_in(QpState::kError);
  qp.counted(Count::kRequesterProbes, 10).counted(Count::kRequesterTimeouts, 2);
}

TEST_CASE("requester waits 4 ms before the first probe while no round trip is known", "[rc][probe]") {
  RcScript qp{probing()};
  qp.at(0us).post_write(4).out(write_only(0));
  qp.at(4ms - 1ns).quiet();
  qp.at(4ms).out(write_only(0));
  qp.in(Ack{0}).completes(1);
}

TEST_CASE("an answer to what was sent twice tells no round trip", "[rc][probe]") {
  // RFC 6298, section 3
  RcScript qp{probing()};
  measure(qp);
  qp.at(1ms).post_write(4).out(write_only(1));
  qp.at(1ms + 110us).out(write_only(1));
  qp.at(1ms + 320us).in(Ack{1}).completes(2);  // of the first or of the second?
  qp.at(2ms).post_write(4).out(write_only(2));
  qp.at(2ms + 220us - 1ns).quiet();  // 5.5: what was waited for stays twice as long until a time is known
  qp.at(2ms + 220us).out(write_only(2));
  qp.in(Ack{2}).completes(3);
}

TEST_CASE("a round trip that has grown is known after a few probes", "[rc][probe]") {
  // RFC 6298, section 5.5 to 5.7
  RcScript qp{probing()};
  measure(qp);
  for (std::uint32_t psn = 1; psn <= 8; ++psn) {
    qp.at(1ms * psn).post_write(4).out(write_only(psn));
    if (psn == 1) qp.at(1ms + 110us).out(write_only(1));
    if (psn == 2) qp.at(2ms + 220us).out(write_only(2));
    qp.at(1ms * psn + 320us).in(Ack{psn}).completes(psn + 1);
  }
  qp.counted(Count::kRequesterProbes, 2);
}

TEST_CASE("slow round trips make probes late", "[rc][probe]") {
  // RFC 6298, section 2: 1 ms and a variation of 0.5 ms after the first sample
  RcScript qp{probing()};
  qp.at(0us).post_write(4).out(write_only(0));
  qp.at(1ms).in(Ack{0}).completes(1);
  qp.at(2ms).post_write(4).out(write_only(1));
  qp.at(5ms - 1ns).quiet();
  qp.at(5ms).out(write_only(1));
  qp.in(Ack{1}).completes(2);
}

TEST_CASE("a probe asks for a READ from its first missing response", "[rc][probe][read]") {
  // IBA 9.4.4
  RcScript qp{probing()};
  measure(qp);
  qp.at(1ms).post_read(3 * 256).out(
      {.opcode = kRcReadRequest, .psn = 1, .ack_req = true, .reth = remote(3 * 256)});
  qp.in({.opcode = kRcReadResponseFirst, .psn = 1, .payload = 256, .data = kData});
  qp.at(1ms + 110us).out({.opcode = kRcReadRequest, .psn = 2, .ack_req = true, .reth = remote(2 * 256, 256)});
  qp.in({{.opcode = kRcReadResponseFirst, .psn = 2, .payload = 256, .data = from(kData, 256)},
         {.opcode = kRcReadResponseLast, .psn = 3, .payload = 256, .data = from(kData, 512)}});
  qp.completes(2);
  CHECK(qp.sink.holds(0, 3 * 256, kData));
}

TEST_CASE("nothing is sent again before the ack timeout where no probe is wanted", "[rc][probe][timeout]") {
  const bool forever = GENERATE(true, false);
  RcScript qp{
      {.timeout = static_cast<std::uint8_t>(forever ? 0 : 10), .probe_floor_ns = forever ? kFloorNs : 0}};
  measure(qp);
  qp.at(1ms).post_write(4).out(write_only(1));
  qp.at(5ms).quiet();
  if (!forever) qp.at(1ms + std::chrono::nanoseconds{4096 << 10}).out(write_only(1));
  qp.at(6ms).in(Ack{1}).completes(2);
  qp.at(10s).quiet();
  qp.counted(Count::kRequesterProbes, 0);
}

TEST_CASE("probes do not let implied NAKs use up retries one after the other", "[rc][probe][implied-nak]") {
  // IBA 9.7.5.1.4 ?: one go-back per loss, and one retry, until there is progress
  RcScript qp{{.mtu = 256, .timeout = 19, .retry_cnt = 1, .probe_floor_ns = kFloorNs}};
  measure(qp);
  qp.at(1ms).together([](RcScript& script) { script.post_read(4).post_write(4); }).forget();
  qp.in(Ack{2}).forget();  // the READ's response was lost: everything again
  for (const auto after : {110us, 330us, 770us}) {
    qp.at(1ms + after).out({.opcode = kRcReadRequest, .psn = 1, .ack_req = true, .reth = remote(4)});
    qp.in(Ack{2}).quiet();  // to the WRITE, which came again
  }
  qp.in({.opcode = kRcReadResponseOnly, .psn = 1, .payload = 4, .data = kData}).completes(2).forget();
  qp.in(Ack{2}).completes(3).is_in(QpState::kRts);
}
