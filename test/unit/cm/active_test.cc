// The side that asks for a connection. IBA 12.9.5, 12.9.7.
#include "station.h"

namespace uroce::test {
namespace {

using namespace uroce::wire;
using cm::State;

CmRej rej_of(const CmReq& req, CmReject reason, std::uint32_t local_id = 0) {
  CmRej rej;
  rej.local_comm_id = local_id;
  rej.remote_comm_id = req.local_comm_id;
  rej.reason = static_cast<std::uint16_t>(reason);
  return rej;
}

/// When REQ, REP or DREQ is said again: after 50 ms, doubled up to one second.
std::vector<std::uint64_t> times_ms(Station& station, std::uint64_t start_ns) {
  std::vector<std::uint64_t> times;
  for (const auto& sent : station.sent) times.push_back((sent.at.ns() - start_ns) / kMs);
  return times;
}

}  // namespace

TEST_CASE("a REQ says who asks whom for what", "[cm]") {
  Station a;
  CmConnect ask{
      .traffic_class = 0x68, .ack_timeout = 13, .path_mtu = PathMtu::k2048, .private_data = data("hello")};
  ask.from.port = 40001;
  ask.terms.psn = Psn{1};
  ask.terms.responder_resources = 7;
  ask.terms.initiator_depth = 9;
  ask.terms.retry_cnt = 5;
  ask.terms.rnr_retry = 3;
  ask.terms.flow_control = true;
  ask.terms.qkey = 0x1111'2222;
  const CmId id = a.asking(ask);
  const auto req = a.out<CmReq>();
  CHECK(req.local_comm_id == raw(id));
  CHECK(req.local_comm_id != 0);
  CHECK(req.service_id == 0x0106'1d2f);
  CHECK(req.ca_guid == kOwnGuid);
  CHECK(req.qpn == kOwnQpn);
  CHECK(req.qkey == 0x1111'2222);
  CHECK(req.responder_resources == 7);
  CHECK(req.initiator_depth == 9);
  CHECK(req.service == 0);
  CHECK(req.retry_cnt == 5);
  CHECK(req.rnr_retry == 3);
  CHECK(req.flow_control);
  CHECK(req.pkey == 0xffff);
  CHECK(req.path_mtu == 4);
  CHECK(req.local_gid == kHere);
  CHECK(req.remote_gid == kThere);
  CHECK(req.local_lid == 0xffff);
  CHECK(req.hop_limit == 64);
  CHECK(req.packet_rate == 0);
  CHECK(req.ack_timeout == 13);
  CHECK(req.vendor_id == ece::kVendor);
  CHECK(text_of(std::span{req.private_data}.subspan(36)) == "hello");
  const auto ip = cm::IpHeader::parse(std::span{req.private_data}.first<36>());
  CHECK(ip == cm::IpHeader{.source_port = 40001, .source = kHere, .destination = kThere});
  CHECK(a.agent.find(id)->mine.psn == req.psn);  // the agent chooses it
  a.quiet();
}

TEST_CASE("a REQ of UC and of XRC", "[cm]") {
  Station a;
  CmConnect ask;
  ask.terms.type = QpType::kUc;
  a.asking(ask);
  CHECK(a.out<CmReq>().service == 1);
  ask.terms.type = QpType::kXrcSend;
  const CmId id = a.asking(ask);
  const auto req = a.out<CmReq>();
  CHECK(req.service == 3);
  CHECK(req.extended_transport == 1);
  auto rep = peer_rep(req);
  rep.qpn = Qpn{};
  rep.eecn = 0x456;  // the target, where RD had its EE context
  a.answer(rep);
  a.event(CmEventType::kConnectReply);
  CHECK(a.agent.qp_attr(id)->dest_qpn == Qpn{0x456});
}

TEST_CASE("a REQ without an answer is said again, the same, ever more rarely, then given up", "[cm]") {
  Station a;
  const CmId id = a.asking({.timeout = std::chrono::milliseconds(5000)});
  const std::uint64_t start = a.now.ns();
  const auto first = a.sent.front().mad;
  a.wait(4999 * kMs);
  CHECK(times_ms(a, start) == std::vector<std::uint64_t>{0, 50, 150, 350, 750, 1550, 2550, 3550, 4550});
  for (const auto& sent : a.sent) CHECK((sent.mad == first));  // transaction id included
  CHECK(a.events.empty());
  a.sent.clear();
  a.wait(kMs);
  const CmEvent event = a.event(CmEventType::kUnreachable);
  CHECK(event.id == id);
  CHECK_FALSE(event.text.empty());
  // Whoever has the REQ, and whose REP was lost, is told by GUID: its id is not known. IBA 12.6.7.2.
  const auto rej = a.out<CmRej>();
  CHECK(rej.local_comm_id == raw(id));
  CHECK(rej.remote_comm_id == 0);
  CHECK(rej.reason == 4);
  CHECK(rej.info_len == 8);
  CHECK(load_be<0, 8>(std::span{rej.info}.first<8>()) == kOwnGuid);
  a.wait(1000 * kSecond);
  a.quiet();
  CHECK(a.state(id) == State::kDone);
}

TEST_CASE("REP, establish, RTU", "[cm]") {
  Station a;
  CmConnect ask{.ack_timeout = 13, .path_mtu = PathMtu::k1024};
  ask.terms.initiator_depth = 9;
  ask.terms.responder_resources = 7;
  ask.terms.retry_cnt = 5;
  const CmId id = a.asking(ask);
  const auto req = a.out<CmReq>();
  const auto transaction = a.transaction;
  CHECK_FALSE(a.agent.qp_attr(id));
  a.in(peer_rep(req), transaction);
  const CmEvent event = a.event(CmEventType::kConnectReply);
  CHECK(event.id == id);
  CHECK(event.peer.qpn == kPeerQpn);
  CHECK(event.peer.flow_control);
  CHECK(event.private_data().size() == 196);
  CHECK(text_of(event.private_data()) == "reply");
  CHECK_FALSE(event.is_uroce);
  const auto attr = a.agent.qp_attr(id);
  REQUIRE(attr);
  CHECK(attr->dest_qpn == kPeerQpn);
  CHECK(attr->rq_psn == req.psn);
  CHECK(attr->sq_psn == Psn{0xbeef});  // each says where the other one starts
  CHECK(attr->path_mtu == PathMtu::k1024);
  CHECK(attr->max_rd_atomic == 2);       // what the peer will serve
  CHECK(attr->max_dest_rd_atomic == 7);  // what was offered
  CHECK(attr->timeout == 13);
  CHECK(attr->retry_cnt == 5);
  CHECK(attr->rnr_retry == 3);  // that the REP asks for
  CHECK(attr->dgid == kThere);
  CHECK(attr->sgid_index == 3);
  a.quiet();
  REQUIRE(a.agent.establish(id));
  const auto rtu = a.out<CmRtu>();
  CHECK(a.transaction == transaction);
  CHECK(rtu.local_comm_id == raw(id));
  CHECK(rtu.remote_comm_id == kPeerId);
  a.wait(1000 * kSecond);
  a.quiet();
  CHECK(a.state(id) == State::kEstablished);
}

TEST_CASE("options of a vendor go with the attribute modifier", "[cm]") {
  Station a;
  CmConnect ask;
  ask.terms.vendor_id = ece::kVendor;
  ask.terms.options = 0xcafe;
  a.asking(ask);
  const auto req = a.out<CmReq>();
  CHECK(req.vendor_id == ece::kVendor);
  CHECK(a.modifier == 0xcafe);
  auto rep = peer_rep(req);
  rep.vendor_id = ece::kVendor;
  // librdmacm answers under the vendor that it was asked with, and tells the options of its own adapter.
  const std::uint32_t mark = GENERATE(0U, 0x8000'0000U);
  a.in(rep, a.transaction, kThere, mark | 0xbeef);
  const CmEvent event = a.event(CmEventType::kConnectReply);
  CHECK(event.is_uroce == (mark != 0));
  CHECK(event.peer.vendor_id == ece::kVendor);
  CHECK(event.peer.options == (mark != 0 ? 0xbeef : 0));
}

TEST_CASE("a REP that comes again: RTU again, or MRA while the application prepares", "[cm]") {
  Station a;
  const CmId id = a.asking();
  const auto req = a.out<CmReq>();
  const auto rep = peer_rep(req);
  const auto transaction = a.transaction;
  a.in(rep, transaction);
  a.event(CmEventType::kConnectReply);
  a.in(rep, transaction);
  const auto mra = a.out<CmMra>();
  CHECK(mra.about == CmAbout::kRep);
  CHECK(mra.local_comm_id == raw(id));
  CHECK(mra.remote_comm_id == kPeerId);
  CHECK(mra.service_timeout >= 18);  // a second at least
  REQUIRE(a.agent.establish(id));
  a.out<CmRtu>();
  const auto rtu = a.last_mad;
  for (unsigned i = 0; i < 3; ++i) {
    a.in(rep, transaction);
    a.out<CmRtu>();
    CHECK((a.last_mad == rtu));
  }
  a.quiet();
}

TEST_CASE("a REP of another transaction, to nobody or from elsewhere is not taken", "[cm]") {
  Station a;
  const CmId id = a.asking();
  const auto req = a.out<CmReq>();
  auto rep = peer_rep(req);
  a.in(rep, a.transaction + 1);
  a.quiet();
  a.in(rep, a.transaction, kElsewhere);
  CHECK(a.out<CmRej>(kElsewhere).reason == 6);  // IBA 12.6.7.2: no such communication id
  rep.remote_comm_id ^= 1;
  a.answer(rep);
  const auto rej = a.out<CmRej>();
  CHECK(rej.about == CmAbout::kRep);
  CHECK(rej.remote_comm_id == kPeerId);
  CHECK(rej.local_comm_id == 0);
  a.quiet();
  CHECK(a.state(id) == State::kReqSent);
}

TEST_CASE("a REP that comes too late is refused: its sender need not wait for an RTU", "[cm]") {
  Station a;
  const CmId id = a.asking({.timeout = std::chrono::milliseconds(10)});
  const auto req = a.out<CmReq>();
  const auto transaction = a.transaction;
  a.wait(20 * kMs);
  a.event(CmEventType::kUnreachable);
  a.out<CmRej>();
  a.in(peer_rep(req), transaction);
  const auto rej = a.out<CmRej>();
  CHECK(rej.about == CmAbout::kRep);
  CHECK(rej.remote_comm_id == kPeerId);
  CHECK(rej.reason == 6);
  a.quiet();
  CHECK(a.state(id) == State::kDone);
}

TEST_CASE("a refused REP is refused again when it comes again", "[cm]") {
  Station a;
  const CmId id = a.asking();
  const auto req = a.out<CmReq>();
  const auto transaction = a.transaction;
  a.in(peer_rep(req), transaction);
  a.event(CmEventType::kConnectReply);
  REQUIRE(a.agent.reject(id, data("no"), a.now));
  const auto rej = a.out<CmRej>();
  CHECK(rej.about == CmAbout::kRep);
  CHECK(rej.reason == 28);
  CHECK(rej.remote_comm_id == kPeerId);
  CHECK(text_of(rej.private_data) == "no");
  const auto said = a.last_mad;
  a.in(peer_rep(req), transaction);
  a.out<CmRej>();
  CHECK((a.last_mad == said));
  a.wait(100 * kSecond);
  a.quiet();
}

TEST_CASE("an MRA extends the wait for the REP, not for ever", "[cm]") {
  Station a;
  const CmId id = a.asking({.timeout = std::chrono::milliseconds(1000)});
  a.out<CmReq>();
  CmMra mra;
  mra.local_comm_id = kPeerId;
  mra.remote_comm_id = raw(id);
  mra.service_timeout = 20;  // 4.3 s
  a.answer(mra);
  a.wait(4200 * kMs);
  CHECK(a.events.empty());
  CHECK(a.sent.size() == 4);  // rarely meanwhile
  a.wait(200 * kMs);
  a.event(CmEventType::kUnreachable);
  a.sent.clear();

  const CmId other = a.asking({.timeout = std::chrono::milliseconds(1000)});
  a.out<CmReq>();
  mra.remote_comm_id = raw(other);
  mra.about = CmAbout::kRep;  // of something else
  a.answer(mra);
  mra.about = CmAbout::kReq;
  a.in(mra, a.transaction, kElsewhere);
  a.wait(1001 * kMs);
  a.event(CmEventType::kUnreachable);
  a.sent.clear();

  const CmId third = a.asking({.timeout = std::chrono::milliseconds(1000)});
  a.out<CmReq>();
  mra.remote_comm_id = raw(third);
  mra.service_timeout = 31;  // 2.4 hours
  a.answer(mra);
  a.wait(61 * kSecond);
  a.event(CmEventType::kUnreachable);
}

TEST_CASE("each reason of a REJ reaches the application", "[cm]") {
  for (const int reason : {1, 3, 4, 5, 6, 8, 9, 10, 12, 26, 28, 33, 0xffff}) {
    Station a;
    CAPTURE(reason);
    const CmId id = a.asking();
    const auto req = a.out<CmReq>();
    auto rej = rej_of(req, static_cast<CmReject>(reason), kPeerId);
    rej.private_data = text_bytes<148>("because");
    a.answer(rej);
    const CmEvent event = a.event(CmEventType::kRejected);
    CHECK(event.id == id);
    CHECK(raw(event.reason) == reason);
    CHECK(event.private_data().size() == 148);
    CHECK(text_of(event.private_data()) == "because");
    a.answer(rej);
    a.wait(100 * kSecond);
    a.quiet();
    CHECK(a.state(id) == State::kDone);
    a.agent.close(id, a.now);
    a.quiet();
    CHECK(a.agent.size() == 0);
  }
}

TEST_CASE("a REJ from elsewhere or of another transaction ends nothing", "[cm]") {
  Station a;
  const CmId id = a.asking();
  const auto req = a.out<CmReq>();
  a.in(rej_of(req, CmReject::kConsumer), a.transaction, kElsewhere);
  a.in(rej_of(req, CmReject::kConsumer), a.transaction + 1);
  a.quiet();
  CHECK(a.state(id) == State::kReqSent);
}

TEST_CASE("a smaller path MTU that the peer names is tried", "[cm][mtu]") {
  Station a;
  const CmId id = a.asking({.path_mtu = PathMtu::k4096, .private_data = data("hello")});
  const auto req = a.out<CmReq>();
  const auto first_transaction = a.transaction;
  auto rej = rej_of(req, CmReject::kInvalidPathMtu);
  rej.info_len = 1;
  rej.info[0] = std::byte{3};
  a.in(rej, first_transaction);
  auto expected = req;
  expected.path_mtu = 3;
  CHECK(a.out<CmReq>() == expected);
  CHECK(a.transaction != first_transaction);
  // The first one came twice, and so does its answer.
  a.in(rej, first_transaction);
  a.quiet();
  CHECK(a.state(id) == State::kReqSent);
  a.answer(peer_rep(req));
  a.event(CmEventType::kConnectReply);
  CHECK(a.agent.qp_attr(id)->path_mtu == PathMtu::k1024);
}

TEST_CASE("a path MTU that is no smaller, or none, is not tried", "[cm][mtu]") {
  for (const unsigned mtu : {0U, 3U, 4U, 6U, 255U}) {
    CAPTURE(mtu);
    Station a;
    a.asking({.path_mtu = PathMtu::k1024});
    auto rej = rej_of(a.out<CmReq>(), CmReject::kInvalidPathMtu);
    rej.info_len = 1;
    rej.info[0] = static_cast<std::byte>(mtu);
    a.answer(rej);
    CHECK(a.event(CmEventType::kRejected).reason == CmReject::kInvalidPathMtu);
    a.quiet();
  }
  Station a;
  a.asking({.path_mtu = PathMtu::k1024});
  auto rej = rej_of(a.out<CmReq>(), CmReject::kInvalidPathMtu);
  rej.info[0] = std::byte{1};  // of length 0
  a.answer(rej);
  a.event(CmEventType::kRejected);
}

TEST_CASE("nobody listens: told at once, or asked again for as long as there is patience", "[cm]") {
  Station a;
  a.asking();
  a.answer(rej_of(a.out<CmReq>(), CmReject::kInvalidServiceId));
  CHECK(a.event(CmEventType::kRejected).reason == CmReject::kInvalidServiceId);
  a.quiet();

  const CmId id = a.asking({.patience = std::chrono::milliseconds(1000)});
  const auto req = a.out<CmReq>();
  const auto transaction = a.transaction;
  for (unsigned i = 0; i < 4; ++i) {
    a.in(rej_of(req, CmReject::kInvalidServiceId), transaction);
    a.quiet();
    a.wait((50U << i) * kMs);
    CHECK(a.out<CmReq>() == req);
  }
  a.in(rej_of(req, CmReject::kInvalidServiceId), transaction);
  CHECK(a.state(id) == State::kReqSent);
  a.wait(251 * kMs);
  a.in(rej_of(req, CmReject::kInvalidServiceId), transaction);
  a.event(CmEventType::kRejected);
  a.quiet();

  // After the last repetition it is the answer.
  a.asking({.timeout = std::chrono::milliseconds(100), .patience = std::chrono::milliseconds(100)});
  const auto last = a.out<CmReq>();
  a.answer(rej_of(last, CmReject::kInvalidServiceId));
  a.quiet();
  a.wait(50 * kMs);
  CHECK(a.out<CmReq>() == last);
  a.answer(rej_of(last, CmReject::kInvalidServiceId));
  CHECK(a.event(CmEventType::kRejected).reason == CmReject::kInvalidServiceId);
  a.quiet();

  // Only of that reason.
  a.asking({.patience = std::chrono::milliseconds(1000)});
  a.answer(rej_of(a.out<CmReq>(), CmReject::kConsumer));
  a.event(CmEventType::kRejected);
}

TEST_CASE("an old REJ of the REQ does not end what a later REP made", "[cm]") {
  Station a;
  const CmId id = a.asking({.patience = std::chrono::milliseconds(1000)});
  const auto req = a.out<CmReq>();
  const auto transaction = a.transaction;
  a.in(peer_rep(req), transaction);
  a.event(CmEventType::kConnectReply);
  a.in(rej_of(req, CmReject::kInvalidServiceId), transaction);
  a.quiet();
  REQUIRE(a.agent.establish(id));
  a.out<CmRtu>();
  a.in(rej_of(req, CmReject::kInvalidServiceId), transaction);
  a.quiet();
  CHECK(a.state(id) == State::kEstablished);
}

TEST_CASE("a REJ after the RTU, which the peer has not got, ends the connection", "[cm]") {
  Station a;
  const CmId id = a.connected();
  CmRej rej;
  rej.local_comm_id = kPeerId;
  rej.remote_comm_id = raw(id);
  rej.about = CmAbout::kRep;
  rej.reason = static_cast<std::uint16_t>(CmReject::kTimeout);
  a.answer(rej);
  CHECK(a.event(CmEventType::kDisconnected).reason == CmReject::kTimeout);
  a.answer(rej);
  rej.remote_comm_id ^= 1;
  a.answer(rej);
  a.wait(100 * kSecond);
  a.quiet();
}

TEST_CASE("a DREQ of a peer whose REP was lost ends the wait", "[cm]") {
  Station a;
  const CmId id = a.asking();
  a.out<CmReq>();
  const CmDreq dreq{.local_comm_id = kPeerId, .remote_comm_id = raw(id), .remote_qpn = kOwnQpn};
  a.in(CmDreq{.local_comm_id = kPeerId, .remote_comm_id = raw(id), .remote_qpn = Qpn{9}});
  a.out<CmDrep>();
  CHECK(a.events.empty());
  a.in(dreq);
  const auto drep = a.out<CmDrep>();
  CHECK(drep.local_comm_id == raw(id));
  CHECK(drep.remote_comm_id == kPeerId);
  CHECK(a.event(CmEventType::kRejected).reason == CmReject::kTimeout);
  a.wait(100 * kSecond);
  a.quiet();
}

TEST_CASE("what the application asks for in the wrong state is refused", "[cm]") {
  Station a;
  const CmId id = a.make();
  CHECK(a.agent.accept(id, {}, a.now).error().code == Errc::kBadState);
  CHECK(a.agent.reject(id, {}, a.now).error().code == Errc::kBadState);
  CHECK(a.agent.establish(id).error().code == Errc::kBadState);
  CHECK(a.agent.disconnect(id, a.now).error().code == Errc::kBadState);
  CHECK(a.agent.reply_service(id, {}, a.now).error().code == Errc::kBadState);
  CHECK(a.agent.qp_attr(id).error().code == Errc::kBadState);
  const CmId asking = a.asking();
  CHECK(a.agent.connect(asking, {}, {}, kHere, a.now).error().code == Errc::kBadState);
  CHECK(a.agent.listen(asking, 1).error().code == Errc::kBadState);
  CHECK(a.agent.bind(asking, {}).error().code == Errc::kBadState);
  CHECK(a.agent.disconnect(asking, a.now).error().code == Errc::kBadState);
  a.agent.close(asking, a.now);
  CHECK(a.agent.establish(asking).error().code == Errc::kInvalid);
  CHECK(a.agent.disconnect(asking, a.now).error().code == Errc::kInvalid);
  CHECK(a.agent.notify_established(CmId{1}).error().code == Errc::kInvalid);
}

TEST_CASE("what no REQ can say is refused, and the id can be used again", "[cm][T26]") {
  Station a;
  const CmId id = a.make();
  AhAttr path;
  path.dgid = kThere;
  const auto refusal = [&](const CmConnect& ask) {
    const Status status = a.agent.connect(id, ask, path, kHere, a.now);
    REQUIRE_FALSE(status);
    CHECK(status.error().code == Errc::kInvalid);
    return status.error().text;
  };
  for (const QpType type : {QpType::kUd, QpType::kXrcRecv}) {
    CmConnect ask;
    ask.terms.type = type;
    CHECK(refusal(ask).find("UD QPs") != std::string::npos);
  }
  for (const std::uint8_t code :
       {std::uint8_t{32}, std::uint8_t{45}, std::uint8_t{255}}) {  // five bits: 45 would be said as 13
    CHECK(refusal(CmConnect{.ack_timeout = code}).find("ack_timeout " + std::to_string(code)) !=
          std::string::npos);
  }
  CHECK(a.agent.connect(id, {.ack_timeout = 31}, path, kHere, a.now));
  CHECK(a.out<CmReq>().ack_timeout == 31);
  a.quiet();
}

TEST_CASE("private data that is too long is refused, and the id can be used again", "[cm][T26]") {
  Station a;
  const std::vector<std::byte> bytes(512, std::byte{1});
  const auto of = [&](std::size_t length) { return std::span{bytes}.first(length); };
  CmConnect ask{.private_data = of(kCmConnectBytes + 1)};
  const CmId id = a.make();
  CHECK(a.agent.connect(id, ask, {}, kHere, a.now).error().code == Errc::kInvalid);
  ask.private_data = of(kCmConnectBytes);
  CHECK(a.agent.connect(id, ask, {}, kHere, a.now));
  CHECK(a.sent.size() == 1);
  a.sent.clear();

  CHECK(a.agent.resolve_service(a.make(), {.private_data = of(kCmServiceRequestBytes + 1)}, {}, kHere, a.now)
            .error()
            .code == Errc::kInvalid);
  a.listener();
  const CmId asked = a.asked();
  CHECK(a.agent.accept(asked, {.private_data = of(kCmAcceptBytes + 1)}, a.now).error().code ==
        Errc::kInvalid);
  CHECK(a.agent.reject(asked, of(kCmRejectBytes + 1), a.now).error().code == Errc::kInvalid);
  a.quiet();
  CHECK(a.agent.accept(asked, {.private_data = of(kCmAcceptBytes)}, a.now));
  CHECK(a.out<CmRep>().private_data.back() == std::byte{1});
}

TEST_CASE("private data of every length arrives, with zeros behind it", "[cm][T26]") {
  const std::vector<std::byte> bytes(256, std::byte{0x5a});
  const auto holds = [](std::span<const std::byte> all, std::size_t used) {
    const auto count =
        std::count(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(used), std::byte{0x5a});
    return static_cast<std::size_t>(count) == used &&
           std::all_of(all.begin() + static_cast<std::ptrdiff_t>(used), all.end(),
                       [](std::byte byte) { return byte == std::byte{0}; });
  };
  Station a;
  for (std::size_t used = 0; used <= kCmConnectBytes; ++used) {
    a.asking({.private_data = std::span{bytes}.first(used)});
    const auto req = a.out<CmReq>();
    CHECK(holds(std::span{req.private_data}.subspan(36), used));
  }
  a.listener(1000);
  for (std::uint32_t used = 0; used <= kCmAcceptBytes; ++used) {
    const CmId id = a.asked(peer_req(1000 + used, Qpn{1000 + used}));
    REQUIRE(a.agent.accept(id, {.private_data = std::span{bytes}.first(used)}, a.now));
    CHECK(holds(a.out<CmRep>().private_data, used));
  }
  for (std::uint32_t used = 0; used <= kCmRejectBytes; ++used) {
    const CmId id = a.asked(peer_req(2000 + used, Qpn{2000 + used}));
    REQUIRE(a.agent.reject(id, std::span{bytes}.first(used), a.now));
    CHECK(holds(a.out<CmRej>().private_data, used));
  }
}

TEST_CASE("times without measure are no reason to stop at once, nor to overflow", "[cm]") {
  Station a;
  a.asking({.timeout = std::chrono::milliseconds::max(), .patience = std::chrono::milliseconds::max()});
  a.wait(3600 * kSecond);
  CHECK(a.events.empty());
  a.sent.clear();
  a.asking({.timeout = std::chrono::milliseconds::min(), .patience = std::chrono::milliseconds::min()});
  a.wait(kMs);
  a.event(CmEventType::kUnreachable);
}

}  // namespace uroce::test
