// What requests do to memory and to the receive queue, and how they are answered.
#include <catch2/catch.hpp>

#include "script/remote.h"

using namespace uroce;
using namespace uroce::test;

namespace {

constexpr Pattern kData{0x66, 5};

std::uint64_t word(Area& area, std::size_t at = 0) {
  std::uint64_t value = 0;
  std::memcpy(&value, area.bytes().data() + at, 8);
  return value;
}

void set_word(Area& area, std::uint64_t value, std::size_t at = 0) {
  std::memcpy(area.bytes().data() + at, &value, 8);
}

}  // namespace

TEST_CASE("responder puts a SEND of any length into the next receive", "[rc][responder]") {
  // IBA 9.7.4
  const std::uint32_t mtu = GENERATE(256U, 512U, 1024U, 2048U, 4096U);
  const std::uint32_t bytes = GENERATE_COPY(0U, 1U, mtu - 1, mtu, mtu + 1, 3 * mtu, 3 * mtu + 2);
  RcScript qp{{.mtu = mtu, .expected_psn = 0xff'ffff}};
  qp.post_recv(4 * mtu);

  const std::uint32_t packets = std::max(1U, (bytes + mtu - 1) / mtu);
  for (std::uint32_t i = 0; i < packets; ++i) {
    const bool first = i == 0;
    const bool last = i + 1 == packets;
    const std::uint32_t size = last ? bytes - i * mtu : mtu;
    qp.in({.opcode = first ? (last ? kRcSendOnly : kRcSendFirst) : (last ? kRcSendLast : kRcSendMiddle),
           .psn = 0xff'ffff + i,
           .payload = size,
           .ack_req = last,
           .data = from(kData, i * mtu)});
  }
  qp.out(Ack{0xff'ffff + packets - 1, 1});
  qp.receives({.wr_id = 1, .byte_len = bytes, .opcode = WcOpcode::kRecv});
  CHECK(qp.inbox.holds(0, bytes, kData));
  CHECK(qp.inbox.is_untouched_but(0, bytes));
}

TEST_CASE("responder scatters a SEND over the receive's SGE list", "[rc][responder][sge]") {
  RcScript qp{{.mtu = 256}};
  const Sge sges[] = {qp.inbox.sge(0, 100), qp.inbox.sge(500, 0), qp.inbox.sge(600, 300),
                      qp.inbox.sge(200, 10)};
  qp.post_recv(sges);
  qp.in({{.opcode = kRcSendFirst, .payload = 256, .data = kData},
         {.opcode = kRcSendLast, .psn = 1, .payload = 150, .ack_req = true, .data = from(kData, 256)}});
  qp.out(Ack{1, 1}).receives(1, 406);
  CHECK(qp.inbox.holds(0, 100, kData));
  CHECK(qp.inbox.holds(600, 300, from(kData, 100)));
  CHECK(qp.inbox.holds(200, 6, from(kData, 400)));
  CHECK(qp.inbox.holds(206, 394, qp.inbox.initial(206)));
}

TEST_CASE("responder executes a WRITE without a receive", "[rc][responder]") {
  const std::uint32_t mtu = GENERATE(256U, 1024U, 4096U);
  const std::uint32_t bytes = GENERATE_COPY(0U, 1U, mtu, mtu + 1, 3 * mtu, 3 * mtu + 2);
  RcScript qp{{.mtu = mtu, .expected_psn = 0xff'ffff}};
  const std::uint32_t packets = std::max(1U, (bytes + mtu - 1) / mtu);
  for (std::uint32_t i = 0; i < packets; ++i) {
    const bool first = i == 0;
    const bool last = i + 1 == packets;
    qp.in({.opcode = first ? (last ? kRcWriteOnly : kRcWriteFirst) : (last ? kRcWriteLast : kRcWriteMiddle),
           .psn = 0xff'ffff + i,
           .payload = last ? bytes - i * mtu : mtu,
           .ack_req = last,
           .reth = own(qp, bytes, 100),
           .data = from(kData, i * mtu)});
  }
  qp.out(Ack{0xff'ffff + packets - 1, 1});
  CHECK(qp.target.holds(100, bytes, kData));
  CHECK(qp.target.is_untouched_but(100, bytes));
}

TEST_CASE("responder delivers immediate data with the receive that it consumes", "[rc][responder][imm]") {
  // IBA 9.2 ?: a plain WRITE consumes no receive, a WRITE with immediate does, and leaves its buffer alone
  RcScript qp{{.mtu = 256}};
  qp.post_recv(1000).post_recv(1000).post_recv(0);
  qp.in({.opcode = kRcSendOnlyImm, .payload = 5, .ack_req = true, .imm = 0x0a0b'0c0d, .data = kData});
  qp.out(Ack{0, 1}).receives({.wr_id = 1,
                              .byte_len = 5,
                              .imm_data = network_order(0x0a0b'0c0d),
                              .opcode = WcOpcode::kRecv,
                              .flags = wc_flag::kWithImm});
  qp.in({.opcode = kRcWriteOnly, .psn = 1, .payload = 3, .reth = own(qp, 3)});
  qp.in({{.opcode = kRcWriteFirst, .psn = 2, .payload = 256, .reth = own(qp, 260)},
         {.opcode = kRcWriteLastImm, .psn = 3, .payload = 4, .ack_req = true, .imm = 7}});
  qp.out(Ack{3, 3}).receives({.wr_id = 2,
                              .byte_len = 260,
                              .imm_data = network_order(7),
                              .opcode = WcOpcode::kRecvRdmaWithImm,
                              .flags = wc_flag::kWithImm});
  CHECK(qp.inbox.is_untouched_but(0, 5));
  qp.in({.opcode = kRcWriteOnlyImm, .psn = 4, .ack_req = true, .reth = wire::Reth{}, .imm = 8});
  qp.out(Ack{4, 4}).receives({.wr_id = 3,
                              .imm_data = network_order(8),
                              .opcode = WcOpcode::kRecvRdmaWithImm,
                              .flags = wc_flag::kWithImm});
}

TEST_CASE("responder invalidates the key that a SEND names before the receive completes",
          "[rc][responder][inv]") {
  // IBA 9.7.4 ?
  RcScript qp;
  qp.post_recv(8).post_recv(8);
  const std::uint64_t addr = qp.target.addr(0);
  const auto key = qp.keys()
                       .insert({.addr = addr,
                                .length = 64,
                                .pd = RcScript::kPd,
                                .access = access::kAll | access::kInvalidatable})
                       .value();
  qp.in({.opcode = kRcSendOnlyInv, .payload = 8, .ack_req = true, .ieth = key});
  qp.out(Ack{0, 1}).receives(
      {.wr_id = 1, .byte_len = 8, .imm_data = key, .opcode = WcOpcode::kRecv, .flags = wc_flag::kWithInv});
  qp.in({.opcode = kRcWriteOnly,
         .psn = 1,
         .payload = 4,
         .ack_req = true,
         .reth = wire::Reth{.va = addr, .rkey = Rkey{key}, .length = 4}});
  qp.out(Nak{1, 0x62, 1}).raises(AsyncEventType::kQpAccessErr).receives(2, WcStatus::kWrFlushErr);
  CHECK(qp.target.is_untouched());
}

TEST_CASE("responder answers a READ in packets of the path MTU", "[rc][responder][read]") {
  const std::uint32_t mtu = GENERATE(256U, 512U, 1024U, 2048U, 4096U);
  const std::uint32_t bytes = GENERATE_COPY(0U, 1U, mtu, mtu + 1, 3 * mtu);
  RcScript qp{{.mtu = mtu, .expected_psn = 0xff'fffe}};
  qp.in({.opcode = kRcReadRequest, .psn = 0xff'fffe, .ack_req = true, .reth = own(qp, bytes, 300)});
  const std::uint32_t packets = std::max(1U, (bytes + mtu - 1) / mtu);
  for (std::uint32_t i = 0; i < packets; ++i) {
    const bool first = i == 0;
    const bool last = i + 1 == packets;
    const auto opcode = first ? (last ? kRcReadResponseOnly : kRcReadResponseFirst)
                              : (last ? kRcReadResponseLast : kRcReadResponseMiddle);
    qp.out({.opcode = opcode,
            .psn = 0xff'fffe + i,
            .payload = last ? bytes - i * mtu : mtu,
            .aeth = first || last ? std::optional{wire::Aeth{.syndrome = 0x1f, .msn = 1}} : std::nullopt,
            .data = qp.target.initial(300 + i * mtu)});
  }
  qp.quiet();
  // The PSN expected next is the one behind the responses: IBA 9.7.2 ?.
  qp.in({.opcode = kRcWriteOnly, .psn = 0xff'fffe + packets, .ack_req = true, .reth = own(qp, 0)});
  qp.out(Ack{(0xff'fffe + packets) & 0xff'ffff, 2});
}

TEST_CASE("responder executes atomics and returns the value before", "[rc][responder][atomic]") {
  RcScript qp;
  set_word(qp.target, 100);
  const auto atomic = [&qp](std::uint64_t swap_add, std::uint64_t compare) {
    return wire::AtomicEth{
        .va = qp.target.addr(), .rkey = qp.target.rkey(), .swap_add = swap_add, .compare = compare};
  };
  qp.in({.opcode = kRcFetchAdd, .ack_req = true, .atomic = atomic(5, 0)});
  qp.out({.opcode = kRcAtomicAck, .aeth = wire::Aeth{.syndrome = 0x1f, .msn = 1}, .original = 100});
  CHECK(word(qp.target) == 105);
  qp.in({.opcode = kRcFetchAdd,
         .psn = 1,
         .ack_req = true,
         .atomic = atomic(~std::uint64_t{0}, 0)});  // minus one
  qp.out({.opcode = kRcAtomicAck, .psn = 1, .original = 105});
  CHECK(word(qp.target) == 104);
  qp.in({.opcode = kRcCompareSwap, .psn = 2, .ack_req = true, .atomic = atomic(7, 103)});
  qp.out({.opcode = kRcAtomicAck, .psn = 2, .original = 104});
  CHECK(word(qp.target) == 104);
  qp.in({.opcode = kRcCompareSwap, .psn = 3, .ack_req = true, .atomic = atomic(7, 104)});
  qp.out({.opcode = kRcAtomicAck, .psn = 3, .original = 104});
  CHECK(word(qp.target) == 7);
  CHECK(qp.target.is_untouched_but(0, 8));
}

TEST_CASE("responder answers a whole burst of SENDs and WRITEs with one ACK", "[rc][responder][ack]") {
  // IBA 9.6.1 ?: may coalesce; the PSN is that of the newest packet, the MSN counts completed messages
  RcScript qp;
  qp.post_recv(8).post_recv(8);
  qp.in({{.opcode = kRcSendOnly, .psn = 0, .payload = 8, .ack_req = true},
         {.opcode = kRcWriteOnly, .psn = 1, .payload = 4, .ack_req = true, .reth = own(qp, 4)},
         {.opcode = kRcSendOnly, .psn = 2, .payload = 8, .ack_req = true}});
  qp.out(Ack{2, 3}).receives(1, 8).receives(2, 8);
}

TEST_CASE("responder acknowledges only when asked to", "[rc][responder][ack]") {
  RcScript qp;
  qp.in({.opcode = kRcWriteOnly, .psn = 0, .payload = 4, .reth = own(qp, 4)}).quiet();
  qp.in({.opcode = kRcWriteFirst, .psn = 1, .payload = 1024, .ack_req = true, .reth = own(qp, 1025)});
  qp.out(Ack{1, 1});  // in the middle of a message, of which the MSN does not tell yet
  qp.in({.opcode = kRcWriteLast, .psn = 2, .payload = 1}).quiet();
}

TEST_CASE("responder's responses leave in the order of the requests", "[rc][responder][ack]") {
  // IBA 9.6.1 ?: an ACK does not overtake the responses of an earlier READ
  RcScript qp{{.mtu = 256}};
  qp.post_recv(8);
  set_word(qp.target, 1);
  qp.in({{.opcode = kRcReadRequest, .psn = 0, .ack_req = true, .reth = own(qp, 600, 8)},
         {.opcode = kRcFetchAdd,
          .psn = 3,
          .ack_req = true,
          .atomic =
              wire::AtomicEth{.va = qp.target.addr(), .rkey = qp.target.rkey(), .swap_add = 1, .compare = 0}},
         {.opcode = kRcSendOnly, .psn = 4, .payload = 8, .ack_req = true}});
  qp.out({kRcReadResponseFirst, 0, 256})
      .out({kRcReadResponseMiddle, 1, 256})
      .out({kRcReadResponseLast, 2, 88});
  qp.out({.opcode = kRcAtomicAck, .psn = 3, .aeth = wire::Aeth{.syndrome = 0x1f, .msn = 2}, .original = 1});
  qp.out(Ack{4, 3}).receives(1, 8);
}

TEST_CASE("responder sends no ACK with the PSN of a READ or atomic", "[rc][responder][ack]") {
  // A requester that has lost the response may take it for one: Soft-RoCE completes the READ without its
  // data.
  RcScript qp{{.mtu = 256}};
  qp.post_recv(8).post_recv(8);
  const Packet send{.opcode = kRcSendOnly, .psn = 0, .payload = 8, .ack_req = true};
  qp.in({send, {.opcode = kRcReadRequest, .psn = 1, .ack_req = true, .reth = own(qp, 8)}});
  qp.out({kRcReadResponseOnly, 1, 8}).receives(1, 8).quiet();  // the response acknowledges the SEND too
  qp.in(send).out(Ack{0, 2});                                  // the duplicate of the SEND
  set_word(qp.target, 1);
  const wire::AtomicEth add{.va = qp.target.addr(), .rkey = qp.target.rkey(), .swap_add = 1, .compare = 0};
  qp.in({{.opcode = kRcSendOnly, .psn = 2, .payload = 8, .ack_req = true},
         {.opcode = kRcFetchAdd, .psn = 3, .ack_req = true, .atomic = add}});
  qp.out({.opcode = kRcAtomicAck, .psn = 3, .original = 1}).receives(2, 8).quiet();
}

TEST_CASE("responder goes on with its responses when the port has room again", "[rc][responder]") {
  RcScript qp{{.mtu = 256}};
  qp.post_recv(8);
  qp.port().room = 0;
  qp.in({{.opcode = kRcReadRequest, .psn = 0, .ack_req = true, .reth = own(qp, 512)},
         {.opcode = kRcSendOnly, .psn = 2, .payload = 8, .ack_req = true}});
  qp.receives(1, 8).quiet();
  qp.port().room = 1;
  qp.transmit()
      .out({.opcode = kRcReadResponseFirst, .psn = 0, .payload = 256, .data = qp.target.initial()})
      .quiet();
  qp.transmit()
      .out({.opcode = kRcReadResponseLast, .psn = 1, .payload = 256, .data = qp.target.initial(256)})
      .quiet();
  qp.transmit().out(Ack{2, 2});
}

TEST_CASE("responder asks once for the packet that is missing", "[rc][responder][nak]") {
  // IBA 9.7.5.2.8: exactly one NAK until that packet arrives
  RcScript qp{{.expected_psn = 0xff'ffff}};
  const auto write = [&qp](std::uint32_t psn) {
    return Packet{.opcode = kRcWriteOnly, .psn = psn, .payload = 4, .ack_req = true, .reth = own(qp, 4)};
  };
  qp.in(write(0xff'ffff)).out(Ack{0xff'ffff, 1});
  qp.in(write(1)).out(NakSequence{0, 1});
  qp.in({write(2), write(3)}).quiet();
  qp.at(1ms).in(write(2)).quiet();
  qp.in(write(0)).out(Ack{0, 2});
  qp.in(write(2)).out(NakSequence{1, 2});  // the next gap has a NAK of its own
  qp.in({write(1), write(2)}).out(Ack{2, 4});
  qp.counted(Count::kResponderSeqNaks, 2);
}

TEST_CASE("responder's NAK is dropped when the missing packet arrives before it could leave",
          "[rc][responder][nak]") {
  RcScript qp;
  const auto write = [&qp](std::uint32_t psn) {
    return Packet{.opcode = kRcWriteOnly, .psn = psn, .payload = 4, .ack_req = true, .reth = own(qp, 4)};
  };
  qp.in({write(1), write(0)}).out(Ack{0, 1});
}

TEST_CASE("responder takes packets with either migration state", "[rc][migreq][T23]") {
  // IBA 17.2.8: M = 1 goes out (every script checks it), both come in
  RcScript qp;
  qp.in({.opcode = kRcWriteOnly,
         .psn = 0,
         .payload = 4,
         .ack_req = true,
         .reth = own(qp, 4),
         .mig_req = false});
  qp.out(Ack{0, 1});
  qp.in(
      {.opcode = kRcWriteOnly, .psn = 1, .payload = 4, .ack_req = true, .reth = own(qp, 4), .mig_req = true});
  qp.out(Ack{1, 2});
}
