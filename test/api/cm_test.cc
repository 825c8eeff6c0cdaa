// Connections by IP address and port between two devices of one process.
#include "uroce/cm.h"

#include <atomic>
#include <thread>

#include "api/side.h"
#include "uroce/connection.h"

namespace uroce::api {
namespace {

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span{text});
}

std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data())};
}

/// Two devices with their managers.
struct Pair {
  explicit Pair(Mode mode, const std::string& fault = "", CmOptions options = {})
      : port("shm:cm" + std::to_string(getpid())),
        a(End::open(port, mode, 65536, fault)),
        b(End::open(port, mode, 65536, fault)),
        cm_a(must(Cm::open(a.device, options))),
        cm_b(must(Cm::open(b.device, options))) {}

  [[nodiscard]] CmAddress at_b(std::uint16_t port_number) const { return {b.gid(), port_number}; }

  std::string port;
  End a;
  End b;
  Cm cm_a;
  Cm cm_b;
};

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
    auto request = listener.wait(10s);
    if (request.has_value()) with_request(*request);
  });
}

}  // namespace

TEST_CASE("two ends are connected by address and port, exchange data and end in good order", "[cm]") {
  const Mode mode = GENERATE(Mode::kAuto, Mode::kApp, Mode::kLcore);
  CAPTURE(static_cast<int>(mode));
  Pair pair(mode);
  Side client(pair.a, QpType::kRc);
  Side server(pair.b, QpType::kRc);
  Listener listener = must(Listener::create(pair.cm_b, {}));
  std::optional<Connection> served;
  std::string asked;
  std::thread thread = serve(listener, [&](ConnectionRequest& request) {
    asked = text_of(request.peer().private_data());
    auto accepted = request.accept(server.qp, {.private_data = bytes_of("welcome")});
    if (accepted) served.emplace(std::move(*accepted));
  });
  Connection connection = must(Connection::connect(
      pair.cm_a, client.qp, {.to = pair.at_b(listener.port()), .private_data = bytes_of("hello")}));
  thread.join();
  REQUIRE(served.has_value());
  CHECK(asked == "hello");
  CHECK(text_of(connection.peer().private_data()) == "welcome");
  CHECK(connection.peer().is_uroce);
  CHECK(connection.peer().remote == pair.at_b(listener.port()));
  CHECK(client.qp.query().state == QpState::kRts);
  send_one(client, server);
  send_one(server, client);
  connection.disconnect();
  CHECK(client.qp.query().state == QpState::kError);
  CHECK(served->wait_end(5s));
  CHECK(server.qp.query().state == QpState::kError);
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

TEST_CASE("a peer that is not there is given up in time", "[cm]") {
  Pair pair(Mode::kAuto);
  Side client(pair.a, QpType::kRc);
  const auto began = Clock::now();
  const auto lost = Connection::connect(
      pair.cm_a, client.qp,
      {.to = {Gid::from_v4({10, 77, 0, 99}), 1}, .timeout = std::chrono::milliseconds(300)});
  REQUIRE_FALSE(lost.has_value());
  CHECK(lost.error().code == Errc::kTimeout);
  CHECK(Clock::now() - began < 2s);
  const auto other_family = Connection::connect(pair.cm_a, client.qp, {.to = {*Gid::parse("fd00::1"), 1}});
  REQUIRE_FALSE(other_family.has_value());
  CHECK(other_family.error().code == Errc::kNotFound);
}

TEST_CASE("lost messages of every kind cost repetitions, not the connection", "[cm][faults]") {
  const std::string fault = GENERATE(std::string("loss=20%"), std::string("dup=30%,reorder=30%"));
  CAPTURE(fault);
  Pair pair(Mode::kAuto, fault);
  Listener listener = must(Listener::create(pair.cm_b, {}));
  for (int round = 0; round < 10; ++round) {
    Side client(pair.a, QpType::kRc);
    Side server(pair.b, QpType::kRc);
    std::optional<Connection> served;
    std::thread thread = serve(listener, [&](ConnectionRequest& request) {
      auto accepted = request.accept(server.qp, {});
      if (accepted) served.emplace(std::move(*accepted));
    });
    auto connection = Connection::connect(pair.cm_a, client.qp, {.to = pair.at_b(listener.port())});
    thread.join();
    if (!connection) FAIL(connection.error().text);
    REQUIRE(served.has_value());
    send_one(client, server);
    connection->disconnect();
    CHECK(served->wait_end(5s));
  }
}

TEST_CASE("a silent peer is noticed within the keepalive time, an idle living one is kept",
          "[cm][keepalive]") {
  Pair pair(Mode::kAuto, "", {.keepalive = std::chrono::milliseconds(300)});
  Side client(pair.a, QpType::kRc);
  Side server(pair.b, QpType::kRc);
  Listener listener = must(Listener::create(pair.cm_b, {}));
  std::optional<Connection> served;
  std::thread thread = serve(listener, [&](ConnectionRequest& request) {
    auto accepted = request.accept(server.qp, {});
    if (accepted) served.emplace(std::move(*accepted));
  });
  Connection connection = must(Connection::connect(pair.cm_a, client.qp, {.to = pair.at_b(listener.port())}));
  thread.join();
  REQUIRE(served.has_value());
  CHECK_FALSE(connection.wait_end(1s));
  CHECK(counter(pair.a.device, "requester_keepalives") > 0);
  // The server's QP forgets its connection, as that of a process that has died would.
  REQUIRE(server.qp.modify({.state = QpState::kReset}, qp_attr::kState));
  const auto began = Clock::now();
  CHECK(connection.wait_end(5s));
  CHECK(Clock::now() - began < 2s);
  CHECK(connection.end_text().find("nothing has been heard") != std::string::npos);
  CHECK(client.qp.query().state == QpState::kError);
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
