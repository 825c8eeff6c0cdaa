// The side that is asked for a connection. IBA 12.9.6, 12.9.8.
#include "station.h"

namespace uroce::test {
namespace {

using namespace uroce::wire;
using cm::State;

CmRtu rtu_to(CmId id, std::uint32_t peer = kPeerId) {
  return {.local_comm_id = peer, .remote_comm_id = raw(id)};
}

/// REJ of a peer that gave up before it heard of us: by its GUID.
CmRej gave_up(std::uint32_t id = kPeerId) {
  CmRej rej;
  rej.local_comm_id = id;
  rej.about = CmAbout::kOther;  // as the kernel says it
  rej.info_len = 8;
  rej.reason = static_cast<std::uint16_t>(CmReject::kTimeout);
  store_be<0, 8>(std::span{rej.info}, kPeerGuid);
  return rej;
}

}  // namespace

TEST_CASE("a REQ becomes an event with all that it says", "[cm]") {
  Station a;
  const CmId listener = a.listener();
  a.in(peer_req(), 77, kThere, 0xcafe);
  const CmEvent event = a.event(CmEventType::kConnectRequest);
  CHECK(event.listener == listener);
  CHECK(event.id != listener);
  CHECK(event.local == CmAddress{kHere, kPort});
  CHECK(event.remote == CmAddress{kThere, 0x9c41});
  CHECK(event.peer.type == QpType::kRc);
  CHECK(event.peer.qpn == kPeerQpn);
  CHECK(event.peer.psn == Psn{0xab'cdef});
  CHECK(event.peer.responder_resources == 3);
  CHECK(event.peer.initiator_depth == 5);
  CHECK(event.peer.flow_control);
  CHECK(event.peer.options == 0xcafe);
  CHECK(event.path.dgid == kThere);
  CHECK(event.path.traffic_class == 0x68);
  CHECK(event.path.hop_limit == 64);
  CHECK(event.private_data().size() == 56);
  CHECK(text_of(event.private_data()) == "hello");
  CHECK_FALSE(event.is_uroce);
  a.quiet();  // the application answers
  const auto attr = a.agent.qp_attr(event.id);
  REQUIRE(attr);
  CHECK(attr->dest_qpn == kPeerQpn);
  CHECK(attr->sq_psn == Psn{0xab'cdef});  // each says where the other one starts
  CHECK(attr->path_mtu == PathMtu::k1024);
  CHECK(attr->retry_cnt == 6);
  CHECK(attr->rnr_retry == 5);
  CHECK(attr->timeout == 14);
}

TEST_CASE("accept: REP; RTU: established", "[cm]") {
  Station a;
  a.listener();
  const CmId id = a.asked();
  CmAccept answer{.private_data = data("reply")};
  answer.terms.qpn = kOwnQpn;
  answer.terms.responder_resources = 4;
  answer.terms.initiator_depth = 8;
  answer.terms.rnr_retry = 2;
  answer.terms.flow_control = true;
  REQUIRE(a.agent.accept(id, answer, a.now));
  const auto rep = a.out<CmRep>();
  CHECK(a.transaction == kPeerTransaction);
  CHECK(rep.local_comm_id == raw(id));
  CHECK(rep.remote_comm_id == kPeerId);
  CHECK(rep.qpn == kOwnQpn);
  CHECK(rep.responder_resources == 4);
  CHECK(rep.initiator_depth == 8);
  CHECK(rep.rnr_retry == 2);
  CHECK(rep.flow_control);
  CHECK(rep.vendor_id == 0);  // a peer that does not speak of options is not told of any
  CHECK(rep.ca_guid == kOwnGuid);
  CHECK(text_of(rep.private_data) == "reply");
  const auto attr = a.agent.qp_attr(id);
  REQUIRE(attr);
  CHECK(attr->rq_psn == rep.psn);
  CHECK(attr->max_rd_atomic == 3);  // what the REQ says that it serves
  CHECK(attr->max_dest_rd_atomic == 4);
  a.in(rtu_to(id), kPeerTransaction, kElsewhere);
  a.in(rtu_to(id, kPeerId + 1));
  a.quiet();
  a.in(rtu_to(id));
  CHECK(a.event(CmEventType::kEstablished).id == id);
  a.in(rtu_to(id));
  a.wait(1000 * kSecond);
  a.quiet();
  CHECK(a.state(id) == State::kEstablished);
}

TEST_CASE("an XRC target is named where RD had its EE context", "[cm]") {
  Station a;
  a.listener();
  auto req = peer_req();
  req.service = 3;
  req.extended_transport = 1;
  const CmId id = a.asked(req);
  a.accept(id);
  const auto rep = a.out<CmRep>();
  CHECK(rep.qpn == Qpn{});
  CHECK(rep.eecn == raw(kOwnQpn));
  CHECK(rep.srq);
}

TEST_CASE("without an RTU the REP is said again, then given up", "[cm]") {
  Station a;
  a.listener();
  const CmId id = a.asked();
  a.accept(id);
  const auto first = a.sent.front().mad;
  a.wait(9999 * kMs);
  CHECK(a.sent.size() == 14);
  for (const auto& sent : a.sent) CHECK((sent.mad == first));
  CHECK(a.events.empty());
  a.sent.clear();
  a.wait(kMs);
  CHECK(a.event(CmEventType::kUnreachable).id == id);
  const auto rej = a.out<CmRej>();
  CHECK(rej.local_comm_id == raw(id));
  CHECK(rej.remote_comm_id == kPeerId);
  CHECK(rej.about == CmAbout::kRep);
  CHECK(rej.reason == 4);
}

TEST_CASE("a peer that has sent its RTU in vain learns that the connection is not: DREQ until a DREP",
          "[cm]") {
  Station a;
  a.listener();
  const CmId id = a.asked();
  a.accept(id);
  a.wait(9999 * kMs);
  a.sent.clear();
  a.wait(kMs);
  a.event(CmEventType::kUnreachable);
  a.out<CmRej>();
  const auto dreq = a.out<CmDreq>();
  CHECK(dreq.local_comm_id == raw(id));
  CHECK(dreq.remote_comm_id == kPeerId);
  CHECK(dreq.remote_qpn == kPeerQpn);
  a.wait(50 * kMs);
  CHECK(a.out<CmDreq>() == dreq);
  a.answer(CmDrep{.local_comm_id = kPeerId, .remote_comm_id = raw(id)});
  a.wait(999 * kMs);
  a.quiet();
  a.wait(kMs);
  a.event(CmEventType::kTimewaitExit);
  a.quiet();
}

TEST_CASE("data instead of the RTU: established", "[cm]") {
  Station a;
  a.listener();
  const CmId id = a.asked();
  a.accept(id);
  a.out<CmRep>();
  SECTION("as the QP tells") {
    REQUIRE(a.agent.notify_established(id));
    a.event(CmEventType::kEstablished);
    REQUIRE(a.agent.notify_established(id));  // once is enough
  }
  SECTION("as is found when the REP would be said again") {
    a.heard.insert(id);
    a.wait(49 * kMs);
    a.quiet();
    a.wait(kMs);
    a.event(CmEventType::kEstablished);
  }
  a.in(rtu_to(id));  // the real one
  a.wait(100 * kSecond);
  a.quiet();
  CHECK(a.state(id) == State::kEstablished);
}

TEST_CASE("established without an RTU: a REQ that comes again brings the REP again, until the RTU comes",
          "[cm]") {
  Station a;
  a.listener();
  const auto req = peer_req();
  const CmId id = a.asked(req);
  a.accept(id, "reply");
  a.out<CmRep>();
  const auto rep = a.last_mad;
  REQUIRE(a.agent.notify_established(id));
  a.event(CmEventType::kEstablished);
  for (unsigned i = 0; i < 2; ++i) {
    a.in(req);
    a.out<CmRep>();
    CHECK((a.last_mad == rep));
  }
  a.in(rtu_to(id, kPeerId + 1));  // of somebody else
  a.in(req);
  a.out<CmRep>();
  a.in(rtu_to(id));
  a.in(req);
  a.wait(100 * kSecond);
  a.quiet();
  CHECK(a.state(id) == State::kEstablished);
}

TEST_CASE("a REQ that comes again is answered by what was said: state by state", "[cm]") {
  Station a;
  a.listener();
  const auto req = peer_req();
  const CmId id = a.asked(req);
  SECTION("nothing yet: MRA, that it is heard") {
    a.in(req);
    const auto mra = a.out<CmMra>();
    CHECK(a.transaction == kPeerTransaction);
    CHECK(mra.about == CmAbout::kReq);
    CHECK(mra.local_comm_id == raw(id));
    CHECK(mra.remote_comm_id == kPeerId);
    CHECK(a.state(id) == State::kReqRcvd);
  }
  SECTION("REP: the same REP") {
    a.accept(id, "reply");
    a.out<CmRep>();
    const auto rep = a.last_mad;
    a.in(req);
    a.out<CmRep>();
    CHECK((a.last_mad == rep));
  }
  SECTION("REJ: the same REJ, once the application has let go of it too") {
    REQUIRE(a.agent.reject(id, data("no"), a.now));
    const auto rej = a.out<CmRej>();
    CHECK(rej.about == CmAbout::kReq);
    CHECK(rej.reason == 28);
    CHECK(text_of(rej.private_data) == "no");
    const auto said = a.last_mad;
    a.in(req);
    a.out<CmRej>();
    CHECK((a.last_mad == said));
    a.agent.close(id, a.now);
    a.in(req);
    a.out<CmRej>();
    CHECK((a.last_mad == said));
    a.wait(2999 * kMs);  // repetitions may be a second apart, and get lost themselves
    a.in(req);
    a.out<CmRej>();
    CHECK((a.last_mad == said));
    a.wait(kMs);
    a.quiet();
    CHECK(a.agent.size() == 1);
    return;
  }
  SECTION("established: ignored") {
    a.accept(id);
    a.out<CmRep>();
    a.in(rtu_to(id));
    a.event(CmEventType::kEstablished);
    a.in(req);
    CHECK(a.state(id) == State::kEstablished);
  }
  SECTION("ended: ignored, in timewait too") {
    a.accept(id);
    a.out<CmRep>();
    a.in(rtu_to(id));
    a.event(CmEventType::kEstablished);
    REQUIRE(a.agent.disconnect(id, a.now));
    const auto dreq = a.out<CmDreq>();
    a.in(req);
    a.quiet();
    a.answer(CmDrep{.local_comm_id = kPeerId, .remote_comm_id = dreq.local_comm_id});
    a.event(CmEventType::kDisconnected);
    a.in(req);
    CHECK(a.state(id) == State::kTimewait);
  }
  a.quiet();
  CHECK(a.agent.counters().duplicates > 0);
}

TEST_CASE("REQs that cannot be served are refused, and leave nothing behind", "[cm]") {
  struct Case {
    const char* what;
    CmReject reason;
    void (*spoil)(CmReq&);
  };
  const Case cases[] = {
      {"nobody listens", CmReject::kInvalidServiceId, [](CmReq& req) { ++req.service_id; }},
      {"nobody listens in that space", CmReject::kInvalidServiceId,
       [](CmReq& req) { req.service_id = cm::service_id(PortSpace::kUdp, kPort); }},
      {"AF_IB", CmReject::kInvalidServiceId,
       [](CmReq& req) { req.service_id = cm::service_id(PortSpace::kIb, kPort); }},
      {"a service id that is no IP port", CmReject::kInvalidServiceId,
       [](CmReq& req) { req.service_id |= std::uint64_t{1} << 56; }},
      {"RD", CmReject::kInvalidTransport, [](CmReq& req) { req.service = 2; }},
      {"an extended transport that is not XRC", CmReject::kInvalidTransport,
       [](CmReq& req) { req.service = 3; }},
      {"another address than it came from", CmReject::kInvalidGid,
       [](CmReq& req) { req.local_gid = kElsewhere; }},
      {"path MTU 0", CmReject::kInvalidPathMtu, [](CmReq& req) { req.path_mtu = 0; }},
      {"path MTU 15", CmReject::kInvalidPathMtu, [](CmReq& req) { req.path_mtu = 15; }},
      {"no IP addresses in the private data", CmReject::kUnsupported,
       [](CmReq& req) { req.private_data = text_bytes<92>("AF_IB"); }},
  };
  for (const Case& c : cases) {
    CAPTURE(c.what);
    Station a;
    a.listener();
    auto req = peer_req();
    c.spoil(req);
    for (unsigned i = 0; i < 2; ++i) {
      a.in(req);
      const auto rej = a.out<CmRej>();
      CHECK(a.transaction == kPeerTransaction);
      CHECK(rej.reason == raw(c.reason));
      CHECK(rej.about == CmAbout::kReq);
      CHECK(rej.local_comm_id == 0);
      CHECK(rej.remote_comm_id == kPeerId);
    }
    a.quiet();
    CHECK(a.agent.size() == 1);
    CHECK(a.agent.counters().rejected == 2);
    a.asked();  // the spoiled one has not used up anything
  }
}

TEST_CASE("a path MTU beyond the port's is refused with one that would do", "[cm][mtu]") {
  Station a({.ca_guid = kOwnGuid, .path_mtu = PathMtu::k1024});
  a.listener();
  auto req = peer_req();
  req.path_mtu = 4;
  a.in(req);
  const auto rej = a.out<CmRej>();
  CHECK(rej.reason == 26);
  CHECK(rej.info_len == 1);
  CHECK(rej.info[0] == std::byte{3});
  req.path_mtu = 3;
  a.asked(req);
}

TEST_CASE("a full backlog refuses, and takes again what is asked once there is room", "[cm][backlog]") {
  Station a;
  const CmId listener = a.listener(2);
  const CmId first = a.asked(peer_req(1, Qpn{101}));
  const CmId second = a.asked(peer_req(2, Qpn{102}));
  a.in(peer_req(3, Qpn{103}));
  CHECK(a.out<CmRej>().reason == 3);
  a.quiet();
  a.in(peer_req(2, Qpn{102}));  // a repetition is no new one
  a.out<CmMra>();
  a.accept(first);
  a.out<CmRep>();
  const CmId third = a.asked(peer_req(3, Qpn{103}));
  a.in(peer_req(4, Qpn{104}));
  CHECK(a.out<CmRej>().reason == 3);
  a.agent.close(second, a.now);
  CHECK(a.out<CmRej>().reason == 28);
  a.in(gave_up(3));
  CHECK(a.event(CmEventType::kRejected).id == third);
  a.asked(peer_req(5, Qpn{105}));
  a.asked(peer_req(6, Qpn{106}));
  CHECK(a.agent.find(listener)->waiting == 2);
  a.quiet();
}

TEST_CASE("a request that is dropped is not answered, and is a new one when it comes again",
          "[cm][backlog]") {
  Station a;
  const CmId listener = a.listener(1);
  a.agent.drop(a.asked(peer_req(1, Qpn{101})), a.now);
  a.quiet();
  CHECK(a.agent.find(listener)->waiting == 0);
  const CmId again = a.asked(peer_req(1, Qpn{101}));
  a.accept(again);
  a.out<CmRep>();
}

TEST_CASE("no more ids than configured", "[cm]") {
  Station a({.ca_guid = kOwnGuid, .max_ids = 2});
  a.listener();
  const CmId id = a.asked();
  a.in(peer_req(2, Qpn{9}));
  CHECK(a.out<CmRej>().reason == 3);
  CHECK(a.agent.create(PortSpace::kTcp).error().code == Errc::kLimit);
  a.agent.close(id, a.now);
  a.drain();
  CHECK(a.agent.create(PortSpace::kTcp));
}

TEST_CASE("a peer that gives up is known by its GUID", "[cm]") {
  Station a;
  a.listener();
  const CmId id = a.asked();
  auto other = gave_up();
  other.info[0] ^= std::byte{1};
  a.in(other);
  a.in(gave_up(kPeerId + 1));
  a.in(gave_up(), kPeerTransaction, kElsewhere);
  auto too_short = gave_up();
  too_short.info_len = 7;
  a.in(too_short);
  a.quiet();
  SECTION("before the application has answered") {
    a.in(gave_up());
    CHECK(a.event(CmEventType::kRejected).reason == CmReject::kTimeout);
    CHECK(a.agent.accept(id, {}, a.now).error().code == Errc::kBadState);
    a.in(peer_req());  // one that was still on its way
  }
  SECTION("after the REP, which it has not heard") {
    a.accept(id);
    a.out<CmRep>();
    a.in(gave_up());
    CHECK(a.event(CmEventType::kRejected).id == id);
  }
  a.wait(999 * kMs);
  a.quiet();
  a.drain();
  a.agent.close(id, a.now);
  CHECK(a.agent.size() == 1);
}

TEST_CASE("the peer refuses the REP", "[cm]") {
  Station a;
  a.listener();
  const CmId id = a.asked();
  a.accept(id);
  a.out<CmRep>();
  CmRej rej;
  rej.about = CmAbout::kRep;
  rej.remote_comm_id = raw(id);
  rej.reason = 28;
  rej.local_comm_id = kPeerId + 1;
  a.in(rej);  // of somebody else
  a.quiet();
  SECTION("its application") {
    rej.local_comm_id = kPeerId;
  }
  SECTION("it does not know the id any more") {
    rej.local_comm_id = 0;
    rej.reason = 6;
  }
  a.in(rej);
  CHECK(raw(a.event(CmEventType::kRejected).reason) == rej.reason);
  a.wait(500 * kMs);
  a.quiet();
}

TEST_CASE("an MRA of the REP extends the wait for the RTU", "[cm]") {
  Station a;
  a.listener();
  const CmId id = a.asked();
  a.accept(id);
  a.wait(9900 * kMs);
  a.sent.clear();
  CmMra mra;
  mra.local_comm_id = kPeerId;
  mra.remote_comm_id = raw(id);
  mra.about = CmAbout::kRep;
  mra.service_timeout = 20;
  a.in(mra);
  a.wait(4200 * kMs);
  CHECK(a.events.empty());
  CHECK(a.state(id) == State::kRepSent);
  a.wait(200 * kMs);
  a.event(CmEventType::kUnreachable);
}

TEST_CASE("a peer that uses its QP anew: the old connection is over", "[cm][stale]") {
  Station a;
  a.listener();
  const CmId old = a.accepted();
  a.in(peer_req(kPeerId + 1));  // the same QPN
  const auto dreq = a.out<CmDreq>();
  CHECK(dreq.local_comm_id == raw(old));
  CHECK(dreq.remote_comm_id == kPeerId);
  CHECK(a.out<CmRej>().reason == 10);
  CHECK(a.event(CmEventType::kDisconnected).id == old);
  a.quiet();
  // Asked again, it is served: the old one is being ended.
  a.asked(peer_req(kPeerId + 1));
  a.wait(10 * kSecond);
  a.sent.clear();
  a.event(CmEventType::kTimewaitExit);
  a.quiet();
}

TEST_CASE("a QPN of another adapter is another QP", "[cm][stale]") {
  Station a;
  a.listener();
  const CmId old = a.accepted();
  auto req = peer_req(kPeerId + 1);
  req.ca_guid ^= 1;
  a.asked(req);
  a.quiet();
  CHECK(a.state(old) == State::kEstablished);
}

TEST_CASE("whoever knows the QPN from elsewhere ends nothing", "[cm][stale]") {
  Station a;
  a.listener();
  const CmId old = a.accepted();
  auto req = peer_req(kPeerId + 1);
  req.local_gid = kElsewhere;
  a.in(req, 77, kElsewhere);
  a.event(CmEventType::kConnectRequest);
  a.quiet();
  CHECK(a.state(old) == State::kEstablished);
}

TEST_CASE("a peer that has given up unheard, and asks anew for the same QP, is served", "[cm][stale]") {
  Station a;
  a.listener(1);
  const CmId old = a.asked();
  a.in(peer_req(kPeerId + 1));  // the same QPN
  const CmEvent over = a.event(CmEventType::kRejected);
  CHECK(over.id == old);
  CHECK(over.reason == CmReject::kTimeout);
  const CmId next = a.event(CmEventType::kConnectRequest).id;
  a.quiet();
  a.accept(next);
  a.out<CmRep>();
  a.in(peer_req());  // one of the old ones that was still on its way
  a.wait(49 * kMs);
  a.quiet();
}

TEST_CASE("a REP from a QP that is in a connection already: that one is over", "[cm][stale]") {
  Station a;
  const CmId old = a.connected();
  const CmId next = a.asking();
  auto rep = peer_rep(a.out<CmReq>());
  rep.local_comm_id = kPeerId + 1;
  a.answer(rep);
  CHECK(a.out<CmDreq>().local_comm_id == raw(old));
  CHECK(a.event(CmEventType::kDisconnected).id == old);
  CHECK(a.event(CmEventType::kConnectReply).id == next);
  a.quiet();
}

TEST_CASE("a request is of whoever asks: another with the same numbers asks for himself", "[cm][S9]") {
  Station a;
  a.listener(2);
  auto squatter = peer_req();
  squatter.local_gid = kElsewhere;
  squatter.private_data = with_ip<92>("", kElsewhere);
  a.in(squatter, kPeerTransaction, kElsewhere);
  const CmId first = a.event(CmEventType::kConnectRequest).id;
  a.in(peer_req());
  const CmEvent event = a.event(CmEventType::kConnectRequest);
  CHECK(event.id != first);
  CHECK(event.path.dgid == kThere);
  CHECK(a.agent.counters().duplicates == 0);
}

TEST_CASE("both ends in one agent", "[cm]") {
  Station a;
  a.listener();
  const CmId id = a.make();
  CmConnect ask{.to = {kHere, kPort}};
  ask.terms.qpn = kOwnQpn;
  AhAttr path;
  path.dgid = kHere;
  REQUIRE(a.agent.connect(id, ask, path, kHere, a.now));
  const auto pass = [&] {
    while (!a.sent.empty()) {
      const auto next = a.sent.front();
      a.sent.pop_front();
      a.agent.on_mad(path, next.mad, a.now);
    }
  };
  pass();
  const CmId other = a.event(CmEventType::kConnectRequest).id;
  CmAccept answer;
  answer.terms.qpn = kPeerQpn;
  REQUIRE(a.agent.accept(other, answer, a.now));
  pass();
  CHECK(a.event(CmEventType::kConnectReply).id == id);
  REQUIRE(a.agent.establish(id));
  pass();
  CHECK(a.event(CmEventType::kEstablished).id == other);
  CHECK(a.agent.qp_attr(id)->dest_qpn == kPeerQpn);
  CHECK(a.agent.qp_attr(other)->dest_qpn == kOwnQpn);
  a.agent.close(id, a.now);
  pass();
  CHECK(a.event(CmEventType::kDisconnected).id == other);
  a.agent.close(other, a.now);
  a.drain();
  CHECK(a.agent.size() == 1);
}

}  // namespace uroce::test
