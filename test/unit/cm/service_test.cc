// Resolution of service ids. IBA 12.11.
#include "station.h"

namespace uroce::test {
namespace {

using namespace uroce::wire;
using cm::State;

SidrReq peer_sidr(std::uint32_t id = kPeerId) {
  return {.request_id = id,
          .service_id = cm::service_id(PortSpace::kUdp, kPort),
          .private_data = with_ip<216>("which?")};
}

CmId resolving(Station& a, CmServiceQuery ask = {}) {
  const CmId id = a.make(PortSpace::kUdp);
  ask.to = {kThere, kPort};
  AhAttr path;
  path.dgid = kThere;
  REQUIRE(a.agent.resolve_service(id, ask, path, kHere, a.now));
  return id;
}

SidrRep answer_to(const SidrReq& req) {
  SidrRep rep;
  rep.request_id = req.request_id;
  rep.qpn = kPeerQpn;
  rep.service_id = req.service_id;
  rep.qkey = 0x1234;
  rep.private_data = text_bytes<136>("this one");
  return rep;
}

}  // namespace

TEST_CASE("a SIDR_REQ asks, and is said again", "[cm][sidr]") {
  Station a;
  CmServiceQuery ask{.private_data = data("which?"), .timeout = std::chrono::milliseconds(500)};
  ask.from.port = 40001;
  const CmId id = resolving(a, ask);
  const auto req = a.out<SidrReq>();
  CHECK(req.request_id == raw(id));
  CHECK(req.pkey == 0xffff);
  CHECK(req.service_id == 0x0111'1d2f);
  CHECK(text_of(std::span{req.private_data}.subspan(36)) == "which?");
  const auto ip = cm::IpHeader::parse(std::span{req.private_data}.first<36>());
  CHECK(ip == cm::IpHeader{.source_port = 40001, .source = kHere, .destination = kThere});
  const auto said = a.last_mad;
  a.wait(499 * kMs);
  CHECK(a.sent.size() == 3);
  for (const auto& sent : a.sent) CHECK((sent.mad == said));
  a.sent.clear();
  a.wait(kMs);
  CHECK(a.event(CmEventType::kUnreachable).id == id);
  a.answer(answer_to(req));
  a.wait(100 * kSecond);
  a.quiet();
  a.agent.close(id, a.now);
  CHECK(a.agent.size() == 0);
}

TEST_CASE("a SIDR_REP may come after a minute, if so much time is given", "[cm][sidr]") {
  constexpr std::chrono::seconds kMost{65};
  Station a;
  const CmId id = resolving(a, {.timeout = kMost});
  const auto req = a.out<SidrReq>();
  a.wait(64 * kSecond);
  CHECK(a.sent.size() < 70);  // it is not said without pause
  a.sent.clear();
  a.answer(answer_to(req));
  CHECK(a.event(CmEventType::kServiceReply).id == id);
  a.wait(100 * kSecond);
  a.quiet();
}

TEST_CASE("a SIDR_REP answers once, whatever its status", "[cm][sidr]") {
  for (const int code : {0, 1, 2, 3, 4, 5, 255}) {
    const auto status = static_cast<std::uint8_t>(code);
    CAPTURE(code);
    Station a;
    const CmId id = resolving(a);
    const auto req = a.out<SidrReq>();
    auto rep = answer_to(req);
    rep.status = status;
    a.in(rep, a.transaction + 1);
    a.in(rep, a.transaction, kElsewhere);
    a.quiet();
    a.answer(rep);
    const CmEvent event = a.event(CmEventType::kServiceReply);
    CHECK(event.id == id);
    CHECK(event.service_status == status);
    CHECK(event.peer.qpn == kPeerQpn);
    CHECK(event.peer.qkey == 0x1234);
    CHECK(text_of(event.private_data()) == "this one");
    a.answer(rep);
    a.wait(100 * kSecond);
    a.quiet();
    a.agent.close(id, a.now);
    CHECK(a.agent.size() == 0);
  }
}

TEST_CASE("nobody offers the service: told at once, or asked again for as long as there is patience",
          "[cm][sidr]") {
  const auto refusal = [](const SidrReq& req) {
    SidrRep rep = answer_to(req);
    rep.status = 1;
    return rep;
  };
  const auto refused = [](Station& a) {
    CHECK(a.event(CmEventType::kServiceReply).service_status == 1);
    a.wait(100 * kSecond);
    a.quiet();
  };
  Station a;
  resolving(a);
  a.answer(refusal(a.out<SidrReq>()));
  refused(a);

  resolving(a, {.patience = std::chrono::milliseconds(1000)});
  const auto req = a.out<SidrReq>();
  for (unsigned i = 0; i < 4; ++i) {
    a.answer(refusal(req));
    a.quiet();
    a.wait((50U << i) * kMs);
    CHECK(a.out<SidrReq>() == req);
  }
  a.wait(251 * kMs);
  a.sent.clear();
  a.answer(refusal(req));
  refused(a);

  // After the last repetition it is the answer.
  constexpr std::chrono::milliseconds kShort{100};
  resolving(a, {.timeout = kShort, .patience = kShort});
  const auto last = a.out<SidrReq>();
  a.answer(refusal(last));
  a.quiet();
  a.wait(50 * kMs);
  CHECK(a.out<SidrReq>() == last);
  a.answer(refusal(last));
  refused(a);
}

TEST_CASE("who wants datagrams finds no listener for connections, and the other way round", "[cm][sidr]") {
  Station a;
  const CmId listener = a.listener(2, PortSpace::kTcp);
  for (std::uint32_t i = 0; i < 3; ++i) {
    SidrReq req = peer_sidr(kPeerId + i);
    req.service_id = cm::service_id(PortSpace::kTcp, kPort);
    a.in(req);
    CHECK(a.out<SidrRep>().status == 1);
    a.quiet();
  }
  CHECK(a.agent.find(listener)->waiting == 0);
  a.asked();

  Station b;
  b.listener(2, PortSpace::kUdp);
  CmReq req = peer_req();
  req.service_id = cm::service_id(PortSpace::kUdp, kPort);
  b.in(req);
  CHECK(b.out<CmRej>().reason == static_cast<std::uint16_t>(CmReject::kInvalidServiceId));
  b.quiet();
}

TEST_CASE("a SIDR_REQ becomes an event, its answer a SIDR_REP that is said again", "[cm][sidr]") {
  Station a;
  const CmId listener = a.listener(4, PortSpace::kUdp);
  a.in(peer_sidr(), 77);
  const CmEvent event = a.event(CmEventType::kServiceRequest);
  CHECK(event.listener == listener);
  CHECK(event.local == CmAddress{kHere, kPort});
  CHECK(event.remote == CmAddress{kThere, 0x9c41});
  CHECK(event.private_data().size() == 180);
  CHECK(text_of(event.private_data()) == "which?");
  a.in(peer_sidr(), 77);  // the answer takes its time
  a.quiet();
  CmServiceReply answer{.qpn = kOwnQpn, .private_data = data("this one")};
  SECTION("found") {}
  SECTION("rejected") {
    answer.status = 2;
  }
  REQUIRE(a.agent.reply_service(event.id, answer, a.now));
  const auto rep = a.out<SidrRep>();
  CHECK(a.transaction == 77);
  CHECK(rep.request_id == kPeerId);
  CHECK(rep.status == answer.status);
  CHECK(rep.qpn == kOwnQpn);
  CHECK(rep.qkey == kCmQkey);
  CHECK(rep.service_id == 0x0111'1d2f);
  CHECK(text_of(rep.private_data) == "this one");
  const auto said = a.last_mad;
  CHECK(a.agent.reply_service(event.id, answer, a.now).error().code == Errc::kBadState);
  a.in(peer_sidr(), 77);
  a.out<SidrRep>();
  CHECK((a.last_mad == said));
  a.agent.close(event.id, a.now);
  a.wait(2999 * kMs);
  a.in(peer_sidr(), 77);
  a.out<SidrRep>();
  CHECK((a.last_mad == said));
  a.wait(100 * kSecond);
  a.quiet();
  CHECK(a.agent.size() == 1);
  a.in(peer_sidr(), 78);  // that is a new one
  a.event(CmEventType::kServiceRequest);
}

TEST_CASE("the same request id from two places is two requests", "[cm][sidr]") {
  Station a;
  a.listener(4, PortSpace::kUdp);
  a.in(peer_sidr(), 77);
  const CmId first = a.event(CmEventType::kServiceRequest).id;
  a.in(peer_sidr(), 77, kElsewhere);
  const CmId second = a.event(CmEventType::kServiceRequest).id;
  REQUIRE(a.agent.reply_service(second, {.qpn = kOwnQpn}, a.now));
  a.out<SidrRep>(kElsewhere);
  REQUIRE(a.agent.reply_service(first, {.qpn = kOwnQpn}, a.now));
  a.out<SidrRep>();
}

TEST_CASE("a service that nobody offers, no room, no addresses: status 1", "[cm][sidr]") {
  Station a;
  a.listener(1, PortSpace::kUdp);
  auto req = peer_sidr();
  SECTION("nobody") {
    ++req.service_id;
  }
  SECTION("in another port space") {
    req.service_id = cm::service_id(PortSpace::kTcp, kPort);
  }
  SECTION("no room") {
    a.in(peer_sidr(1));
    a.event(CmEventType::kServiceRequest);
  }
  SECTION("no addresses") {
    req.private_data = text_bytes<216>("AF_IB");
  }
  const auto ids = a.agent.size();
  for (unsigned i = 0; i < 2; ++i) {
    a.in(req, 77);
    const auto rep = a.out<SidrRep>();
    CHECK(a.transaction == 77);
    CHECK(rep.request_id == kPeerId);
    CHECK(rep.service_id == req.service_id);
    CHECK(rep.status == 1);
    CHECK(raw(rep.qpn) == 0);
  }
  a.quiet();
  CHECK(a.agent.size() == ids);
}

}  // namespace uroce::test
