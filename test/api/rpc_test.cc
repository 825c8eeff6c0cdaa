// Calls between a server and its clients, on two devices of one process.
#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <deque>
#include <map>
#include <optional>
#include <random>
#include <thread>
#include <vector>

#include "api/rpc_world.h"

namespace uroce::api {
namespace {

/// Answers what comes with the same, in a thread of its own, until told to stop.
class Echo {
 public:
  explicit Echo(RpcServer& server)
      : thread_([this, &server] {
          std::array<RpcRequest, 16> requests;
          while (!stops_) {
            for (const RpcRequest& request : std::span(requests).first(server.poll(requests))) {
              while (server.reply(request, request.message.data) == Sent::kNoCredit) {
              }
            }
          }
        }) {}
  ~Echo() {
    stops_ = true;
    thread_.join();
  }

 private:
  std::atomic<bool> stops_ = false;
  std::thread thread_;
};

}  // namespace

TEST_CASE("replies end the calls that they answer, in whatever order they come", "[rpc]") {
  World world;
  RpcServer server = world.listen();
  RpcClient client = world.connect(server);
  CHECK(client.is_connected());
  const RpcCall first = begin(client, "one", 7);
  const RpcCall second = begin(client, "two", 8);
  CHECK(first != second);
  CHECK(client.pending() == 2);
  const RpcRequest one = next_request(world, server);
  const RpcRequest two = next_request(world, server);
  CHECK((one.method == 7 && two.method == 8));
  CHECK((text_of(one.message) == "one" && text_of(two.message) == "two"));
  CHECK((one.wants_reply && one.client == two.client));
  CHECK(server.address_of(one.client).ip == world.joined.a.gid());
  CHECK(server.reply(two, bytes_of("2")) == Sent::kOk);
  CHECK(server.refuse(one, bytes_of("no")) == Sent::kOk);
  const RpcReply to_second = next_end(client, server);
  CHECK((to_second.call == second && to_second.outcome == RpcOutcome::kReplied));
  CHECK(text_of(to_second.message) == "2");
  const RpcReply to_first = next_end(client, server);
  CHECK((to_first.call == first && to_first.outcome == RpcOutcome::kRefused));
  CHECK(text_of(to_first.message) == "no");
  client.release(to_first);
  client.release(to_second);
  CHECK(client.pending() == 0);
  CHECK((client.counts().calls == 2 && client.counts().replied == 2));
  CHECK((server.counts().requests == 2 && server.counts().replies == 2));
}

TEST_CASE("requests and replies are written where they are sent from", "[rpc]") {
  World world;
  RpcServer server = world.listen({.message_bytes = 100});
  RpcClient client = world.connect(server, {.message_bytes = 64});
  CHECK(client.max_message() == 64);
  std::span<std::byte> place;
  RpcCall call{};
  CHECK(client.commit(1, 0, kLong, call) == Sent::kTooLong);
  CHECK(client.claim(65, place) == Sent::kTooLong);
  REQUIRE(client.claim(64, place) == Sent::kOk);
  REQUIRE(place.size() == 64);
  std::ranges::fill(place, std::byte{'a'});
  CHECK(client.commit(1, 65, kLong, call) == Sent::kTooLong);
  REQUIRE(client.commit(1, 64, kLong, call) == Sent::kOk);
  CHECK(client.commit(1, 0, kLong, call) == Sent::kTooLong);
  const RpcRequest request = next_request(world, server);
  CHECK(text_of(request.message) == std::string(64, 'a'));
  CHECK(server.commit(request, 0) == Sent::kTooLong);
  CHECK(server.reply(request, bytes_of(std::string(65, 'b'))) == Sent::kTooLong);
  REQUIRE(server.claim(request, 64, place) == Sent::kOk);
  std::ranges::fill(place, std::byte{'b'});
  CHECK(server.commit(request, 65) == Sent::kTooLong);
  REQUIRE(server.commit(request, 3) == Sent::kOk);
  const RpcReply reply = next_end(client, server);
  CHECK(text_of(reply.message) == "bbb");
  client.release(reply);
}

TEST_CASE("a notice is told and not answered", "[rpc]") {
  World world;
  RpcServer server = world.listen();
  RpcClient client = world.connect(server);
  REQUIRE(client.notify(3, bytes_of("by the way")) == Sent::kOk);
  CHECK(client.pending() == 0);
  const RpcRequest notice = next_request(world, server);
  CHECK((!notice.wants_reply && notice.method == 3));
  CHECK(text_of(notice.message) == "by the way");
  CHECK(notice.time_left == std::chrono::nanoseconds::max());
  CHECK(server.reply(notice, bytes_of("what?")) == Sent::kOk);
  const RpcCall call = begin(client, "ping");
  CHECK(server.reply(next_request(world, server), {}) == Sent::kOk);
  const RpcReply reply = next_end(client, server);
  CHECK((reply.call == call && reply.message.data.empty()));
  client.release(reply);
  CHECK(server.counts().replies == 1);
}

TEST_CASE("a call whose time is over ends, and its reply is for no other call", "[rpc]") {
  World world;
  RpcServer server = world.listen();
  RpcClient client = world.connect(server, {.calls = 1});
  const RpcCall slow = begin(client, "slow", 1, 2ms);
  const RpcRequest late = next_request(world, server);
  CHECK((late.time_left > 0ns && late.time_left <= 2ms));
  const RpcReply given_up = next_end(client, server);
  CHECK((given_up.call == slow && given_up.outcome == RpcOutcome::kTimeout));
  client.release(given_up);
  const RpcCall next = begin(client, "next");
  CHECK(next != slow);
  CHECK(static_cast<std::uint32_t>(raw(next)) == static_cast<std::uint32_t>(raw(slow)));
  const RpcRequest second = next_request(world, server);
  CHECK(server.reply(late, bytes_of("too late")) == Sent::kOk);
  settle(client, server, [&] { return client.counts().late == 1; });
  CHECK(client.pending() == 1);
  // There is a credit for it once the late one is released.
  settle(client, server, [&] { return server.reply(second, bytes_of("in time")) == Sent::kOk; });
  const RpcReply reply = next_end(client, server);
  CHECK((reply.call == next && text_of(reply.message) == "in time"));
  client.release(reply);
  CHECK(client.counts().timeouts == 1);
}

TEST_CASE("calls end in time, each after its own", "[rpc]") {
  World world;
  RpcServer server = world.listen();
  RpcClient client = world.connect(server);
  const auto begun = Clock::now();
  const RpcCall longer = begin(client, "longer", 1, 1s);
  const RpcCall shorter = begin(client, "shorter", 1, 10ms);
  for (int i = 0; i < 2; ++i) (void)next_request(world, server);
  CHECK(next_end(client, server).call == shorter);
  CHECK(Clock::now() - begun >= 10ms);
  while (!client.wait(10s)) FAIL("nothing is due");
  CHECK(next_end(client, server).call == longer);
  CHECK(Clock::now() - begun >= 1s);
  CHECK(client.pending() == 0);
}

TEST_CASE("a call that is given up is not heard of", "[rpc]") {
  World world;
  RpcServer server = world.listen();
  RpcClient client = world.connect(server);
  const RpcCall call = begin(client, "never mind");
  CHECK(client.cancel(call));
  CHECK_FALSE(client.cancel(call));
  CHECK(client.pending() == 0);
  CHECK(server.reply(next_request(world, server), bytes_of("done")) == Sent::kOk);
  settle(client, server, [&] { return client.counts().late == 1; });
  CHECK(client.counts().cancelled == 1);
}

TEST_CASE("as many calls are under way as may be", "[rpc]") {
  World world;
  RpcServer server = world.listen();
  RpcClient client = world.connect(server, {.calls = 2});
  const RpcCall one = begin(client, "1");
  (void)begin(client, "2");
  RpcCall call{};
  CHECK(client.call(1, bytes_of("3"), kLong, call) == Sent::kNoSlot);
  CHECK(client.cancel(one));
  (void)begin(client, "3");
  for (const char* text : {"1", "2", "3"}) CHECK(text_of(next_request(world, server).message) == text);
}

TEST_CASE("a question waits for its answer, and leaves others' for poll()", "[rpc]") {
  const Mode mode = GENERATE(Mode::kApp, Mode::kAuto);
  World world(mode);
  RpcServer server = world.listen();
  RpcClient client = world.connect(server);
  RpcCall other{};
  {
    const Echo echo(server);
    const auto first = client.ask(1, bytes_of("first"), kLong);
    REQUIRE(first.has_value());
    CHECK(text_of(first->message) == "first");
    client.release(*first);
    REQUIRE(client.call(1, bytes_of("other"), kLong, other) == Sent::kOk);
    const auto second = client.ask(1, bytes_of("second"), kLong);
    REQUIRE(second.has_value());
    CHECK(text_of(second->message) == "second");
    client.release(*second);
    CHECK(client.ask(1, std::vector<std::byte>(4096), kLong).error().code == Errc::kInvalid);
  }
  const RpcReply reply = next_end(client, server);
  CHECK((reply.call == other && text_of(reply.message) == "other"));
  client.release(reply);
  CHECK(client.ask(1, bytes_of("nobody polls"), 5ms).error().code == Errc::kTimeout);
  CHECK(client.pending() == 0);
}

TEST_CASE("when a server goes, calls end, and the next server is found", "[rpc]") {
  World world;
  std::optional<RpcServer> server(world.listen());
  const std::uint16_t port = server->port();
  RpcClient client = world.connect(*server, {.longest_pause = 5ms});
  const RpcCall call = begin(client, "are you there?");
  (void)next_request(world, *server);
  server.reset();
  std::array<RpcReply, 1> ended;
  REQUIRE(within(20s, [&] { return client.poll(ended) == 1; }));
  CHECK((ended[0].call == call && ended[0].outcome == RpcOutcome::kEnded));
  client.release(ended[0]);
  CHECK_FALSE(client.is_connected());
  CHECK_FALSE(client.trouble().empty());
  RpcCall none{};
  CHECK(client.call(1, {}, kLong, none) == Sent::kEnded);
  CHECK(client.notify(1, {}) == Sent::kEnded);
  CHECK(client.ask(1, {}, 5ms).error().code == Errc::kTimeout);
  server.emplace(world.listen({.at = {.port = port}}));
  settle(client, *server, [&] { return client.max_message() > 0; });
  const RpcCall again = begin(client, "again");
  CHECK(again != call);
  CHECK(server->reply(next_request(world, *server), bytes_of("yes")) == Sent::kOk);
  const RpcReply reply = next_end(client, *server);
  CHECK((reply.call == again && text_of(reply.message) == "yes"));
  client.release(reply);
  CHECK((client.counts().connections == 2 && client.counts().ended == 1));
}

TEST_CASE("a client that does not connect again stays without", "[rpc]") {
  World world;
  std::optional<RpcServer> server(world.listen());
  const std::uint16_t port = server->port();
  RpcClient client = world.connect(*server, {.reconnects = false});
  server.reset();
  std::array<RpcReply, 1> none;
  REQUIRE(within(20s, [&] {
    CHECK(client.poll(none) == 0);
    return !client.is_connected();
  }));
  server.emplace(world.listen({.at = {.port = port}}));
  CHECK_FALSE(client.wait(20ms));
  CHECK(client.poll(none) == 0);
  CHECK(client.ask(1, {}, kLong).error().code == Errc::kPeer);
  CHECK(client.counts().connections == 1);
}

TEST_CASE("a reply stays until it is released, also when its connection is over", "[rpc]") {
  World world;
  std::optional<RpcServer> server(world.listen());
  const std::uint16_t port = server->port();
  RpcClient client = world.connect(*server, {.longest_pause = 5ms});
  (void)begin(client, "keep");
  CHECK(server->reply(next_request(world, *server), bytes_of("this")) == Sent::kOk);
  const RpcReply kept = next_end(client, *server);
  server.reset();
  server.emplace(world.listen({.at = {.port = port}}));
  settle(client, *server, [&] { return !client.is_connected(); });
  for (int i = 0; i < 1000; ++i) settle(client, *server, [] { return true; });
  CHECK_FALSE(client.is_connected());
  CHECK(text_of(kept.message) == "this");
  client.release(kept);
  settle(client, *server, [&] { return client.is_connected(); });
}

TEST_CASE("a client that is gone with open requests leaves nothing behind", "[rpc]") {
  World world;
  RpcServer server = world.listen();
  std::optional<RpcClient> client(world.connect(server));
  for (int i = 0; i < 3; ++i) (void)begin(*client, "x");
  std::vector<RpcRequest> requests;
  for (int i = 0; i < 3; ++i) requests.push_back(next_request(world, server));
  CHECK(server.clients() == 1);
  client.reset();
  settle_server(world, server, [&] { return server.clients() == 0; });
  CHECK(text_of(requests[0].message) == "x");
  CHECK(server.address_of(requests[0].client) != CmAddress{});
  std::span<std::byte> place;
  CHECK(server.reply(requests[0], bytes_of("x")) == Sent::kEnded);
  CHECK(server.claim(requests[1], 1, place) == Sent::kEnded);
  server.release(requests[2]);
  settle_server(world, server, [&] { return server.address_of(requests[0].client) == CmAddress{}; });
  CHECK(server.counts().lost == 2);
  RpcClient next = world.connect(server);
  (void)begin(next, "y");
  CHECK(server.reply(next_request(world, server), bytes_of("z")) == Sent::kOk);
  next.release(next_end(next, server));
}

TEST_CASE("a server has many clients, each with its own replies, and no more than it may", "[rpc]") {
  World world;
  RpcServer server = world.listen({.requests = 4, .clients = 20});
  std::vector<RpcClient> clients;
  for (int i = 0; i < 20; ++i) clients.push_back(world.connect(server, {.calls = 4}));
  CHECK(server.clients() == 20);
  const auto refused = world.try_connect(server);
  REQUIRE_FALSE(refused.has_value());
  CHECK(refused.error().code == Errc::kPeer);
  CHECK(refused.error().text ==
        to_string(world.at(server)) + " refused the connection: it has as many clients as it may have");
  CHECK(server.counts().refused == 1);
  for (std::size_t i = 0; i < clients.size(); ++i) (void)begin(clients[i], std::to_string(i));
  for (std::size_t i = 0; i < clients.size(); ++i) {
    const RpcRequest request = next_request(world, server);
    CHECK(server.reply(request, bytes_of("re " + text_of(request.message))) == Sent::kOk);
  }
  for (std::size_t i = 0; i < clients.size(); ++i) {
    const RpcReply reply = next_end(clients[i], server);
    CHECK(text_of(reply.message) == "re " + std::to_string(i));
    clients[i].release(reply);
  }
}

TEST_CASE("a server takes calls only, and a client replies only", "[rpc]") {
  World world;
  SECTION("a connection of another kind is refused") {
    RpcServer server = world.listen();
    MessageChannel channel = must(MessageChannel::create(world.joined.a.pd, world.joined.a.device));
    std::atomic<bool> is_done = false;
    bool is_refused = false;
    std::thread thread([&] {
      const auto made = Connection::connect(world.cm_a, channel.qp(), {.to = world.at(server)});
      is_refused = !made && made.error().code == Errc::kPeer;
      is_done = true;
    });
    std::array<RpcRequest, 1> none;
    while (!is_done) CHECK(server.poll(none) == 0);
    thread.join();
    CHECK(is_refused);
    CHECK(server.counts().refused == 1);
  }
  SECTION("a listener of another kind is told") {
    Listener listener = must(Listener::create(world.cm_b, {}));
    MessageChannel channel = must(MessageChannel::create(world.joined.b.pd, world.joined.b.device));
    std::thread thread([&] {
      auto request = listener.wait(20s);
      if (request.has_value()) (void)request->accept(channel.qp(), {});
    });
    const auto made =
        RpcClient::connect(world.cm_a, world.joined.a.pd, {.to = {world.joined.b.gid(), listener.port()}});
    thread.join();
    REQUIRE_FALSE(made.has_value());
    CHECK(made.error().code == Errc::kPeer);
  }
  SECTION("nobody is told") {
    const auto made = RpcClient::connect(world.cm_a, world.joined.a.pd, {.to = {world.joined.b.gid(), 9}});
    REQUIRE_FALSE(made.has_value());
    CHECK(made.error().code == Errc::kPeer);
  }
  SECTION("attributes that cannot be are told") {
    auto& pd = world.joined.a.pd;
    const CmAddress to{world.joined.b.gid(), 9};
    CHECK(RpcClient::connect(world.cm_a, pd, {.to = to, .calls = 0}).error().code == Errc::kInvalid);
    CHECK(RpcClient::connect(world.cm_a, pd, {.to = to, .message_bytes = ~0U}).error().code ==
          Errc::kInvalid);
    CHECK(RpcClient::connect(world.cm_a, pd, {.to = to, .pause = 5ms, .longest_pause = 1ms}).error().code ==
          Errc::kInvalid);
    CHECK(RpcServer::listen(world.cm_a, pd, {.clients = 0}).error().code == Errc::kInvalid);
    CHECK(RpcServer::listen(world.cm_a, pd, {.message_bytes = ~0U}).error().code == Errc::kInvalid);
    CHECK(RpcServer::listen(world.cm_a, pd, {.requests = 0}).error().code == Errc::kInvalid);
  }
}

TEST_CASE("a client that finds its server without room for it is told, and dials again", "[rpc]") {
  World world;
  std::optional<RpcServer> server(world.listen({.clients = 1}));
  const std::uint16_t port = server->port();
  RpcClient client = world.connect(*server, {.longest_pause = 5ms});
  server.reset();
  std::array<RpcReply, 1> none;
  REQUIRE(within(20s, [&] { return client.poll(none) == 0 && !client.is_connected(); }));
  server.emplace(world.listen({.at = {.port = port}, .clients = 1}));
  std::optional<RpcClient> other;
  REQUIRE(within(20s, [&] {
    if (auto made = world.try_connect(*server)) other.emplace(std::move(*made));
    return other.has_value();
  }));
  const std::string why = "it has as many clients as it may have";
  settle(client, *server, [&] { return client.trouble().ends_with(why); });
  other.reset();
  settle(client, *server, [&] { return client.is_connected(); });
}

TEST_CASE("what a listener of another kind says when it refuses is not taken for words", "[rpc]") {
  const std::string said = GENERATE("\1\2\3", "uroce rpc 1", "uroce rpc 1\x01\xff", "uroce rpc 2no");
  World world;
  Listener listener = must(Listener::create(world.cm_b, {}));
  std::thread thread([&] {
    if (auto request = listener.wait(20s)) request->reject(bytes_of(said));
  });
  const CmAddress to{world.joined.b.gid(), listener.port()};
  const auto made = RpcClient::connect(world.cm_a, world.joined.a.pd, {.to = to});
  thread.join();
  REQUIRE_FALSE(made.has_value());
  CHECK(made.error().text ==
        to_string(to) + " refused the connection: " + std::string(to_string(CmReject::kConsumer)));
}

TEST_CASE("messages that are no requests are counted, and the next request is served", "[rpc]") {
  World world;
  RpcServer server = world.listen();
  Stranger stranger(world, server);
  MessageChannel& channel = stranger.channel;
  std::array<RpcRequest, 1> none;
  std::array<Message, 1> message;
  std::array<std::byte, 20> text{};
  text[15] = std::byte{5};  // the call
  for (const int kind : {0, 3, 4, 5, 255}) {
    text[0] = std::byte(kind);
    CHECK(channel.send(text) == Sent::kOk);
  }
  text[0] = std::byte{1};
  CHECK(channel.send(std::span(text).first(15)) == Sent::kOk);
  CHECK(channel.send({}) == Sent::kOk);
  CHECK(channel.send(text) == Sent::kOk);
  const RpcRequest request = next_request(world, server);
  CHECK(server.counts().malformed == 7);
  CHECK((request.message.data.size() == 4 && raw(request.call) == 5));
  CHECK(server.reply(request, {}) == Sent::kOk);
  REQUIRE(within(20s, [&] {
    CHECK(server.poll(none) == 0);
    return channel.poll(message) == 1;
  }));
  CHECK(message[0].data.size() == 16);
}

TEST_CASE("messages that are no replies are counted, and end no call", "[rpc]") {
  World world;
  Listener listener = must(Listener::create(world.cm_b, {}));
  MessageChannel channel = must(MessageChannel::create(world.joined.b.pd, world.joined.b.device));
  std::optional<Connection> connection;
  std::thread thread([&] {
    auto request = listener.wait(20s);
    if (!request.has_value()) return;
    auto made = request->accept(channel.qp(), {.private_data = bytes_of("uroce rpc 1")});
    if (made) connection.emplace(std::move(*made));
  });
  RpcClient client = must(
      RpcClient::connect(world.cm_a, world.joined.a.pd, {.to = {world.joined.b.gid(), listener.port()}}));
  thread.join();
  REQUIRE(connection.has_value());
  std::array<Message, 1> message;
  std::array<RpcReply, 1> reply;
  RpcCall call{};
  REQUIRE(within(20s, [&] {
    CHECK(channel.poll(message) + client.poll(reply) == 0);
    return channel.credits() > 0 && client.call(1, bytes_of("?"), kLong, call) == Sent::kOk;
  }));
  std::array<std::byte, 16> text{};
  for (const int kind : {0, 1, 2, 5}) {
    text[0] = std::byte(kind);
    CHECK(channel.send(text) == Sent::kOk);
  }
  text[0] = std::byte{3};
  for (const std::size_t at : {8U, 11U, 12U}) {  // no such generation, no such slot
    std::array<std::byte, 16> other = text;
    other[at] = std::byte{0x80};
    CHECK(channel.send(other) == Sent::kOk);
  }
  REQUIRE(within(20s, [&] {
    CHECK(channel.poll(message) <= 1);
    CHECK(client.poll(reply) == 0);
    return client.counts().malformed == 4 && client.counts().late == 3;
  }));
  CHECK(client.pending() == 1);
}

namespace {

/// Calls at random, whose replies come later, in another order or never.
struct Chaos {
  World& world;
  RpcServer& server;
  RpcClient& client;
  std::mt19937 random;
  std::map<RpcCall, std::uint32_t> open{};  // what was asked
  std::deque<RpcRequest> held{};
  std::vector<RpcReply> replies{};
  std::uint32_t asked = 0;
  std::uint64_t ended = 0;

  void ask() {
    RpcCall call{};
    const auto timeout = random() % 8 == 0 ? std::chrono::nanoseconds(1ms) : kLong;
    const std::uint32_t text = ++asked;
    if (client.call(1, std::as_bytes(std::span(&text, 1)), timeout, call) != Sent::kOk) return;
    REQUIRE(open.emplace(call, text).second);
    if (random() % 16 == 0) {
      REQUIRE(client.cancel(call));
      open.erase(call);
    }
  }
  void serve() {
    std::array<RpcRequest, 3> requests;
    for (const auto& one : std::span(requests).first(server.poll(requests))) held.push_back(one);
    if (held.empty()) return;
    const auto which = held.begin() + static_cast<std::ptrdiff_t>(random() % held.size());
    if (which->time_left < 1s && random() % 4 == 0) {
      server.release(*which);
    } else if (server.reply(*which, which->message.data) != Sent::kOk) {
      return;
    }
    held.erase(which);
  }
  void hear() {
    std::array<RpcReply, 3> some;
    for (const auto& reply : std::span(some).first(client.poll(some))) {
      const auto known = open.find(reply.call);
      REQUIRE(known != open.end());
      if (reply.outcome == RpcOutcome::kReplied) {
        std::uint32_t text = 0;
        REQUIRE(reply.message.data.size() == sizeof text);
        std::memcpy(&text, reply.message.data.data(), sizeof text);
        REQUIRE(text == known->second);
        replies.push_back(reply);
      } else {
        REQUIRE(reply.outcome == RpcOutcome::kTimeout);
      }
      open.erase(known);
      ++ended;
    }
    if (replies.empty() || random() % 2 == 0) return;
    client.release(replies.back());
    replies.pop_back();
  }
};

}  // namespace

TEST_CASE("each call ends once, with its own reply, whatever is lost and late", "[rpc]") {
  const std::string fault = GENERATE("", "loss=2%,dup=2%,reorder=2%");
  const auto seed = static_cast<unsigned>(Clock::now().time_since_epoch().count());
  INFO("seed " << seed);
  World world(Mode::kApp, fault);
  RpcServer server = world.listen({.requests = 5});
  RpcClient client = world.connect(server, {.calls = 7});
  Chaos chaos{.world = world, .server = server, .client = client, .random = std::mt19937(seed)};
  REQUIRE(within(60s, [&] {
    switch (chaos.random() % 3) {
      case 0:
        chaos.ask();
        break;
      case 1:
        chaos.serve();
        break;
      default:
        chaos.hear();
    }
    return chaos.ended >= 3000;
  }));
  const RpcClientCounts& counts = client.counts();
  CHECK(counts.calls == chaos.ended + counts.cancelled + client.pending());
  CHECK(counts.replied + counts.timeouts >= chaos.ended);  // some may not have been told yet
  CHECK((counts.timeouts > 0 && counts.replied > 1000 && counts.cancelled > 0));
  CHECK((counts.malformed == 0 && server.counts().malformed == 0 && counts.connections == 1));
}

TEST_CASE("a server that waits is woken by clients and by requests", "[rpc]") {
  const Mode mode = GENERATE(Mode::kApp, Mode::kAuto);
  World world(mode);
  RpcServer server = world.listen();
  CHECK_FALSE(server.wait(1ms));
  std::atomic<bool> is_done = false;
  int replies = 0;
  std::thread thread([&] {
    auto client = RpcClient::connect(world.cm_a, world.joined.a.pd, {.to = world.at(server)});
    for (int i = 0; client && i < 20; ++i) {
      const auto reply = client->ask(1, bytes_of("x"), kLong);
      if (!reply) break;
      client->release(*reply);
      ++replies;
    }
    is_done = true;
  });
  std::array<RpcRequest, 4> requests;
  while (server.counts().replies < 20) {
    REQUIRE(server.wait(20s));
    for (const RpcRequest& request : std::span(requests).first(server.poll(requests)))
      CHECK(server.reply(request, request.message.data) == Sent::kOk);
  }
  while (!is_done) CHECK(server.poll(requests) == 0);
  thread.join();
  CHECK(replies == 20);
  int news = 0;  // each told once
  for (; news < 100 && server.wait(1ms); ++news) CHECK(server.poll(requests) == 0);
  CHECK(news < 100);
}

}  // namespace uroce::api
