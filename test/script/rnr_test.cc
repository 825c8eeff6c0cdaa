// Receiver not ready: both sides of the wait for a receive.
#include <catch2/catch.hpp>

#include "script/remote.h"

using namespace uroce;
using namespace uroce::test;

namespace {

/// Table 45 of IBA 9.7.5.2.8, in units of 10 us.
constexpr std::uint32_t kWaits[32] = {65536, 1,    2,    3,    4,    6,     8,     12,    16,    24,   32,
                                      48,    64,   96,   128,  192,  256,   384,   512,   768,   1024, 1536,
                                      2048,  3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152};

Packet send_only(std::uint32_t psn, std::uint32_t bytes = 4) {
  return {.opcode = kRcSendOnly, .psn = psn, .payload = bytes, .ack_req = true};
}

}  // namespace

TEST_CASE("requester waits exactly as long as an RNR NAK says, for each of the 32 codes", "[rc][rnr][T10]") {
  // IBA 9.7.5.2.8, table 45
  const std::uint8_t code = static_cast<std::uint8_t>(GENERATE(range(0, 32)));
  const std::chrono::nanoseconds wait = kWaits[code] * 10us;
  RcScript qp{{.timeout = 8}};  // 1 ms: shorter than many waits, and not running meanwhile
  qp.post_send(4).post_send(4).out(send_only(0)).out(send_only(1));
  qp.at(5us).in(RnrNak{0, code});
  qp.at(5us + wait - 1ns).quiet();
  qp.at(5us + wait).out(send_only(0)).out(send_only(1));
  qp.in(Ack{1}).completes(1).completes(2);
  qp.counted(Count::kRequesterRnrNaks, 1).counted(Count::kRequesterTimeouts, 0);
  qp.at(10s).quiet();
}

TEST_CASE("requester gives up after rnr_retry RNR NAKs in a row", "[rc][rnr][T10]") {
  // IBA 9.7.5.2.8
  const std::uint8_t rnr_retry = static_cast<std::uint8_t>(GENERATE(range(0, 7)));
  RcScript qp{{.rnr_retry = rnr_retry}};
  qp.together([](RcScript& script) { script.post_send(4).post_write(4); });
  for (std::uint32_t i = 0; i <= rnr_retry; ++i) {
    qp.out(send_only(0)).out({kRcWriteOnly, 1, 4, true});
    qp.in(RnrNak{0, 1});
    if (i < rnr_retry) qp.at((i + 1) * 10us);
  }
  qp.completes(1, WcStatus::kRnrRetryExcErr).completes(2, WcStatus::kWrFlushErr).is_in(QpState::kError);
  qp.at(1s).quiet();
}

TEST_CASE("requester with rnr_retry 7 never gives up", "[rc][rnr][T10]") {
  RcScript qp{{.retry_cnt = 0, .rnr_retry = 7}};
  qp.post_send(4).out(send_only(0));
  for (int i = 1; i < 1000; ++i) {
    qp.in(RnrNak{0, 1});
    qp.at(i * 10us).out(send_only(0));
  }
  qp.in(Ack{0}).completes(1);
}

TEST_CASE("requester's RNR retries start anew when the peer takes a message", "[rc][rnr]") {
  // IBA 9.7.6.1.3 ?
  RcScript qp{{.rnr_retry = 1}};
  qp.together([](RcScript& script) { script.post_send(4).post_send(4); });
  qp.out(send_only(0)).out(send_only(1));
  qp.in(RnrNak{0, 1}).at(10us).out(send_only(0)).out(send_only(1));
  qp.in(RnrNak{1, 1}).completes(1).at(20us).out(send_only(1));  // acknowledges PSN 0
  qp.in(RnrNak{1, 1}).completes(2, WcStatus::kRnrRetryExcErr);
}

TEST_CASE("requester takes an RNR NAK that comes twice for one", "[rc][rnr]") {
  RcScript qp{{.rnr_retry = 1}};
  qp.post_send(4).out(send_only(0));
  qp.in({RnrNak{0, 1}, RnrNak{0, 1}}).at(3us).in(RnrNak{0, 1});
  qp.at(10us).out(send_only(0)).in(Ack{0}).completes(1);
}

TEST_CASE("requester counts what it sends after the wait as sent, even if its timer is looked at late",
          "[rc][rnr]") {
  // A doorbell may find the wait over before the timer wheel does.
  RcScript qp{{.timeout = 8}};
  qp.post_send(4).out(send_only(0)).in(RnrNak{0, 1});
  qp.late_at(11us).post_send(4).out(send_only(0)).out(send_only(1));

  SECTION("a second RNR NAK makes it wait again") {
    qp.late_at(12us).in(RnrNak{0, 2});
    qp.at(32us - 1ns).quiet();
    qp.at(32us).out(send_only(0)).out(send_only(1)).in(Ack{1}).completes(1).completes(2);
    qp.counted(Count::kRequesterTimeouts, 0);
  }
  SECTION("the ack timer runs for what is left when one is acknowledged") {
    qp.late_at(12us).in(Ack{0}).completes(1);
    qp.at(12us + 1048576ns).out(send_only(1)).in(Ack{1}).completes(2);
    qp.counted(Count::kRequesterTimeouts, 1);
  }
}

TEST_CASE("requester stops waiting when the refused packet is acknowledged after all", "[rc][rnr]") {
  // A late copy of it may have found a receive.
  RcScript qp{{.timeout = 8}};
  qp.together([](RcScript& script) { script.post_send(4).post_send(4); });
  qp.out(send_only(0)).out(send_only(1)).in(RnrNak{0, 0});  // 655 ms
  qp.at(5us).in(Ack{0}).completes(1).out(send_only(1));
  qp.at(6us).in(Ack{1}).completes(2);
  qp.at(1s).quiet();
}

TEST_CASE("requester does not spend a retry on the gap that an RNR NAK leaves behind", "[rc][rnr]") {
  // as Soft-RoCE does: Soft-RoCE answers the packets behind a refused one with a sequence NAK
  RcScript qp{{.retry_cnt = 0}};
  qp.together([](RcScript& script) { script.post_send(4).post_send(4); });
  qp.out(send_only(0)).out(send_only(1)).in({RnrNak{0, 1}, NakSequence{0}});
  qp.at(10us).out(send_only(0)).out(send_only(1)).in(Ack{1}).completes(1).completes(2);
}

TEST_CASE("requester completes what an RNR NAK acknowledges", "[rc][rnr]") {
  RcScript qp;
  qp.together([](RcScript& script) { script.post_write(4).post_send(4); });
  qp.out({kRcWriteOnly, 0, 4, true}).out(send_only(1));
  qp.in(RnrNak{1, 1}).completes(1);
  qp.at(10us).out(send_only(1)).in(Ack{1}).completes(2);
}

TEST_CASE("responder refuses what needs a receive while none is posted", "[rc][rnr][T10]") {
  // IBA 9.7.4 ?: with its timer code; nothing is executed, the expected PSN stays, what follows is dropped
  // silently
  const std::uint8_t code = static_cast<std::uint8_t>(GENERATE(range(0, 32)));
  RcScript qp{{.min_rnr_timer = code}};
  const Pattern data{0x77, 0};
  qp.in({{.opcode = kRcWriteOnly, .psn = 0, .payload = 8, .reth = own(qp, 8)}, send_only(1), send_only(2)});
  qp.out(RnrNak{1, code, 1});
  qp.in(send_only(1)).out(RnrNak{1, code, 1});
  qp.post_recv(64).post_recv(64);
  qp.in({{.opcode = kRcSendOnly, .psn = 1, .payload = 4, .ack_req = true, .data = data}, send_only(2)});
  qp.out(Ack{2, 3}).receives(1, 4).receives(2, 4);
  CHECK(qp.inbox.holds(0, 4, data));
  qp.counted(Count::kResponderRnrNaks, 2);
}

TEST_CASE("responder asks for the receive of a WRITE with immediate at the packet that carries it",
          "[rc][rnr]") {
  // IBA 9.7.4 ?
  RcScript qp{{.mtu = 256}};
  const Pattern data{0x77, 0};
  const Packet first{.opcode = kRcWriteFirst, .psn = 0, .payload = 256, .reth = own(qp, 300), .data = data};
  const Packet last{
      .opcode = kRcWriteLastImm, .psn = 1, .payload = 44, .ack_req = true, .imm = 9, .data = from(data, 256)};
  qp.in({first, last}).out(RnrNak{1, 12, 0});
  CHECK(qp.target.is_untouched_but(0, 256));
  qp.post_recv(0u);
  qp.in(last).out(Ack{1, 1});
  qp.receives({.wr_id = 1,
               .byte_len = 300,
               .imm_data = network_order(9),
               .opcode = WcOpcode::kRecvRdmaWithImm,
               .flags = wc_flag::kWithImm});
  CHECK(qp.target.holds(0, 300, data));
}

TEST_CASE("responder needs no receive for the rest of a SEND that has one", "[rc][rnr]") {
  RcScript qp{{.mtu = 256}};
  qp.post_recv(512);
  qp.in(
      {{.opcode = kRcSendFirst, .psn = 0, .payload = 256}, {.opcode = kRcSendLast, .psn = 1, .payload = 4}});
  qp.receives(1, 260);
  qp.in({.opcode = kRcSendFirst, .psn = 2, .payload = 256}).out(RnrNak{2, 12, 1});
}
