// Calls at their limits: peers that break the rules, storms of clients, times that are none.
#include <algorithm>
#include <array>
#include <atomic>
#include <limits>
#include <optional>
#include <thread>
#include <vector>

#include "api/rpc_world.h"
#include "base/endian.h"
#include "support/no_descriptors.h"

namespace uroce::api {
namespace {

constexpr std::size_t kMost = std::numeric_limits<std::size_t>::max();

std::uint64_t value_of(const std::vector<Counter>& counters, std::string_view name) {
  const auto known = std::ranges::find(counters, name, &Counter::name);
  REQUIRE(known != counters.end());
  return known->value;
}

/// Both devices go on until the manager of the server has had `count` datagrams more than `before`.
void hear(World& world, std::uint64_t before, std::uint64_t count) {
  REQUIRE(within(20s, [&] {
    world.joined.a.device.progress();
    world.joined.b.device.progress();
    return value_of(world.cm_b.counters(), "cm_received") >= before + count;
  }));
}

std::uint64_t heard(const World& world) {
  return value_of(world.cm_b.counters(), "cm_received");
}

}  // namespace

TEST_CASE("an answer to a notice that is written in two steps is sent to nobody", "[rpc]") {
  World world;
  RpcServer server = world.listen();
  RpcClient client = world.connect(server);
  (void)begin(client, "the first call");
  REQUIRE(client.notify(2, bytes_of("by the way")) == Sent::kOk);
  const RpcRequest request = next_request(world, server);
  const RpcRequest notice = next_request(world, server);
  std::span<std::byte> place;
  REQUIRE(server.claim(notice, 4, place) == Sent::kOk);
  CHECK(server.commit(notice, 4) == Sent::kOk);
  CHECK(server.reply(request, bytes_of("yes")) == Sent::kOk);
  const RpcReply reply = next_end(client, server);
  CHECK(text_of(reply.message) == "yes");
  client.release(reply);
  CHECK(client.counts().late == 0);
  CHECK(server.counts().replies == 1);
}

TEST_CASE("lengths beyond all memory are too long", "[rpc]") {
  World world;
  RpcServer server = world.listen();
  RpcClient client = world.connect(server);
  std::span<std::byte> place;
  RpcCall call{};
  for (const std::size_t bytes : {kMost, kMost - 7, kMost - 15}) {
    CHECK(client.claim(bytes, place) == Sent::kTooLong);
    REQUIRE(client.claim(8, place) == Sent::kOk);
    CHECK(client.commit(1, bytes, kLong, call) == Sent::kTooLong);
  }
  (void)begin(client, "x");
  const RpcRequest request = next_request(world, server);
  for (const std::size_t bytes : {kMost, kMost - 7, kMost - 15}) {
    CHECK(server.claim(request, bytes, place) == Sent::kTooLong);
    REQUIRE(server.claim(request, 8, place) == Sent::kOk);
    CHECK(server.commit(request, bytes) == Sent::kTooLong);
  }
  server.release(request);
}

namespace {

/// A client that has claimed a place, and whose server has gone since.
struct ClaimedBefore {
  ClaimedBefore() {
    REQUIRE(client.claim(8, place) == Sent::kOk);
    server.reset();
    std::array<RpcReply, 1> none;
    REQUIRE(within(20s, [&] { return client.poll(none) == 0 && !client.is_connected(); }));
  }
  World world;
  std::optional<RpcServer> server{world.listen()};
  std::uint16_t port = server->port();
  RpcClient client = world.connect(*server, {.longest_pause = 5ms});
  std::span<std::byte> place{};
};

}  // namespace

TEST_CASE("a place that was claimed is none any more when the connection is over", "[rpc]") {
  ClaimedBefore it;
  auto& [world, server, port, client, place] = it;
  RpcCall call{};
  std::ranges::fill(place, std::byte{1});  // who does not know yet may write there
  CHECK(client.commit(1, 8, kLong, call) == Sent::kEnded);
  CHECK(client.claim(8, place) == Sent::kEnded);
  server.emplace(world.listen({.at = {.port = port}}));
  settle(client, *server, [&] { return client.max_message() > 0; });
  CHECK(client.commit(1, 8, kLong, call) == Sent::kTooLong);
  CHECK(client.pending() == 0);
}

TEST_CASE("a place that was claimed is of its own connection, also when there is the next one", "[rpc]") {
  ClaimedBefore it;
  auto& [world, server, port, client, place] = it;
  RpcCall call{};
  server.emplace(world.listen({.at = {.port = port}}));
  settle(client, *server, [&] { return client.is_connected() && client.max_message() > 0; });
  std::ranges::fill(place, std::byte{1});
  CHECK(client.commit(1, 8, kLong, call) == Sent::kEnded);
  REQUIRE(client.claim(8, place) == Sent::kOk);
  CHECK(client.commit(1, 8, kLong, call) == Sent::kOk);
  CHECK(client.pending() == 1);
}

TEST_CASE("what had arrived before a client went is told", "[rpc]") {
  World world;
  RpcServer server = world.listen();
  std::optional<RpcClient> client(world.connect(server, {}));
  settle(*client, server, [&] { return client->max_message() > 0 && server.clients() == 1; });
  constexpr std::uint64_t kNotices = 20;
  const auto arrived = [&] { return value_of(world.joined.b.device.counters(), "rx_roce"); };
  const std::uint64_t wanted = arrived() + kNotices;
  for (std::uint64_t i = 0; i < kNotices; ++i) REQUIRE(client->notify(1, {}) == Sent::kOk);
  const std::uint64_t before = heard(world);
  REQUIRE(within(20s, [&] {  // while the server is busy with something else
    world.joined.a.device.progress();
    world.joined.b.device.progress();
    return arrived() >= wanted;
  }));
  client.reset();
  hear(world, before, 1);  // the DREQ
  std::array<RpcRequest, 4> requests;
  REQUIRE(within(20s, [&] {
    const std::size_t count = server.poll(requests);
    for (const RpcRequest& one : std::span(requests).first(count)) CHECK(server.release(one));
    return server.counts().requests == kNotices;
  }));
  CHECK(server.clients() == 0);
}

TEST_CASE("who comes when another one has just gone finds room", "[rpc]") {
  World world;
  RpcServer server = world.listen({.clients = 1});
  std::optional<RpcClient> client(world.connect(server, {}));
  settle(*client, server, [&] { return server.clients() == 1; });
  std::optional<Result<RpcClient>> next;
  const std::uint64_t before = heard(world);
  std::atomic<bool> is_done = false;
  std::thread thread([&] {
    client.reset();
    next.emplace(RpcClient::connect(world.cm_a, world.joined.a.pd, {.to = world.at(server)}));
    is_done = true;
  });
  hear(world, before, 2);  // the DREQ, and the next REQ
  std::array<RpcRequest, 1> none;
  while (!is_done) CHECK(server.poll(none) == 0);
  thread.join();
  CHECK(next->has_value());
  CHECK(server.counts().refused == 0);
}

TEST_CASE("a WRITE with immediate data is no message, and ends the connection", "[rpc]") {
  World world;
  RpcServer server = world.listen({.message_bytes = 64});
  Stranger stranger(world, server);
  const Mr target = must(Mr::alloc(world.joined.b.pd, 4096, access::kLocalWrite | access::kRemoteWrite));
  const Mr source = must(Mr::alloc(world.joined.a.pd, 4096, access::kLocalWrite));
  const Sge all = source.sge(0, 4096);
  REQUIRE(stranger.channel.qp().post_send({.wr_id = 1,
                                           .sges = {&all, 1},
                                           .opcode = WrOpcode::kRdmaWriteWithImm,
                                           .imm_data = network_order(std::uint32_t{256}),
                                           .remote_addr = target.addr(),
                                           .rkey = target.rkey()}));
  std::array<RpcRequest, 1> none;
  REQUIRE(within(20s, [&] {
    world.joined.a.device.progress();
    CHECK(server.poll(none) == 0);
    return server.clients() == 0;
  }));
  CHECK(server.counts().malformed == 0);
}

TEST_CASE("messages that are no requests take no room", "[rpc]") {
  World world;
  RpcServer server = world.listen({.requests = 2});
  Stranger stranger(world, server);
  std::array<RpcRequest, 1> no_request;
  std::array<Message, 1> no_message;
  const std::array<std::byte, 20> text{};
  for (int i = 0; i < 10; ++i) {
    REQUIRE(within(20s, [&] {
      CHECK(stranger.channel.poll(no_message) + server.poll(no_request) == 0);
      return stranger.channel.send(text) == Sent::kOk;
    }));
  }
}

TEST_CASE("who has no descriptor to wait with looks by itself", "[rpc]") {
  World world(Mode::kAuto);
  std::optional<RpcServer> server(world.listen());
  RpcClient client = world.connect(*server, {.longest_pause = 5ms});
  std::atomic<bool> runs = false;
  std::atomic<bool> waits = false;
  std::atomic<bool> stops = false;
  const auto begun = Clock::now();
  const auto await_thread = [&] {
    while (!runs) std::this_thread::yield();
  };
  SECTION("a server, for requests") {
    std::thread thread([&] {
      runs = true;
      while (!waits) std::this_thread::yield();
      for (int i = 0; i < 100; ++i) std::this_thread::yield();
      RpcCall call{};
      (void)client.call(1, {}, kLong, call);
      while (!stops) std::this_thread::yield();
    });
    std::array<RpcRequest, 1> request;
    await_thread();
    (void)test::errno_without_descriptors([&] {
      for (waits = true; server->poll(request) == 0;) (void)server->wait(40s);
      return true;
    });
    stops = true;
    thread.join();
  }
  SECTION("a client, for its connection") {
    const std::uint16_t port = server->port();
    server.reset();
    std::array<RpcReply, 1> reply;
    REQUIRE(within(20s, [&] { return client.poll(reply) == 0 && !client.is_connected(); }));
    server.emplace(world.listen({.at = {.port = port}}));
    std::thread thread([&] {
      std::array<RpcRequest, 1> request;
      runs = true;
      while (!stops) (void)server->poll(request);
    });
    await_thread();
    (void)test::errno_without_descriptors([&] {
      for (; !client.is_connected(); (void)client.poll(reply)) (void)client.wait(40s);
      return true;
    });
    stops = true;
    thread.join();
  }
  CHECK(Clock::now() - begun < 30s);
}

TEST_CASE("clients that come and go leave room for what another one has sent", "[rpc]") {
  World world;
  RpcServer server = world.listen({.requests = 16, .clients = 4});
  RpcClient client = world.connect(server, {.calls = 16});
  for (int i = 0; i < 12; ++i) (void)begin(client, "x");
  std::vector<RpcRequest> requests;
  std::array<RpcRequest, 1> one;
  const auto poll_once = [&] {
    if (server.poll(one) == 1) requests.push_back(one[0]);
  };
  for (int i = 0; i < 5; ++i) {  // a request is taken with each event
    MessageChannel channel =
        must(MessageChannel::create(world.joined.a.pd, world.joined.a.device, {.sends = 1, .receives = 1}));
    CmChannel events = must(CmChannel::create(world.cm_a));
    const CmId id = must(events.create_id(PortSpace::kTcp));
    std::uint64_t before = heard(world);
    REQUIRE(
        events.connect(id, {.to = world.at(server), .private_data = bytes_of("uroce rpc 1")}, &channel.qp()));
    hear(world, before, 1);
    poll_once();
    CmEvent event;
    unsigned looks = 0;
    REQUIRE(within(20s, [&] {
      world.joined.a.device.progress();
      world.joined.b.device.progress();
      if (++looks % 100'000 == 0) poll_once();  // what had been heard was something else
      return events.next(event);
    }));
    REQUIRE(event.type == CmEventType::kEstablished);
    REQUIRE(events.disconnect(id));
    hear(world, before, 3);  // that it was established, too
    poll_once();
  }
  for (int i = 0; i < 4; ++i) (void)begin(client, "x");
  for (int i = 0; i < 1000; ++i) {  // they arrive behind all that
    world.joined.a.device.progress();
    world.joined.b.device.progress();
  }
  REQUIRE(within(20s, [&] {
    world.joined.a.device.progress();
    poll_once();
    return requests.size() == 16 || server.clients() == 0;
  }));
  REQUIRE(requests.size() == 16);
  for (const RpcRequest& request : requests) CHECK(server.reply(request, {}) == Sent::kOk);
  for (int i = 0; i < 16; ++i) CHECK(next_end(client, server).outcome == RpcOutcome::kReplied);
  settle(client, server, [&] { return server.clients() == 1; });
}

TEST_CASE("a client that does not take its connection leaves its place to another one", "[rpc]") {
  World world;
  RpcServer server = world.listen({.clients = 1});
  CmChannel events = must(CmChannel::create(world.cm_a));
  const CmId id = must(events.create_id(PortSpace::kTcp));
  REQUIRE(events.connect(
      id, {.to = world.at(server), .terms = {.qpn = Qpn{100}}, .private_data = bytes_of("uroce rpc 1")}));
  std::array<RpcRequest, 1> none;
  CmEvent event;
  REQUIRE(within(20s, [&] {
    world.joined.a.device.progress();
    CHECK(server.poll(none) == 0);
    return events.next(event);
  }));
  REQUIRE(event.type == CmEventType::kConnectReply);
  REQUIRE(events.reject(id));
  std::optional<RpcClient> other;
  REQUIRE(within(20s, [&] {
    if (auto made = world.try_connect(server); made) other.emplace(std::move(*made));
    return other.has_value();
  }));
  settle(*other, server, [&] { return server.clients() == 1; });
}

TEST_CASE("a storm of clients does not keep a server from requests", "[rpc]") {
  World world;
  RpcServer server = world.listen();
  CmChannel events = must(CmChannel::create(world.cm_a));
  const std::uint64_t before = heard(world);
  constexpr std::uint32_t kStrangers = 40;
  for (std::uint32_t i = 0; i < kStrangers; ++i) {
    REQUIRE(events.connect(must(events.create_id(PortSpace::kTcp)),
                           {.to = world.at(server), .terms = {.qpn = Qpn{100 + i}}}));
  }
  hear(world, before, kStrangers);
  std::array<RpcRequest, 1> none;
  CHECK(server.poll(none) == 0);
  CHECK(server.counts().refused > 0);
  CHECK(server.counts().refused < kStrangers);
  REQUIRE(within(20s, [&] {
    CHECK(server.poll(none) == 0);
    return server.counts().refused == kStrangers;
  }));
  REQUIRE(within(20s, [&] {  // nothing is left of them
    CHECK(server.poll(none) == 0);
    return world.cm_b.ids() == 1;
  }));
}

TEST_CASE("a client waits as long as it was told, also where that is less than a millisecond", "[rpc]") {
  World world(Mode::kAuto);
  RpcServer server = world.listen();
  RpcClient client = world.connect(server);
  std::array<RpcReply, 1> none;
  auto begun = Clock::now();
  REQUIRE(within(20s, [&] {
    CHECK(client.poll(none) == 0);
    begun = Clock::now();
    return !client.wait(800us);
  }));
  CHECK(Clock::now() - begun >= 800us);
}

TEST_CASE("a question that there is no room for sleeps meanwhile", "[rpc]") {
  World world(Mode::kAuto);
  RpcServer server = world.listen();
  RpcClient client = world.connect(server, {.calls = 1});
  (void)begin(client, "x");
  const bool has_ended = GENERATE(false, true);  // and poll() has not told it
  if (has_ended) CHECK(server.reply(next_request(world, server), {}) == Sent::kOk);
  const auto sleeps = [] {
    rusage usage{};
    REQUIRE(getrusage(RUSAGE_THREAD, &usage) == 0);
    return usage.ru_nvcsw;
  };
  bool has_slept = false;  // in one of a few attempts: the time may be over when a busy machine lets it look
  for (int attempt = 0; attempt < 5 && !has_slept; ++attempt) {
    const auto before = sleeps();
    CHECK(client.ask(1, {}, 50ms).error().code == Errc::kTimeout);
    has_slept = sleeps() > before;
  }
  CHECK(has_slept);
}

TEST_CASE("attempts to connect become rarer, also where the first is made at once", "[rpc]") {
  World world;
  std::optional<RpcServer> server(world.listen());
  RpcClient client = world.connect(*server, {.pause = 0ms});
  server.reset();
  std::array<RpcReply, 1> none;
  const auto refused = [&] { return value_of(world.cm_b.counters(), "cm_rejected"); };
  const std::uint64_t before = refused();
  const auto begun = Clock::now();
  REQUIRE(within(20s, [&] {
    CHECK(client.poll(none) == 0);
    return refused() >= before + 11;
  }));
  CHECK(Clock::now() - begun >= 600ms);
}

TEST_CASE("a question to whom the connection has ended is told why", "[rpc]") {
  World world;
  std::optional<RpcServer> server(world.listen());
  RpcClient client = world.connect(*server, {.calls = 1, .reconnects = false});
  server.reset();
  REQUIRE(within(20s, [&] {
    world.joined.a.device.progress();
    return client.notify(1, {}) == Sent::kEnded;
  }));
  CHECK(client.is_connected());
  CHECK_FALSE(client.ask(1, {}, 0ns).error().text.empty());
  const auto reply = client.ask(1, {}, kLong);
  REQUIRE_FALSE(reply.has_value());
  CHECK(reply.error().code == Errc::kPeer);
  CHECK_FALSE(reply.error().text.empty());
}

TEST_CASE("a client whose server answers and ends loses no time the next time", "[rpc]") {
  World world;
  std::optional<RpcServer> server(world.listen());
  const std::uint16_t port = server->port();
  RpcClient client = world.connect(*server, {.longest_pause = 1h});
  const auto refused = [&] { return value_of(world.cm_b.counters(), "cm_rejected"); };
  std::array<RpcReply, 1> none;
  for (std::uint64_t i = 0; i < 16; ++i) {  // twice the pause each time would be a minute in all
    (void)begin(client, "x");
    CHECK(server->reply(next_request(world, *server), {}) == Sent::kOk);
    client.release(next_end(client, *server));
    server.reset();
    const std::uint64_t before = refused();
    REQUIRE(within(20s, [&] {
      CHECK(client.poll(none) == 0);
      return refused() >= before + (i == 0 ? 3 : 0);
    }));
    server.emplace(world.listen({.at = {.port = port}}));
    settle(client, *server, [&] { return client.counts().connections == i + 2 && client.max_message() > 0; });
  }
}

TEST_CASE("a request is answered or released once", "[rpc]") {
  World world;
  RpcServer server = world.listen();
  RpcClient client = world.connect(server);
  (void)begin(client, "first");
  REQUIRE(client.notify(2, bytes_of("by the way")) == Sent::kOk);
  (void)begin(client, "second");
  const RpcRequest first = next_request(world, server);
  const RpcRequest notice = next_request(world, server);
  const RpcRequest second = next_request(world, server);
  std::span<std::byte> place;
  CHECK(server.reply(first, bytes_of("1")) == Sent::kOk);
  CHECK(server.reply(notice, {}) == Sent::kOk);
  for (const RpcRequest& done : {first, notice}) {
    CHECK(server.reply(done, bytes_of("again")) == Sent::kAnswered);
    CHECK(server.refuse(done) == Sent::kAnswered);
    CHECK(server.claim(done, 1, place) == Sent::kAnswered);
    CHECK(server.commit(done, 0) == Sent::kAnswered);
    CHECK_FALSE(server.release(done));
  }
  CHECK(text_of(second.message) == "second");
  REQUIRE(server.claim(second, 1, place) == Sent::kOk);
  CHECK(server.release(second));
  CHECK(server.commit(second, 1) == Sent::kAnswered);
  CHECK_FALSE(server.release(second));
  CHECK(text_of(next_end(client, server).message) == "1");
  settle(client, server, [&] { return client.pending() == 1; });
  CHECK((server.counts().replies == 1 && server.counts().lost == 0));
}

TEST_CASE("a request of a client that is gone is answered or released once", "[rpc]") {
  World world;
  RpcServer server = world.listen();
  std::optional<RpcClient> client(world.connect(server));
  for (int i = 0; i < 2; ++i) (void)begin(*client, "x");
  const RpcRequest first = next_request(world, server);
  const RpcRequest second = next_request(world, server);
  client.reset();
  settle_server(world, server, [&] { return server.clients() == 0; });
  CHECK(server.reply(first, {}) == Sent::kEnded);
  CHECK(server.reply(first, {}) == Sent::kAnswered);
  CHECK_FALSE(server.release(first));
  CHECK(server.address_of(second.client) != CmAddress{});
  CHECK(server.release(second));
  settle_server(world, server, [&] { return server.address_of(second.client) == CmAddress{}; });
  CHECK_FALSE(server.release(second));
  CHECK(server.reply(second, {}) == Sent::kAnswered);
  CHECK(server.counts().lost == 1);
}

TEST_CASE("a reply is released once, also when the next connection has one in its place", "[rpc]") {
  World world;
  std::optional<RpcServer> server(world.listen());
  const std::uint16_t port = server->port();
  RpcClient client = world.connect(*server, {.longest_pause = 5ms});
  const auto ask = [&](const char* text) {
    (void)begin(client, text);
    CHECK(server->reply(next_request(world, *server), bytes_of(text)) == Sent::kOk);
    return next_end(client, *server);
  };
  const RpcReply old = ask("old");
  CHECK(client.release(old));
  CHECK_FALSE(client.release(old));
  server.reset();
  std::array<RpcReply, 1> none;
  REQUIRE(within(20s, [&] { return client.poll(none) == 0 && !client.is_connected(); }));
  CHECK_FALSE(client.release(old));
  server.emplace(world.listen({.at = {.port = port}}));
  settle(client, *server, [&] { return client.max_message() > 0; });
  const RpcReply kept = ask("kept");
  CHECK((kept.message.slot == old.message.slot && kept.message.number == old.message.number));
  CHECK_FALSE(client.release(old));
  CHECK(text_of(kept.message) == "kept");
  CHECK(client.release(kept));
}

TEST_CASE("a server that accepts and hangs up at once is dialled more and more rarely", "[rpc]") {
  World world;
  std::optional<RpcServer> server(world.listen());
  const std::uint16_t port = server->port();
  RpcClient client = world.connect(*server, {.longest_pause = 1h});
  const auto begun = Clock::now();
  std::array<RpcReply, 1> none;
  for (std::uint64_t i = 1; i <= 10; ++i) {
    server.reset();
    REQUIRE(within(20s, [&] {
      CHECK(client.poll(none) == 0);
      return !client.is_connected();
    }));
    server.emplace(world.listen({.at = {.port = port}}));
    settle(client, *server, [&] { return client.counts().connections > i; });
  }
  CHECK(Clock::now() - begun >= 1022ms);
}

TEST_CASE("a client sleeps until the first of its calls is due, and no longer", "[rpc]") {
  World world;
  RpcServer server = world.listen();
  RpcClient client = world.connect(server);
  const RpcCall shorter = begin(client, "shorter", 1, 10ms);
  const RpcCall longer = begin(client, "longer", 1, kLong);
  for (int i = 0; i < 2; ++i) (void)next_request(world, server);
  CHECK(client.wait(20s));
  CHECK(next_end(client, server).call == shorter);
  CHECK(client.cancel(longer));
  settle(client, server, [&] { return !client.wait(1ms); });
}

TEST_CASE("calls end in time while replies to others come", "[rpc]") {
  World world;
  RpcServer server = world.listen();
  RpcClient client = world.connect(server);
  const RpcCall due = begin(client, "due", 1, 1ms);
  (void)next_request(world, server);
  for (int i = 0; i < 64; ++i) {
    (void)begin(client, "x");
    CHECK(server.reply(next_request(world, server), {}) == Sent::kOk);
  }
  for (int i = 0; i < 1000; ++i) {
    world.joined.b.device.progress();
    world.joined.a.device.progress();
  }
  std::this_thread::sleep_for(2ms);
  int polls = 0;
  RpcReply reply;
  do {
    REQUIRE(client.poll({&reply, 1}) == 1);
    client.release(reply);
    ++polls;
  } while (reply.call != due);
  CHECK(polls <= 16);
}

TEST_CASE("replies that have come are told, also when a send knows that the connection has ended", "[rpc]") {
  World world;
  std::optional<RpcServer> server(world.listen());
  RpcClient client = world.connect(*server, {.calls = 3});
  for (int i = 0; i < 3; ++i) {
    (void)begin(client, "x");
    CHECK(server->reply(next_request(world, *server), {}) == Sent::kOk);
  }
  for (int i = 0; i < 1000; ++i) {
    world.joined.b.device.progress();
    world.joined.a.device.progress();
  }
  server.reset();
  REQUIRE(within(20s, [&] {
    world.joined.a.device.progress();
    return client.notify(1, {}) == Sent::kEnded;
  }));
  for (int i = 0; i < 3; ++i) {
    RpcReply reply;
    REQUIRE(client.poll({&reply, 1}) == 1);
    CHECK(reply.outcome == RpcOutcome::kReplied);
    client.release(reply);
  }
}

TEST_CASE("a call that was given up has no end when its time is over", "[rpc]") {
  World world;
  RpcServer server = world.listen();
  RpcClient client = world.connect(server);
  const RpcCall first = begin(client, "never mind", 1, 1ms);
  const RpcCall last = begin(client, "x", 1, 4ms);
  CHECK(client.cancel(first));
  for (int i = 0; i < 2; ++i) (void)next_request(world, server);
  CHECK(next_end(client, server).call == last);
  CHECK(client.counts().timeouts == 1);
}

TEST_CASE("a call that was replied to ends once, also where that is told when its time is over", "[rpc]") {
  World world;
  RpcServer server = world.listen();
  RpcClient client = world.connect(server);
  const RpcCall call = begin(client, "x", 1, 2s);
  CHECK(server.reply(next_request(world, server), {}) == Sent::kOk);
  CHECK(client.ask(1, bytes_of("nobody answers"), 2100ms).error().code == Errc::kTimeout);
  CHECK(text_of(next_request(world, server).message) == "nobody answers");
  const RpcReply reply = next_end(client, server);
  CHECK((reply.call == call && reply.outcome == RpcOutcome::kReplied));
  client.release(reply);
  CHECK(client.counts().timeouts == 1);
  CHECK(client.pending() == 0);
}

TEST_CASE("a question ends with its connection, and a client sleeps until it tries again", "[rpc]") {
  const Mode mode = GENERATE(Mode::kApp, Mode::kAuto);
  World world(mode);
  std::optional<RpcServer> server(world.listen());
  RpcClient client = world.connect(*server);
  std::optional<Result<RpcReply>> reply;
  std::thread thread([&] { reply.emplace(client.ask(1, bytes_of("are you there?"), kLong)); });
  (void)next_request(world, *server);
  server.reset();
  thread.join();
  REQUIRE_FALSE(reply->has_value());
  CHECK(reply->error().code == Errc::kPeer);
  CHECK_FALSE(reply->error().text.empty());
  CHECK_FALSE(client.is_connected());
  CHECK(client.pending() == 0);
  CHECK(client.wait(20s));
}

}  // namespace uroce::api
