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

}  // namespace uroce::api
