// More than two processes on one link, which come, go and are killed.
#include <array>
#include <atomic>
#include <catch2/catch.hpp>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "process/cm_end.h"
#include "process/processes.h"
#include "uroce/rpc.h"

namespace uroce::test {
namespace {

using namespace std::chrono_literals;

constexpr unsigned kEnds = 4;
constexpr std::uint16_t kPort = 7476;
constexpr auto kLong = 60s;

const std::string kLink = "shm:mesh,ring=256K,ends=" + std::to_string(kEnds);

struct Stage {
  std::array<std::atomic<std::uint64_t>, kEnds> replied;  // by what a client is called
};

/// Calls the first end with a number that nobody else has, until it is killed.
int call(Stage& stage, unsigned name) {
  const auto end = CmEnd::open(kLink);
  if (end == nullptr) return 1;
  const CmAddress first{Gid::from_v4({10, 77, 0, 1}), kPort};
  auto client = RpcClient::connect(*end->cm, end->pd, {.to = first, .message_bytes = 64});
  if (!client) return 2;
  for (std::uint64_t i = name;; i += kEnds) {
    const auto reply = client->ask(1, std::as_bytes(std::span(&i, 1)), kLong);
    if (!reply) continue;  // the machine has stopped one end for longer than the keepalive
    std::uint64_t answer = 0;
    if (reply->message.data.size() != sizeof answer) return 3;
    std::memcpy(&answer, reply->message.data.data(), sizeof answer);
    client->release(*reply);
    if (answer != ~i) return 4;
    stage.replied[name].fetch_add(1);
  }
}

}  // namespace

TEST_CASE("a server has clients in several processes, and outlives those that are killed", "[mesh]") {
  const RuntimeDir dir;
  Shared<Stage> stage;
  const auto end = CmEnd::open(kLink);
  REQUIRE(end != nullptr);
  auto server = end->serve(kPort);
  REQUIRE(server.has_value());
  const auto step = [&] {
    poll_requests(*server, [&](const RpcRequest& request) {
      std::uint64_t asked = 0;
      REQUIRE(request.message.data.size() == sizeof asked);
      std::memcpy(&asked, request.message.data.data(), sizeof asked);
      const std::uint64_t answer = ~asked;
      (void)server->reply(request, std::as_bytes(std::span(&answer, 1)));
    });
  };
  std::array<std::unique_ptr<Child>, kEnds> clients;
  const auto start = [&](unsigned name) {
    clients[name] = std::make_unique<Child>([&stage, name] { return call(*stage, name); });
  };
  const auto all_go_on = [&] {
    std::array<std::uint64_t, kEnds> before{};
    for (unsigned name = 1; name < kEnds; ++name) before[name] = stage->replied[name];
    return await(
        [&] {
          step();
          bool have_all = true;
          for (unsigned name = 1; name < kEnds; ++name) {
            if (clients[name] == nullptr) continue;
            REQUIRE_FALSE(clients[name]->has_ended());
            have_all = have_all && stage->replied[name] > before[name] + 300;
          }
          return have_all;
        },
        60);
  };
  for (unsigned name = 1; name < kEnds; ++name) start(name);
  REQUIRE(all_go_on());
  // One whose connection the machine has broken is about to make the next one.
  CHECK(await([&] { return step(), server->clients() == kEnds - 1; }, 20));
  for (unsigned name = 1; name < kEnds; ++name) {
    INFO("client " << name << " is killed");
    clients[name].reset();
    REQUIRE(await([&] { return step(), server->clients() == kEnds - 2; }, 20));
    REQUIRE(all_go_on());
    start(name);
    REQUIRE(all_go_on());
  }
}

}  // namespace uroce::test
