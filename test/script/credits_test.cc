// End-to-end credits: the responder tells how many receives it has, the requester stays within. IBA 9.7.7.2 ?
#include <catch2/catch.hpp>

#include "script/remote.h"

using namespace uroce;
using namespace uroce::test;

namespace {

/// Credits per code, 0 to 30.
constexpr std::uint32_t kTable[31] = {0,    1,    2,    3,    4,    6,     8,     12,    16,   24,   32,
                                      48,   64,   96,   128,  192,  256,   384,   512,   768,  1024, 1536,
                                      2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768};

ScriptConfig with_credits() {
  return {.mtu = 256, .credits = true};
}

Packet send_only(std::uint32_t psn, std::uint32_t bytes = 4) {
  return {.opcode = kRcSendOnly, .psn = psn, .payload = bytes, .ack_req = true};
}
Packet write_only(std::uint32_t psn) {
  return {.opcode = kRcWriteOnly, .psn = psn, .payload = 4, .ack_req = true};
}

/// The first message of the connection, PSN 0, and the credits that its ACK brings.
void open_with(RcScript& qp, std::uint8_t code) {
  qp.post_send(4).out(send_only(0));
  qp.in(CreditAck{0, 1, code}).completes(1);
}

void post_sends(RcScript& qp, int count) {
  qp.together([count](RcScript& script) {
    for (int i = 0; i < count; ++i) script.post_send(4);
  });
}

}  // namespace

TEST_CASE("responder tells each number of receives as the largest code below", "[rc][credits]") {
  const std::uint32_t code = GENERATE(range(0U, 31U));
  const std::uint32_t above = code < 30 ? kTable[code + 1] - kTable[code] - 1 : 100;
  const std::uint32_t more = GENERATE(0U, 1U);
  if (kTable[code] > 4096 || (more != 0 && above == 0)) return;
  const std::uint32_t receives = kTable[code] + (more == 0 ? 0 : above);
  RcScript qp{{.credits = true, .recv_wrs = 8192}};
  for (std::uint32_t i = 0; i < receives; ++i) qp.post_recv(0);
  qp.in({.opcode = kRcWriteOnly, .psn = 0, .ack_req = true});
  qp.out(CreditAck{0, 1, static_cast<std::uint8_t>(code)});
}

TEST_CASE("responder tells 31 without the option, and for shared receives", "[rc][credits]") {
  SECTION("without the option") {
    RcScript qp;
    qp.post_recv(4).in(send_only(0)).out(Ack{0, 1}).receives(1, 4);
  }
  SECTION("shared receives") {
    RcScript qp{{.credits = true, .shared_wrs = 8}};
    qp.post_shared(4).in(send_only(0)).out(Ack{0, 1}).receives(1, 4);
  }
}

TEST_CASE("responder counts a receive as long as its message has not ended", "[rc][credits]") {
  RcScript qp{with_credits()};
  qp.post_recv(300).post_recv(4);
  qp.in({.opcode = kRcSendFirst, .psn = 0, .payload = 256, .ack_req = true}).out(CreditAck{0, 0, 2});
  qp.in({.opcode = kRcSendLast, .psn = 1, .payload = 44, .ack_req = true}).out(CreditAck{1, 1, 1});
  qp.receives(1, 300);
}

TEST_CASE("responder tells of receives in READ and atomic responses too", "[rc][credits]") {
  RcScript qp{with_credits()};
  qp.post_recv(4).post_recv(4).post_recv(4);
  qp.in({.opcode = kRcReadRequest, .psn = 0, .reth = own(qp, 4)});
  qp.out(
      {.opcode = kRcReadResponseOnly, .psn = 0, .payload = 4, .aeth = wire::Aeth{.syndrome = 3, .msn = 1}});
  qp.in({.opcode = kRcFetchAdd,
         .psn = 1,
         .atomic = wire::AtomicEth{.va = qp.target.addr(0), .rkey = qp.target.rkey()}});
  qp.out({.opcode = kRcAtomicAck, .psn = 1, .aeth = wire::Aeth{.syndrome = 3, .msn = 2}});
}

TEST_CASE("responder says unasked that receives were posted, once its peer has no credit left",
          "[rc][credits]") {
  RcScript qp{with_credits()};
  qp.post_recv(4).post_recv(4).in(send_only(0)).out(CreditAck{0, 1, 1}).receives(1, 4);
  qp.post_recv(4).quiet();  // the peer has one, and will hear with its ACK
  qp.in(send_only(1)).out(CreditAck{1, 2, 1}).receives(2, 4);
  qp.in(send_only(2)).out(CreditAck{2, 3, 0}).receives(3, 4);
  qp.at(1s).post_recv(4).out(CreditAck{2, 3, 1});
  qp.post_recv(4).quiet();
  qp.counted(Count::kResponderCreditUpdates, 1);
}

TEST_CASE("responder's word on receives waits for room", "[rc][credits]") {
  RcScript qp{with_credits()};
  qp.post_recv(4).in(send_only(0)).out(CreditAck{0, 1, 0}).receives(1, 4);
  qp.port().room = 0;
  qp.post_recv(4).post_recv(4).quiet();
  qp.port().room = 100;
  CHECK(qp.qp().wants_transmit(Ticks{1}));
  qp.transmit().out(CreditAck{0, 1, 2});
  qp.counted(Count::kResponderCreditUpdates, 1);
}

TEST_CASE("responder's word on receives carries the PSN of the newest SEND or WRITE, and the newest MSN",
          "[rc][credits]") {
  RcScript qp{with_credits()};
  qp.post_recv(4).in(send_only(0)).out(CreditAck{0, 1, 0}).receives(1, 4);
  qp.in({.opcode = kRcReadRequest, .psn = 1, .reth = own(qp, 4)});
  qp.out(
      {.opcode = kRcReadResponseOnly, .psn = 1, .payload = 4, .aeth = wire::Aeth{.syndrome = 0, .msn = 2}});
  qp.post_recv(4).out(CreditAck{0, 2, 1});
}

TEST_CASE("responder acknowledges the message that takes the last credit, asked or not", "[rc][credits]") {
  RcScript qp{with_credits()};
  qp.post_recv(4).post_recv(4);
  qp.in({.opcode = kRcWriteOnly, .psn = 0, .ack_req = true}).out(CreditAck{0, 1, 2});
  qp.in({.opcode = kRcSendOnly, .psn = 1, .payload = 4}).receives(1, 4).quiet();
  qp.in({.opcode = kRcSendOnly, .psn = 2, .payload = 4}).receives(2, 4).out(CreditAck{2, 3, 0});
}

TEST_CASE("responder answers a duplicate with the credits of now", "[rc][credits]") {
  RcScript qp{with_credits()};
  qp.post_recv(4).post_recv(4).in(send_only(0)).out(CreditAck{0, 1, 1}).receives(1, 4);
  qp.post_recv(4).post_recv(4);
  qp.in(send_only(0)).out(CreditAck{0, 1, 3});
}

TEST_CASE("responder's replay with an old MSN does not count as word of new receives", "[rc][credits]") {
  RcScript qp{with_credits()};
  qp.post_recv(4);
  const Packet read{.opcode = kRcReadRequest, .psn = 0, .reth = own(qp, 4)};
  qp.in(read).forget();
  qp.in(send_only(1)).out(CreditAck{1, 2, 0}).receives(1, 4);
  qp.together([&](RcScript& script) { script.post_recv(4).in(read); });
  qp.out(
      {.opcode = kRcReadResponseOnly, .psn = 0, .payload = 4, .aeth = wire::Aeth{.syndrome = 1, .msn = 1}});
  qp.out(CreditAck{1, 2, 1});
}

TEST_CASE("responder in Error says nothing of receives", "[rc][credits]") {
  RcScript qp{with_credits()};
  qp.post_recv(4).in(send_only(0)).out(CreditAck{0, 1, 0}).receives(1, 4);
  qp.move_to(QpState::kError);
  qp.post_recv(4).receives(2, WcStatus::kWrFlushErr).at(1s).quiet();
}

TEST_CASE("requester begins with one message, and goes on as its ACK allows", "[rc][credits]") {
  RcScript qp{with_credits()};
  post_sends(qp, 5);
  qp.out(send_only(0)).quiet();
  qp.at(1us).in(CreditAck{0, 1, 2}).completes(1).out(send_only(1)).out(send_only(2)).quiet();
  qp.at(2us).in(CreditAck{2, 3, 4}).completes(2).completes(3).out(send_only(3)).out(send_only(4)).quiet();
  qp.in(CreditAck{4, 5, 2}).completes(4).completes(5);
  qp.counted(Count::kRequesterLimited, 1).at(10s).quiet();
}

TEST_CASE("requester without the option does not look at credits", "[rc][credits]") {
  RcScript qp{{.mtu = 256}};
  open_with(qp, 0);
  qp.post_send(4).post_send(4).out(send_only(1)).out(send_only(2));
  qp.in(CreditAck{2, 3, 0}).completes(2).completes(3);
}

TEST_CASE("requester has no limit once the peer says that it counts nothing", "[rc][credits]") {
  RcScript qp{with_credits()};
  post_sends(qp, 3);
  qp.out(send_only(0)).quiet();
  qp.in(Ack{0, 1}).completes(1).out(send_only(1)).out(send_only(2));
  qp.in(CreditAck{2, 3, 0}).completes(2).completes(3);
  qp.post_send(4).out(send_only(3)).in(Ack{3, 4}).completes(4);
}

TEST_CASE("requester takes each code for as many receives", "[rc][credits]") {
  const auto code = static_cast<std::uint8_t>(GENERATE(range(0, 14)));
  RcScript qp{{.credits = true, .send_wrs = 256}};
  open_with(qp, code);
  post_sends(qp, static_cast<int>(kTable[code]) + 3);
  CHECK(qp.waiting() == kTable[code]);
  qp.forget();
}

TEST_CASE("requester's WRITEs, READs and atomics need no credit and use up none", "[rc][credits]") {
  // The limit counts all messages, as MSN does: what takes no receive raises it.
  RcScript qp{with_credits()};
  open_with(qp, 1);
  qp.together([](RcScript& script) {
    script.post_write(4).post_read(4).post_add(1).post_send(4).post_send(4).post_write(4);
  });
  qp.out(write_only(1)).out({.opcode = kRcReadRequest, .psn = 2, .ack_req = true});
  qp.out({.opcode = kRcFetchAdd, .psn = 3, .ack_req = true}).out(send_only(4)).quiet();
  qp.in({CreditAck{1, 2, 1},
         {.opcode = kRcReadResponseOnly, .psn = 2, .payload = 4, .aeth = wire::Aeth{.syndrome = 1, .msn = 3}},
         {.opcode = kRcAtomicAck, .psn = 3, .aeth = wire::Aeth{.syndrome = 1, .msn = 4}}});
  qp.completes(2).completes(3).completes(4).quiet();
  qp.in(CreditAck{4, 5, 1}).completes(5).out(send_only(5)).out(write_only(6));
  qp.in(CreditAck{6, 7, 0}).completes(6).completes(7);
}

TEST_CASE("requester counts a READ that it asks for in parts as so many messages", "[rc][credits]") {
  RcScript qp{{.mtu = 256, .max_unacked = 4, .credits = true}};
  open_with(qp, 1);
  qp.together([](RcScript& script) { script.post_read(4 * 256).post_send(4).post_send(4); });
  for (const std::uint32_t psn : {1U, 3U}) qp.out({.opcode = kRcReadRequest, .psn = psn, .ack_req = true});
  for (std::uint32_t i = 0; i < 4; ++i) {
    const wire::Opcode opcode = i % 2 == 0 ? kRcReadResponseFirst : kRcReadResponseLast;
    const wire::Aeth aeth{.syndrome = 1, .msn = 2 + i / 2};
    qp.in({.opcode = opcode, .psn = 1 + i, .payload = 256, .aeth = aeth});
    if (i == 0) qp.out(send_only(5)).quiet();  // the window has room again
  }
  qp.completes(2).quiet();
  qp.in(CreditAck{5, 4, 1}).completes(3).out(send_only(6)).in(CreditAck{6, 5, 0}).completes(4);
}

TEST_CASE("requester sends only the first packet of a message beyond its credits", "[rc][credits]") {
  const bool with_imm = GENERATE(false, true);
  RcScript qp{with_credits()};
  const Sge sge = qp.source.sge(0, 700);
  qp.together([&](RcScript& script) {
    script.post({.sges = {&sge, 1},
                 .opcode = with_imm ? WrOpcode::kRdmaWriteWithImm : WrOpcode::kSend,
                 .remote_addr = RcScript::kRemoteVa,
                 .rkey = RcScript::kRemoteKey});
    script.post_write(4);
  });
  qp.out({.opcode = with_imm ? kRcWriteFirst : kRcSendFirst, .psn = 0, .payload = 256, .ack_req = true})
      .quiet();
  qp.in(CreditAck{0, 0, 0});  // taken, though the peer counts a receive in use no more
  qp.out({.opcode = with_imm ? kRcWriteMiddle : kRcSendMiddle, .psn = 1, .payload = 256});
  qp.out({.opcode = with_imm ? kRcWriteLastImm : kRcSendLast, .psn = 2, .payload = 188, .ack_req = true});
  qp.out(write_only(3)).in(CreditAck{3, 2, 0}).completes(1).completes(2);
}

TEST_CASE("requester sends the rest of a message once credits for it come", "[rc][credits]") {
  RcScript qp{with_credits()};
  open_with(qp, 0);
  qp.at(0us).post_send(300).at(67ms).quiet();
  qp.at(68ms).out({.opcode = kRcSendFirst, .psn = 1, .payload = 256, .ack_req = true}).quiet();
  qp.in(CreditAck{0, 1, 1}).out({.opcode = kRcSendLast, .psn = 2, .payload = 44, .ack_req = true});
  qp.in(CreditAck{2, 2, 0}).completes(2);
}

TEST_CASE("requester without credits is woken by the ACK that brings some", "[rc][credits]") {
  RcScript qp{with_credits()};
  open_with(qp, 0);
  qp.at(1us).post_send(4).post_send(4).quiet();
  qp.at(60ms).in(CreditAck{0, 1, 1}).out(send_only(1)).quiet();
  // The ack timeout runs from then on.
  qp.at(120ms).in(CreditAck{1, 2, 1}).completes(2).out(send_only(2)).at(186ms).quiet();
  qp.in(CreditAck{2, 3, 0}).completes(3);
  qp.counted(Count::kRequesterGhostResponses, 0).counted(Count::kRequesterTimeouts, 0);
  qp.counted(Count::kRequesterGoBacks, 0).at(10s).quiet();
}

TEST_CASE("requester is woken by credits whose ACK has the PSN of a SEND before a READ", "[rc][credits]") {
  RcScript qp{with_credits()};
  open_with(qp, 0);
  qp.post_read(4).out({.opcode = kRcReadRequest, .psn = 1, .ack_req = true});
  qp.in({.opcode = kRcReadResponseOnly, .psn = 1, .payload = 4, .aeth = wire::Aeth{.syndrome = 0, .msn = 2}});
  qp.completes(2).post_send(4).quiet();
  qp.in(CreditAck{0, 2, 1}).out(send_only(2)).in(CreditAck{2, 3, 0}).completes(3);
}

TEST_CASE("requester without credits asks for them after the measured round trip", "[rc][credits][probe]") {
  RcScript qp{{.mtu = 256, .timeout = 19, .probe_floor_ns = 100'000, .credits = true}};
  qp.at(0us).post_send(4).out(send_only(0));
  qp.at(10us).in(CreditAck{0, 1, 0}).completes(1);
  qp.at(1ms).post_send(4).quiet();
  const Packet question{
      .opcode = kRcWriteOnly, .psn = 0xff'ffff, .payload = 0, .ack_req = true, .reth = wire::Reth{}};
  Packet asked = question;
  asked.psn = 0;
  qp.at(1ms + 110us - 1ns).quiet().at(1ms + 110us).out(asked).quiet();
  qp.in(CreditAck{0, 1, 0}).quiet();
  qp.at(1ms + 330us).out(asked).quiet();  // after twice the time
  qp.in(CreditAck{0, 1, 1}).out(send_only(1)).in(CreditAck{1, 2, 0}).completes(2);
  qp.counted(Count::kRequesterCreditQuestions, 2).counted(Count::kRequesterTimeouts, 0);
  qp.counted(Count::kRequesterProbes, 0).at(10s).quiet();
}

TEST_CASE("responder takes the question for credits for the duplicate that it is", "[rc][credits]") {
  RcScript qp{{.expected_psn = 0, .credits = true}};
  const Packet question{.opcode = kRcWriteOnly, .psn = 0xff'ffff, .ack_req = true, .reth = wire::Reth{}};
  qp.post_recv(4).post_recv(4).in(question).out(CreditAck{0xff'ffff, 0, 2}).quiet();
}

TEST_CASE("requester without credits goes on with one message after the ack timeout", "[rc][credits]") {
  // The ACK that brought credits may be lost, or the peer may not volunteer any.
  RcScript qp{with_credits()};
  open_with(qp, 0);
  post_sends(qp, 2);
  qp.at(67'108'863ns).quiet().at(67'108'864ns).out(send_only(1)).quiet();
  qp.in(CreditAck{1, 2, 1}).completes(2).out(send_only(2)).in(CreditAck{2, 3, 0}).completes(3);
  qp.counted(Count::kRequesterTimeouts, 0).counted(Count::kRequesterLimited, 2);
}

TEST_CASE("requester without ack timeout goes on with one message at once", "[rc][credits]") {
  RcScript qp{{.mtu = 256, .timeout = 0, .credits = true}};
  open_with(qp, 0);
  post_sends(qp, 2);
  qp.out(send_only(1)).quiet().in(CreditAck{1, 2, 0}).completes(2).out(send_only(2));
  qp.in(CreditAck{2, 3, 0}).completes(3);
}

TEST_CASE("requester's message beyond its credits is one of those that are sent again", "[rc][credits]") {
  RcScript qp{with_credits()};
  open_with(qp, 0);
  post_sends(qp, 2);
  SECTION("an RNR NAK: no receive yet") {
    qp.at(68ms).out(send_only(1)).in(RnrNak{1, 1, 1}).at(68ms + 10us).out(send_only(1)).quiet();
  }
  SECTION("lost") {
    qp.at(68ms).out(send_only(1)).at(136ms).out(send_only(1)).quiet();
    qp.counted(Count::kRequesterTimeouts, 1);
  }
  SECTION("a NAK for its PSN") {
    qp.at(68ms).out(send_only(1)).in(NakSequence{1, 1}).out(send_only(1)).quiet();
  }
  qp.in(CreditAck{1, 2, 3}).completes(2).out(send_only(2)).in(CreditAck{2, 3, 2}).completes(3);
}

TEST_CASE("requester goes back over messages that have their credits without new ones", "[rc][credits]") {
  RcScript qp{with_credits()};
  open_with(qp, 3);
  post_sends(qp, 5);
  qp.out(send_only(1)).out(send_only(2)).out(send_only(3)).quiet();
  qp.in(NakSequence{1, 1}).out(send_only(1)).out(send_only(2)).out(send_only(3)).quiet();
  qp.in(CreditAck{1, 2, 2}).completes(2).quiet();  // the same three receives
  qp.in(CreditAck{3, 4, 1}).completes(3).completes(4).out(send_only(4)).quiet();
  qp.in(CreditAck{4, 5, 1}).completes(5).out(send_only(5)).in(CreditAck{5, 6, 0}).completes(6);
}

TEST_CASE("requester's limit does not sink: of late and coarse ACKs the highest counts", "[rc][credits]") {
  RcScript qp{with_credits()};
  open_with(qp, 4);                                                       // up to the fifth message
  qp.post_send(4).out(send_only(1)).in(CreditAck{1, 2, 1}).completes(2);  // would be the third
  qp.in(CreditAck{0, 1, 1});                                              // late
  post_sends(qp, 4);
  qp.out(send_only(2)).out(send_only(3)).out(send_only(4)).quiet();
  qp.in(CreditAck{4, 5, 1}).completes(3).completes(4).completes(5).out(send_only(5));
  qp.in(CreditAck{5, 6, 0}).completes(6);
}

TEST_CASE("requester does not believe an MSN above what it has sent", "[rc][credits][ghost]") {
  RcScript qp{with_credits()};
  open_with(qp, 0);
  qp.post_send(4).in(CreditAck{0, 2, 30}).in(CreditAck{0, 0xff'fff0, 4}).quiet();
  qp.in(CreditAck{1, 1, 4}).quiet();  // a PSN that was never sent
  qp.counted(Count::kRequesterGhostResponses, 1);
  qp.in(CreditAck{0, 1, 1}).out(send_only(1)).in(CreditAck{1, 2, 0}).completes(2);
}

TEST_CASE("requester without credits notices that the peer is dead", "[rc][credits]") {
  RcScript qp{{.mtu = 256, .retry_cnt = 1, .credits = true}};
  open_with(qp, 0);
  qp.post_send(4).at(68ms).out(send_only(1)).at(136ms).out(send_only(1));
  qp.at(203ms).completes(2, WcStatus::kRetryExcErr).is_in(QpState::kError);
}

TEST_CASE("requester without credits is flushed like any other", "[rc][credits][flush]") {
  RcScript qp{with_credits()};
  open_with(qp, 0);
  qp.post_send(4).post_write(4).quiet().move_to(QpState::kError);
  qp.completes(2, WcStatus::kWrFlushErr).completes(3, WcStatus::kWrFlushErr).at(1s).quiet();
}

TEST_CASE("requester without credits is drained at once, and waits on after SQD", "[rc][credits][sqd]") {
  RcScript qp{with_credits()};
  open_with(qp, 0);
  qp.post_send(4).quiet().move_to(QpState::kSqd).raises(AsyncEventType::kSqDrained);
  qp.in(CreditAck{0, 1, 1}).at(1s).quiet();
  qp.move_to(QpState::kRts).out(send_only(1)).in(CreditAck{1, 2, 0}).completes(2);
}
