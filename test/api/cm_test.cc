// Connections by IP address and port between two devices of one process.
#include <atomic>
#include <thread>

#include "api/cm_pair.h"
#include "api/side.h"
#include "uroce/connection.h"

namespace uroce::api {
namespace {

std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data())};
}

/// As many repetitions as a fifth of all messages may be lost in without an end to them.
constexpr auto kLong = std::chrono::seconds(30);

/// One message from `from` to `to`.
void send_one(Side& from, Side& to) {
  to.receive(7, 0, 64);
  from.memory.memory()[0] = std::byte{42};
  const Sge sge = from.memory.sge(0, 64);
  REQUIRE(from.qp.post_send({.wr_id = 1, .sges = {&sge, 1}, .flags = send_flag::kSignaled}));
  CHECK(to.next().ok());
  CHECK(from.next().ok());
  CHECK(to.memory.memory()[0] == std::byte{42});
}

/// A listener's side in a thread of its own: takes one request.
template <typename F>
std::thread serve(Listener& listener, F&& with_request) {
  return std::thread([&listener, with_request] {
    auto request = listener.wait(kLong);
    if (request.has_value()) with_request(*request);
  });
}

struct Joint {
  Connection connection;  ///< of the client
  Connection served;
};

/// Connects both sides; the server takes the next request of its listener.
Joint join(Cm& cm, Side& client, const CmConnect& ask, Listener& listener, Side& server,
           const CmAccept& answer = {}) {
  std::optional<Connection> served;
  std::thread thread = serve(listener, [&](ConnectionRequest& request) {
    auto accepted = request.accept(server.qp, answer, kLong);
    if (accepted) served.emplace(std::move(*accepted));
  });
  auto connection = Connection::connect(cm, client.qp, ask);
  thread.join();
  if (!connection) FAIL(connection.error().text);
  REQUIRE(served.has_value());
  return {std::move(*connection), std::move(*served)};
}

/// Likewise, with a listener for these two alone.
Joint join(Pair& pair, Side& client, Side& server) {
  Listener listener = must(Listener::create(pair.cm_b, {}));
  return join(pair.cm_a, client, {.to = pair.at_b(listener.port())}, listener, server);
}

}  // namespace

TEST_CASE("two ends are connected by address and port, exchange data and end in good order", "[cm]") {
  const Mode mode = GENERATE(Mode::kAuto, Mode::kApp, Mode::kLcore);
  CAPTURE(static_cast<int>(mode));
  Pair pair(mode);
  Side client(pair.a, QpType::kRc);
  Side server(pair.b, QpType::kRc);
  Listener listener = must(Listener::create(pair.cm_b, {}));
  auto [connection, served] =
      join(pair.cm_a, client, {.to = pair.at_b(listener.port()), .private_data = bytes_of("hello")}, listener,
           server, {.private_data = bytes_of("welcome")});
  CHECK(text_of(served.peer().private_data()) == "hello");
  CHECK(text_of(connection.peer().private_data()) == "welcome");
  CHECK(connection.peer().is_uroce);
  CHECK(connection.peer().remote == pair.at_b(listener.port()));
  CHECK(client.qp.query().state == QpState::kRts);
  send_one(client, server);
  send_one(server, client);
  connection.disconnect();
  CHECK(client.qp.query().state == QpState::kError);
  CHECK(served.wait_end(5s));
  CHECK(server.qp.query().state == QpState::kError);
}

TEST_CASE("an id's calls out of order, of others and twice are refused and change nothing", "[cm][limits]") {
  Pair pair(Mode::kAuto);
  CmChannel channel = must(CmChannel::create(pair.cm_b));
  const CmId id = must(channel.create_id(PortSpace::kTcp));
  CHECK(channel.accept(id, {}).error().code == Errc::kBadState);
  CHECK(channel.establish(id).error().code == Errc::kBadState);
  CHECK(channel.disconnect(id).error().code == Errc::kBadState);
  CHECK(channel.reject(id).error().code == Errc::kBadState);
  CHECK(channel.qp_attr(id).error().code == Errc::kBadState);
  CHECK(channel.bind(id, {Gid::from_v4({192, 0, 2, 1}), 5}).error().code == Errc::kNotFound);
  REQUIRE(channel.bind(id, {pair.b.gid(), 5}));
  CHECK(channel.bind(id, {pair.b.gid(), 6}).error().code == Errc::kBadState);
  const CmId second = must(channel.create_id(PortSpace::kTcp));
  CHECK(channel.bind(second, {{}, 5}).error().code == Errc::kNameInUse);
  REQUIRE(channel.listen(id, 1));
  CHECK(channel.listen(id, 1).error().code == Errc::kBadState);
  channel.close(id);
  channel.close(id);
  CHECK(channel.listen(id, 1).error().code == Errc::kInvalid);
  REQUIRE(channel.bind(second, {{}, 5}));  // free again
  const std::vector<std::byte> much(kCmConnectBytes + 1);
  CHECK(channel.connect(second, {.to = pair.at_b(1), .private_data = much}).error().code == Errc::kInvalid);
  CHECK(Cm::open(pair.b.device).error().code == Errc::kBusy);
}

TEST_CASE("requests beyond the backlog are refused, and those that wait when the listener goes", "[cm][S9]") {
  Pair pair(Mode::kAuto);
  std::optional<CmChannel> server(must(CmChannel::create(pair.cm_b)));
  const CmId listener = listen_at_9(*server, 2);
  CmChannel clients = must(CmChannel::create(pair.cm_a));
  REQUIRE(pair.cm_a.resolve(pair.b.gid(), {}, 5s));  // else the first may wait while others pass it
  std::vector<CmId> ids;
  CmEvent event;
  for (std::uint32_t i = 0; i < 3; ++i) {
    ids.push_back(must(clients.create_id(PortSpace::kTcp)));
    REQUIRE(clients.connect(ids.back(), {.to = pair.at_b(9), .terms = {.qpn = Qpn{0x100 + i}}}));
  }
  REQUIRE(clients.wait(event, 5s));
  CHECK(event.type == CmEventType::kRejected);
  CHECK(event.reason == CmReject::kNoResources);
  CHECK(event.id == ids[2]);
  server->close(listener);
  for (int i = 0; i < 2; ++i) {
    REQUIRE(clients.wait(event, 5s));
    CHECK(event.type == CmEventType::kRejected);
  }
}

TEST_CASE("events are told at the channel that an id was moved to, and its descriptor is readable",
          "[cm][channel]") {
  Pair pair(Mode::kAuto);
  CmChannel first = must(CmChannel::create(pair.cm_a));
  CmChannel second = must(CmChannel::create(pair.cm_a));
  const CmId id = must(first.create_id(PortSpace::kTcp));
  REQUIRE(first.connect(id, {.to = pair.at_b(9), .terms = {.qpn = Qpn{0x100}}}));
  REQUIRE(is_readable(first.fd(), 5000));
  REQUIRE(first.migrate(id, second));
  CmEvent event;
  CHECK_FALSE(is_readable(first.fd()));
  CHECK_FALSE(first.next(event));
  REQUIRE(is_readable(second.fd()));
  REQUIRE(second.next(event));
  CHECK(event.id == id);
  CHECK(event.reason == CmReject::kInvalidServiceId);
  CHECK_FALSE(is_readable(second.fd()));
}

TEST_CASE("an id that is closed takes its own events along, and nobody else's", "[cm][channel]") {
  Pair pair(Mode::kAuto);
  CmChannel channel = must(CmChannel::create(pair.cm_a));
  CmChannel later = must(CmChannel::create(pair.cm_a));
  const auto refused_at = [&](CmChannel& from) {
    const CmId id = must(from.create_id(PortSpace::kTcp));
    REQUIRE(from.connect(id, {.to = pair.at_b(9), .terms = {.qpn = Qpn{0x100}}}));
    REQUIRE(is_readable(from.fd(), 5000));
    return id;
  };
  const CmId closed = refused_at(channel);
  const CmId kept = refused_at(later);
  REQUIRE(later.migrate(kept, channel));  // so that both events wait, in this order
  channel.close(closed);
  CHECK(is_readable(channel.fd()));
  CmEvent event;
  REQUIRE(channel.next(event));
  CHECK(event.id == kept);
  CHECK_FALSE(channel.next(event));
}

TEST_CASE("a descriptor is not readable once the id whose events it told is closed", "[cm][channel]") {
  Pair pair(Mode::kAuto);
  CmChannel channel = must(CmChannel::create(pair.cm_a));
  const CmId id = must(channel.create_id(PortSpace::kTcp));
  REQUIRE(channel.connect(id, {.to = pair.at_b(9), .terms = {.qpn = Qpn{0x100}}}));
  REQUIRE(is_readable(channel.fd(), 5000));
  channel.close(id);
  CHECK_FALSE(is_readable(channel.fd()));
}

TEST_CASE("a UD service is found by address and port, with the Q_Key to use", "[cm][sidr][ud]") {
  Pair pair(Mode::kAuto);
  CmChannel server = must(CmChannel::create(pair.cm_b));
  listen_at_9(server, 4, PortSpace::kUdp);
  CmChannel client = must(CmChannel::create(pair.cm_a));
  const CmId query = must(client.create_id(PortSpace::kUdp));
  REQUIRE(client.resolve_service(query, {.to = pair.at_b(9), .private_data = bytes_of("who")}));
  CmEvent event;
  REQUIRE(server.wait(event, 5s));
  REQUIRE(event.type == CmEventType::kServiceRequest);
  CHECK(text_of(event.private_data()) == "who");
  REQUIRE(server.reply_service(event.id, {.qpn = Qpn{0x77}, .private_data = bytes_of("me")}));
  REQUIRE(client.wait(event, 5s));
  REQUIRE(event.type == CmEventType::kServiceReply);
  CHECK(event.service_status == 0);
  CHECK(event.peer.qpn == Qpn{0x77});
  CHECK(event.peer.qkey == kCmQkey);
  CHECK(text_of(event.private_data()) == "me");

  const CmId nobody = must(client.create_id(PortSpace::kUdp));
  REQUIRE(client.resolve_service(nobody, {.to = pair.at_b(10)}));
  REQUIRE(client.wait(event, 5s));
  CHECK(event.service_status == 1);
}

TEST_CASE("a service that nobody offers yet is asked for again for as long as there is patience", "[cm]") {
  Pair pair(Mode::kAuto);
  CmChannel client = must(CmChannel::create(pair.cm_a));
  const CmId query = must(client.create_id(PortSpace::kUdp));
  REQUIRE(client.resolve_service(query, {.to = pair.at_b(9), .patience = 4s}));
  CmEvent event;
  CHECK_FALSE(client.wait(event, 200ms));
  CmChannel server = must(CmChannel::create(pair.cm_b));
  listen_at_9(server, 4, PortSpace::kUdp);
  REQUIRE(server.wait(event, 5s));
  REQUIRE(event.type == CmEventType::kServiceRequest);
  REQUIRE(server.reply_service(event.id, {.qpn = Qpn{0x77}}));
  REQUIRE(client.wait(event, 5s));
  CHECK(event.service_status == 0);
}

TEST_CASE("the attributes that a connection gives its QPs are what both ends agreed on", "[cm]") {
  Pair pair(Mode::kAuto);
  Side client(pair.a, QpType::kRc);
  Side server(pair.b, QpType::kRc);
  Listener listener = must(Listener::create(pair.cm_b, {}));
  auto [connection, served] =
      join(pair.cm_a, client,
           {.to = pair.at_b(listener.port()),
            .terms = {.responder_resources = 5, .initiator_depth = 9, .retry_cnt = 6, .rnr_retry = 2},
            .traffic_class = 0x20,
            .ack_timeout = 15,
            .path_mtu = PathMtu::k1024},
           listener, server, {.terms = {.responder_resources = 4, .initiator_depth = 16, .rnr_retry = 3}});
  CHECK(served.peer().peer.responder_resources == 5);
  CHECK(served.peer().peer.initiator_depth == 9);
  const QpAttr a = client.qp.query();
  const QpAttr b = server.qp.query();
  CHECK(a.path_mtu == PathMtu::k1024);
  CHECK(b.path_mtu == PathMtu::k1024);
  CHECK(a.max_rd_atomic == 4);
  CHECK(a.max_dest_rd_atomic == 5);
  CHECK(b.max_rd_atomic == 5);
  CHECK(b.max_dest_rd_atomic == 4);
  CHECK(a.retry_cnt == 6);
  CHECK(b.retry_cnt == 6);
  CHECK(a.rnr_retry == 3);
  CHECK(b.rnr_retry == 2);
  CHECK(a.timeout == 15);
  CHECK(b.timeout == 15);
  CHECK(a.traffic_class == 0x20);
  CHECK(b.traffic_class == 0x20);
  CHECK(a.dest_qpn == server.qp.qpn());
  CHECK(b.dest_qpn == client.qp.qpn());
  CHECK(a.sq_psn == b.rq_psn);
  CHECK(b.sq_psn == a.rq_psn);
}

TEST_CASE("options are on if both ends asked for them", "[cm][ece]") {
  const auto [of_client, of_server] =
      GENERATE(table<bool, bool>({{true, true}, {true, false}, {false, true}}));
  Pair pair(Mode::kAuto);
  Side client(pair.a, QpType::kRc);
  Side server(pair.b, QpType::kRc);
  const Ece masked{.vendor_id = ece::kVendor, .options = ece::kMaskedAtomics};
  if (of_client) REQUIRE(client.qp.set_ece(masked));
  if (of_server) REQUIRE(server.qp.set_ece(masked));
  const Joint joint = join(pair, client, server);
  const std::uint32_t agreed = ece::kJointAcks | (of_client && of_server ? ece::kMaskedAtomics : 0);
  CHECK(client.qp.query_ece().options == agreed);
  CHECK(server.qp.query_ece().options == agreed);
}

TEST_CASE("what both devices offer is on, beside what the applications ask for", "[cm][ece][selective]") {
  const auto [of_client, of_server] =
      GENERATE(table<bool, bool>({{true, true}, {true, false}, {false, true}, {false, false}}));
  const bool asks = GENERATE(false, true);
  Config config;
  config.port = "shm:cm" + std::to_string(getpid());
  config.mode = Mode::kAuto;
  config.fault = "loss=2%";
  Config other = config;
  const bool is_selective = GENERATE(false, true);
  (is_selective ? config.selective_repeat : config.joint_acks) = of_client;
  (is_selective ? other.selective_repeat : other.joint_acks) = of_server;
  Pair pair(config, other);
  Side client(pair.a, QpType::kRc);
  Side server(pair.b, QpType::kRc);
  const Ece masked{.vendor_id = ece::kVendor, .options = ece::kMaskedAtomics};
  if (asks) REQUIRE((client.qp.set_ece(masked) && server.qp.set_ece(masked)));
  const Joint joint = join(pair, client, server);
  const std::uint32_t asked = is_selective ? ece::kSelectiveRepeat : ece::kJointAcks;
  const std::uint32_t agreed = (of_client && of_server ? asked : 0) | (asks ? ece::kMaskedAtomics : 0) |
                               (is_selective ? ece::kJointAcks : 0);
  CHECK(client.qp.query_ece().options == agreed);
  CHECK(server.qp.query_ece().options == agreed);
  send_one(client, server);
}

TEST_CASE("a port where nobody listens, and a listener that says no, are told as such", "[cm]") {
  Pair pair(Mode::kAuto);
  Side client(pair.a, QpType::kRc);
  const auto nobody = Connection::connect(pair.cm_a, client.qp, {.to = pair.at_b(9)});
  REQUIRE_FALSE(nobody.has_value());
  CHECK(nobody.error().code == Errc::kPeer);
  CHECK(nobody.error().text.find("nobody listens") != std::string::npos);
  CHECK(client.qp.query().state == QpState::kReset);

  Listener listener = must(Listener::create(pair.cm_b, {}));
  std::thread thread = serve(listener, [&](ConnectionRequest& request) { request.reject(bytes_of("no")); });
  const auto refused = Connection::connect(pair.cm_a, client.qp, {.to = pair.at_b(listener.port())});
  thread.join();
  REQUIRE_FALSE(refused.has_value());
  CHECK(refused.error().text.find("refused") != std::string::npos);
}

TEST_CASE("a manager still hears of failures when a second one was refused", "[cm]") {
  Pair pair(Mode::kAuto);
  Side client(pair.a, QpType::kRc);
  Side server(pair.b, QpType::kRc);
  auto [connection, served] = join(pair, client, server);
  CHECK(Cm::open(pair.a.device).error().code == Errc::kBusy);
  Sge sge = client.memory.sge(0, 64);
  sge.lkey = Lkey{1};  // fails here, and the peer does not see it
  REQUIRE(client.qp.post_send({.sges = {&sge, 1}}));
  CHECK(connection.wait_end(5s));
}

TEST_CASE("a Listener is not stopped by requests of another kind", "[cm][limits]") {
  Pair pair(Mode::kAuto);
  Listener listener = must(Listener::create(pair.cm_b, {}, 2, PortSpace::kIb));
  CmChannel client = must(CmChannel::create(pair.cm_a));
  for (int i = 0; i < 3; ++i) {
    const CmId query = must(client.create_id(PortSpace::kIb));
    REQUIRE(client.resolve_service(query, {.to = pair.at_b(listener.port()), .timeout = kLong}));
    CmEvent event;
    REQUIRE(within(kLong, [&] {  // who looks refuses it, whenever it comes
      CHECK_FALSE(listener.wait(10ms).has_value());
      return client.wait(event, 0ms);
    }));
    CHECK(event.type == CmEventType::kServiceReply);
    CHECK(event.service_status != 0);
  }
  Side from(pair.a, QpType::kRc);
  Side to(pair.b, QpType::kRc);
  const Joint joint =
      join(pair.cm_a, from, {.space = PortSpace::kIb, .to = pair.at_b(listener.port())}, listener, to);
}

TEST_CASE("a time without measure is one without end", "[cm][limits]") {
  constexpr auto kForEver = std::chrono::milliseconds::max();
  Pair pair(Mode::kAuto);
  Side client(pair.a, QpType::kRc);
  Side server(pair.b, QpType::kRc);
  Listener listener = must(Listener::create(pair.cm_b, {}));
  Status accepted = Error{Errc::kTimeout, {}};
  std::thread thread([&] {
    auto request = listener.wait(std::chrono::nanoseconds::max());
    auto served = request->accept(server.qp, {}, kForEver);
    accepted = served ? Status{} : served.error();
  });
  const auto connection =
      Connection::connect(pair.cm_a, client.qp, {.to = pair.at_b(listener.port()), .timeout = kForEver});
  thread.join();
  CHECK(connection.has_value());
  CHECK(accepted);
}

TEST_CASE("a connection ends where another takes its place, and its QP with it", "[cm]") {
  Pair pair(Mode::kAuto);
  Side client(pair.a, QpType::kRc);
  Side server(pair.b, QpType::kRc);
  Side next_client(pair.a, QpType::kRc);
  Side next_server(pair.b, QpType::kRc);
  Joint first = join(pair, client, server);
  Joint next = join(pair, next_client, next_server);
  client.receive(3, 0, 64);
  first.connection = std::move(next.connection);
  CHECK(client.qp.query().state == QpState::kError);
  CHECK(client.next().status == WcStatus::kWrFlushErr);
  CHECK(first.served.wait_end(kLong));
  CHECK(first.connection.is_connected());
  send_one(next_client, next_server);
}

TEST_CASE("a time of less than nothing is over at once", "[cm][limits]") {
  Pair pair(Mode::kAuto, "", {.keepalive = std::chrono::milliseconds::max()});
  Side client(pair.a, QpType::kRc);
  Side server(pair.b, QpType::kRc);
  auto [connection, served] = join(pair, client, server);
  CHECK_FALSE(connection.wait_end(std::chrono::nanoseconds::min()));
  Listener listener = must(Listener::create(pair.cm_b, {}));
  CHECK_FALSE(listener.wait(std::chrono::nanoseconds::min()).has_value());
  const Gid absent = Gid::from_v4({10, 77, 0, 99});
  CHECK(pair.cm_a.resolve(absent, {}, std::chrono::milliseconds::min()).error().code == Errc::kTimeout);
}

TEST_CASE("what accept() refuses leaves the QP as it was", "[cm][limits]") {
  Pair pair(Mode::kAuto);
  CmChannel server = must(CmChannel::create(pair.cm_b));
  listen_at_9(server, 1);
  Side client(pair.a, QpType::kRc);
  CmChannel clients = must(CmChannel::create(pair.cm_a));
  REQUIRE(clients.connect(must(clients.create_id(PortSpace::kTcp)), {.to = pair.at_b(9)}, &client.qp));
  CmEvent event;
  REQUIRE(server.wait(event, 5s));
  Side accepting(pair.b, QpType::kRc);
  Side other(pair.b, QpType::kRc);
  const std::vector<std::byte> much(kCmAcceptBytes + 1);
  CHECK(server.accept(event.id, {.private_data = much}, &accepting.qp).error().code == Errc::kInvalid);
  CHECK(accepting.qp.query().state == QpState::kReset);
  REQUIRE(server.accept(event.id, {}, &accepting.qp));
  CHECK(server.accept(event.id, {}, &other.qp).error().code == Errc::kBadState);
  CHECK(other.qp.query().state == QpState::kReset);
  REQUIRE(clients.wait(event, 5s));
  CHECK(event.type == CmEventType::kEstablished);
}

TEST_CASE("a QP that has failed before the connection is there ends it", "[cm]") {
  Pair pair(Mode::kAuto);
  CmChannel server = must(CmChannel::create(pair.cm_b));
  listen_at_9(server, 1);
  Side client(pair.a, QpType::kRc);
  CmChannel clients = must(CmChannel::create(pair.cm_a));
  const CmId id = must(clients.create_id(PortSpace::kTcp));
  REQUIRE(clients.connect(id, {.to = pair.at_b(9), .terms = {.qpn = client.qp.qpn()}}));
  CmEvent event;
  REQUIRE(server.wait(event, 5s));
  Side accepting(pair.b, QpType::kRc);
  REQUIRE(server.accept(event.id, {}, &accepting.qp));
  REQUIRE(clients.wait(event, 5s));
  REQUIRE(event.type == CmEventType::kConnectReply);
  REQUIRE(client.qp.connect(must(clients.qp_attr(id))));
  const Sge sge = client.memory.sge(0, 64);
  REQUIRE(client.qp.post_send({.sges = {&sge, 1}, .opcode = WrOpcode::kRdmaWrite, .rkey = Rkey{1}}));
  for (Side* side : {&client, &accepting})
    REQUIRE(within(5s, [&] { return side->qp.query().state == QpState::kError; }));
  REQUIRE(clients.establish(id));
  REQUIRE(server.wait(event, 5s));
  if (event.type == CmEventType::kEstablished) REQUIRE(server.wait(event, 5s));
  CHECK(event.type == CmEventType::kDisconnected);
  REQUIRE(clients.wait(event, 5s));
  CHECK(event.type == CmEventType::kDisconnected);
}

TEST_CASE("hundreds of connections that end at once are all told, and nothing is said twice",
          "[cm][limits]") {
  constexpr std::uint32_t kCount = 600;
  Pair pair(Mode::kAuto);
  std::optional<CmChannel> server(must(CmChannel::create(pair.cm_b)));
  listen_at_9(*server, kCount);
  CmChannel clients = must(CmChannel::create(pair.cm_a));
  CmEvent event;
  for (std::uint32_t i = 0; i < kCount; ++i) {
    const CmId id = must(clients.create_id(PortSpace::kTcp));
    REQUIRE(clients.connect(id, {.to = pair.at_b(9), .terms = {.qpn = Qpn{0x10'0000 + i}}}));
    REQUIRE(server->wait(event, 5s));
    REQUIRE(server->accept(event.id, {.terms = {.qpn = Qpn{0x20'0000 + i}}}));
    REQUIRE(clients.wait(event, 5s));
    REQUIRE(clients.establish(id));
    REQUIRE(server->wait(event, 5s));
    REQUIRE(event.type == CmEventType::kEstablished);
  }
  server.reset();
  for (std::uint32_t told = 0; told < kCount; told += event.type == CmEventType::kDisconnected ? 1 : 0) {
    REQUIRE(clients.wait(event, 5s));
    CHECK((event.type == CmEventType::kDisconnected || event.type == CmEventType::kTimewaitExit));
  }
  for (const Cm* cm : {&pair.cm_a, &pair.cm_b}) {
    for (const Counter& one : cm->counters()) {
      if (one.name == "cm_dropped") CHECK(one.value == 0);
    }
  }
}

TEST_CASE("a QP may be moved or destroyed before its connection ends", "[cm][lifetime]") {
  Pair pair(Mode::kAuto);
  std::optional<Side> client;
  client.emplace(pair.a, QpType::kRc);
  Side server(pair.b, QpType::kRc);
  auto [connection, served] = join(pair, *client, server);
  SECTION("moved") {
    Qp elsewhere(std::move(client->qp));
    CHECK(elsewhere.query().state == QpState::kRts);
    served.disconnect();
    CHECK(connection.wait_end(5s));
    CHECK(elsewhere.query().state == QpState::kError);
  }
  SECTION("replaced by another") {
    client->qp = must(Qp::create(pair.a.pd, client->cq, client->cq, {}));
    REQUIRE(client->qp.modify({.state = QpState::kInit}, qp_attr::kInitMask));
    served.disconnect();
    CHECK(connection.wait_end(5s));
    CHECK(client->qp.query().state == QpState::kInit);
  }
  SECTION("destroyed; the peer ends") {
    client.reset();
    served.disconnect();
    CHECK(connection.wait_end(5s));
  }
  SECTION("destroyed; we end") {
    client.reset();
    connection.disconnect();
    CHECK(served.wait_end(5s));
    CHECK(server.qp.query().state == QpState::kError);
  }
}

TEST_CASE("a reply for a QP that is gone is rejected", "[cm][lifetime]") {
  Pair pair(Mode::kAuto);
  CmChannel server = must(CmChannel::create(pair.cm_b));
  listen_at_9(server, 1);
  CmChannel clients = must(CmChannel::create(pair.cm_a));
  const CmId id = must(clients.create_id(PortSpace::kTcp));
  {
    Side client(pair.a, QpType::kRc);
    REQUIRE(clients.connect(id, {.to = pair.at_b(9)}, &client.qp));
  }
  CmEvent event;
  REQUIRE(server.wait(event, 5s));
  REQUIRE(event.type == CmEventType::kConnectRequest);
  Side accepting(pair.b, QpType::kRc);
  REQUIRE(server.accept(event.id, {}, &accepting.qp));
  REQUIRE(clients.wait(event, 5s));
  CHECK(event.type == CmEventType::kRejected);
  CHECK(event.text == "the QP was destroyed meanwhile");
  REQUIRE(server.wait(event, 5s));
  CHECK(event.type == CmEventType::kRejected);
  CHECK(accepting.qp.query().state == QpState::kError);
}

TEST_CASE("a refusal leaves before the manager goes", "[cm]") {
  Pair pair(GENERATE(Mode::kLcore, Mode::kAuto));
  std::optional<Cm> short_lived(std::move(pair.cm_b));
  for (int round = 0; round < 30; ++round) {
    CmChannel clients = must(CmChannel::create(pair.cm_a));
    std::optional<CmChannel> server(must(CmChannel::create(*short_lived)));
    const CmId listener = must(server->create_id(PortSpace::kTcp));
    REQUIRE(server->bind(listener, {{}, 9}));
    REQUIRE(server->listen(listener, 1));
    const CmId id = must(clients.create_id(PortSpace::kTcp));
    REQUIRE(clients.connect(id, {.to = pair.at_b(9), .terms = {.qpn = Qpn{0x100}}}));
    CmEvent event;
    REQUIRE(server->wait(event, 5s));
    REQUIRE(event.type == CmEventType::kConnectRequest);
    REQUIRE(server->reject(event.id));
    server.reset();
    short_lived.reset();
    REQUIRE(clients.wait(event, 5s));
    CHECK(event.type == CmEventType::kRejected);
    short_lived.emplace(must(Cm::open(pair.b.device, kPatient)));
  }
}

TEST_CASE("a peer that is not there is given up in time", "[cm]") {
  Pair pair(Mode::kAuto);
  Side client(pair.a, QpType::kRc);
  const auto began = Clock::now();
  const auto lost = Connection::connect(
      pair.cm_a, client.qp,
      {.to = {Gid::from_v4({10, 77, 0, 99}), 1}, .timeout = std::chrono::milliseconds(300)});
  REQUIRE_FALSE(lost.has_value());
  CHECK(lost.error().code == Errc::kTimeout);
  CHECK(Clock::now() - began < 4s);  // five otherwise
  const auto other_family = Connection::connect(pair.cm_a, client.qp, {.to = {*Gid::parse("fd00::1"), 1}});
  REQUIRE_FALSE(other_family.has_value());
  CHECK(other_family.error().code == Errc::kNotFound);
}

TEST_CASE("who asks for a connection may give up before the time is over", "[cm]") {
  const Mode mode = GENERATE(Mode::kApp, Mode::kAuto);
  Pair pair(mode);
  Side client(pair.a, QpType::kRc);
  unsigned asked = 0;
  const auto ended = Connection::connect(
      pair.cm_a, client.qp,
      {.to = {Gid::from_v4({10, 77, 0, 99}), 1}, .timeout = std::chrono::milliseconds(600'000)},
      [&] { return ++asked == 3; });
  REQUIRE_FALSE(ended.has_value());
  CHECK(ended.error().code == Errc::kTimeout);
  CHECK(asked == 3);
  CHECK(pair.cm_a.ids() == 0);
}

TEST_CASE("lost messages of every kind cost repetitions, not the connection", "[cm][faults]") {
  const std::string fault = GENERATE(std::string("loss=20%"), std::string("dup=30%,reorder=30%"));
  CAPTURE(fault);
  Pair pair(Mode::kAuto, fault);
  Listener listener = must(Listener::create(pair.cm_b, {}));
  for (int round = 0; round < 10; ++round) {
    Side client(pair.a, QpType::kRc);
    Side server(pair.b, QpType::kRc);
    auto [connection, served] =
        join(pair.cm_a, client, {.to = pair.at_b(listener.port()), .timeout = kLong}, listener, server);
    send_one(client, server);
    connection.disconnect();
    CHECK(served.wait_end(kLong));
  }
}

TEST_CASE("a silent peer is noticed within the keepalive time, an idle living one is kept",
          "[cm][keepalive]") {
  Pair pair(Mode::kAuto, "", {.keepalive = 1s});
  Side client(pair.a, QpType::kRc);
  Side server(pair.b, QpType::kRc);
  auto [connection, served] = join(pair, client, server);
  CHECK_FALSE(connection.wait_end(2s));
  CHECK(counter(pair.a.device, "requester_keepalives") > 0);
  // The server's QP forgets its connection, as that of a process that has died would.
  REQUIRE(server.qp.modify({.state = QpState::kReset}, qp_attr::kState));
  const auto began = Clock::now();
  CHECK(connection.wait_end(20s));
  CHECK(Clock::now() - began < 10s);
  CHECK(connection.end_text().find("nothing has been heard") != std::string::npos);
  CHECK(client.qp.query().state == QpState::kError);
}

TEST_CASE("a device connects to itself, with one loop and with two", "[cm][local][loops]") {
  const std::string lcores = GENERATE(std::string(), std::string("0,1"));
  const Mode mode = GENERATE(Mode::kAuto, Mode::kApp, Mode::kLcore);
  CAPTURE(lcores, static_cast<int>(mode));
  Config config;
  config.port = "shm:cmself" + std::to_string(getpid());
  config.no_huge = true;
  config.mode = mode;
  config.lcores = lcores;
  Device device = must(Device::open(config));
  Pd pd = must(Pd::create(device));
  End end{std::move(device), std::move(pd)};
  Cm cm = must(Cm::open(end.device, kPatient));
  const QpInitAttr init{};
  Side client(end, init, 0);
  Side server(end, init, lcores.empty() ? 0 : 1);
  Listener listener = must(Listener::create(cm, {end.gid(), 0}));
  auto [connection, served] = join(cm, client, {.to = {end.gid(), listener.port()}}, listener, server);
  send_one(client, server);
  served.disconnect();
  CHECK(connection.wait_end(5s));
}

TEST_CASE("connections come and go and leave nothing behind", "[cm][leaks]") {
  Pair pair(Mode::kAuto);
  Listener listener = must(Listener::create(pair.cm_b, {}));
  constexpr int kRounds = 300;
  std::atomic<int> served{0};
  std::thread thread([&] {
    Side server(pair.b, QpType::kRc);
    for (int round = 0; round < kRounds; ++round) {
      auto request = listener.wait(10s);
      if (!request.has_value()) return;
      auto accepted = request->accept(server.qp, {});
      if (!accepted) return;
      served += accepted->wait_end(10s) ? 1 : 0;
      if (!server.qp.modify({.state = QpState::kReset}, qp_attr::kState)) return;
    }
  });
  Side client(pair.a, QpType::kRc);
  for (int round = 0; round < kRounds; ++round) {
    auto connection = Connection::connect(pair.cm_a, client.qp, {.to = pair.at_b(listener.port())});
    if (!connection) FAIL("round " << round << ": " << connection.error().text);
    connection->disconnect();
    REQUIRE(client.qp.modify({.state = QpState::kReset}, qp_attr::kState));
  }
  thread.join();
  CHECK(served == kRounds);
  const auto end = Clock::now() + 5s;  // timewait is a second
  while ((pair.cm_a.ids() > 0 || pair.cm_b.ids() > 1) && Clock::now() < end)
    std::this_thread::sleep_for(10ms);
  CHECK(pair.cm_a.ids() == 0);
  CHECK(pair.cm_b.ids() == 1);  // the listener
}

}  // namespace uroce::api
