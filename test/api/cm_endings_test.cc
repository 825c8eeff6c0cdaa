// Connections that end, or are to end, while they are only asked for.
#include "api/cm_pair.h"
#include "api/side.h"

namespace uroce::api {
namespace {

TEST_CASE("a connection that is only asked for cannot be disconnected, and its QP is left alone", "[cm]") {
  Pair pair(Mode::kAuto);
  CmChannel server = must(CmChannel::create(pair.cm_b));
  listen_at_9(server, 1);
  Side client(pair.a, QpType::kRc);
  REQUIRE(client.qp.modify({.state = QpState::kInit}, qp_attr::kInitMask));
  CmChannel clients = must(CmChannel::create(pair.cm_a));
  const CmId id = must(clients.create_id(PortSpace::kTcp));
  REQUIRE(clients.connect(id, {.to = pair.at_b(9)}, &client.qp));
  CmEvent event;
  REQUIRE(server.wait(event, 5s));
  CHECK(server.disconnect(event.id).error().code == Errc::kBadState);
  CHECK(clients.disconnect(id).error().code == Errc::kBadState);
  CHECK(client.qp.query().state == QpState::kInit);
  Side accepting(pair.b, QpType::kRc);
  REQUIRE(server.accept(event.id, {}, &accepting.qp));
  REQUIRE(clients.wait(event, 5s));
  CHECK(event.type == CmEventType::kEstablished);
  CHECK(client.qp.query().state == QpState::kRts);
  REQUIRE(server.wait(event, 5s));
  CHECK(event.type == CmEventType::kEstablished);
  REQUIRE(clients.disconnect(id));
  CHECK(client.qp.query().state == QpState::kError);
}

}  // namespace
}  // namespace uroce::api
