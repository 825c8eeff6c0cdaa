// What is counted of a QP itself: each of kQpCounters by the rule that it is named after, and nothing of what
// is usual.
#include <catch2/catch.hpp>
#include <map>

#include "script/remote.h"
#include "uroce/ece.h"

using namespace uroce;
using namespace uroce::test;
using transport::kQpCounters;

namespace {

constexpr std::uint8_t kMarked = 3;  // congestion experienced

using Counted = std::map<std::string_view, std::uint64_t>;

/// Whatever is not zero.
Counted counted(RcScript& qp) {
  Counted all;
  for (std::size_t i = 0; i < kQpCounters.size(); ++i) {
    const std::uint64_t value = qp.context().own_counters.get(i);
    if (value != 0) all[kCounterNames[static_cast<std::size_t>(kQpCounters[i])]] = value;
  }
  return all;
}

Packet write_in(RcScript& qp, std::uint32_t psn) {
  return {.opcode = kRcWriteOnly, .psn = psn, .payload = 4, .ack_req = true, .reth = own(qp, 4)};
}

Packet send_in(wire::Opcode opcode, std::uint32_t psn) {
  return {.opcode = opcode, .psn = psn, .payload = 4, .ack_req = true};
}

RcScript& post_writes(RcScript& qp, int count) {
  qp.together([count](RcScript& script) {
    for (int i = 0; i < count; ++i) script.post_write(4);
  });
  return qp.forget();
}

ScriptConfig controlled() {
  return {.congestion = {.is_on = true, .line_bps = 10'000'000'000, .cnp_gap_ns = 50'000}};
}

}  // namespace

TEST_CASE("a QP counts nothing of what is sent once and arrives in order", "[rc][qp-counters]") {
  RcScript qp{{.probe_floor_ns = 100'000, .credits = true}};
  qp.post_recv(64);
  qp.at(0us).post_send(4).post_write(4000).post_read(2000).post_add(1).forget();
  qp.in({Ack{4}, {.opcode = kRcReadResponseFirst, .psn = 5, .payload = 1024}});
  qp.in({{.opcode = kRcReadResponseLast, .psn = 6, .payload = 976}, {.opcode = kRcAtomicAck, .psn = 7}});
  qp.in({send_in(kRcSendOnly, 0), write_in(qp, 1)}).forget();
  CHECK(counted(qp).empty());
  CHECK(qp.context().events == 0);
}

TEST_CASE("a QP counts packets that it sends again after a NAK", "[rc][qp-counters]") {
  RcScript qp;
  post_writes(qp, 3).in(NakSequence{1}).forget();
  CHECK(counted(qp) == Counted{{"requester_seq_naks", 1}, {"requester_repeated_packets", 2}});
}

TEST_CASE("a QP counts each request packet for a READ that it sends again", "[rc][qp-counters]") {
  RcScript qp{{.mtu = 256, .max_unacked = 8}};  // four PSNs a request
  qp.at(0us).post_read(8 * 256).forget();
  qp.at(100ms).forget();
  CHECK(counted(qp) == Counted{{"requester_timeouts", 1}, {"requester_repeated_packets", 2}});
}

TEST_CASE("a QP that repeats selectively counts what was lost", "[rc][selective][qp-counters]") {
  RcScript qp{{.ece = ece::kSelectiveRepeat}};
  post_writes(qp, 4).in(SelectiveNak{1, {2, 3}}).forget();
  CHECK(counted(qp) == Counted{{"requester_seq_naks", 1}, {"requester_repeated_packets", 1}});
}

TEST_CASE("a QP counts timeouts", "[rc][qp-counters]") {
  RcScript qp{{.timeout = 8, .retry_cnt = 2}};
  qp.at(0us).post_write(4).forget().at(10s).forget().is_in(QpState::kError);
  CHECK(counted(qp) == Counted{{"requester_timeouts", 3}, {"requester_repeated_packets", 2}});
}

TEST_CASE("a QP counts probes", "[rc][qp-counters]") {
  RcScript qp{{.timeout = 19, .probe_floor_ns = 100'000}};
  qp.at(0us).post_write(4).forget().at(10us).in(Ack{0}).forget();
  qp.at(1ms).post_write(4).forget().at(1ms + 110us).in(Ack{1}).forget();
  CHECK(counted(qp) == Counted{{"requester_probes", 1}, {"requester_repeated_packets", 1}});
}

TEST_CASE("a QP counts implied NAKs", "[rc][qp-counters]") {
  RcScript qp;
  qp.together([](RcScript& script) { script.post_read(4).post_write(4); });
  qp.in(Ack{1}).forget();
  CHECK(counted(qp) == Counted{{"requester_implied_naks", 1}, {"requester_repeated_packets", 2}});
}

TEST_CASE("a QP counts RNR NAKs of its peer", "[rc][qp-counters]") {
  RcScript qp;
  qp.at(0us).post_send(4).forget().in(RnrNak{0, 1}).at(10us).forget();
  CHECK(counted(qp) == Counted{{"requester_rnr_naks", 1}, {"requester_repeated_packets", 1}});
}

TEST_CASE("a QP counts its peer's refusal", "[rc][qp-counters]") {
  RcScript qp;
  qp.post_write(4).in(Nak{0, 0x62}).forget().is_in(QpState::kError);
  CHECK(counted(qp) == Counted{{"requester_fatal_naks", 1}});
}

TEST_CASE("a QP counts CNPs of its peer, and those that it sends", "[rc][dcqcn][qp-counters]") {
  RcScript qp{controlled()};
  qp.at(100us).in({.opcode = kCnp});
  CHECK(counted(qp) == Counted{{"rp_cnp_handled", 1}});
  wire::FrameAddress from = qp.peer_address();
  from.traffic_class = kMarked;
  qp.in_from(from, write_in(qp, 0), Count::kRxRoce).forget();
  CHECK(counted(qp) == Counted{{"rp_cnp_handled", 1}, {"np_cnp_sent", 1}});
}

TEST_CASE("a QP counts duplicates", "[rc][qp-counters]") {
  RcScript qp;
  qp.in(write_in(qp, 0)).in(write_in(qp, 0)).forget();
  CHECK(counted(qp) == Counted{{"responder_duplicate_requests", 1}});
}

TEST_CASE("a QP counts packets behind a gap, and the NAK for it", "[rc][qp-counters]") {
  RcScript qp;
  qp.in({write_in(qp, 1), write_in(qp, 2)}).forget();
  CHECK(counted(qp) == Counted{{"responder_out_of_sequence", 2}, {"responder_seq_naks", 1}});
}

TEST_CASE("a QP that holds packets behind a gap counts each NAK", "[rc][selective][qp-counters]") {
  RcScript qp{{.ece = ece::kSelectiveRepeat}};
  qp.in(write_in(qp, 1)).in(write_in(qp, 3)).in(write_in(qp, 0)).forget();  // 2 is missing as well
  CHECK(counted(qp) == Counted{{"responder_out_of_sequence", 2}, {"responder_seq_naks", 3}});
}

TEST_CASE("a QP counts RNR NAKs that it sends", "[rc][qp-counters]") {
  RcScript qp;
  qp.in(send_in(kRcSendOnly, 0)).forget();
  CHECK(counted(qp) == Counted{{"responder_rnr_naks", 1}});
}

TEST_CASE("a QP counts what it refuses", "[rc][qp-counters]") {
  RcScript qp;
  Packet foreign = write_in(qp, 0);
  foreign.reth->rkey = Rkey{1};
  qp.in(foreign).forget().is_in(QpState::kError);
  CHECK(counted(qp) == Counted{{"responder_fatal_naks", 1}});
}

TEST_CASE("an unreliable QP counts what it drops", "[uc][qp-counters]") {
  RcScript qp{{.type = QpType::kUc}};
  qp.in(send_in(kUcSendOnly, 0));
  CHECK(counted(qp) == Counted{{"drop_no_receive", 1}, {"responder_dropped_messages", 1}});
  qp.in(send_in(kUcSendOnly, 3)).forget();
  CHECK(counted(qp) ==
        Counted{{"drop_no_receive", 2}, {"responder_dropped_messages", 2}, {"responder_out_of_sequence", 1}});
}

TEST_CASE("a QP that answers nobody drops what its receive names no registered memory for",
          "[uc][ud][qp-counters]") {
  const bool is_datagram = GENERATE(false, true);
  RcScript qp{{.type = is_datagram ? QpType::kUd : QpType::kUc}};
  const Sge foreign{qp.inbox.addr(), 64, Lkey{0x4242}};
  Packet packet = send_in(is_datagram ? kUdSendOnly : kUcSendOnly, 0);
  if (is_datagram) packet.deth = wire::Deth{0x1111'1111, RcScript::kPeer};
  qp.post_recv({&foreign, 1}).in(packet).receives(1, WcStatus::kLocProtErr).is_in(QpState::kError);
  CHECK(counted(qp) == Counted{{"responder_dropped_messages", 1}});
  qp.counted(Count::kResponderDroppedMessages, 1).counted(Count::kResponderFatalNaks, 0).quiet();
}

TEST_CASE("a QP that others see tells of news with every count, and of a new state", "[rc][qp-counters]") {
  RcScript qp;
  const auto has_news = [&] { return (qp.qp().take_events() & transport::QpContext::kHasNews) != 0; };
  qp.context().count(Count::kRequesterTimeouts);
  CHECK(has_news());
  CHECK_FALSE(has_news());
  qp.context().fail(transport::Fault::kPeerSilent);
  qp.qp().settle_requests(Ticks{1});
  CHECK(has_news());
}

TEST_CASE("a QP that is reset has counted nothing", "[rc][qp-counters]") {
  RcScript qp;
  qp.in({write_in(qp, 0), write_in(qp, 0)}).forget().move_to(QpState::kReset);
  CHECK(counted(qp).empty());
}
