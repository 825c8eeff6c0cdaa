// Calls between processes that are killed.
#include "uroce/rpc.h"

#include <array>
#include <atomic>
#include <catch2/catch.hpp>
#include <memory>
#include <vector>

#include "process/cm_end.h"
#include "process/processes.h"

namespace uroce::test {
namespace {

using namespace std::chrono_literals;

constexpr std::uint16_t kPort = 7475;
constexpr std::uint32_t kCalls = 8;
constexpr unsigned kLives = 4;
constexpr auto kLong = 60s;

constexpr const char* kLink = "shm:calls";

/// Where the other process listens.
CmAddress other_of(const CmEnd& end) {
  const auto own = end.device.gids().at(1).gid;
  return {Gid::from_v4({10, 77, 0, own.raw[15] == 1 ? std::uint8_t{2} : std::uint8_t{1}}), kPort};
}

struct Stage {
  std::atomic<unsigned> lives;  // processes that may start
};

/// Answers with the question, until it is killed.
int serve(Stage& stage, unsigned life) {
  if (!await([&] { return stage.lives.load() > life; }, 300)) return 1;
  const auto end = CmEnd::open(kLink);
  if (end == nullptr) return 2;
  auto server = end->serve(kPort);
  if (!server) return 3;
  for (;;) echo(*server);
}

/// Calls until it is killed.
int call(Stage& stage, unsigned life) {
  if (!await([&] { return stage.lives.load() > life; }, 300)) return 1;
  const auto end = CmEnd::open(kLink);
  if (end == nullptr) return 2;
  auto client = RpcClient::connect(*end->cm, end->pd, {.to = other_of(*end), .message_bytes = 64});
  if (!client) return 3;
  for (std::uint64_t i = 0;; ++i) {
    const auto reply = client->ask(1, std::as_bytes(std::span(&i, 1)), kLong);
    if (reply) client->release(*reply);  // else the machine has stopped one end for longer than the keepalive
  }
}

/// Keeps `kCalls` under way and counts how they end.
struct Load {
  RpcClient& client;
  std::uint64_t begun = 0;
  std::uint64_t replied = 0;
  std::uint64_t ended = 0;

  void step() {
    RpcCall call{};
    while (client.pending() < kCalls &&
           client.call(1, std::as_bytes(std::span(&begun, 1)), kLong, call) == Sent::kOk)
      ++begun;
    std::array<RpcReply, 4> replies;
    for (const RpcReply& reply : std::span(replies).first(client.poll(replies))) {
      ++(reply.outcome == RpcOutcome::kReplied ? replied : ended);
      client.release(reply);
    }
  }
};

std::vector<std::unique_ptr<Child>> children(int (*body)(Stage&, unsigned), Stage& stage) {
  std::vector<std::unique_ptr<Child>> all;
  for (unsigned life = 0; life < kLives; ++life)
    all.push_back(std::make_unique<Child>([&stage, body, life] { return body(stage, life); }));
  return all;
}

}  // namespace

TEST_CASE("a client outlives servers that are killed, and each of its calls ends once", "[rpc]") {
  const RuntimeDir dir;
  Shared<Stage> stage;
  const auto servers = children(serve, *stage);
  const auto end = CmEnd::open(kLink);
  REQUIRE(end != nullptr);
  stage->lives = 1;
  std::optional<RpcClient> client;
  REQUIRE(await(
      [&] {
        auto made = RpcClient::connect(
            *end->cm, end->pd,
            {.to = other_of(*end), .message_bytes = 64, .calls = kCalls, .longest_pause = 20ms});
        if (made) client.emplace(std::move(*made));
        return client.has_value();
      },
      20));
  Load load{.client = *client};
  for (unsigned life = 0; life < kLives; ++life) {
    INFO("life " << life);
    const std::uint64_t before = load.replied;
    REQUIRE(await([&] { return load.step(), load.replied > before + 1000; }, 20));
    servers[life]->kill();
    stage->lives = life + 2;
    REQUIRE(await([&] { return load.step(), client->counts().ended > 0 && !client->is_connected(); }, 20));
  }
  REQUIRE(await([&] { return load.step(), client->pending() == 0; }, 20));
  CHECK(client->counts().connections >= kLives);
  CHECK(load.ended == client->counts().ended);
  CHECK(load.begun == load.replied + load.ended);
}

TEST_CASE("a server outlives clients that are killed", "[rpc]") {
  const RuntimeDir dir;
  Shared<Stage> stage;
  const auto clients = children(call, *stage);
  const auto end = CmEnd::open(kLink);
  REQUIRE(end != nullptr);
  auto server = end->serve(kPort);
  REQUIRE(server.has_value());
  for (unsigned life = 0; life < kLives; ++life) {
    INFO("life " << life);
    stage->lives = life + 1;
    const std::uint64_t before = server->counts().requests;
    REQUIRE(await([&] { return echo(*server), server->counts().requests > before + 200; }, 20));
    clients[life]->kill();
    REQUIRE(await([&] { return echo(*server), server->clients() == 0; }, 20));
  }
  CHECK(server->counts().clients >= kLives);
  CHECK(await([&] { return echo(*server), end->cm->ids() == 1; }, 20));  // the listener
}

}  // namespace uroce::test
