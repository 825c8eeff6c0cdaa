// Replies to requests for a connection that nobody answers, or not in time.
#include "api/cm_pair.h"
#include "api/side.h"
#include "uroce/connection.h"

namespace uroce::api {
namespace {

/// A program's own choice of PSNs, which the manager does not know.
void connect_both(Pair& pair, Side& client, Side& server) {
  REQUIRE(client.qp.connect(towards(pair.b, server.qp)));
  REQUIRE(server.qp.connect(towards(pair.a, client.qp)));
}

}  // namespace

TEST_CASE("a reply is repeated until the peer is heard, whatever QP the program has named in it", "[cm]") {
  const QpType type = GENERATE(QpType::kRc, QpType::kUc, QpType::kUd);
  CAPTURE(to_string(type));
  Pair pair(Mode::kAuto);
  CmChannel server = must(CmChannel::create(pair.cm_b));
  listen_at_9(server, 1);
  CmChannel clients = must(CmChannel::create(pair.cm_a));
  const CmId id = must(clients.create_id(PortSpace::kTcp));
  REQUIRE(clients.connect(id, {.to = pair.at_b(9), .terms = {.qpn = Qpn{0x77}}}));
  CmEvent event;
  REQUIRE(server.wait(event, 5s));
  Side side(pair.b, type);
  REQUIRE(side.qp.connect(towards(pair.a, side.qp)));
  REQUIRE(server.accept(event.id, {.terms = {.qpn = side.qp.qpn()}}));
  REQUIRE(clients.wait(event, 5s));
  CHECK(event.type == CmEventType::kConnectReply);
  const auto repeated = [&] {
    for (const Counter& one : pair.cm_a.counters()) {
      if (one.name == "cm_duplicates") return one.value;
    }
    return std::uint64_t{0};
  };
  CHECK(within(5s, [&] { return repeated() > 0; }));
  CHECK_FALSE(server.next(event));
  REQUIRE(clients.establish(id));
  REQUIRE(server.wait(event, 5s));
  CHECK(event.type == CmEventType::kEstablished);
}

TEST_CASE("a first message stands for the answer to a reply, also where the program has chosen the PSNs",
          "[cm]") {
  Pair pair(Mode::kAuto);
  CmChannel server = must(CmChannel::create(pair.cm_b));
  listen_at_9(server, 1);
  CmChannel clients = must(CmChannel::create(pair.cm_a));
  const CmId id = must(clients.create_id(PortSpace::kTcp));
  Side client(pair.a, QpType::kRc);
  REQUIRE(clients.connect(id, {.to = pair.at_b(9), .terms = {.qpn = client.qp.qpn()}}));
  CmEvent event;
  REQUIRE(server.wait(event, 5s));
  Side side(pair.b, QpType::kRc);
  connect_both(pair, client, side);
  side.receive(7, 0, 64);
  REQUIRE(server.accept(event.id, {.terms = {.qpn = side.qp.qpn()}}));
  REQUIRE(client.qp.post_send(SendWr{}));
  CHECK(side.next().ok());
  REQUIRE(server.wait(event, 5s));
  CHECK(event.type == CmEventType::kEstablished);
}

TEST_CASE("whoever accepts and is not answered in time has a QP in Error, and can use it for the next",
          "[cm]") {
  Pair pair(Mode::kAuto);
  Listener listener = must(Listener::create(pair.cm_b, {{}, 9}));
  CmChannel clients = must(CmChannel::create(pair.cm_a));
  const CmId silent = must(clients.create_id(PortSpace::kTcp));
  REQUIRE(clients.connect(silent, {.to = pair.at_b(9), .terms = {.qpn = Qpn{0x77}}}));
  Side side(pair.b, QpType::kRc);
  REQUIRE(side.qp.modify({.state = QpState::kInit}, qp_attr::kInitMask));
  side.receive(7, 0, 64);
  {
    auto request = listener.wait(5s);
    REQUIRE(request.has_value());
    const auto late = request->accept(side.qp, {}, 200ms);
    REQUIRE_FALSE(late);
    CHECK(late.error().code == Errc::kTimeout);
  }
  REQUIRE(side.qp.query().state == QpState::kError);
  const Wc wc = side.next();
  CHECK(wc.wr_id == 7);
  CHECK(wc.status == WcStatus::kWrFlushErr);

  REQUIRE(side.qp.modify({.state = QpState::kReset}, qp_attr::kState));
  Side client(pair.a, QpType::kRc);
  const CmId next = must(clients.create_id(PortSpace::kTcp));
  REQUIRE(clients.connect(next, {.to = pair.at_b(9)}, &client.qp));
  auto request = listener.wait(5s);
  REQUIRE(request.has_value());
  CHECK(request->accept(side.qp, {}));
}

TEST_CASE("whoever gives up just when the connection has come about has a QP in Error", "[cm]") {
  Pair pair(Mode::kAuto);
  CmChannel server = must(CmChannel::create(pair.cm_b));
  listen_at_9(server, 1);
  Side client(pair.a, QpType::kRc);
  Side side(pair.b, QpType::kRc);
  const auto lost = Connection::connect(pair.cm_a, client.qp, {.to = pair.at_b(9)}, [&] {
    CmEvent event;
    REQUIRE(server.wait(event, 5s));
    REQUIRE(server.accept(event.id, {}, &side.qp));
    REQUIRE(within(5s, [&] { return client.qp.query().state == QpState::kRts; }));
    return true;
  });
  REQUIRE_FALSE(lost);
  CHECK(lost.error().code == Errc::kTimeout);
  CHECK(client.qp.query().state == QpState::kError);
  CmEvent event;
  REQUIRE(server.wait(event, 5s));
  CHECK(event.type == CmEventType::kEstablished);
  REQUIRE(server.wait(event, 5s));
  CHECK(event.type == CmEventType::kDisconnected);
}

TEST_CASE("whoever gives up before there is an answer has the QP as it was", "[cm]") {
  Pair pair(Mode::kAuto);
  CmChannel server = must(CmChannel::create(pair.cm_b));
  listen_at_9(server, 1);
  Side client(pair.a, QpType::kRc);
  REQUIRE(client.qp.modify({.state = QpState::kInit}, qp_attr::kInitMask));
  const auto lost = Connection::connect(pair.cm_a, client.qp, {.to = pair.at_b(9)}, [] { return true; });
  REQUIRE_FALSE(lost);
  CHECK(lost.error().code == Errc::kTimeout);
  CHECK(client.qp.query().state == QpState::kInit);
}

}  // namespace uroce::api
