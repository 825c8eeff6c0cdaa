// The QP around requester and responder: states, flush, drain, events, and whose packets it takes.
#include <catch2/catch.hpp>

#include "script/remote.h"

using namespace uroce;
using namespace uroce::test;

namespace {

Packet send_only(std::uint32_t psn) {
  return {.opcode = kRcSendOnly, .psn = psn, .payload = 4, .ack_req = true};
}

Status move(RcScript& qp, QpState state) {
  QpAttr attr;
  attr.state = state;
  return qp.modify(attr, qp_attr::kState);
}

}  // namespace

TEST_CASE("a move to Error flushes everything posted, in order", "[rc][flush][T15]") {
  // IBA 10.3.1.7 ?: for each number of outstanding work requests
  const std::uint32_t sends = GENERATE(range(0U, 17U));
  const std::uint32_t receives = GENERATE(range(0U, 17U));
  const std::uint32_t in_flight = GENERATE(0U, 1U, 16U);
  RcScript qp{{.max_unacked = std::max(1U, in_flight),
               .sig_all = false,
               .send_wrs = 16,
               .recv_wrs = 16,
               .resolved = in_flight > 0,
               .area_bytes = 256}};
  for (std::uint32_t i = 0; i < receives; ++i) qp.post_recv(4);
  qp.together([&](RcScript& script) {
    for (std::uint32_t i = 0; i < std::min(sends, 16U); ++i) script.post_send(4);
  });
  qp.forget().move_to(QpState::kError);
  for (std::uint32_t i = 1; i <= std::min(sends, 16U); ++i) qp.completes(i, WcStatus::kWrFlushErr);
  for (std::uint32_t i = 1; i <= receives; ++i) qp.receives(i, WcStatus::kWrFlushErr);
  qp.quiet().at(10s).quiet();  // no event: nothing went wrong
  qp.counted(Count::kFlushed, std::min(sends, 16U) + receives);
}

TEST_CASE("what is posted in Error is flushed at once", "[rc][flush][T15]") {
  RcScript qp;
  qp.move_to(QpState::kError);
  qp.post_send(4).completes(1, WcStatus::kWrFlushErr);
  qp.post_recv(4).receives(1, WcStatus::kWrFlushErr);
  qp.post_read(4, send_flag::kFence).completes(2, WcStatus::kWrFlushErr);
}

TEST_CASE("a post that just misses the move to Error is flushed soon", "[rc][flush][T15]") {
  RcScript qp;
  REQUIRE(qp.qp().context().receives.own.put({.wr_id = 9}, 0));
  qp.qp().context().receives.own.publish(1);
  qp.move_to(QpState::kError).receives(9, WcStatus::kWrFlushErr);
  REQUIRE(qp.qp().context().receives.own.put({.wr_id = 10}, 0));
  qp.qp().context().receives.own.publish(1);  // without a doorbell
  qp.at(10ms).receives(10, WcStatus::kWrFlushErr);
}

TEST_CASE("a QP in Error answers nothing", "[rc][error]") {
  RcScript qp;
  qp.post_send(4).out(send_only(0)).move_to(QpState::kError).completes(1, WcStatus::kWrFlushErr);
  qp.in_refused(send_only(0), Count::kDropQpState);
  qp.in_refused({.opcode = kRcWriteOnly, .psn = 5, .payload = 4, .ack_req = true, .reth = own(qp, 4)},
                Count::kDropQpState);
  qp.in_refused(Ack{0}, Count::kDropQpState);
  CHECK(qp.target.is_untouched());
}

TEST_CASE("a QP that was reset works again and remembers nothing", "[rc][reset]") {
  RcScript qp{{.first_psn = 100, .expected_psn = 200, .ece = ece::kSelectiveRepeat}};
  qp.post_recv(8).post_recv(8);
  qp.together([](RcScript& script) { script.post_send(4).post_read(8); });
  qp.forget();
  qp.in({.opcode = kRcSendFirst, .psn = 200, .payload = 1024}).out(Nak{200, 0x61, 0});
  qp.forget().is_in(QpState::kError).move_to(QpState::kReset).quiet();

  QpAttr attr{.path_mtu = PathMtu::k1024,
              .dest_qpn = RcScript::kPeer,
              .rq_psn = Psn{7},
              .sq_psn = Psn{9},
              .access_flags = access::kAll,
              .dgid = qp.peer_address().sgid};
  for (const auto& [state, mask] : {std::pair{QpState::kInit, qp_attr::kInitMask},
                                    {QpState::kRtr, qp_attr::kRtrMask},
                                    {QpState::kRts, qp_attr::kRtsMask}}) {
    attr.state = state;
    REQUIRE(qp.modify(attr, mask).has_value());
  }
  wire::FrameAddress address = qp.peer_address();
  std::swap(address.src_mac, address.dst_mac);
  std::swap(address.sgid, address.dgid);
  qp.qp().context().path->head = wire::FrameTemplate{address};
  qp.qp().set_resolved();
  qp.post_send(4).out(send_only(9)).in(Ack{9}).completes(3);
  qp.in(send_only(7)).out(RnrNak{7, 12, 0});
  CHECK(qp.context().ece == 0);
  qp.post_recv(8).in(send_only(7)).out(Ack{7, 1}).receives(3, 4);
  qp.in(send_only(9)).out(NakSequence{8, 1});
}

TEST_CASE("a QP that is not ready takes no packet", "[rc][state]") {
  // IBA 9.6.1, 10.3.1 ?
  const QpState state = GENERATE(QpState::kReset, QpState::kInit);
  RcScript qp{{.state = state}};
  qp.in_refused(send_only(0), Count::kDropQpState);
  qp.in_refused(Ack{0}, Count::kDropQpState);
}

TEST_CASE("a QP in RTR takes requests, reports the first and takes no responses", "[rc][state]") {
  // IBA 11.6.3.1 ?: COMM_EST
  RcScript qp{{.state = QpState::kRtr}};
  qp.post_recv(8);
  qp.in_refused(Ack{0}, Count::kDropQpState);
  qp.in(send_only(0)).raises(AsyncEventType::kCommEst).out(Ack{0, 1}).receives(1, 4);
  qp.in({.opcode = kRcWriteOnly, .psn = 1, .payload = 4, .ack_req = true, .reth = own(qp, 4)}).out(Ack{1, 2});
}

TEST_CASE("a QP in RTR reports the first packet once, even if it has to refuse it", "[rc][state]") {
  RcScript qp{{.state = QpState::kRtr}};
  qp.in(send_only(0)).raises(AsyncEventType::kCommEst).out(RnrNak{0, 12, 0});
  qp.in(send_only(0)).out(RnrNak{0, 12, 0});
}

TEST_CASE("a QP has heard from its peer once it has taken something, until it is reset", "[rc][state]") {
  const QpState state = GENERATE(QpState::kRtr, QpState::kRts);
  RcScript qp{{.expected_psn = 200, .state = state}};
  qp.post_recv(8);
  CHECK_FALSE(qp.qp().has_heard());
  qp.in(send_only(201)).forget();
  CHECK_FALSE(qp.qp().has_heard());
  qp.in(send_only(200)).forget();
  CHECK(qp.qp().has_heard());
  qp.move_to(QpState::kError).forget();
  CHECK(qp.qp().has_heard());
  qp.move_to(QpState::kReset);
  CHECK_FALSE(qp.qp().has_heard());
  REQUIRE(qp.modify({.state = QpState::kInit}, qp_attr::kInitMask));
  qp.move_to(QpState::kError).forget();
  CHECK_FALSE(qp.qp().has_heard());
}

TEST_CASE("a QP drains: started messages end, the rest waits", "[rc][sqd][T16]") {
  // IBA 10.3.1.6 ?
  RcScript qp{{.mtu = 256, .max_unacked = 4}};
  qp.together([](RcScript& script) { script.post_send(6 * 256).post_send(4); });
  qp.forget();  // four packets of the first are in flight
  qp.move_to(QpState::kSqd).quiet();
  qp.in(Ack{1}).out({kRcSendMiddle, 4, 256, true}).out({kRcSendLast, 5, 256, true});
  qp.post_send(4).quiet();
  qp.in(Ack{5}).completes(1).raises(AsyncEventType::kSqDrained).quiet();
  qp.at(1s).quiet();
  qp.move_to(QpState::kRts).out(send_only(6)).out(send_only(7));
  qp.in(Ack{7}).completes(2).completes(3);
}

TEST_CASE("a draining QP still mends losses", "[rc][sqd][T16]") {
  RcScript qp;
  qp.together([](RcScript& script) { script.post_send(4).post_send(4); });
  qp.forget().move_to(QpState::kSqd);
  qp.in(NakSequence{1}).completes(1).out(send_only(1));
  qp.at(100ms).out(send_only(1)).in(Ack{1}).completes(2).raises(AsyncEventType::kSqDrained);
}

TEST_CASE("a QP with nothing in flight is drained at once", "[rc][sqd][T16]") {
  RcScript qp;
  qp.move_to(QpState::kSqd).raises(AsyncEventType::kSqDrained);
  qp.move_to(QpState::kRts).move_to(QpState::kSqd).raises(AsyncEventType::kSqDrained);
  qp.at(1s).quiet();
}

TEST_CASE("a drained QP waits for no address: it may get another one", "[rc][sqd][link]") {
  // IBA 10.3.1.6 ?
  RcScript qp{{.retry_cnt = 1, .resolved = false}};
  qp.post_send(4).quiet();
  qp.move_to(QpState::kSqd).raises(AsyncEventType::kSqDrained);
  qp.at(10s).quiet().is_in(QpState::kSqd);
  qp.move_to(QpState::kRts).at(20s).completes(1, WcStatus::kRetryExcErr).is_in(QpState::kError);
}

TEST_CASE("a QP says that it drains, and that it is drained only if that was asked for", "[rc][sqd]") {
  for (const bool asks : {false, true}) {
    RcScript qp;
    qp.post_send(4).out(send_only(0));
    REQUIRE(qp.modify({.state = QpState::kSqd, .en_sqd_async_notify = false},
                      qp_attr::kState | (asks ? 0 : qp_attr::kEnSqdAsyncNotify)));
    CHECK(qp.qp().query().sq_draining);
    qp.in(Ack{0}).completes(1).quiet();
    CHECK_FALSE(qp.qp().query().sq_draining);
    CHECK_FALSE(qp.move_to(QpState::kRts).qp().query().sq_draining);
  }
}

TEST_CASE("more READs may be in flight as soon as a draining QP is told so", "[rc][sqd][read]") {
  // IBA 9.4.4, 10.3.1.6 ?
  RcScript qp{{.max_rd_atomic = 1}};
  const auto read = [](std::uint32_t psn) {
    return Packet{.opcode = kRcReadRequest, .psn = psn, .ack_req = true, .reth = remote(4)};
  };
  const auto answer = [](std::uint32_t psn) {
    return Packet{.opcode = kRcReadResponseOnly, .psn = psn, .payload = 4};
  };
  qp.post_read(4).out(read(0)).move_to(QpState::kSqd);
  REQUIRE(qp.modify({.state = QpState::kSqd, .max_rd_atomic = 3}, qp_attr::kState | qp_attr::kMaxQpRdAtomic));
  qp.move_to(QpState::kRts);
  for (int i = 0; i < 4; ++i) qp.post_read(4);
  qp.out(read(1)).out(read(2)).quiet();
  qp.in(answer(0)).completes(1).out(read(3)).quiet();
  qp.in(answer(1)).completes(2).out(read(4)).quiet();
}

TEST_CASE("a drained QP has as many retries as it is told", "[rc][sqd][rnr]") {
  // IBA 10.3.1.6 ?: both may change in SQD
  RcScript qp{{.retry_cnt = 0, .rnr_retry = 0}};
  qp.move_to(QpState::kSqd).raises(AsyncEventType::kSqDrained);
  REQUIRE(qp.modify({.state = QpState::kSqd, .retry_cnt = 1, .rnr_retry = 1},
                    qp_attr::kState | qp_attr::kRetryCnt | qp_attr::kRnrRetry));
  qp.move_to(QpState::kRts).post_send(4).out(send_only(0));
  SECTION("for a receive that is missing") {
    qp.in(RnrNak{0, 1, 0}).quiet();
    qp.at(10us).out(send_only(0)).in(Ack{0}).completes(1);
  }
  SECTION("for a packet that is lost") {
    qp.at(100ms).out(send_only(0)).in(Ack{0}).completes(1);
  }
}

TEST_CASE("a draining QP still serves the peer", "[rc][sqd]") {
  RcScript qp;
  qp.move_to(QpState::kSqd).raises(AsyncEventType::kSqDrained);
  qp.in({.opcode = kRcReadRequest, .psn = 0, .ack_req = true, .reth = own(qp, 4)})
      .out({kRcReadResponseOnly, 0, 4});
}

TEST_CASE("a full send CQ moves the QP to Error", "[rc][cq][R6]") {
  // IBA 11.6.3.3 ?
  RcScript qp{{.cqes = 2}};
  qp.together([](RcScript& script) { script.post_send(4).post_send(4).post_send(4).post_send(4); });
  qp.forget();
  qp.in(Ack{2}).raises(AsyncEventType::kCqErr).is_in(QpState::kError);
  qp.completes(1).completes(2).quiet();
  CHECK(qp.counters().get(Count::kCqOverflows) == 1);
}

TEST_CASE("a full receive CQ moves the QP to Error", "[rc][cq][R6]") {
  RcScript qp{{.cqes = 2}};
  qp.post_recv(4).post_recv(4).post_recv(4);
  qp.in({send_only(0), send_only(1), send_only(2)});
  qp.raises(AsyncEventType::kCqErr).is_in(QpState::kError);
  qp.receives(1, 4).receives(2, 4).quiet();
}

TEST_CASE("a QP takes packets of its partition only", "[rc][pkey]") {
  // IBA 10.9.3: low 15 bits equal, at least one full member
  RcScript qp;
  Packet write{.opcode = kRcWriteOnly, .psn = 0, .payload = 4, .ack_req = true, .reth = own(qp, 4)};
  for (const std::uint16_t pkey :
       std::initializer_list<std::uint16_t>{0xfffe, 0x7ffe, 0x0001, 0x8001, 0x0000}) {
    write.pkey = pkey;
    qp.in_refused(write, Count::kDropBadPkey);
  }
  write.pkey = 0x7fff;  // a limited member may talk to a full one
  qp.in(write).out(Ack{0, 1});
}

TEST_CASE("a QP takes packets of its peer's address only", "[rc][address][S8]") {
  // IBA A17.3 ?
  const bool v6 = GENERATE(false, true);
  RcScript qp{{.v6 = v6}};
  const Packet write{.opcode = kRcWriteOnly, .psn = 0, .payload = 4, .ack_req = true, .reth = own(qp, 4)};
  wire::FrameAddress other = qp.peer_address();
  other.sgid.raw[15] ^= 8;
  qp.in_from(other, write, Count::kDropWrongAddress);
  other = qp.peer_address();
  other.dgid.raw[15] ^= 8;
  qp.in_from(other, write, Count::kDropWrongAddress);
  other = qp.peer_address();
  other.udp_src_port = 0;  // never looked at: IBA A17.3 ?
  other.hop_limit = 3;
  other.traffic_class = 0xff;
  qp.in_from(other, write, Count::kRxRoce).out(Ack{0, 1});
}

TEST_CASE("an RC QP takes no packets of other transports", "[rc][transport]") {
  RcScript qp;
  qp.in_refused({.opcode = kUcSendOnly, .payload = 4}, Count::kDropWrongTransport);
  qp.in_refused({.opcode = kUcWriteOnly, .payload = 4, .reth = own(qp, 4)}, Count::kDropWrongTransport);
  qp.in_refused({.opcode = kUdSendOnly, .payload = 4}, Count::kDropWrongTransport);
  qp.in_refused({.opcode = kCnp}, Count::kCnpsIgnored);  // congestion control is off
  CHECK(qp.target.is_untouched());
}

TEST_CASE("a query tells the PSNs that come next", "[rc][query]") {
  RcScript qp{{.first_psn = 0xff'ffff, .expected_psn = 41}};
  qp.post_send(2000).forget();
  qp.in({.opcode = kRcWriteOnly, .psn = 41, .payload = 4, .reth = own(qp, 4)});
  const QpAttr attr = qp.qp().query();
  CHECK(attr.state == QpState::kRts);
  CHECK(attr.sq_psn == Psn{1});
  CHECK(attr.rq_psn == Psn{42});
  CHECK(move(qp, QpState::kInit).error().code == Errc::kInvalid);
  qp.is_in(QpState::kRts).move_to(QpState::kError).completes(1, WcStatus::kWrFlushErr);
}
