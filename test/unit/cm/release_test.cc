// How connections end, and what is left of them. IBA 12.9.6, 12.9.8, 12.10.
#include "station.h"

namespace uroce::test {
namespace {

using namespace uroce::wire;
using cm::State;

CmDreq dreq_to(CmId id, Qpn qpn = kOwnQpn) {
  return {.local_comm_id = kPeerId, .remote_comm_id = raw(id), .remote_qpn = qpn};
}
CmDrep drep_to(CmId id) {
  return {.local_comm_id = kPeerId, .remote_comm_id = raw(id)};
}

/// After close(): no events, and soon nothing of it.
void check_forgotten(Station& a, std::size_t ids_left) {
  CHECK(a.events.empty());
  a.wait(100 * kSecond);
  CHECK(a.events.empty());
  CHECK(a.agent.size() == ids_left);
  CHECK_FALSE(a.agent.deadline().is_set());
}

}  // namespace

TEST_CASE("disconnect: DREQ, DREP, timewait", "[cm][release]") {
  Station a;
  const CmId id = a.connected();
  REQUIRE(a.agent.disconnect(id, a.now));
  const auto dreq = a.out<CmDreq>();
  CHECK(dreq.local_comm_id == raw(id));
  CHECK(dreq.remote_comm_id == kPeerId);
  CHECK(dreq.remote_qpn == kPeerQpn);
  REQUIRE(a.agent.disconnect(id, a.now));  // asked twice, said once
  a.quiet();
  a.in(drep_to(id), a.transaction, kElsewhere);
  a.answer(CmDrep{.local_comm_id = kPeerId + 1, .remote_comm_id = raw(id)});
  a.quiet();
  a.answer(drep_to(id));
  CHECK(a.event(CmEventType::kDisconnected).id == id);
  REQUIRE(a.agent.disconnect(id, a.now));
  a.answer(drep_to(id));
  a.wait(999 * kMs);
  a.quiet();
  a.wait(kMs);
  CHECK(a.event(CmEventType::kTimewaitExit).id == id);
  a.agent.close(id, a.now);
  a.quiet();
  CHECK(a.agent.size() == 0);
}

TEST_CASE("a DREQ without an answer is said again, the same, then believed", "[cm][release]") {
  Station a;
  const CmId id = a.connected();
  REQUIRE(a.agent.disconnect(id, a.now));
  const std::uint64_t start = a.now.ns();
  const auto first = a.sent.front().mad;
  a.wait(1999 * kMs);
  std::vector<std::uint64_t> times;
  for (const auto& sent : a.sent) {
    CHECK((sent.mad == first));
    times.push_back((sent.at.ns() - start) / kMs);
  }
  CHECK(times == std::vector<std::uint64_t>{0, 50, 150, 350, 750, 1550});
  a.sent.clear();
  a.quiet();
  a.wait(kMs);
  a.event(CmEventType::kDisconnected);
  a.wait(kSecond);
  a.event(CmEventType::kTimewaitExit);
  a.wait(100 * kSecond);
  a.quiet();
}

TEST_CASE("a DREQ is answered by a DREP of its transaction, each time", "[cm][release]") {
  Station a;
  const CmId id = a.connected();
  for (unsigned i = 0; i < 3; ++i) {
    a.in(dreq_to(id), 77);
    const auto drep = a.out<CmDrep>();
    CHECK(a.transaction == 77);
    CHECK(drep.local_comm_id == raw(id));
    CHECK(drep.remote_comm_id == kPeerId);
    if (i == 0) CHECK(a.event(CmEventType::kDisconnected).id == id);
  }
  a.quiet();
  CHECK(a.state(id) == State::kTimewait);
  a.drain();
  a.agent.close(id, a.now);
  a.in(dreq_to(id), 77);
  a.out<CmDrep>();
  CHECK(a.agent.size() == 0);
}

TEST_CASE("a DREQ of nobody is answered: its sender need not wait", "[cm][release]") {
  Station a;
  a.in(CmDreq{.local_comm_id = 7, .remote_comm_id = 9, .remote_qpn = Qpn{5}}, 77);
  const auto drep = a.out<CmDrep>();
  CHECK(drep.local_comm_id == 9);
  CHECK(drep.remote_comm_id == 7);
  CHECK(a.transaction == 77);
  a.quiet();
}

TEST_CASE("a DREQ that is not of this connection ends nothing", "[cm][release]") {
  Station a;
  const CmId id = a.connected();
  a.in(dreq_to(id), 77, kElsewhere);
  a.out<CmDrep>(kElsewhere);
  a.in(dreq_to(id, Qpn{0x124}));
  a.out<CmDrep>();
  a.in(CmDreq{.local_comm_id = kPeerId + 1, .remote_comm_id = raw(id), .remote_qpn = kOwnQpn});
  a.out<CmDrep>();
  a.quiet();
  CHECK(a.state(id) == State::kEstablished);
}

TEST_CASE("DREQs that cross end both sides, whichever DREPs arrive", "[cm][release]") {
  for (const bool drep_arrives : {false, true}) {
    Station a;
    const CmId id = a.connected();
    REQUIRE(a.agent.disconnect(id, a.now));
    a.out<CmDreq>();
    const auto transaction = a.transaction;
    a.in(dreq_to(id), 77);
    a.out<CmDrep>();
    a.event(CmEventType::kDisconnected);
    if (drep_arrives) a.in(drep_to(id), transaction);
    a.wait(999 * kMs);
    a.quiet();
    a.wait(kMs);
    a.event(CmEventType::kTimewaitExit);
    a.quiet();
  }
}

TEST_CASE("a DREQ in each state of the handshake", "[cm][release]") {
  Station a;
  SECTION("the REP is here, the application has not yet taken it") {
    const CmId id = a.asking();
    a.answer(peer_rep(a.out<CmReq>()));
    a.event(CmEventType::kConnectReply);
    a.in(dreq_to(id));
    a.out<CmDrep>();
    a.quiet();
    CHECK(a.agent.establish(id));
    a.out<CmRtu>();
    a.event(CmEventType::kDisconnected);
    CHECK(a.agent.establish(id).error().code == Errc::kBadState);
  }
  SECTION("the RTU is still missing") {
    a.listener();
    const CmId id = a.asked();
    a.accept(id);
    a.out<CmRep>();
    a.in(dreq_to(id));
    a.out<CmDrep>();
    a.event(CmEventType::kDisconnected);
    a.in(CmRtu{.local_comm_id = kPeerId, .remote_comm_id = raw(id)});
  }
  a.quiet();
}

TEST_CASE("disconnect before the RTU, and before establish()", "[cm][release]") {
  Station a;
  a.listener();
  const CmId passive = a.asked();
  a.accept(passive);
  a.out<CmRep>();
  REQUIRE(a.agent.disconnect(passive, a.now));
  CHECK(a.out<CmDreq>().remote_qpn == kPeerQpn);
  a.in(CmRtu{.local_comm_id = kPeerId, .remote_comm_id = raw(passive)});
  a.quiet();
  a.answer(drep_to(passive));
  a.event(CmEventType::kDisconnected);
  a.drain();

  const CmId active = a.asking();
  a.answer(peer_rep(a.out<CmReq>()));
  a.event(CmEventType::kConnectReply);
  REQUIRE(a.agent.disconnect(active, a.now));
  CHECK(a.out<CmDreq>().remote_comm_id == kPeerId);
}

TEST_CASE("a QP that fails ends its connection, and the peer is told", "[cm][release]") {
  Station a;
  const CmId id = a.connected();
  a.agent.on_failure(id, "the peer does not acknowledge", a.now);
  const CmEvent event = a.event(CmEventType::kDisconnected);
  CHECK(event.text == "the peer does not acknowledge");
  a.out<CmDreq>();
  a.agent.on_failure(id, "again", a.now);
  a.answer(drep_to(id));
  a.quiet();  // told once
  a.wait(kSecond);
  a.event(CmEventType::kTimewaitExit);
  a.agent.on_failure(id, "and again", a.now);
  a.quiet();
  a.agent.on_failure(a.asking(), "not connected yet", a.now);
  a.out<CmReq>();
  a.quiet();
}

TEST_CASE("an alternate path is refused", "[cm][release]") {
  Station a;
  const CmId id = a.connected();
  a.in(CmLap{.local_comm_id = kPeerId, .remote_comm_id = raw(id)}, 77);
  const auto apr = a.out<CmApr>();
  CHECK(a.transaction == 77);
  CHECK(apr.local_comm_id == raw(id));
  CHECK(apr.remote_comm_id == kPeerId);
  CHECK(apr.status == 1);
  a.in(CmLap{.local_comm_id = kPeerId, .remote_comm_id = raw(id) + 1}, 77);
  a.in(CmLap{.local_comm_id = kPeerId, .remote_comm_id = raw(id)}, 77, kElsewhere);
  a.quiet();
  CHECK(a.state(id) == State::kEstablished);
}

TEST_CASE("close() before a connection leaves nothing behind and tells the peer what it must know",
          "[cm][release]") {
  Station a;
  SECTION("idle") {
    const CmId id = a.make();
    a.agent.close(id, a.now);
    CHECK(a.sent.empty());
    a.agent.close(id, a.now);
    check_forgotten(a, 0);
  }
  SECTION("listening") {
    const CmId id = a.listener();
    const CmId asked = a.asked();
    a.agent.close(id, a.now);
    CHECK(a.sent.empty());
    CHECK(a.agent.size() == 1);
    a.in(peer_req(2, Qpn{9}));
    CHECK(a.out<CmRej>().reason == 8);
    a.accept(asked);  // who was there before is served
    a.out<CmRep>();
    a.agent.close(asked, a.now);
    check_forgotten(a, 0);
  }
  SECTION("REQ sent") {
    const CmId id = a.asking();
    const auto req = a.out<CmReq>();
    const auto transaction = a.transaction;
    a.agent.close(id, a.now);
    const auto rej = a.out<CmRej>();
    CHECK(rej.reason == 4);
    CHECK(rej.local_comm_id == raw(id));
    CHECK(rej.info_len == 8);
    CHECK(a.agent.size() == 0);
    a.in(peer_rep(req), transaction);  // crossing it
    CHECK(a.out<CmRej>().reason == 6);
    check_forgotten(a, 0);
  }
  SECTION("REP received") {
    const CmId id = a.asking();
    const auto req = a.out<CmReq>();
    const auto transaction = a.transaction;
    a.in(peer_rep(req), transaction);
    a.event(CmEventType::kConnectReply);
    a.agent.close(id, a.now);
    const auto rej = a.out<CmRej>();
    CHECK(rej.about == CmAbout::kRep);
    CHECK(rej.reason == 28);
    const auto said = a.last_mad;
    a.in(peer_rep(req), transaction);  // the REJ was lost
    a.out<CmRej>();
    CHECK((a.last_mad == said));
    check_forgotten(a, 0);
  }
  SECTION("REQ received") {
    a.listener();
    const CmId id = a.asked();
    a.agent.close(id, a.now);
    CHECK(a.out<CmRej>().reason == 28);
    CHECK(a.agent.find(id) == nullptr);
    check_forgotten(a, 1);
  }
  SECTION("SIDR_REQ sent") {
    const CmId id = a.make(PortSpace::kUdp);
    REQUIRE(a.agent.resolve_service(id, {.to = {kThere, kPort}}, {.dgid = kThere}, kHere, a.now));
    a.out<SidrReq>();
    a.agent.close(id, a.now);
    CHECK(a.sent.empty());
    check_forgotten(a, 0);
  }
  SECTION("SIDR_REQ received") {
    a.listener(4, PortSpace::kUdp);
    a.in(SidrReq{.request_id = 5,
                 .service_id = cm::service_id(PortSpace::kUdp, kPort),
                 .private_data = with_ip<216>("")});
    const CmId id = a.event(CmEventType::kServiceRequest).id;
    a.agent.close(id, a.now);
    CHECK(a.out<SidrRep>().status == 2);
    check_forgotten(a, 1);
  }
}

TEST_CASE("close() of a connection leaves nothing behind and tells the peer", "[cm][release]") {
  Station a;
  SECTION("REP sent") {
    a.listener();
    const CmId id = a.asked();
    a.accept(id);
    a.out<CmRep>();
    a.agent.close(id, a.now);
    CHECK(a.out<CmDreq>().local_comm_id == raw(id));
    a.in(CmRtu{.local_comm_id = kPeerId, .remote_comm_id = raw(id)});
    check_forgotten(a, 1);
  }
  SECTION("established") {
    const CmId id = a.connected();
    a.agent.close(id, a.now);
    a.out<CmDreq>();
    a.answer(drep_to(id));
    CHECK(a.agent.size() == 1);  // in timewait
    check_forgotten(a, 0);
  }
  SECTION("DREQ sent") {
    const CmId id = a.connected();
    REQUIRE(a.agent.disconnect(id, a.now));
    a.out<CmDreq>();
    a.agent.close(id, a.now);
    CHECK(a.sent.empty());
    check_forgotten(a, 0);
  }
  SECTION("timewait") {
    const CmId id = a.connected();
    a.in(dreq_to(id));
    a.event(CmEventType::kDisconnected);
    a.out<CmDrep>();
    a.agent.close(id, a.now);
    CHECK(a.sent.empty());
    check_forgotten(a, 0);
  }
}

TEST_CASE("the port of an id is free as soon as that is closed, whatever goes on", "[cm][release]") {
  Station a;
  CmConnect ask;
  ask.from.port = 40001;
  const CmId id = a.asking(ask);
  a.answer(peer_rep(a.out<CmReq>()));
  a.event(CmEventType::kConnectReply);
  a.agent.close(id, a.now);
  const CmId other = a.make();
  CHECK(a.agent.bind(other, {.ip = kHere, .port = 40001}));
  a.drain();
  CHECK(a.agent.bind(a.make(), {.ip = kHere, .port = 40001}).error().code == Errc::kNameInUse);
}

TEST_CASE("messages that are none of the communication manager's are counted", "[cm]") {
  Station a;
  const CmId id = a.connected();
  Mad good = make_cm_mad(1, dreq_to(id));
  const AhAttr from{.dgid = kThere};
  for (const std::size_t at : {0U, 1U, 2U, 3U}) {
    Mad bad = good;
    bad[at] ^= std::byte{4};
    a.agent.on_mad(from, bad, a.now);
  }
  for (const unsigned attribute :
       {0x00U, 0x0fU, 0x1aU, 0x1bU, 0xffU}) {  // APR among them: no LAP is ever sent
    Mad bad = good;
    bad[17] = static_cast<std::byte>(attribute);
    a.agent.on_mad(from, bad, a.now);
  }
  a.quiet();
  CHECK(a.agent.counters().malformed == 9);
  CHECK(a.state(id) == State::kEstablished);
}

}  // namespace uroce::test
