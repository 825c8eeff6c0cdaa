// What responses do to the send queue, and which of them do nothing.
#include <catch2/catch.hpp>

#include "script/remote.h"

using namespace uroce;
using namespace uroce::test;

namespace {

Packet send_only(std::uint32_t psn) {
  return {.opcode = kRcSendOnly, .psn = psn, .payload = 4, .ack_req = true};
}

/// Three SENDs in flight with PSNs 0, 1 and 2.
void three_in_flight(RcScript& qp) {
  qp.together([](RcScript& script) { script.post_send(4).post_send(4).post_send(4); });
  for (std::uint32_t psn = 0; psn < 3; ++psn) qp.out(send_only(psn));
}

}  // namespace

TEST_CASE("one ACK completes all work requests up to its PSN, in order", "[rc][ack]") {
  RcScript qp;
  three_in_flight(qp);
  qp.in(Ack{1}).completes(1).completes(2).quiet();
  qp.in(Ack{2}).completes(3);
}

TEST_CASE("the ACK of the only message that is in flight renews what the QP is told of retries",
          "[rc][ack]") {
  // IBA 9.7.6.1.3 ?, 9.7.5.2.8
  RcScript qp{{.timeout = 1, .retry_cnt = 1, .rnr_retry = 1}};
  constexpr auto period = 8192ns;  // of timeout 1
  for (unsigned i = 0; i < 3; ++i) {
    CAPTURE(i);
    const auto at = i * 200ms;
    qp.at(at).post_send(4).out(send_only(i));
    qp.at(at + period).out(send_only(i));  // the one retry there is
    qp.in(Ack{i}).completes(i + 1);
    qp.at(at + 50ms).quiet();  // nothing is waited for
  }
  for (unsigned i = 3; i < 6; ++i) {
    CAPTURE(i);
    const auto at = i * 200ms;
    qp.at(at).post_send(4).out(send_only(i)).in(RnrNak{i, 1}).quiet();
    qp.at(at + 10us).out(send_only(i)).in(Ack{i}).completes(i + 1);
  }
  qp.counted(Count::kRequesterTimeouts, 3).counted(Count::kRequesterRnrNaks, 3).is_in(QpState::kRts);
}

TEST_CASE("an ACK does not stand for the answer of the only READ or atomic", "[rc][implied-nak][T12]") {
  // IBA 9.7.5.1.4 ?
  const bool is_read = GENERATE(true, false);
  RcScript qp;
  const Packet request = is_read
                             ? Packet{.opcode = kRcReadRequest, .psn = 0, .ack_req = true, .reth = remote(4)}
                             : Packet{kRcFetchAdd, 0, 0, true};
  is_read ? qp.post_read(4) : qp.post_add(1);
  qp.out(request).in(Ack{0}).out(request).counted(Count::kRequesterImpliedNaks, 1);
}

TEST_CASE("the only message that was acknowledged says what the path carries", "[rc][timeout]") {
  RcScript qp{{.mtu = 1024, .timeout = 1, .retry_cnt = 0}};
  qp.post_send(300).forget().in(Ack{0}).completes(1);
  qp.post_send(1024).forget().at(8192ns).completes(2, WcStatus::kRetryExcErr);
  CHECK(qp.context().carried_bytes == 300);
  CHECK(qp.context().lost_bytes == 1024);
}

TEST_CASE("an ACK in the middle of a message completes nothing", "[rc][ack]") {
  // as Soft-RoCE does: an ACK may come for mid-message PSNs
  RcScript qp{{.mtu = 256}};
  qp.post_send(1024).forget();
  qp.in(Ack{0}).quiet();
  qp.in(Ack{2}).quiet();
  qp.at(68ms).out({kRcSendLast, 3, 256, true});  // and what it covers is not sent again
  qp.in(Ack{3}).completes(1);
}

TEST_CASE("responses outside the PSNs in flight change nothing", "[rc][ghost][S5]") {
  // IBA 9.7.6.1.1 ?: a forged or late response
  const std::uint32_t first = GENERATE(0U, 0xff'ffffU, 0x80'0000U);
  const std::uint32_t offset = GENERATE(0xff'ffffU, 0xff'fff0U, 0x80'0000U, 3U, 4U, 0x7f'ffffU);
  RcScript qp{{.first_psn = first}};
  qp.together([](RcScript& script) { script.post_send(4).post_send(4).post_send(4); });
  qp.forget();
  const std::uint32_t psn = (first + offset) & 0xff'ffff;
  qp.in({Ack{psn}, NakSequence{psn}, RnrNak{psn, 1}, Nak{psn, 0x61}, Nak{psn, 0x62}, Nak{psn, 0x63},
         Nak{psn, 0x45}, Packet{.opcode = kRcReadResponseOnly, .psn = psn, .payload = 4},
         Packet{.opcode = kRcAtomicAck, .psn = psn}});
  qp.counted(Count::kRequesterGhostResponses, 9).is_in(QpState::kRts).quiet();
  qp.in(Ack{(first + 2) & 0xff'ffff}).completes(1).completes(2).completes(3);
}

TEST_CASE("responses change nothing while nothing is in flight", "[rc][ghost]") {
  RcScript qp;
  qp.in({Ack{0}, Ack{0xff'ffff}, NakSequence{0}, RnrNak{0, 0}, Nak{0, 0x61}});
  qp.counted(Count::kRequesterGhostResponses, 5);
  qp.post_send(4).out(send_only(0)).in(Ack{0}).completes(1);
  qp.in({Ack{0}, Ack{0}}).quiet();
}

TEST_CASE("credits in an ACK do not matter", "[rc][ack]") {
  // IBA 9.7.7.2 ?: end-to-end credits are not in use
  const auto code = static_cast<std::uint8_t>(GENERATE(range(0, 32)));
  RcScript qp;
  three_in_flight(qp);
  qp.in(Nak{2, code, 3}).completes(1).completes(2).completes(3);
}

TEST_CASE(
    "a fatal NAK fails the work request that has its PSN, completes those before and flushes those behind",
    "[rc][nak]") {
  // IBA 9.9.2.4
  struct Row {
    std::uint8_t syndrome;
    WcStatus status;
  };
  const auto row = GENERATE(values<Row>({{0x61, WcStatus::kRemInvReqErr},
                                         {0x62, WcStatus::kRemAccessErr},
                                         {0x63, WcStatus::kRemOpErr},
                                         {0x64, WcStatus::kRemInvRdReqErr}}));
  RcScript qp;
  qp.post_recv(8);
  three_in_flight(qp);
  qp.in(Nak{1, row.syndrome});
  qp.completes(1)
      .completes(2, row.status)
      .completes(3, WcStatus::kWrFlushErr)
      .receives(1, WcStatus::kWrFlushErr);
  qp.is_in(QpState::kError).counted(Count::kRequesterFatalNaks, 1);
  qp.at(1s).quiet();
}

TEST_CASE("a reserved syndrome is a bad response", "[rc][nak]") {
  // IBA 9.7.6, 9.7.5.1 ?
  const std::uint8_t syndrome = GENERATE(as<std::uint8_t>{}, 0x40, 0x5f, 0x65, 0x7f, 0x80, 0xa0, 0xe0, 0xff);
  RcScript qp;
  three_in_flight(qp);
  qp.in(Nak{0, syndrome}).completes(1, WcStatus::kBadRespErr);
  qp.completes(2, WcStatus::kWrFlushErr).completes(3, WcStatus::kWrFlushErr).is_in(QpState::kError);
}

TEST_CASE("a response of another kind than the work request asks for is a bad response", "[rc][response]") {
  RcScript qp;
  SECTION("a READ response to a SEND") {
    qp.post_send(4).forget();
    qp.in({.opcode = kRcReadResponseOnly, .psn = 0, .payload = 4}).completes(1, WcStatus::kBadRespErr);
  }
  SECTION("an atomic response to a SEND") {
    qp.post_send(4).forget();
    qp.in({.opcode = kRcAtomicAck, .psn = 0}).completes(1, WcStatus::kBadRespErr);
  }
  SECTION("an atomic response to a READ") {
    qp.post_read(4).forget();
    qp.in({.opcode = kRcAtomicAck, .psn = 0}).completes(1, WcStatus::kBadRespErr);
  }
  SECTION("a READ response to an atomic") {
    qp.post_add(4).forget();
    qp.in({.opcode = kRcReadResponseOnly, .psn = 0, .payload = 8}).completes(1, WcStatus::kBadRespErr);
  }
  qp.is_in(QpState::kError);
  CHECK(qp.sink.is_untouched());
}

TEST_CASE("a READ or atomic response with a syndrome that is no ACK is a bad response", "[rc][response]") {
  // IBA 9.7.6, 9.7.5.1 ?: what would refuse the request comes in an Acknowledge packet
  const std::uint8_t syndrome = GENERATE(as<std::uint8_t>{}, 0x20, 0x40, 0x60, 0x62, 0x80);
  const wire::Aeth aeth{.syndrome = syndrome, .msn = 1};
  RcScript qp{{.mtu = 256}};
  SECTION("of a READ") {
    qp.post_read(4).forget();
    qp.in({.opcode = kRcReadResponseOnly, .psn = 0, .payload = 4, .aeth = aeth});
  }
  SECTION("of a READ's end") {
    qp.post_read(300).forget();
    qp.in({{.opcode = kRcReadResponseFirst, .psn = 0, .payload = 256},
           {.opcode = kRcReadResponseLast, .psn = 1, .payload = 44, .aeth = aeth}});
  }
  SECTION("of an atomic") {
    qp.post_add(4).forget();
    qp.in({.opcode = kRcAtomicAck, .psn = 0, .aeth = aeth});
  }
  qp.completes(1, WcStatus::kBadRespErr).is_in(QpState::kError);
}

TEST_CASE("a READ response of the wrong length is a bad response and writes nothing", "[rc][read]") {
  // IBA 9.7.6 ?
  RcScript qp{{.mtu = 256}};
  qp.post_read(600).post_send(4).forget();
  SECTION("too short in the middle") {
    qp.in({.opcode = kRcReadResponseFirst, .psn = 0, .payload = 252});
  }
  SECTION("too long at the end") {
    qp.in({{.opcode = kRcReadResponseFirst, .psn = 0, .payload = 256},
           {.opcode = kRcReadResponseMiddle, .psn = 1, .payload = 256},
           {.opcode = kRcReadResponseLast, .psn = 2, .payload = 92}});
  }
  SECTION("empty at the end") {
    qp.in({{.opcode = kRcReadResponseFirst, .psn = 0, .payload = 256},
           {.opcode = kRcReadResponseMiddle, .psn = 1, .payload = 256},
           {.opcode = kRcReadResponseLast, .psn = 2, .payload = 0}});
  }
  qp.completes(1, WcStatus::kBadRespErr).completes(2, WcStatus::kWrFlushErr).is_in(QpState::kError);
  CHECK(qp.sink.is_untouched_but(0, 512));
}

TEST_CASE("a READ into memory that may not be written fails locally and writes nothing", "[rc][read][key]") {
  // IBA 9.9.2 ?: LOC_PROT_ERR
  RcScript qp;
  Sge sge = qp.sink.sge(0, 64);
  SECTION("the region allows no local write") {
    sge = qp.source.sge(0, 64);
  }
  SECTION("the key is unknown") {
    sge.lkey = Lkey{raw(sge.lkey) ^ 1};
  }
  SECTION("the range ends one byte outside") {
    sge.addr += qp.sink.bytes().size() - 63;
  }
  SECTION("the range starts one byte outside") {
    sge.addr -= 1;
  }
  qp.post({.sges = {&sge, 1},
           .opcode = WrOpcode::kRdmaRead,
           .remote_addr = RcScript::kRemoteVa,
           .rkey = RcScript::kRemoteKey});
  qp.out({kRcReadRequest, 0, 0, true});
  qp.in({.opcode = kRcReadResponseOnly, .psn = 0, .payload = 64}).completes(1, WcStatus::kLocProtErr);
  qp.is_in(QpState::kError);
  CHECK(qp.sink.is_untouched());
}

TEST_CASE("a bad SGE fails its own work request: those before complete, those behind are flushed",
          "[rc][key]") {
  // IBA 9.9.2.3 ?
  const unsigned bad = GENERATE(1U, 2U, 3U);
  const bool in_second_sge = GENERATE(false, true);
  RcScript qp{{.mtu = 256}};
  qp.together([&](RcScript& script) {
    for (unsigned i = 1; i <= 3; ++i) {
      Sge sges[] = {script.source.sge(0, 300), script.source.sge(400, 300)};
      if (i == bad) sges[in_second_sge ? 1 : 0].lkey = Lkey{0x1234'5678};
      script.post({.sges = sges, .opcode = WrOpcode::kSend});
    }
  });
  const std::uint32_t good_packets = (bad - 1) * 3;
  for (std::uint32_t psn = 0; psn < good_packets; ++psn) {
    const bool last = psn % 3 == 2;
    qp.out({psn % 3 == 0 ? kRcSendFirst : last ? kRcSendLast : kRcSendMiddle, psn, last ? 88U : 256U, last});
  }
  if (in_second_sge) qp.out({kRcSendFirst, good_packets, 256});  // what could be gathered has left
  if (bad > 1) {
    qp.quiet();
    qp.in(Ack{good_packets - 1});
    for (unsigned i = 1; i < bad; ++i) qp.completes(i);
  }
  qp.completes(bad, WcStatus::kLocProtErr);
  for (unsigned i = bad + 1; i <= 3; ++i) qp.completes(i, WcStatus::kWrFlushErr);
  qp.is_in(QpState::kError).at(1s).quiet();
}

TEST_CASE("a bad work request waits for the loss of those before it to be mended", "[rc][key]") {
  RcScript qp{{.timeout = 8}};
  qp.together([](RcScript& script) {
    script.post_send(4);
    const Sge bad{.addr = 0, .length = 4, .lkey = Lkey{9}};
    script.post({.sges = {&bad, 1}, .opcode = WrOpcode::kSend});
  });
  qp.out(send_only(0)).at(2ms).out(send_only(0));
  qp.in(Ack{0}).completes(1).completes(2, WcStatus::kLocProtErr);
}

TEST_CASE("a work request that the QP cannot do fails locally", "[rc][local]") {
  // IBA 9.9.2 ?
  RcScript qp{{.max_rd_atomic = 0}};
  const Sge sge = qp.sink.sge(0, 8);
  WcStatus status = WcStatus::kLocQpOpErr;
  SECTION("an unknown opcode") {
    qp.post({.sges = {&sge, 1}, .opcode = WrOpcode{42}});
  }
  SECTION("a READ with max_rd_atomic 0") {
    qp.post({.sges = {&sge, 1}, .opcode = WrOpcode::kRdmaRead});
  }
  SECTION("an atomic with max_rd_atomic 0") {
    qp.post({.sges = {&sge, 1}, .opcode = WrOpcode::kAtomicFetchAndAdd});
  }
  qp.completes(1, status).is_in(QpState::kError).quiet();
}

TEST_CASE("a work request with a bad length fails locally", "[rc][local]") {
  RcScript qp;
  const Sge four = qp.sink.sge(0, 4);
  const Sge nine = qp.sink.sge(0, 9);
  const Sge half{.addr = qp.source.addr(), .length = 0x8000'0000U, .lkey = Lkey{qp.source.key()}};
  const Sge one = qp.source.sge(0, 1);
  const Sge too_long[] = {half, one};
  SECTION("an atomic of 4 bytes") {
    qp.post({.sges = {&four, 1}, .opcode = WrOpcode::kAtomicCmpAndSwp});
  }
  SECTION("an atomic of 9 bytes") {
    qp.post({.sges = {&nine, 1}, .opcode = WrOpcode::kAtomicFetchAndAdd});
  }
  SECTION("2^31 + 1 bytes") {
    qp.post({.sges = too_long, .opcode = WrOpcode::kRdmaWrite});
  }
  qp.completes(1, WcStatus::kLocLenErr).is_in(QpState::kError).quiet();
}

TEST_CASE("a READ of 2^31 bytes is asked for", "[rc][read]") {
  // IBA 9.4.4 ?; 2^23 packets of 256 bytes, of which a window is asked for
  RcScript qp{{.mtu = 256, .max_unacked = 4}};
  const Sge half{.addr = qp.sink.addr(), .length = 0x8000'0000U, .lkey = Lkey{qp.sink.key()}};
  qp.post({.sges = {&half, 1},
           .opcode = WrOpcode::kRdmaRead,
           .remote_addr = RcScript::kRemoteVa,
           .rkey = RcScript::kRemoteKey});
  qp.out({.opcode = kRcReadRequest, .psn = 0, .ack_req = true, .reth = remote(512)});
  qp.out({.opcode = kRcReadRequest, .psn = 2, .ack_req = true, .reth = remote(512, 512)});
  qp.in({.opcode = kRcReadResponseFirst, .psn = 0, .payload = 256});
  qp.out({.opcode = kRcReadRequest, .psn = 4, .ack_req = true, .reth = remote(512, 1024)});
}
