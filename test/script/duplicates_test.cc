// Requests that come again: nothing is executed twice.
#include <catch2/catch.hpp>

#include "script/remote.h"

using namespace uroce;
using namespace uroce::test;

namespace {

constexpr Pattern kData{0x66, 5};
constexpr Pattern kOther{0x99, 1};

wire::AtomicEth add(RcScript& qp, std::uint64_t n) {
  return {.va = qp.target.addr(), .rkey = qp.target.rkey(), .swap_add = n, .compare = 0};
}

std::uint64_t counter(RcScript& qp) {
  std::uint64_t value = 0;
  std::memcpy(&value, qp.target.bytes().data(), 8);
  return value;
}

void set_counter(RcScript& qp, std::uint64_t value) {
  std::memcpy(qp.target.bytes().data(), &value, 8);
}

}  // namespace

TEST_CASE("responder acknowledges a duplicate SEND and leaves memory and receives alone", "[rc][duplicate]") {
  // IBA 9.7.5.1.5 ?: ACK with the newest PSN and the current MSN
  RcScript qp;
  qp.post_recv(8).post_recv(8);
  qp.in({.opcode = kRcSendOnly, .psn = 0, .payload = 8, .ack_req = true, .data = kData});
  qp.out(Ack{0, 1}).receives(1, 8);
  qp.in({.opcode = kRcSendOnly, .psn = 1, .payload = 8, .ack_req = true, .data = kData});
  qp.out(Ack{1, 2}).receives(2, 8);
  qp.in({.opcode = kRcSendOnly, .psn = 0, .payload = 8, .ack_req = true, .data = kOther});
  qp.out(Ack{1, 2});
  CHECK(qp.inbox.holds(0, 8, kData));
  CHECK(qp.inbox.is_untouched_but(0, 16));
}

TEST_CASE("responder does not execute a duplicate WRITE", "[rc][duplicate]") {
  RcScript qp;
  qp.in({.opcode = kRcWriteOnly, .psn = 0, .payload = 8, .ack_req = true, .reth = own(qp, 8), .data = kData});
  qp.out(Ack{0, 1});
  qp.in(
      {.opcode = kRcWriteOnly, .psn = 0, .payload = 8, .ack_req = true, .reth = own(qp, 8), .data = kOther});
  qp.out(Ack{0, 1});
  CHECK(qp.target.holds(0, 8, kData));
}

TEST_CASE("responder answers a burst of duplicates with one ACK", "[rc][duplicate][T28]") {
  // IBA 9.7.5.1.5 ?: coalesce, or each duplicate makes an ACK storm
  RcScript qp;
  const auto write = [&qp](std::uint32_t psn) {
    return Packet{.opcode = kRcWriteOnly, .psn = psn, .payload = 4, .ack_req = true, .reth = own(qp, 4)};
  };
  qp.in({write(0), write(1), write(2)}).out(Ack{2, 3});
  qp.in({write(0), write(1), write(2), write(0)}).out(Ack{2, 3});
  qp.counted(Count::kResponderDuplicateRequests, 4);
}

TEST_CASE("responder takes any PSN of the 2^23 before the expected one for a duplicate",
          "[rc][duplicate][T7]") {
  // IBA 9.7.2 ?
  const std::uint32_t back = GENERATE(1U, 2U, 0x1000U, 0x3f'ffffU, 0x40'0000U, 0x7f'ffffU, 0x80'0000U);
  const std::uint32_t expected = GENERATE(0U, 5U, 0x80'0000U, 0xff'ffffU);
  RcScript qp{{.expected_psn = expected}};
  qp.post_recv(8);
  const std::uint32_t psn = (expected - back) & 0xff'ffff;
  qp.in({.opcode = kRcSendOnly, .psn = psn, .payload = 8, .ack_req = true, .data = kOther});
  qp.out(Ack{(expected - 1) & 0xff'ffff, 0});
  qp.in({.opcode = kRcReadRequest, .psn = psn, .ack_req = true, .reth = own(qp, 8)}).quiet();
  qp.in({.opcode = kRcFetchAdd, .psn = psn, .ack_req = true, .atomic = add(qp, 1)}).quiet();
  qp.counted(Count::kResponderForgottenDuplicates, 2);
  CHECK(qp.target.is_untouched());
  CHECK(qp.inbox.is_untouched());
}

TEST_CASE("responder asks for what is missing when the PSN lies in the 2^23 - 1 behind the expected one",
          "[rc][duplicate]") {
  const std::uint32_t ahead = GENERATE(1U, 0x40'0000U, 0x7f'ffffU);
  RcScript qp{{.expected_psn = 0xff'0000}};
  qp.in({.opcode = kRcSendOnly, .psn = 0xff'0000 + ahead, .payload = 8});
  qp.out(NakSequence{0xff'0000, 0});
}

TEST_CASE("responder replays an atomic's stored result and does not execute it again",
          "[rc][duplicate][atomic]") {
  // IBA 9.4.5
  RcScript qp;
  set_counter(qp, 10);
  qp.in({.opcode = kRcFetchAdd, .psn = 0, .ack_req = true, .atomic = add(qp, 5)});
  qp.out({.opcode = kRcAtomicAck, .psn = 0, .aeth = wire::Aeth{.syndrome = 0x1f, .msn = 1}, .original = 10});
  qp.in({.opcode = kRcFetchAdd, .psn = 1, .ack_req = true, .atomic = add(qp, 5)});
  qp.out({.opcode = kRcAtomicAck, .psn = 1, .original = 15});
  qp.in({.opcode = kRcFetchAdd, .psn = 0, .ack_req = true, .atomic = add(qp, 5)});
  qp.out({.opcode = kRcAtomicAck, .psn = 0, .aeth = wire::Aeth{.syndrome = 0x1f, .msn = 1}, .original = 10});
  CHECK(counter(qp) == 20);
  qp.counted(Count::kResponderReplayedAtomics, 1);
}

TEST_CASE("responder forgets an atomic after max_dest_rd_atomic newer operations",
          "[rc][duplicate][atomic]") {
  RcScript qp{{.max_dest_rd_atomic = 2}};
  set_counter(qp, 0);
  for (std::uint32_t psn = 0; psn < 3; ++psn) {
    qp.in({.opcode = kRcFetchAdd, .psn = psn, .ack_req = true, .atomic = add(qp, 1)});
    qp.out({.opcode = kRcAtomicAck, .psn = psn, .original = psn});
  }
  qp.in({.opcode = kRcFetchAdd, .psn = 0, .ack_req = true, .atomic = add(qp, 1)}).quiet();
  for (std::uint32_t psn = 1; psn < 3; ++psn) {
    qp.in({.opcode = kRcFetchAdd, .psn = psn, .ack_req = true, .atomic = add(qp, 1)});
    qp.out({.opcode = kRcAtomicAck, .psn = psn, .original = psn});
  }
  CHECK(counter(qp) == 3);
}

TEST_CASE("responder reads memory again for a duplicate READ of 64 KiB, whole or from any of its packets on",
          "[rc][duplicate][read][T13]") {
  // IBA 9.7.5.1.5 ?
  constexpr std::uint32_t kPackets = 256;
  constexpr std::uint32_t kBytes = kPackets * 256 - 100;
  RcScript qp{{.mtu = 256}};
  const Packet whole{.opcode = kRcReadRequest, .psn = 0, .ack_req = true, .reth = own(qp, kBytes)};
  qp.in(whole).forget();
  for (std::uint32_t skip = 0; skip < kPackets; ++skip) {
    CAPTURE(skip);
    qp.in({.opcode = kRcReadRequest,
           .psn = skip,
           .ack_req = true,
           .reth = own(qp, kBytes - skip * 256, skip * 256)});
    REQUIRE(qp.waiting() == kPackets - skip);
    for (std::uint32_t psn = skip; psn < kPackets; ++psn) {
      const bool first = psn == 0;
      const bool last = psn + 1 == kPackets;
      qp.out({.opcode = first  ? kRcReadResponseFirst
                        : last ? kRcReadResponseLast
                               : kRcReadResponseMiddle,
              .psn = psn,
              .payload = last ? 156U : 256U,
              .data = qp.target.initial(psn * 256)});
    }
  }
  qp.quiet().counted(Count::kResponderReplayedReads, kPackets);
  qp.in(whole);  // the whole request is still remembered
  CHECK(qp.waiting() == kPackets);
  qp.forget();
}

TEST_CASE("responder answers the middle part of a READ that it remembers", "[rc][duplicate][read]") {
  RcScript qp{{.mtu = 256}};
  qp.in({.opcode = kRcReadRequest, .psn = 0, .ack_req = true, .reth = own(qp, 2048)}).forget();
  qp.in({.opcode = kRcReadRequest, .psn = 2, .ack_req = true, .reth = own(qp, 512, 512)});
  qp.out({.opcode = kRcReadResponseMiddle, .psn = 2, .payload = 256, .data = qp.target.initial(512)});
  qp.out({.opcode = kRcReadResponseMiddle, .psn = 3, .payload = 256, .data = qp.target.initial(768)});
}

TEST_CASE("responder drops a duplicate READ that is not part of one it remembers", "[rc][duplicate][read]") {
  RcScript qp{{.mtu = 256}};
  qp.in({.opcode = kRcReadRequest, .psn = 4, .ack_req = true}).forget();  // a gap: nothing is remembered
  qp.in({.opcode = kRcReadRequest, .psn = 0, .ack_req = true, .reth = own(qp, 1024)}).forget();
  const auto again = [&](std::uint32_t psn, wire::Reth reth) {
    qp.in({.opcode = kRcReadRequest, .psn = psn, .ack_req = true, .reth = reth}).quiet();
  };
  again(1, own(qp, 768));       // an address that does not fit the PSN
  again(1, own(qp, 769, 256));  // beyond the end
  again(0, own(qp, 1025));      // longer
  again(1, {.va = qp.target.addr(256), .rkey = Rkey{raw(qp.target.rkey()) ^ 1}, .length = 768});
  qp.counted(Count::kResponderForgottenDuplicates, 4);
  qp.is_in(QpState::kRts);
}

TEST_CASE("responder refuses a duplicate READ of a region that is gone, and lives on",
          "[rc][duplicate][read][S7]") {
  // IBA 9.7.5.1.5, 10.6.3 ?: after deregistration nothing is read through the region. The peer that had all
  // responses ignores the NAK, and its connection must not end for that.
  RcScript qp;
  const auto key =
      qp.keys()
          .insert(
              {.addr = qp.target.addr(), .length = 64, .pd = RcScript::kPd, .access = access::kRemoteRead})
          .value();
  const wire::Reth reth{.va = qp.target.addr(), .rkey = Rkey{key}, .length = 64};
  qp.in({.opcode = kRcReadRequest, .psn = 0, .ack_req = true, .reth = reth});
  qp.out({kRcReadResponseOnly, 0, 64});
  qp.keys().remove(key);
  qp.in({.opcode = kRcReadRequest, .psn = 0, .ack_req = true, .reth = reth});
  qp.out(Nak{0, 0x62, 1}).is_in(QpState::kRts);
  qp.post_recv(8).in({.opcode = kRcSendOnly, .psn = 1, .payload = 8, .ack_req = true});
  qp.out(Ack{1, 2}).receives(1, 8);
}

TEST_CASE("responder refuses a READ from either place where the peer may be", "[rc][duplicate][read][S7]") {
  RcScript qp{{.mtu = 256}};
  const auto key =
      qp.keys()
          .insert(
              {.addr = qp.target.addr(), .length = 1024, .pd = RcScript::kPd, .access = access::kRemoteRead})
          .value();
  const Packet request{.opcode = kRcReadRequest,
                       .ack_req = true,
                       .reth = wire::Reth{.va = qp.target.addr(), .rkey = Rkey{key}, .length = 1024}};
  qp.port().room = 2;
  qp.in(request).out({kRcReadResponseFirst, 0, 256}).out({kRcReadResponseMiddle, 1, 256});
  qp.port().room = 0;
  qp.in(request);  // were they lost, or is the third only late?
  qp.keys().remove(key);
  qp.port().room = 100;
  qp.transmit().out(Nak{0, 0x62, 1}).out(Nak{2, 0x62, 1});
  qp.raises(AsyncEventType::kQpAccessErr).is_in(QpState::kError);
}

TEST_CASE("a duplicate changes neither the NAK state nor the message in progress", "[rc][duplicate]") {
  // IBA 9.7.5.1.5 ?
  RcScript qp;
  qp.post_recv(4096);
  qp.in({.opcode = kRcWriteOnly, .psn = 0, .payload = 4, .reth = own(qp, 4)});
  qp.in({.opcode = kRcSendFirst, .psn = 1, .payload = 1024, .data = kData});
  qp.in({.opcode = kRcSendLast, .psn = 3, .payload = 1}).out(NakSequence{2, 1});
  qp.in({.opcode = kRcWriteOnly, .psn = 0, .payload = 4, .reth = own(qp, 4)}).out(Ack{1, 1});
  qp.in({.opcode = kRcSendLast, .psn = 3, .payload = 1}).quiet();  // the gap has been reported
  qp.in({{.opcode = kRcSendMiddle, .psn = 2, .payload = 1024, .data = from(kData, 1024)},
         {.opcode = kRcSendLast, .psn = 3, .payload = 1, .ack_req = true, .data = from(kData, 2048)}});
  qp.out(Ack{3, 2}).receives(1, 2049);
  CHECK(qp.inbox.holds(0, 2049, kData));
}

TEST_CASE("a depth that is no power of two has room for a peer that rounds it up", "[rc][duplicate][read]") {
  // Soft-RoCE and NICs do so with max_rd_atomic.
  RcScript qp{{.mtu = 256, .max_dest_rd_atomic = 3}};
  std::vector<Packet> reads;
  for (std::uint32_t psn = 0; psn < 4; ++psn)
    reads.push_back({.opcode = kRcReadRequest, .psn = psn, .ack_req = true, .reth = own(qp, 256, 256 * psn)});
  for (int time = 0; time < 2; ++time) {  // all under way at once; all answers were lost
    qp.port().room = 0;
    for (const Packet& read : reads) qp.in(read);
    qp.port().room = 100;
    qp.transmit();
    for (std::uint32_t psn = 0; psn < 4; ++psn) qp.out({kRcReadResponseOnly, psn, 256});
    qp.quiet();
  }
}

TEST_CASE("duplicates are answered ahead of later READs, as they were asked for",
          "[rc][duplicate][read][atomic]") {
  // IBA 9.7.5.1.4 ?: the peer drops all of the later one until it has what it missed.
  const bool is_atomic = GENERATE(false, true);
  RcScript qp{{.mtu = 256}};
  set_counter(qp, 3);
  const Packet first = is_atomic ? Packet{.opcode = kRcFetchAdd, .ack_req = true, .atomic = add(qp, 1)}
                                 : Packet{.opcode = kRcReadRequest, .ack_req = true, .reth = own(qp, 256)};
  const Packet read{.opcode = kRcReadRequest, .psn = 1, .ack_req = true, .reth = own(qp, 1024, 512)};
  const Packet answer =
      is_atomic ? Packet{.opcode = kRcAtomicAck, .original = 3} : Packet{kRcReadResponseOnly, 0, 256};
  qp.port().room = 3;
  qp.in({first, read});
  qp.out(answer).out({kRcReadResponseFirst, 1, 256}).out({kRcReadResponseMiddle, 2, 256}).quiet();
  qp.port().room = 0;
  qp.in({first, read});  // the first response was lost: the peer goes back
  qp.port().room = 100;
  qp.transmit();
  qp.out(answer).out({kRcReadResponseFirst, 1, 256}).out({kRcReadResponseMiddle, 2, 256});
  qp.out({kRcReadResponseMiddle, 3, 256}).out({kRcReadResponseLast, 4, 256}).quiet();
}

TEST_CASE("duplicate READs and atomics are answered in the order in which they come", "[rc][duplicate]") {
  RcScript qp{{.mtu = 256}};
  set_counter(qp, 3);
  const Packet read{.opcode = kRcReadRequest, .psn = 0, .ack_req = true, .reth = own(qp, 512, 8)};
  const Packet atomic{.opcode = kRcFetchAdd, .psn = 2, .ack_req = true, .atomic = add(qp, 1)};
  const Packet write{
      .opcode = kRcWriteOnly, .psn = 3, .payload = 4, .ack_req = true, .reth = own(qp, 4, 1024)};
  for (int time = 0; time < 2; ++time) {
    qp.in({read, atomic, write});
    qp.out({kRcReadResponseFirst, 0, 256}).out({kRcReadResponseLast, 1, 256});
    qp.out({.opcode = kRcAtomicAck, .psn = 2, .original = 3}).out(Ack{3, 3});
  }
  CHECK(counter(qp) == 4);
}
