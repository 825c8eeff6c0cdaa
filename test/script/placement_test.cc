// FLUSH and ATOMIC WRITE: both sides, loss, duplicates, and each reason to refuse. IBA A19.
#include <catch2/catch.hpp>
#include <cstring>

#include "script/remote.h"

using namespace uroce;
using namespace uroce::test;

namespace {

constexpr Pattern kData{0x31, 3};
using Feth = wire::Feth;

Packet atomic_write(RcScript& qp, std::uint32_t psn, std::uint64_t at = 0, Pattern data = kData) {
  return {.opcode = kRcAtomicWrite,
          .psn = psn,
          .payload = 8,
          .ack_req = true,
          .reth = own(qp, 8, at),
          .data = data};
}

Packet flush(RcScript& qp, std::uint32_t psn, std::uint32_t length,
             Feth feth = {.placement = Feth::kGlobal}) {
  return {.opcode = kRcFlush, .psn = psn, .ack_req = true, .feth = feth, .reth = own(qp, length)};
}

/// What answers both.
Packet placed(std::uint32_t psn, std::uint32_t msn) {
  return {.opcode = kRcReadResponseOnly, .psn = psn, .aeth = wire::Aeth{.syndrome = 0x1f, .msn = msn}};
}

}  // namespace

TEST_CASE("responder stores the word of an ATOMIC WRITE and answers without payload", "[rc][placement]") {
  RcScript qp;
  qp.in(atomic_write(qp, 0, 16)).out(placed(0, 1));
  CHECK(qp.target.holds(16, 8, kData));
  CHECK(qp.target.is_untouched_but(16, 8));
  qp.in({.opcode = kRcWriteOnly, .psn = 1, .payload = 4, .ack_req = true, .reth = own(qp, 4)}).out(Ack{1, 2});
}

TEST_CASE("responder answers a FLUSH of any kind without touching a byte", "[rc][placement]") {
  const std::uint8_t placement = GENERATE(values<std::uint8_t>({1, 2, 3}));
  const std::uint8_t selectivity = GENERATE(values<std::uint8_t>({Feth::kRange, Feth::kWholeMr}));
  const std::uint32_t length = GENERATE(0U, 1U, 64U, 4097U);
  RcScript qp;
  qp.in({{.opcode = kRcWriteOnly, .psn = 0, .payload = 8, .reth = own(qp, 8), .data = kData},
         flush(qp, 1, length, {.placement = placement, .selectivity = selectivity})});
  qp.out(placed(1, 2));
  CHECK(qp.target.holds(0, 8, kData));
  CHECK(qp.target.is_untouched_but(0, 8));
}

TEST_CASE("a FLUSH of a whole region needs its key only", "[rc][placement][key]") {
  RcScript qp;
  Packet packet = flush(qp, 0, 0xffff'ffff, {.placement = Feth::kGlobal, .selectivity = Feth::kWholeMr});
  packet.reth->va = 0;
  SECTION("any address and length will do") {
    qp.in(packet).out(placed(0, 1));
  }
  SECTION("a wrong key will not") {
    packet.reth->rkey = Rkey{raw(packet.reth->rkey) ^ 0x100};
    qp.in(packet).out(Nak{0, 0x62, 0}).raises(AsyncEventType::kQpAccessErr);
  }
}

TEST_CASE("responder refuses an ATOMIC WRITE of another length than 8", "[rc][placement][fault][length]") {
  RcScript qp;
  Packet packet = atomic_write(qp, 0);
  SECTION("less payload") {
    packet.payload = 4;
  }
  SECTION("more payload") {
    packet.payload = 16;
  }
  SECTION("no payload") {
    packet.payload = 0;
  }
  SECTION("another length in the RETH") {
    packet.reth->length = GENERATE(0U, 4U, 9U, 16U);
  }
  qp.in(packet).out(Nak{0, 0x61, 0}).raises(AsyncEventType::kQpReqErr).is_in(QpState::kError);
  CHECK(qp.target.is_untouched());
}

TEST_CASE("responder refuses an ATOMIC WRITE to an address that is not a multiple of 8",
          "[rc][placement][fault]") {
  const unsigned off = GENERATE(range(1U, 8U));
  RcScript qp;
  qp.in(atomic_write(qp, 0, off)).out(Nak{0, 0x61, 0}).raises(AsyncEventType::kQpReqErr);
  CHECK(qp.target.is_untouched());
}

TEST_CASE("responder refuses a FLUSH that asks for what is not defined", "[rc][placement][fault]") {
  const auto feth = GENERATE(values<Feth>({{.placement = 0},
                                           {.placement = 4},
                                           {.placement = 9},
                                           {.placement = 1, .selectivity = 2},
                                           {.placement = 1, .selectivity = 3}}));
  RcScript qp;
  qp.in(flush(qp, 0, 64, feth)).out(Nak{0, 0x61, 0}).raises(AsyncEventType::kQpReqErr);
}

TEST_CASE("each placement is a right of its own, of the QP and of the region",
          "[rc][placement][fault][access]") {
  const std::uint8_t placement = GENERATE(values<std::uint8_t>({1, 2, 3}));
  const std::uint32_t rights = GENERATE(0U, access::kFlushGlobal, access::kFlushPersistent,
                                        access::kFlushGlobal | access::kFlushPersistent);
  const bool may = (placement & Feth::kGlobal ? (rights & access::kFlushGlobal) != 0 : true) &&
                   (placement & Feth::kPersistent ? (rights & access::kFlushPersistent) != 0 : true);
  SECTION("of the QP: an invalid request") {
    RcScript qp{{.access_flags = access::kAll | rights}};
    qp.in(flush(qp, 0, 64, {.placement = placement}));
    may ? qp.out(placed(0, 1)) : qp.out(Nak{0, 0x61, 0}).raises(AsyncEventType::kQpReqErr);
  }
  SECTION("of the region: an access error") {
    RcScript qp;
    Packet packet = flush(qp, 0, 64, {.placement = placement});
    packet.reth->rkey = Rkey{qp.keys()
                                 .insert({.addr = qp.target.addr(),
                                          .length = 64,
                                          .pd = RcScript::kPd,
                                          .access = access::kAll | rights})
                                 .value()};
    qp.in(packet);
    may ? qp.out(placed(0, 1)) : qp.out(Nak{0, 0x62, 0}).raises(AsyncEventType::kQpAccessErr);
  }
}

TEST_CASE("responder answers a duplicate ATOMIC WRITE or FLUSH again and does not execute it again",
          "[rc][placement][duplicate]") {
  RcScript qp;
  qp.in(atomic_write(qp, 0)).out(placed(0, 1));
  qp.in(flush(qp, 1, 64)).out(placed(1, 2));
  qp.in({.opcode = kRcWriteOnly,
         .psn = 2,
         .payload = 8,
         .ack_req = true,
         .reth = own(qp, 8),
         .data = Pattern{9}});
  qp.out(Ack{2, 3});
  qp.in({atomic_write(qp, 0), flush(qp, 1, 64)}).out(placed(0, 1)).out(placed(1, 2));
  CHECK(qp.target.holds(0, 8, Pattern{9}));  // what came later is still there
  qp.counted(Count::kResponderReplayedAtomics, 2).counted(Count::kResponderMessages, 3);
}

TEST_CASE("a duplicate that is not the request of its PSN is dropped", "[rc][placement][duplicate]") {
  RcScript qp{{.max_dest_rd_atomic = 2}};
  qp.in(atomic_write(qp, 0)).out(placed(0, 1));
  qp.in(flush(qp, 0, 64)).quiet();
  qp.in(atomic_write(qp, 0, 8)).quiet();
  qp.in({.opcode = kRcReadRequest, .psn = 0, .ack_req = true, .reth = own(qp, 0)}).quiet();
  qp.counted(Count::kResponderForgottenDuplicates, 3);
  qp.in(flush(qp, 1, 8)).out(placed(1, 2)).in(flush(qp, 2, 8)).out(placed(2, 3));
  qp.in(atomic_write(qp, 0)).quiet();  // forgotten after two newer ones
  CHECK(qp.target.is_untouched_but(0, 8));
}

TEST_CASE("more than max_dest_rd_atomic of them at once are refused", "[rc][placement][fault][depth]") {
  RcScript qp{{.max_dest_rd_atomic = 2}};
  qp.port().room = 0;
  qp.in({atomic_write(qp, 0), flush(qp, 1, 8), atomic_write(qp, 2, 8)});
  qp.port().room = 100;
  qp.transmit().out(placed(0, 1)).out(placed(1, 2)).out(Nak{2, 0x61, 2});
  qp.raises(AsyncEventType::kQpReqErr);
  CHECK(qp.target.is_untouched_but(0, 8));
}

TEST_CASE("requester sends ATOMIC WRITE and FLUSH and completes them when they are answered",
          "[rc][placement][requester]") {
  RcScript qp{{.mtu = 256, .first_psn = 0xff'ffff}};
  qp.post_atomic_write();
  qp.out({.opcode = kRcAtomicWrite,
          .psn = 0xff'ffff,
          .payload = 8,
          .ack_req = true,
          .reth = remote(8),
          .data = qp.source.initial()});
  qp.post_flush({.length = 5000,
                 .placement = flush_placement::kGlobal | flush_placement::kPersistent,
                 .scope = FlushScope::kMr});
  qp.out({.opcode = kRcFlush,
          .psn = 0,
          .ack_req = true,
          .feth = Feth{.placement = 3, .selectivity = 1},
          .reth = remote(5000)});
  qp.in(placed(0xff'ffff, 1)).completes({.wr_id = 1, .opcode = WcOpcode::kAtomicWrite});
  qp.in(placed(0, 2)).completes({.wr_id = 2, .opcode = WcOpcode::kFlush});
  qp.at(1s).quiet();
}

TEST_CASE("inline data of an ATOMIC WRITE is what it was when posted", "[rc][placement][requester][inline]") {
  RcScript qp;
  std::uint64_t word = 0x0706'0504'0302'0100;
  const Sge sge{std::bit_cast<std::uint64_t>(&word), 8, Lkey{}};
  qp.post({.sges = {&sge, 1},
           .opcode = WrOpcode::kAtomicWrite,
           .flags = send_flag::kInline,
           .remote_addr = RcScript::kRemoteVa,
           .rkey = RcScript::kRemoteKey});
  qp.out({.opcode = kRcAtomicWrite, .payload = 8, .ack_req = true, .data = Pattern{0}});
  qp.in(placed(0, 1)).completes(1);
}

TEST_CASE("they count against max_rd_atomic, and a fence waits for them", "[rc][placement][requester]") {
  RcScript qp{{.max_rd_atomic = 2}};
  qp.together([](RcScript& s) {
    s.post_atomic_write().post_flush({.length = 8}).post_atomic_write().post_write(4, send_flag::kFence);
  });
  qp.out({kRcAtomicWrite, 0, 8, true}).out({kRcFlush, 1, 0, true}).quiet();
  qp.in(placed(0, 1)).completes(1).out({kRcAtomicWrite, 2, 8, true});
  qp.in(placed(1, 2)).completes(2).quiet();
  qp.in(placed(2, 3)).completes(3).out({kRcWriteOnly, 3, 4, true});
  qp.in(Ack{3}).completes(4);
}

TEST_CASE("a lost request or response is asked for again", "[rc][placement][loss]") {
  RcScript qp;
  qp.together(
      [](RcScript& s) { s.post_write(4).post_atomic_write().post_flush({.length = 8}).post_write(4); });
  const auto all_but_the_first = [&] {
    qp.out({kRcAtomicWrite, 1, 8, true}).out({kRcFlush, 2, 0, true}).out({kRcWriteOnly, 3, 4, true});
  };
  qp.out({kRcWriteOnly, 0, 4, true});
  all_but_the_first();
  SECTION("an ACK of what follows is an implied NAK") {
    qp.in(Ack{3}).completes(1);
    all_but_the_first();
  }
  SECTION("the answer to the FLUSH says that the one to the ATOMIC WRITE was lost") {
    qp.in(placed(2, 3)).completes(1);
    all_but_the_first();
  }
  SECTION("the timer") {
    qp.in(Ack{0}).completes(1);
    qp.at(100ms);
    all_but_the_first();
  }
  SECTION("a NAK") {
    qp.in(NakSequence{1, 1}).completes(1);
    all_but_the_first();
  }
  qp.in(placed(1, 2)).completes(2).in(placed(2, 3)).completes(3).in(Ack{3, 4}).completes(4);
  qp.at(1s).quiet();
}

TEST_CASE("a response of another kind or with payload is a bad response", "[rc][placement][fault]") {
  RcScript qp;
  const bool is_flush = GENERATE(true, false);
  is_flush ? qp.post_flush({.length = 8}) : qp.post_atomic_write();
  qp.forget();
  SECTION("payload") {
    qp.in({.opcode = kRcReadResponseOnly, .payload = 8});
  }
  SECTION("the first of several") {
    qp.in({.opcode = kRcReadResponseFirst, .payload = 0});
  }
  SECTION("of an atomic") {
    qp.in({.opcode = kRcAtomicAck});
  }
  qp.completes(1, WcStatus::kBadRespErr).is_in(QpState::kError);
}

TEST_CASE("a READ that is answered as a FLUSH would be has the wrong length", "[rc][placement][fault]") {
  RcScript qp;
  qp.post_read(8).forget();
  qp.in(placed(0, 1)).completes(1, WcStatus::kBadRespErr);
}

TEST_CASE("an ATOMIC WRITE or FLUSH that cannot be sent fails here", "[rc][placement][requester][fault]") {
  RcScript qp{{.max_rd_atomic = static_cast<std::uint8_t>(GENERATE(0, 1))}};
  const bool none = qp.qp().context().attr.max_rd_atomic == 0;
  SECTION("of 4 bytes") {
    const Sge sge = qp.source.sge(0, 4);
    qp.post({.sges = {&sge, 1}, .opcode = WrOpcode::kAtomicWrite});
    qp.completes(1, none ? WcStatus::kLocQpOpErr : WcStatus::kLocLenErr);
  }
  SECTION("with a key that is none") {
    Sge sge = qp.source.sge(0, 8);
    sge.lkey = Lkey{raw(sge.lkey) ^ 0x100};
    qp.post({.sges = {&sge, 1}, .opcode = WrOpcode::kAtomicWrite});
    qp.completes(1, none ? WcStatus::kLocQpOpErr : WcStatus::kLocProtErr);
  }
  SECTION("a FLUSH with data") {
    const Sge sge = qp.source.sge(0, 4);
    qp.post({.sges = {&sge, 1}, .opcode = WrOpcode::kFlush});
    qp.completes(1, none ? WcStatus::kLocQpOpErr : WcStatus::kLocLenErr);
  }
  qp.is_in(QpState::kError);
}

TEST_CASE("what a peer refuses fails with its reason", "[rc][placement][requester][fault]") {
  RcScript qp;
  qp.post_atomic_write().post_flush({.length = 8}).forget();
  qp.in(Nak{1, 0x62, 1})
      .out({kRcAtomicWrite, 0, 8, true})
      .out({kRcFlush, 1, 0, true});  // the answer to 0 is missing
  qp.in(placed(0, 1)).completes(1).in(Nak{1, 0x62, 1}).completes(2, WcStatus::kRemAccessErr);
}
