// Every fault that a responder finds: NAK syndrome, completion, event, state; and not one byte written.
#include <catch2/catch.hpp>

#include "script/remote.h"
#include "uroce/ece.h"

using namespace uroce;
using namespace uroce::test;
using transport::Fault;

namespace {

constexpr Pattern kData{0x66, 5};

struct Region {
  std::uint64_t va;
  Rkey rkey;
};

/// The peer gets `syndrome` once; then the QP is in Error, silent, with `event`.
void refuses(RcScript& qp, const Packet& packet, std::uint8_t syndrome, AsyncEventType event,
             std::uint32_t msn = 0) {
  qp.in(packet).out(Nak{packet.psn, syndrome, msn}).raises(event).is_in(QpState::kError);
  qp.in_refused(packet, Count::kDropQpState);
  qp.counted(Count::kResponderFatalNaks, 1);
  qp.at(qp.now() + 1s).quiet();
}

/// How a message in progress looks to the next packet.
enum class Before { kNothing, kSend, kWrite };

Packet make(RcScript& qp, wire::Opcode opcode, std::uint32_t psn) {
  const wire::OpcodeInfo& op = wire::info(opcode);
  Packet packet{.opcode = opcode, .psn = psn, .ack_req = true};
  packet.payload = op.payload_is_mtu ? 256 : op.has_payload ? 8 : 0;
  if (op.has_reth) packet.reth = own(qp, op.is_read_request || op.ends_message ? 8 : 512);
  if (op.is_flush) packet.feth = wire::Feth{.placement = wire::Feth::kGlobal};
  if (op.is_atomic_request) {
    packet.atomic =
        wire::AtomicEth{.va = qp.target.addr(), .rkey = qp.target.rkey(), .swap_add = 0, .compare = 0};
  }
  return packet;
}

bool continues(wire::Opcode opcode) {
  const wire::OpcodeInfo& op = wire::info(opcode);
  return (op.is_send || op.is_write) && !op.starts_message;
}

/// The message in progress, then what does not fit it.
void refuses_length(RcScript& qp, const std::optional<Packet>& first, Packet bad) {
  if (first) qp.in(*first);
  bad.data = kData;
  qp.in(bad).out(Nak{bad.psn, 0x61, 0}).is_in(QpState::kError).forget();
  CHECK(qp.target.is_untouched_but(0, first && first->reth ? 256 : 0));
  CHECK(qp.inbox.is_untouched_but(0, first && !first->reth ? 256 : 0));
}

}  // namespace

TEST_CASE("each request opcode is taken only where it may stand in a message", "[rc][fault][T8]") {
  // IBA C9-60 ?: every RC request after every state of the message in progress
  const auto opcode = GENERATE(values<wire::Opcode>(
      {kRcSendFirst,      kRcSendMiddle,   kRcSendLast,    kRcSendLastImm, kRcSendOnly,  kRcSendOnlyImm,
       kRcSendLastInv,    kRcSendOnlyInv,  kRcWriteFirst,  kRcWriteMiddle, kRcWriteLast, kRcWriteLastImm,
       kRcWriteOnly,      kRcWriteOnlyImm, kRcReadRequest, kRcCompareSwap, kRcFetchAdd,  kRcMaskedCompareSwap,
       kRcMaskedFetchAdd, kRcFlush,        kRcAtomicWrite}));
  const Before before = GENERATE(Before::kNothing, Before::kSend, Before::kWrite);
  CAPTURE(wire::info(opcode).name, before);
  RcScript qp{{.mtu = 256, .ece = ece::kMaskedAtomics}};
  qp.post_recv(4096).post_recv(4096);
  std::uint32_t psn = 0;
  if (before == Before::kSend) qp.in({.opcode = kRcSendFirst, .psn = psn++, .payload = 256});
  if (before == Before::kWrite) {
    const wire::OpcodeInfo& op = wire::info(opcode);
    const std::uint32_t rest = op.payload_is_mtu ? 512 : 8;  // fits what comes next, if that is allowed
    qp.in({.opcode = kRcWriteFirst, .psn = psn++, .payload = 256, .reth = own(qp, 256 + rest)});
  }
  const bool is_send = wire::info(opcode).is_send;
  const bool legal = before == Before::kNothing ? !continues(opcode)
                                                : continues(opcode) && is_send == (before == Before::kSend);
  Packet packet = make(qp, opcode, psn);
  if (wire::info(opcode).has_ieth) {
    packet.ieth = qp.keys()
                      .insert({.addr = qp.target.addr(),
                               .length = 8,
                               .pd = RcScript::kPd,
                               .access = access::kInvalidatable})
                      .value();
  }
  qp.in(packet);
  if (legal) {
    qp.is_in(QpState::kRts).forget();
    return;
  }
  qp.out(Nak{psn, 0x61, 0}).is_in(QpState::kError);
  if (before == Before::kSend) {  // the receive in use takes the blame
    qp.receives(1, WcStatus::kRemInvReqErr).receives(2, WcStatus::kWrFlushErr);
  } else {
    qp.raises(AsyncEventType::kQpReqErr)
        .receives(1, WcStatus::kWrFlushErr)
        .receives(2, WcStatus::kWrFlushErr);
  }
  qp.quiet().counted(Count::kResponderFatalNaks, 1);
}

TEST_CASE("RDMA that the QP does not allow is refused", "[rc][fault][access]") {
  // IBA 9.7.4 ?
  struct Row {
    std::uint32_t allowed;
    wire::Opcode opcode;
  };
  const auto row = GENERATE(values<Row>({{access::kRemoteRead | access::kRemoteAtomic, kRcWriteOnly},
                                         {access::kRemoteWrite | access::kRemoteAtomic, kRcReadRequest},
                                         {access::kRemoteWrite | access::kRemoteRead, kRcFetchAdd},
                                         {access::kRemoteRead | access::kFlushGlobal, kRcAtomicWrite},
                                         {access::kAll | access::kFlushPersistent, kRcFlush},
                                         {0, kRcCompareSwap},
                                         {access::kRemoteWrite | access::kRemoteRead, kRcMaskedFetchAdd},
                                         {0, kRcMaskedCompareSwap},
                                         {0, kRcWriteFirst}}));
  RcScript qp{{.mtu = 256, .ece = ece::kMaskedAtomics, .access_flags = row.allowed}};
  refuses(qp, make(qp, row.opcode, 0), 0x61, AsyncEventType::kQpReqErr);
  CHECK(qp.target.is_untouched());
}

TEST_CASE("READs and atomics are refused while max_dest_rd_atomic is 0", "[rc][fault][depth]") {
  const auto opcode = GENERATE(
      values<wire::Opcode>({kRcReadRequest, kRcFetchAdd, kRcMaskedFetchAdd, kRcFlush, kRcAtomicWrite}));
  RcScript qp{{.max_dest_rd_atomic = 0, .ece = ece::kMaskedAtomics}};
  refuses(qp, make(qp, opcode, 0), 0x61, AsyncEventType::kQpReqErr);
}

TEST_CASE("more READs at once than max_dest_rd_atomic are refused", "[rc][fault][depth]") {
  // IBA 9.4.4
  RcScript qp{{.max_dest_rd_atomic = 2}};
  qp.port().room = 0;
  for (std::uint32_t psn = 0; psn < 3; ++psn) qp.in(make(qp, kRcReadRequest, psn));
  qp.port().room = 100;
  qp.transmit().out({kRcReadResponseOnly, 0, 8}).out({kRcReadResponseOnly, 1, 8});
  qp.out(Nak{2, 0x61, 2}).raises(AsyncEventType::kQpReqErr).is_in(QpState::kError);
}

TEST_CASE("a SEND packet whose length does not fit its opcode and the path MTU is refused",
          "[rc][fault][length]") {
  // IBA C9-66 ?
  RcScript qp{{.mtu = 256}};
  qp.post_recv(4096);
  std::optional<Packet> first;
  Packet bad;
  SECTION("SEND_FIRST below the path MTU") {
    bad = {.opcode = kRcSendFirst, .payload = 252};
  }
  SECTION("SEND_FIRST above the path MTU") {
    bad = {.opcode = kRcSendFirst, .payload = 260};
  }
  SECTION("SEND_FIRST without payload") {
    bad = {.opcode = kRcSendFirst};
  }
  SECTION("SEND_ONLY above the path MTU") {
    bad = {.opcode = kRcSendOnly, .payload = 257};
  }
  SECTION("SEND_MIDDLE below the path MTU") {
    first = Packet{.opcode = kRcSendFirst, .payload = 256};
    bad = {.opcode = kRcSendMiddle, .psn = 1, .payload = 255};
  }
  SECTION("SEND_LAST without payload") {
    first = Packet{.opcode = kRcSendFirst, .payload = 256};
    bad = {.opcode = kRcSendLast, .psn = 1};
  }
  SECTION("SEND_LAST above the path MTU") {
    first = Packet{.opcode = kRcSendFirst, .payload = 256};
    bad = {.opcode = kRcSendLast, .psn = 1, .payload = 300};
  }
  refuses_length(qp, first, bad);
}

TEST_CASE("a WRITE or READ packet whose length does not fit its RETH is refused", "[rc][fault][length]") {
  // IBA C9-66 ?
  RcScript qp{{.mtu = 256}};
  std::optional<Packet> first;
  Packet bad;
  SECTION("WRITE_ONLY with less than the RETH says") {
    bad = {.opcode = kRcWriteOnly, .payload = 8, .reth = own(qp, 9)};
  }
  SECTION("WRITE_ONLY with more than the RETH says") {
    bad = {.opcode = kRcWriteOnly, .payload = 8, .reth = own(qp, 7)};
  }
  SECTION("WRITE_FIRST that already has all") {
    bad = {.opcode = kRcWriteFirst, .payload = 256, .reth = own(qp, 256)};
  }
  SECTION("WRITE_FIRST with a RETH above 2^31 bytes") {
    bad = {.opcode = kRcWriteFirst, .payload = 256, .reth = own(qp, 0x8000'0001)};
  }
  SECTION("WRITE_LAST with less than the rest") {
    first = Packet{.opcode = kRcWriteFirst, .payload = 256, .reth = own(qp, 300)};
    bad = {.opcode = kRcWriteLast, .psn = 1, .payload = 43};
  }
  SECTION("WRITE_LAST with more than the rest") {
    first = Packet{.opcode = kRcWriteFirst, .payload = 256, .reth = own(qp, 300)};
    bad = {.opcode = kRcWriteLast, .psn = 1, .payload = 45};
  }
  SECTION("WRITE_MIDDLE beyond the rest") {
    first = Packet{.opcode = kRcWriteFirst, .payload = 256, .reth = own(qp, 300)};
    bad = {.opcode = kRcWriteMiddle, .psn = 1, .payload = 256};
  }
  SECTION("READ of more than 2^31 bytes") {
    bad = {.opcode = kRcReadRequest, .reth = own(qp, 0x8000'0001)};
  }
  refuses_length(qp, first, bad);
}

TEST_CASE("a SEND longer than its receive is refused, and the receive says so", "[rc][fault][length]") {
  // IBA 9.7.4 ?: NAK 0x61, LOC_LEN_ERR; not one byte behind the buffer
  const bool at_the_second_packet = GENERATE(false, true);
  RcScript qp{{.mtu = 256}};
  qp.post_recv(at_the_second_packet ? 300 : 7).post_recv(8);
  std::uint32_t psn = 0;
  if (at_the_second_packet) qp.in({.opcode = kRcSendFirst, .psn = psn++, .payload = 256, .data = kData});
  const Packet bad{.opcode = at_the_second_packet ? kRcSendLast : kRcSendOnly,
                   .psn = psn,
                   .payload = at_the_second_packet ? 45U : 8U,
                   .ack_req = true,
                   .data = kData};
  qp.in(bad).out(Nak{psn, 0x61, 0}).receives(1, WcStatus::kLocLenErr).receives(2, WcStatus::kWrFlushErr);
  qp.is_in(QpState::kError).quiet();  // the receive takes the blame: no event
  CHECK(qp.inbox.is_untouched_but(0, at_the_second_packet ? 256 : 0));
}

TEST_CASE("a receive whose memory may not be written is a remote operational error", "[rc][fault][key]") {
  // IBA 9.7.4 ?
  RcScript qp;
  Sge sge = qp.inbox.sge(0, 64);
  SECTION("the key is unknown") {
    sge.lkey = Lkey{raw(sge.lkey) ^ 1};
  }
  SECTION("the region may only be read") {
    sge = qp.source.sge(0, 64);
  }
  SECTION("the range is outside the region") {
    sge.addr += qp.inbox.bytes().size() - 7;
  }
  qp.post_recv({&sge, 1}).post_recv(8);
  qp.in({.opcode = kRcSendOnly, .payload = 8, .ack_req = true, .data = kData}).out(Nak{0, 0x63, 0});
  qp.receives(1, WcStatus::kLocProtErr).receives(2, WcStatus::kWrFlushErr).is_in(QpState::kError);
  CHECK(qp.inbox.is_untouched());
}

TEST_CASE("a key or range that the peer has no right to is a remote access error",
          "[rc][fault][key][T9][S7]") {
  // IBA 9.7.4.1.5. The region is 64 bytes in the middle of the target.
  RcScript qp{{.mtu = 256, .ece = ece::kMaskedAtomics}};
  const std::uint64_t base = qp.target.addr(1024);
  const auto insert = [&](std::uint32_t pd, std::uint32_t access) {
    return qp.keys().insert({.addr = base, .length = 64, .pd = pd, .access = access}).value();
  };
  const auto opcode =
      GENERATE(values<wire::Opcode>({kRcWriteOnly, kRcReadRequest, kRcFetchAdd, kRcMaskedFetchAdd,
                                     kRcMaskedCompareSwap, kRcFlush, kRcAtomicWrite}));
  constexpr std::uint64_t kMax = ~std::uint64_t{0};
  std::uint32_t key = insert(RcScript::kPd, kAllRights);
  std::uint64_t va = base;
  std::uint32_t length = 8;
  SECTION("8 bytes below the start") {
    va = base - 8;
  }
  SECTION("8 bytes at the end") {
    va = base + 64;
  }
  SECTION("far behind the end") {
    va = base + 0x1000'0000;
  }
  SECTION("at address 0") {
    va = 0;
  }
  SECTION("the last 8 bytes of the address space") {
    va = kMax - 7;
  }
  SECTION("around the end of the address space") {
    va = kMax - 7;
    length = 64;
  }
  SECTION("a key that was never given") {
    key ^= 0x8000'0000;
  }
  SECTION("key 0") {
    key = 0;
  }
  SECTION("key 1") {
    key = 1;
  }
  SECTION("the key of another protection domain") {
    key = insert(RcScript::kPd + 1, kAllRights);
  }
  SECTION("a region without the right") {
    key = insert(RcScript::kPd, access::kLocalWrite);
  }
  SECTION("a region that was deregistered") {
    qp.keys().remove(key);
  }
  const wire::OpcodeInfo& op = wire::info(opcode);
  if (op.has_payload) length = 8;
  Packet packet{.opcode = opcode, .payload = op.has_payload ? 8U : 0U, .ack_req = true, .data = kData};
  if (op.is_flush) packet.feth = wire::Feth{.placement = wire::Feth::kGlobal};
  if (op.has_reth) packet.reth = wire::Reth{.va = va, .rkey = Rkey{key}, .length = length};
  if (op.is_atomic_request)
    packet.atomic = wire::AtomicEth{.va = va, .rkey = Rkey{key}, .swap_add = 1, .compare = 0};
  refuses(qp, packet, 0x62, AsyncEventType::kQpAccessErr);
  CHECK(qp.target.is_untouched());
}

TEST_CASE("a range is judged to the byte", "[rc][fault][key][T9]") {
  // T9: base - 1, base, end - 1, end, end + 1; lengths 0, 1, all, all + 1
  constexpr std::int64_t kLength = 64;
  const std::int64_t at = GENERATE(-1, 0, 1, 32, 63, 64, 65);
  const std::int64_t length = GENERATE(0, 1, 31, 32, 33, 63, 64, 65);
  const bool write = GENERATE(true, false);
  RcScript qp{{.mtu = 256}};
  const std::uint64_t base = qp.target.addr(1024);
  const Rkey key{qp.keys()
                     .insert({.addr = base,
                              .length = kLength,
                              .pd = RcScript::kPd,
                              .access = access::kRemoteWrite | access::kRemoteRead})
                     .value()};
  const bool fits = length == 0 || (at >= 0 && at + length <= kLength);
  const auto bytes = static_cast<std::uint32_t>(length);
  qp.in({.opcode = write ? kRcWriteOnly : kRcReadRequest,
         .payload = write ? bytes : 0,
         .ack_req = true,
         .reth = wire::Reth{.va = base + static_cast<std::uint64_t>(at), .rkey = key, .length = bytes},
         .data = kData});
  if (!fits) {
    qp.out(Nak{0, 0x62, 0}).raises(AsyncEventType::kQpAccessErr);
    CHECK(qp.target.is_untouched());
  } else if (write) {
    qp.out(Ack{0, 1});
    CHECK(qp.target.is_untouched_but(1024 + static_cast<std::size_t>(at), bytes));
  } else {
    qp.out({.opcode = kRcReadResponseOnly,
            .payload = bytes,
            .data = qp.target.initial(1024 + static_cast<std::size_t>(at))});
  }
}

TEST_CASE("a WRITE of several packets is refused at its first one if its range is too long",
          "[rc][fault][key]") {
  RcScript qp{{.mtu = 256}};
  const Rkey key{
      qp.keys()
          .insert(
              {.addr = qp.target.addr(), .length = 511, .pd = RcScript::kPd, .access = access::kRemoteWrite})
          .value()};
  refuses(qp,
          {.opcode = kRcWriteFirst,
           .payload = 256,
           .ack_req = true,
           .reth = wire::Reth{.va = qp.target.addr(), .rkey = key, .length = 512},
           .data = kData},
          0x62, AsyncEventType::kQpAccessErr);
  CHECK(qp.target.is_untouched());
}

TEST_CASE("a WRITE stops where its region is deregistered", "[rc][fault][key][S7]") {
  // IBA 10.6.3 ?: no access after dereg
  RcScript qp{{.mtu = 256}};
  const auto key =
      qp.keys()
          .insert(
              {.addr = qp.target.addr(), .length = 1024, .pd = RcScript::kPd, .access = access::kRemoteWrite})
          .value();
  const wire::Reth reth{.va = qp.target.addr(), .rkey = Rkey{key}, .length = 600};
  qp.in({.opcode = kRcWriteFirst, .payload = 256, .reth = reth, .data = kData});
  qp.keys().remove(key);
  refuses(qp, {.opcode = kRcWriteMiddle, .psn = 1, .payload = 256, .data = kData}, 0x62,
          AsyncEventType::kQpAccessErr);
  CHECK(qp.target.is_untouched_but(0, 256));
}

TEST_CASE("a READ stops where its region is deregistered, and nothing is answered behind it",
          "[rc][fault][key][S7]") {
  RcScript qp{{.mtu = 256}};
  qp.post_recv(8).post_recv(8);
  const auto key =
      qp.keys()
          .insert(
              {.addr = qp.target.addr(), .length = 1024, .pd = RcScript::kPd, .access = access::kRemoteRead})
          .value();
  qp.port().room = 0;
  qp.in({{.opcode = kRcReadRequest,
          .ack_req = true,
          .reth = wire::Reth{.va = qp.target.addr(), .rkey = Rkey{key}, .length = 1024}},
         {.opcode = kRcSendOnly, .psn = 4, .payload = 8, .ack_req = true}});
  qp.receives(1, 8);
  qp.port().room = 1;
  qp.transmit().out({kRcReadResponseFirst, 0, 256});
  qp.keys().remove(key);
  qp.transmit().out(Nak{1, 0x62, 2}).raises(AsyncEventType::kQpAccessErr).is_in(QpState::kError);
  qp.receives(2, WcStatus::kWrFlushErr);
  qp.port().room = 100;
  qp.transmit().quiet();
}

TEST_CASE("an atomic at an address that is not a multiple of 8 is an invalid request",
          "[rc][fault][atomic][T9]") {
  // IBA 9.7.4 ?
  const unsigned off = GENERATE(range(1U, 8U));
  const auto opcode =
      GENERATE(values<wire::Opcode>({kRcCompareSwap, kRcFetchAdd, kRcMaskedCompareSwap, kRcMaskedFetchAdd}));
  RcScript qp{{.ece = ece::kMaskedAtomics}};
  Packet packet = make(qp, opcode, 0);
  packet.atomic->va += off;
  refuses(qp, packet, 0x61, AsyncEventType::kQpReqErr);
  CHECK(qp.target.is_untouched());
}

TEST_CASE("an atomic needs all of its 8 bytes inside the region", "[rc][fault][atomic][T9]") {
  RcScript qp{{.ece = ece::kMaskedAtomics}};
  Packet packet = make(qp, GENERATE(kRcFetchAdd, kRcMaskedFetchAdd, kRcMaskedCompareSwap), 0);
  const auto key =
      qp.keys()
          .insert(
              {.addr = qp.target.addr(), .length = 15, .pd = RcScript::kPd, .access = access::kRemoteAtomic})
          .value();
  packet.atomic->rkey = Rkey{key};
  packet.atomic->va += 8;
  refuses(qp, packet, 0x62, AsyncEventType::kQpAccessErr);
}

TEST_CASE("a SEND with invalidate of a key that may not be invalidated is refused", "[rc][fault][inv][S7]") {
  // IBA 9.7.4 ?
  RcScript qp;
  qp.post_recv(8).post_recv(8);
  std::uint32_t key = 0;
  SECTION("a region without the mark") {
    key = qp.target.key();
  }
  SECTION("an unknown key") {
    key = qp.target.key() ^ 1;
  }
  SECTION("a key of another protection domain") {
    key = qp.keys()
              .insert({.addr = qp.target.addr(),
                       .length = 8,
                       .pd = RcScript::kPd + 1,
                       .access = access::kAll | access::kInvalidatable})
              .value();
  }
  qp.in({.opcode = kRcSendOnlyInv, .payload = 8, .ack_req = true, .ieth = key}).out(Nak{0, 0x62, 0});
  qp.receives(1, WcStatus::kRemAccessErr).receives(2, WcStatus::kWrFlushErr).is_in(QpState::kError);
  mem::KeyFault fault{};
  CHECK(qp.keys().resolve(qp.target.key(), RcScript::kPd, 0, qp.target.addr(), 1, fault) != nullptr);
}

TEST_CASE("what was answered before a fault is acknowledged by its NAK", "[rc][fault]") {
  // IBA 9.7.6 ?: a NAK acknowledges all before its PSN
  RcScript qp;
  qp.post_recv(8);
  Packet bad = make(qp, kRcWriteOnly, 2);
  bad.reth->rkey = Rkey{0};
  qp.in({make(qp, kRcReadRequest, 0), {.opcode = kRcSendOnly, .psn = 1, .payload = 8, .ack_req = true}, bad});
  qp.out({kRcReadResponseOnly, 0, 8}).out(Nak{2, 0x62, 2}).receives(1, 8);
  qp.raises(AsyncEventType::kQpAccessErr).is_in(QpState::kError).quiet();
}

TEST_CASE("work requests in flight are flushed when the peer's request is at fault", "[rc][fault]") {
  RcScript qp;
  qp.post_send(4).out({kRcSendOnly, 0, 4, true});
  Packet bad = make(qp, kRcWriteOnly, 0);
  bad.reth->rkey = Rkey{0};
  qp.in(bad).out(Nak{0, 0x62, 0}).raises(AsyncEventType::kQpAccessErr).completes(1, WcStatus::kWrFlushErr);
}

TEST_CASE("every fault has a counter, a status and a sentence", "[rc][fault]") {
  for (std::uint8_t i = 1; i < raw(Fault::kCount); ++i) {
    const transport::FaultRow& row = transport::row(Fault{i});
    CAPTURE(i);
    CHECK(row.text.size() > 10);
    CHECK(row.status != WcStatus::kSuccess);
    CHECK((row.nak == 0 || row.nak == 0x20 || (row.nak >= 0x61 && row.nak <= 0x63)));
  }
}
