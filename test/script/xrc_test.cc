// Extended reliable connections: RC whose requests name the shared receive queue that they mean. IBA A14 ?
#include <catch2/catch.hpp>

#include "script/remote.h"

using namespace uroce;
using namespace uroce::test;

namespace {

constexpr Pattern kData{0x3c, 0};

ScriptConfig target(std::uint32_t mtu = 256) {
  return {.type = QpType::kXrcRecv, .mtu = mtu, .min_rnr_timer = 3, .shared_wrs = 8};
}
ScriptConfig initiator(std::uint32_t mtu = 256) {
  return {.type = QpType::kXrcSend, .mtu = mtu, .timeout = 10, .retry_cnt = 1};
}

Packet send_only(std::uint32_t psn, std::uint32_t srq, std::uint32_t bytes = 4) {
  return {.opcode = kRcSendOnly, .psn = psn, .payload = bytes, .ack_req = true, .srq = srq, .data = kData};
}

/// A receive of the other queue, into memory that its protection domain may write.
struct OtherInbox {
  explicit OtherInbox(RcScript& qp)
      : area(qp.keys(), RcScript::kOtherPd, 4096, access::kLocalWrite | access::kRemoteRead, 0x20) {}

  void post(RcScript& qp, std::uint64_t wr_id, std::uint32_t bytes) {
    const Sge sge = area.sge(0, bytes);
    REQUIRE(qp.xrc().other.ring.put({.wr_id = wr_id, .sges = {&sge, 1}}, 0));
    qp.xrc().other.ring.publish(1);
  }
  Area area;
};

}  // namespace

TEST_CASE("an XRC initiator names the queue in every request, and nowhere else", "[xrc]") {
  RcScript qp{initiator()};
  const Sge sge = qp.source.sge(0, 600);
  qp.post({.sges = {&sge, 1}, .opcode = WrOpcode::kSend, .remote_srq = 0xab'cdef});
  for (const auto& [opcode, psn, bytes] :
       {std::tuple{kRcSendFirst, 0U, 256U}, {kRcSendMiddle, 1U, 256U}, {kRcSendLast, 2U, 88U}}) {
    qp.out({.opcode = opcode, .psn = psn, .payload = bytes, .ack_req = psn == 2, .srq = 0xab'cdef});
  }
  qp.in(Ack{2}).completes(1);
  qp.post({.sges = {&sge, 1},
           .opcode = WrOpcode::kRdmaWriteWithImm,
           .imm_data = 0x0100'0000,
           .remote_addr = RcScript::kRemoteVa,
           .rkey = RcScript::kRemoteKey,
           .remote_srq = 7});
  qp.out({.opcode = kRcWriteFirst, .psn = 3, .payload = 256, .srq = 7, .reth = remote(600)});
  qp.out({.opcode = kRcWriteMiddle, .psn = 4, .payload = 256, .srq = 7});
  qp.out({.opcode = kRcWriteLastImm, .psn = 5, .payload = 88, .ack_req = true, .srq = 7, .imm = 1});
  qp.in(Ack{5}).completes(2);
}

TEST_CASE("an XRC initiator reads and changes remote memory with the rights of the queue it names",
          "[xrc][read][atomic]") {
  RcScript qp{initiator()};
  const Sge sge = qp.sink.sge(0, 8);
  qp.post({.sges = {&sge, 1},
           .opcode = WrOpcode::kRdmaRead,
           .remote_addr = RcScript::kRemoteVa,
           .rkey = RcScript::kRemoteKey,
           .remote_srq = 9});
  qp.out({.opcode = kRcReadRequest, .psn = 0, .ack_req = true, .srq = 9, .reth = remote(8)});
  qp.in({.opcode = kRcReadResponseOnly, .psn = 0, .payload = 8, .data = kData}).completes(1);
  CHECK(qp.sink.holds(0, 8, kData));
  qp.post({.sges = {&sge, 1},
           .opcode = WrOpcode::kAtomicCmpAndSwp,
           .remote_addr = RcScript::kRemoteVa,
           .rkey = RcScript::kRemoteKey,
           .compare_add = 1,
           .swap = 2,
           .remote_srq = 9});
  qp.out({.opcode = kRcCompareSwap,
          .psn = 1,
          .ack_req = true,
          .srq = 9,
          .atomic = wire::AtomicEth{
              .va = RcScript::kRemoteVa, .rkey = RcScript::kRemoteKey, .swap_add = 2, .compare = 1}});
  qp.in({.opcode = kRcAtomicAck, .psn = 1, .original = 1}).completes(2);
}

TEST_CASE("an XRC initiator goes back, waits and fails as RC does", "[xrc][go-back-n][timeout]") {
  RcScript qp{initiator()};
  const auto post = [&] {
    const Sge sge = qp.source.sge(0, 4);
    qp.post({.sges = {&sge, 1}, .opcode = WrOpcode::kSend, .remote_srq = 3});
  };
  const auto sent = [](std::uint32_t psn) {
    return Packet{.opcode = kRcSendOnly, .psn = psn, .payload = 4, .ack_req = true, .srq = 3};
  };
  post();
  qp.out(sent(0)).in(NakSequence{0}).out(sent(0)).in(Ack{0}).completes(1);
  post();
  qp.out(sent(1)).in(RnrNak{1, 1}).at(qp.now() + 10us).out(sent(1)).in(Ack{1}).completes(2);
  post();
  qp.out(sent(2));
  qp.at(qp.now() + 5ms).out(sent(2)).at(qp.now() + 10ms).completes(3, WcStatus::kRetryExcErr);
  qp.is_in(QpState::kError);
}

TEST_CASE("an XRC target takes receives of the queue that a request names, and completes them in its CQ",
          "[xrc][srq]") {
  RcScript qp{target()};
  OtherInbox other(qp);
  qp.post_shared(100);
  other.post(qp, 50, 100);
  qp.in(send_only(0, 2)).out(Ack{0, 1});
  qp.in(send_only(1, 1)).out(Ack{1, 2}).receives(1, 4);
  Wc wc;
  REQUIRE(qp.xrc().other_cq.poll({&wc, 1}) == 1);
  CHECK(wc.wr_id == 50);
  CHECK(wc.ok());
  CHECK(wc.byte_len == 4);
  CHECK(wc.qpn == RcScript::kLocal);
  CHECK(other.area.holds(0, 4, kData));
}

TEST_CASE("an empty queue makes an XRC target not ready for its messages, but ready for others",
          "[xrc][rnr]") {
  RcScript qp{target()};
  qp.post_shared(100);
  qp.in(send_only(0, 2)).out(RnrNak{0, 3});
  qp.in(send_only(0, 1)).out(Ack{0, 1}).receives(1, 4);
}

TEST_CASE("a message of an XRC target stays with one queue", "[xrc][T8]") {
  RcScript qp{target()};
  OtherInbox other(qp);
  other.post(qp, 50, 1000);
  qp.post_shared(1000);
  qp.in({.opcode = kRcSendFirst, .psn = 0, .payload = 256, .srq = 1, .data = kData});
  SECTION("and ends there") {
    qp.in({.opcode = kRcSendLast, .psn = 1, .payload = 4, .ack_req = true, .srq = 1, .data = kData});
    qp.out(Ack{1, 1}).receives(1, 260);
  }
  SECTION("or is refused") {
    qp.in({.opcode = kRcSendLast, .psn = 1, .payload = 4, .ack_req = true, .srq = 2, .data = kData});
    qp.out(Nak{1, 0x61}).receives(1, WcStatus::kRemInvReqErr).is_in(QpState::kError);
    CHECK(qp.xrc().other.count() == 1);
  }
  SECTION("or is lost with it") {
    qp.xrc().domain.remove(qp.shared());
    CHECK(qp.shared().count() == 1);
    CHECK(qp.context().recv_cq == &qp.xrc().domain.no_cq());  // that of the queue may go with it
    qp.in({.opcode = kRcSendLast, .psn = 1, .payload = 4, .ack_req = true, .srq = 1, .data = kData});
    qp.out(Nak{1, 0x61}).raises(AsyncEventType::kQpAccessErr).is_in(QpState::kError);
  }
}

TEST_CASE("an XRC target refuses a queue that its domain does not have", "[xrc][T9]") {
  RcScript qp{target()};
  const Packet request = GENERATE_COPY(
      send_only(0, 3),
      Packet{.opcode = kRcWriteOnly, .psn = 0, .payload = 4, .srq = 0, .reth = wire::Reth{.length = 4}},
      Packet{.opcode = kRcReadRequest, .psn = 0, .srq = 0xff'ffff, .reth = wire::Reth{.length = 4}});
  qp.in(request).out(Nak{0, 0x61}).raises(AsyncEventType::kQpAccessErr).is_in(QpState::kError);
}

TEST_CASE("an XRC target gives the rights of the queue's protection domain, also to READs that wait",
          "[xrc][read][T9]") {
  RcScript qp{target()};
  OtherInbox other(qp);
  qp.post_shared(100);
  const wire::Reth theirs{.va = other.area.addr(0), .rkey = other.area.rkey(), .length = 8};
  SECTION("its own") {
    qp.port().room = 0;  // the response waits while a message for the other queue comes in
    qp.in({.opcode = kRcReadRequest, .psn = 0, .ack_req = true, .srq = 2, .reth = theirs});
    qp.in(send_only(1, 1)).receives(1, 4);
    qp.port().room = 100;
    qp.transmit().out({.opcode = kRcReadResponseOnly, .psn = 0, .payload = 8, .data = other.area.initial(0)});
    qp.out(Ack{1, 2});
    qp.in({.opcode = kRcReadRequest, .psn = 0, .ack_req = true, .srq = 2, .reth = theirs});  // once more
    qp.out({.opcode = kRcReadResponseOnly, .psn = 0, .payload = 8, .data = other.area.initial(0)});
  }
  SECTION("and no other") {
    qp.in({.opcode = kRcReadRequest, .psn = 0, .ack_req = true, .srq = 1, .reth = theirs});
    qp.out(Nak{0, 0x62}).raises(AsyncEventType::kQpAccessErr).is_in(QpState::kError);
  }
}

TEST_CASE("each end of an XRC connection takes only what the other sends, in XRC", "[xrc][T8]") {
  SECTION("requests to an initiator") {
    RcScript qp{initiator()};
    Packet request = send_only(0, 1);
    request.opcode = wire::xrc(kRcSendOnly);
    qp.in_refused(request, Count::kDropWrongTransport);
  }
  SECTION("responses to a target") {
    RcScript qp{target()};
    Packet response = Ack{0, 0};
    response.opcode = wire::xrc(kRcAck);
    qp.in_refused(response, Count::kDropWrongTransport);
  }
  SECTION("RC to either") {
    RcScript qp{GENERATE(initiator(), target())};
    qp.in_refused(send_only(0, 1), Count::kDropWrongTransport);
  }
  SECTION("XRC to RC") {
    RcScript qp;
    Packet request = send_only(0, 1);
    request.opcode = wire::xrc(kRcSendOnly);
    qp.in_refused(request, Count::kDropWrongTransport);
  }
}

TEST_CASE("an XRC target executes atomics once and answers duplicates with the first value",
          "[xrc][atomic][T7]") {
  RcScript qp{target()};
  const wire::AtomicEth add{.va = qp.target.addr(0), .rkey = qp.target.rkey(), .swap_add = 5};
  const wire::AtomicEth swap{.va = qp.target.addr(8), .rkey = qp.target.rkey(), .swap_add = 5, .compare = 1};
  qp.in({.opcode = kRcFetchAdd, .psn = 0, .ack_req = true, .atomic = add});
  wire::PacketView view;
  const Bytes first = qp.take_frame();
  REQUIRE(wire::parse_packet(first, view) == wire::ParseResult::kRoce);
  CHECK(view.bth.opcode == wire::xrc(kRcAtomicAck));
  const std::uint64_t original = view.atomic_ack_eth().original;
  qp.in({.opcode = kRcFetchAdd, .psn = 0, .ack_req = true, .atomic = add});
  qp.out({.opcode = kRcAtomicAck, .psn = 0, .original = original});
  qp.in({.opcode = kRcCompareSwap, .psn = 1, .ack_req = true, .atomic = swap});
  const Bytes second = qp.take_frame();
  REQUIRE(wire::parse_packet(second, view) == wire::ParseResult::kRoce);
  const std::uint64_t unchanged = view.atomic_ack_eth().original;
  qp.in({.opcode = kRcFetchAdd,
         .psn = 2,
         .ack_req = true,
         .atomic = wire::AtomicEth{.va = qp.target.addr(8), .rkey = qp.target.rkey()}});
  qp.out({.opcode = kRcAtomicAck, .psn = 2, .original = unchanged});  // the comparison failed
  qp.forget();
}
