// Selective repeat: what is held, what is told of it, what is sent again. It is no IBTA protocol: RFC 6675
// and RFC 8985 have the reasoning for TCP, Mittal et al. (SIGCOMM 2018) for RoCE.
#include <catch2/catch.hpp>

#include "script/remote.h"
#include "uroce/ece.h"
#include "wire/packet.h"

using namespace uroce;
using namespace uroce::test;

namespace {

constexpr std::uint32_t kMtu = 256;
constexpr Pattern kData{0x3c, 0};
const ScriptConfig kOn{.mtu = kMtu, .ece = ece::kSelectiveRepeat};

/// A request of the peer: 8 bytes of `kData` to their place in the target.
Packet write(RcScript& qp, std::uint32_t psn, std::uint32_t place) {
  return {.opcode = kRcWriteOnly,
          .psn = psn,
          .payload = 8,
          .ack_req = true,
          .reth = own(qp, 8, 8 * place),
          .data = from(kData, 8 * place)};
}
Packet write(RcScript& qp, std::uint32_t psn) {
  return write(qp, psn, psn);
}

/// Packet `psn` of the WRITE of `packets` that starts at PSN 0, when it is sent again.
Packet again(std::uint32_t psn, std::uint32_t packets) {
  const bool is_last = psn + 1 == packets;
  Packet packet{.opcode = psn == 0  ? kRcWriteFirst
                          : is_last ? kRcWriteLast
                                    : kRcWriteMiddle,
                .psn = psn,
                .payload = kMtu,
                .ack_req = true};
  if (psn == 0) packet.reth = remote(packets * kMtu);
  return packet;
}

std::uint32_t psn_of(const Bytes& frame) {
  wire::PacketView packet;
  REQUIRE(wire::parse_packet(frame, packet) == wire::ParseResult::kRoce);
  return packet.bth.psn.value();
}

Packet response(wire::Opcode opcode, std::uint32_t psn) {
  return {.opcode = opcode, .psn = psn, .payload = kMtu, .data = from(kData, psn * kMtu)};
}

Packet read_request(std::uint32_t psn, std::uint32_t first, std::uint32_t packets) {
  return {.opcode = kRcReadRequest,
          .psn = psn,
          .ack_req = true,
          .reth = remote(packets * kMtu, (psn - first) * kMtu)};
}

}  // namespace

TEST_CASE("responder holds what comes ahead, tells it once per burst and takes it in its turn",
          "[rc][xrc][selective][responder]") {
  const QpType type = GENERATE(QpType::kRc, QpType::kXrcRecv);
  RcScript qp{
      {.type = type, .mtu = kMtu, .ece = ece::kSelectiveRepeat, .shared_wrs = type == QpType::kRc ? 0U : 8U}};
  qp.in(write(qp, 1)).out(SelectiveNak{0, {1}});
  qp.in(write(qp, 2)).out(SelectiveNak{0, {1, 2}});
  qp.in({write(qp, 4), write(qp, 5)}).out(SelectiveNak{0, {1, 2, 4, 5}});
  CHECK(qp.target.is_untouched());
  qp.in(write(qp, 0)).out(SelectiveNak{3, {4, 5}, 3});
  CHECK(qp.target.holds(0, 24, kData));
  CHECK(qp.target.is_untouched_but(0, 24));
  qp.in(write(qp, 3)).out(Ack{5, 6});
  CHECK(qp.target.holds(0, 48, kData));
  qp.counted(Count::kResponderHeldRequests, 4).counted(Count::kResponderReplayedRequests, 4);
  qp.counted(Count::kResponderSelectiveNaks, 4).counted(Count::kResponderDuplicateRequests, 0);
}

TEST_CASE("responder of XRC that takes what it held for another queue has all queues looked at",
          "[xrc][selective][responder][srq]") {
  // Whoever waits for the limit of the first is told, be it that both have one CQ.
  RcScript qp{{.type = QpType::kXrcRecv, .mtu = kMtu, .ece = ece::kSelectiveRepeat, .shared_wrs = 8}};
  XrcSide& xrc = qp.xrc();
  transport::CqRing& cq = *xrc.domain.find(1)->cq;
  xrc.domain.remove(xrc.other);
  xrc.domain.add(xrc.other, cq);
  Area area(qp.keys(), RcScript::kOtherPd, 4096, access::kLocalWrite, 0x20);
  const Sge sge = area.sge(0, 64);
  REQUIRE(xrc.other.ring.put({.wr_id = 50, .sges = {&sge, 1}}, 0));
  xrc.other.ring.publish(1);
  qp.post_shared(64);
  qp.in({.opcode = kRcSendOnly, .psn = 1, .payload = 4, .srq = 2});  // held
  CHECK((qp.notes() & transport::QpContext::kManyQueues) == 0);
  qp.in({.opcode = kRcSendOnly, .psn = 0, .payload = 4, .srq = 1}).forget();
  CHECK((qp.notes() & transport::QpContext::kManyQueues) != 0);
}

TEST_CASE("responder without the option drops what comes ahead, and says so once", "[rc][selective][T30]") {
  RcScript qp{{.mtu = kMtu}};
  qp.in(write(qp, 1)).out(NakSequence{0}).in({write(qp, 2), write(qp, 3)}).quiet();
  qp.in(write(qp, 0)).out(Ack{0, 1});
  CHECK(qp.target.is_untouched_but(0, 8));
  qp.counted(Count::kResponderHeldRequests, 0);
}

TEST_CASE("responder puts the packets of a SEND together in any order, over the wrap of PSNs",
          "[rc][selective][responder][T6]") {
  RcScript qp{{.mtu = kMtu, .expected_psn = 0xff'ffff, .ece = ece::kSelectiveRepeat}};
  qp.post_recv(1024);
  qp.in({.opcode = kRcSendLast, .psn = 1, .payload = 10, .ack_req = true, .data = from(kData, 2 * kMtu)});
  qp.out(SelectiveNak{0xff'ffff, {1}});
  qp.in({.opcode = kRcSendMiddle, .psn = 0, .payload = kMtu, .data = from(kData, kMtu)});
  qp.out(SelectiveNak{0xff'ffff, {0, 1}});
  qp.in({.opcode = kRcSendFirst, .psn = 0xff'ffff, .payload = kMtu, .data = kData});
  qp.out(Ack{1, 1}).receives(1, 2 * kMtu + 10);
  CHECK(qp.inbox.holds(0, 2 * kMtu + 10, kData));
}

TEST_CASE("responder holds 256 packets and no more", "[rc][selective][responder]") {
  RcScript qp{kOn};
  qp.in(write(qp, 257)).out(NakSequence{0}).in(write(qp, 257)).quiet();
  qp.in(write(qp, 256)).out(SelectiveNak{0, {256}});
  qp.counted(Count::kResponderUnheldRequests, 2).counted(Count::kResponderHeldRequests, 1);
}

TEST_CASE("responder does not hold the same packet twice, and tells of it again",
          "[rc][selective][responder]") {
  RcScript qp{kOn};
  Packet other = write(qp, 1);
  other.data = Pattern{0x99, 1};
  qp.in(write(qp, 1)).out(SelectiveNak{0, {1}}).in(other).out(SelectiveNak{0, {1}});
  qp.in(write(qp, 0)).out(Ack{1, 2});
  CHECK(qp.target.holds(0, 16, kData));
  qp.counted(Count::kResponderHeldRequests, 1);
}

TEST_CASE("responder tells what it holds when a duplicate comes", "[rc][selective][responder]") {
  RcScript qp{kOn};
  qp.in(write(qp, 0)).out(Ack{0, 1}).in(write(qp, 2)).out(SelectiveNak{1, {2}, 1});
  qp.in(write(qp, 0)).out(SelectiveNak{1, {2}, 1});  // that one was lost
  qp.in(write(qp, 1)).out(Ack{2, 3});
}

TEST_CASE("responder forgets what it holds behind a SEND that finds no receive", "[rc][selective][rnr]") {
  RcScript qp{kOn};
  const Packet send{.opcode = kRcSendOnly, .psn = 1, .payload = 8, .ack_req = true, .data = kData};
  qp.in({send, write(qp, 2)}).out(SelectiveNak{0, {1, 2}});
  qp.in(write(qp, 0)).out(RnrNak{1, 12, 1});
  qp.in(write(qp, 2)).quiet();  // what follows is sent again anyhow
  qp.post_recv(8).in(send).out(Ack{1, 2}).receives(1, 8);
  CHECK(qp.target.is_untouched_but(0, 8));
  qp.in(write(qp, 2)).out(Ack{2, 3});
}

TEST_CASE("responder answers a READ that was held before the NAK of what is missing behind it",
          "[rc][selective][responder]") {
  RcScript qp{kOn};
  const Packet read{.opcode = kRcReadRequest, .psn = 1, .ack_req = true, .reth = own(qp, 2 * kMtu)};
  qp.in({read, write(qp, 4, 100)}).out(SelectiveNak{0, {1, 4}});
  qp.in(write(qp, 0, 200));
  qp.out({.opcode = kRcReadResponseFirst, .psn = 1, .payload = kMtu});
  qp.out({.opcode = kRcReadResponseLast, .psn = 2, .payload = kMtu}).out(SelectiveNak{3, {4}, 2});
  qp.in(write(qp, 3, 300)).out(Ack{4, 4});
}

namespace {

/// Packets of the READ that starts at PSN 0, when they are asked for.
Packet ask(RcScript& qp, std::uint32_t first, std::uint32_t count = 1) {
  return {
      .opcode = kRcReadRequest, .psn = first, .ack_req = true, .reth = own(qp, count * kMtu, first * kMtu)};
}

/// These packets of the READ leave, and no others.
void answered(RcScript& qp, std::uint32_t packets, const std::vector<std::uint32_t>& sent) {
  for (const std::uint32_t psn : sent) {
    const bool is_last = psn + 1 == packets;
    const auto opcode = psn == 0  ? kRcReadResponseFirst
                        : is_last ? kRcReadResponseLast
                                  : kRcReadResponseMiddle;
    qp.out({.opcode = opcode, .psn = psn, .payload = kMtu, .data = qp.target.initial(psn * kMtu)});
  }
  qp.quiet();
}

}  // namespace

TEST_CASE("responder sends the parts of a READ that are asked for again, and nothing between them",
          "[rc][selective][responder][read][T30]") {
  constexpr std::uint32_t kPackets = 12;
  RcScript qp{kOn};
  qp.in(ask(qp, 0, kPackets)).forget();
  SECTION("three parts") {
    qp.in({ask(qp, 1), ask(qp, 4, 2), ask(qp, 11)});
    answered(qp, kPackets, {1, 4, 5, 11});
  }
  SECTION("in the order asked for") {
    qp.in({ask(qp, 8), ask(qp, 2), ask(qp, 5), ask(qp, 0)});
    answered(qp, kPackets, {8, 2, 5, 0});
  }
  SECTION("parts that touch, and some asked for twice") {
    qp.in({ask(qp, 3), ask(qp, 4), ask(qp, 8, 2), ask(qp, 9), ask(qp, 8), ask(qp, 4)});
    answered(qp, kPackets, {3, 4, 8, 9});
  }
}

TEST_CASE("responder without the option sends what lies between parts that are asked for again, too",
          "[rc][selective][responder][read]") {
  RcScript qp{{.mtu = kMtu}};
  qp.in(ask(qp, 0, 12)).forget();
  qp.in({ask(qp, 1), ask(qp, 4, 2)});
  answered(qp, 12, {1, 2, 3, 4, 5});
}

TEST_CASE("responder that is asked for more parts of a READ than it remembers sends each once",
          "[rc][selective][responder][read]") {
  RcScript qp{kOn};
  qp.in(ask(qp, 0, 48)).forget();
  qp.in({ask(qp, 0), ask(qp, 2), ask(qp, 4), ask(qp, 6), ask(qp, 8), ask(qp, 10), ask(qp, 12), ask(qp, 14),
         ask(qp, 16), ask(qp, 18), ask(qp, 20), ask(qp, 22), ask(qp, 24), ask(qp, 26), ask(qp, 28),
         ask(qp, 30), ask(qp, 32), ask(qp, 34), ask(qp, 36)});
  // The last one that it remembers grows.
  answered(qp, 48, {0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30, 32, 33, 34, 35, 36});
}

TEST_CASE("responder forgets the parts of a READ that a newer request takes the place of",
          "[rc][selective][responder][read]") {
  RcScript qp{{.mtu = kMtu, .max_dest_rd_atomic = 1, .ece = ece::kSelectiveRepeat}};
  qp.in(ask(qp, 0, 12)).forget();
  qp.in({ask(qp, 1),
         ask(qp, 4),
         {.opcode = kRcReadRequest, .psn = 12, .ack_req = true, .reth = own(qp, kMtu)}});
  qp.out({.opcode = kRcReadResponseOnly, .psn = 12, .payload = kMtu, .data = qp.target.initial(0)}).quiet();
  qp.in(ask(qp, 4)).quiet();
  qp.in({.opcode = kRcReadRequest, .psn = 12, .ack_req = true, .reth = own(qp, kMtu)});
  qp.out({.opcode = kRcReadResponseOnly, .psn = 12, .payload = kMtu, .data = qp.target.initial(0)}).quiet();
}

TEST_CASE("responder judges a request that was held as one that comes", "[rc][selective][fault]") {
  RcScript qp{kOn};
  Packet bad = write(qp, 1);
  bad.reth->rkey = Rkey{0x1234};
  qp.in({bad, write(qp, 2)}).out(SelectiveNak{0, {1, 2}});
  qp.in(write(qp, 0)).out(Nak{1, 0x62, 1}).raises(AsyncEventType::kQpAccessErr).is_in(QpState::kError);
  CHECK(qp.target.is_untouched_but(0, 8));
}

TEST_CASE("requester sends again only what the peer misses, each once",
          "[rc][xrc][selective][requester][T30]") {
  const QpType type = GENERATE(QpType::kRc, QpType::kXrcSend);
  RcScript qp{{.type = type, .mtu = kMtu, .ece = ece::kSelectiveRepeat}};
  const auto of_type = [type](Packet packet) {
    if (type == QpType::kXrcSend) packet.srq = 0;
    return packet;
  };
  qp.post_write(8 * kMtu).forget();
  qp.in(SelectiveNak{1, {2, 3, 5}}).out(of_type(again(1, 8))).out(of_type(again(4, 8))).quiet();
  qp.in(SelectiveNak{1, {2, 3, 5}}).quiet();
  qp.in(SelectiveNak{4, {5, 6, 7}}).quiet();  // sent before the packet that is missing came again
  qp.in(Ack{7}).completes(1);
  qp.counted(Count::kRequesterRepeatedPackets, 2).counted(Count::kRequesterSelectiveNaks, 3);
  qp.counted(Count::kRequesterGoBacks, 0);
  qp.at(10s).quiet();
}

TEST_CASE("requester goes on where it was behind what it sends again", "[rc][selective][requester]") {
  RcScript qp{{.mtu = kMtu, .max_unacked = 8, .ece = ece::kSelectiveRepeat}};
  qp.post_write(12 * kMtu).forget();  // eight leave
  qp.in(SelectiveNak{2, {3}}).out(again(2, 12));
  for (const std::uint32_t psn : {8U, 9U}) {
    Packet next = again(psn, 12);
    next.ack_req = psn == 9;  // the window closes
    qp.out(next);
  }
  qp.quiet();
}

TEST_CASE("requester sends a packet once more when something sent later has arrived, and not before",
          "[rc][selective][requester]") {
  RcScript qp{kOn};
  qp.post_write(4 * kMtu).forget();
  qp.in(SelectiveNak{1, {2}}).out(again(1, 4));
  qp.in(SelectiveNak{1, {2, 3}}).quiet();
  qp.post_write(4).forget();  // PSN 4
  qp.in(SelectiveNak{1, {2, 3, 4}}).out(again(1, 4)).quiet();
  SECTION("a later repeat tells of an earlier one, too") {
    qp.post_write(3 * kMtu).forget();  // 5 to 7
    qp.in(SelectiveNak{1, {2, 3, 4, 6, 7}});
    qp.out(again(1, 4)).out({.opcode = kRcWriteFirst, .psn = 5, .payload = kMtu, .ack_req = true});
    qp.in(SelectiveNak{1, {2, 3, 4, 5, 6, 7}}).out(again(1, 4)).quiet();
    qp.in(Ack{7}).completes(1).completes(2).completes(3);
  }
  SECTION("which uses up no retries") {
    for (std::uint32_t psn = 5; psn < 20; ++psn) {
      qp.post_write(4).forget();
      qp.in(SelectiveNak{1, {2, 3, 4, psn}});
      qp.out(again(1, 4));
      qp.forget();
    }
    qp.in(Ack{19}).completes(1);
    qp.forget();
  }
}

TEST_CASE("requester asks for nothing that is not in flight, whatever a NAK says",
          "[rc][selective][forged]") {
  RcScript qp{kOn};
  qp.post_write(4).forget();
  qp.in(SelectiveNak{0, {1, 100, 256}}).quiet();  // beyond
  qp.in(SelectiveNak{1, {2}}).quiet().counted(Count::kRequesterGhostResponses, 1);
  Packet strange = SelectiveNak{0, {1}};
  strange.aeth->syndrome =
      GENERATE(std::uint8_t{0x1f}, std::uint8_t{0x20}, std::uint8_t{0x62}, std::uint8_t{0xff});
  qp.in(strange).quiet().counted(Count::kRequesterGhostResponses, 2);
  qp.post_write(4).out({.opcode = kRcWriteOnly, .psn = 1, .payload = 4, .ack_req = true});
  qp.in(Ack{1}).completes(1).completes(2);
}

TEST_CASE("requester sends everything again after an ack timeout, whatever was said to be held",
          "[rc][selective][forged][timeout]") {
  RcScript qp{kOn};
  qp.post_write(4 * kMtu).forget();
  qp.in(SelectiveNak{0, {1, 2, 3}}).out(again(0, 4)).quiet();  // 1 to 3 are not held in truth
  qp.at(68ms);
  for (std::uint32_t psn = 0; psn < 4; ++psn) {
    Packet packet = again(psn, 4);
    packet.ack_req = psn == 3;
    qp.out(packet);
  }
  qp.in(Ack{3}).completes(1);
}

TEST_CASE("requester sends again what the peer let go of at an RNR NAK that was lost",
          "[rc][selective][requester][rnr]") {
  const bool are_atomics = GENERATE(false, true);
  ScriptConfig config = kOn;
  config.probe_floor_ns = 100'000;
  config.timeout = 19;
  RcScript qp{config};
  qp.at(0us).post_write(4).forget();
  qp.at(10us).in(Ack{0}).completes(1);  // a round trip takes that
  if (are_atomics) {                    // PSN 1 to 8
    qp.post_send(4);
    for (int i = 0; i < 7; ++i) qp.post_add(1);
    qp.forget();
  } else {
    qp.post_write(8 * kMtu).forget();
  }
  qp.at(20us).in(SelectiveNak{1, {2, 3, 4, 5, 6, 7, 8}}).forget();
  qp.at(200us);  // 1 was taken, and there was no receive for 2; a probe asks
  REQUIRE(qp.waiting() == 1);
  qp.forget();
  qp.in(Ack{1});
  for (std::uint32_t psn = 2; psn <= 8;) {
    REQUIRE(qp.waiting() > 0);
    const std::uint32_t first = psn;
    for (; qp.waiting() > 0; ++psn) CHECK(psn_of(qp.take_frame()) == psn);
    for (std::uint32_t each = first; are_atomics && each < psn; ++each)
      qp.in({.opcode = kRcAtomicAck, .psn = each});
    if (!are_atomics) qp.in(Ack{psn - 1});
  }
  for (std::uint64_t wr = 2; wr <= (are_atomics ? 9U : 2U); ++wr) qp.completes(wr);
  qp.counted(Count::kRequesterGoBacks, 1).counted(Count::kRequesterTimeouts, 0);
}

TEST_CASE("requester that did not agree does not read a selective NAK", "[rc][selective][T30]") {
  RcScript qp{{.mtu = kMtu}};
  qp.post_write(4).forget();
  qp.in(SelectiveNak{0, {1}}).quiet().counted(Count::kRequesterGhostResponses, 1);
  qp.in(Ack{0}).completes(1);
}

TEST_CASE("requester goes back at a plain NAK of a peer that holds nothing", "[rc][selective][requester]") {
  RcScript qp{kOn};
  qp.post_write(3 * kMtu).forget();
  qp.in(NakSequence{1});
  Packet middle = again(1, 3);
  middle.ack_req = false;
  qp.out(middle).out(again(2, 3)).quiet().counted(Count::kRequesterGoBacks, 1);
  qp.in(Ack{2}).completes(1);
}

TEST_CASE("requester asks again for the missing responses of a READ alone", "[rc][selective][read][T30]") {
  RcScript qp{kOn};
  qp.post_read(6 * kMtu).out(read_request(0, 0, 6));
  qp.in(response(kRcReadResponseFirst, 0)).quiet();
  qp.in(response(kRcReadResponseMiddle, 3)).out(read_request(1, 0, 6 - 4)).quiet();
  qp.in(response(kRcReadResponseMiddle, 4)).in(response(kRcReadResponseLast, 5)).quiet();
  SECTION("both come") {
    qp.in(response(kRcReadResponseMiddle, 1)).quiet().in(response(kRcReadResponseMiddle, 2));
  }
  SECTION("one is lost once more") {
    qp.in(response(kRcReadResponseMiddle, 2))
        .out({.opcode = kRcReadRequest, .psn = 1, .ack_req = true, .reth = remote(kMtu, kMtu)});
    qp.in(response(kRcReadResponseMiddle, 1));
  }
  qp.completes({.wr_id = 1, .byte_len = 6 * kMtu, .opcode = WcOpcode::kRdmaRead});
  CHECK(qp.sink.holds(0, 6 * kMtu, kData));
  qp.counted(Count::kRequesterGoBacks, 0);
}

TEST_CASE("requester completes what an ACK told of once the READ before it has its response",
          "[rc][selective][read]") {
  RcScript qp{kOn};
  qp.post_read(kMtu).post_send(4).post_write(4).forget();
  qp.in(Ack{2}).out(read_request(0, 0, 1)).quiet();
  qp.in(response(kRcReadResponseOnly, 0)).completes(1).completes(2).completes(3).quiet();
  CHECK(qp.sink.holds(0, kMtu, kData));
  qp.at(10s).quiet();
}

TEST_CASE("requester asks again for the atomic alone whose response is missing", "[rc][selective][atomic]") {
  RcScript qp{kOn};
  qp.post_add(1).post_add(2).post_add(3).forget();
  qp.in({.opcode = kRcAtomicAck, .psn = 0, .original = 5}).completes(1);
  qp.in({.opcode = kRcAtomicAck, .psn = 2, .original = 8});
  qp.out({.opcode = kRcFetchAdd, .psn = 1, .ack_req = true}).quiet();
  qp.in({.opcode = kRcAtomicAck, .psn = 1, .original = 6}).completes(2).completes(3);
  qp.counted(Count::kRequesterHeldResponses, 1);
}

TEST_CASE("requester sends what the peer refused for want of a receive again, with all behind it",
          "[rc][selective][rnr]") {
  RcScript qp{kOn};
  qp.post_write(4).post_send(4).post_write(4).forget();
  qp.in(SelectiveNak{0, {1, 2}}).out({.opcode = kRcWriteOnly, .psn = 0, .payload = 4, .ack_req = true});
  qp.in(RnrNak{1, 1}).completes(1).quiet();
  qp.at(1ms).out({.opcode = kRcSendOnly, .psn = 1, .payload = 4, .ack_req = true});
  qp.out({.opcode = kRcWriteOnly, .psn = 2, .payload = 4, .ack_req = true}).quiet();
  qp.in(Ack{2}).completes(2).completes(3);
}

TEST_CASE("selective repeat is granted to reliable QPs", "[selective]") {
  const auto [type, granted] = GENERATE(table<QpType, std::uint32_t>(
      {{QpType::kRc, ece::kSelectiveRepeat}, {QpType::kUc, 0}, {QpType::kUd, 0}}));
  RcScript qp{{.type = type, .ece = ece::kSelectiveRepeat}};
  CHECK(qp.context().ece == granted);
}
