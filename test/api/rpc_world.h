/// A client and a server of calls on two devices of one process, and what their tests do with them.
#pragma once

#include <array>
#include <atomic>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

#include "api/side.h"
#include "uroce/connection.h"
#include "uroce/rpc.h"

namespace uroce::api {

inline constexpr auto kLong = 60s;  // no call of a test runs out of it

inline std::string text_of(const Message& message) {
  return {reinterpret_cast<const char*>(message.data.data()), message.data.size()};
}

/// A client's device and a server's.
struct World {
  explicit World(Mode mode = Mode::kApp, const std::string& fault = "")
      : joined(mode, "rpc", 100, fault),
        cm_a(must(Cm::open(joined.a.device, kPatient))),
        cm_b(must(Cm::open(joined.b.device, kPatient))) {}

  [[nodiscard]] RpcServer listen(RpcServerAttr attr = {}) {
    return must(RpcServer::listen(cm_b, joined.b.pd, attr));
  }
  [[nodiscard]] CmAddress at(const RpcServer& server) const { return {joined.b.gid(), server.port()}; }
  /// While `server` is polled.
  Result<RpcClient> try_connect(RpcServer& server, RpcClientAttr attr = {}) {
    attr.to = at(server);
    std::optional<Result<RpcClient>> made;
    std::atomic<bool> is_done = false;
    std::thread thread([&] {
      made.emplace(RpcClient::connect(cm_a, joined.a.pd, attr));
      is_done = true;
    });
    std::array<RpcRequest, 1> none;
    while (!is_done) CHECK(server.poll(none) == 0);
    thread.join();
    return std::move(*made);
  }
  /// Until it can be called, too.
  RpcClient connect(RpcServer& server, RpcClientAttr attr = {}) {
    RpcClient client = must(try_connect(server, attr));
    std::array<RpcReply, 1> no_reply;
    std::array<RpcRequest, 1> no_request;
    REQUIRE(within(20s, [&] {
      CHECK(client.poll(no_reply) + server.poll(no_request) == 0);
      return client.max_message() > 0;
    }));
    return client;
  }

  Joined joined;
  Cm cm_a;
  Cm cm_b;
};

/// The next request, while the client makes progress.
inline RpcRequest next_request(World& world, RpcServer& server) {
  std::array<RpcRequest, 1> request;
  REQUIRE(within(20s, [&] {
    world.joined.a.device.progress();
    return server.poll(request) == 1;
  }));
  return request[0];
}

/// The next end of a call, while the server makes progress.
inline RpcReply next_end(RpcClient& client, RpcServer& server) {
  std::array<RpcReply, 1> reply;
  std::array<RpcRequest, 1> none;
  REQUIRE(within(20s, [&] {
    CHECK(server.poll(none) == 0);
    return client.poll(reply) == 1;
  }));
  return reply[0];
}

inline RpcCall begin(RpcClient& client, std::string_view text, std::uint16_t method = 1,
                     std::chrono::nanoseconds timeout = kLong) {
  RpcCall call{};
  REQUIRE(client.call(method, bytes_of(text), timeout, call) == Sent::kOk);
  return call;
}

/// Polls both until `done`.
template <typename Done>
void settle(RpcClient& client, RpcServer& server, Done done) {
  std::array<RpcReply, 1> no_reply;
  std::array<RpcRequest, 1> no_request;
  REQUIRE(within(20s, [&] {
    CHECK(client.poll(no_reply) + server.poll(no_request) == 0);
    return done();
  }));
}

/// Polls the server, whose client is gone, until `done`.
template <typename Done>
void settle_server(World& world, RpcServer& server, Done done) {
  std::array<RpcRequest, 1> none;
  REQUIRE(within(20s, [&] {
    world.joined.a.device.progress();
    CHECK(server.poll(none) == 0);
    return done();
  }));
}

/// What connects to a server as a client does, and says what it likes.
struct Stranger {
  Stranger(World& world, RpcServer& server)
      : channel(must(MessageChannel::create(world.joined.a.pd, world.joined.a.device))) {
    std::atomic<bool> is_done = false;
    std::thread thread([&] {
      auto made = Connection::connect(world.cm_a, channel.qp(),
                                      {.to = world.at(server), .private_data = bytes_of("uroce rpc 1")});
      if (made) connection.emplace(std::move(*made));
      is_done = true;
    });
    std::array<RpcRequest, 1> none;
    while (!is_done) CHECK(server.poll(none) == 0);
    thread.join();
    REQUIRE(connection.has_value());
    std::array<Message, 1> no_message;
    REQUIRE(within(20s, [&] {
      CHECK(channel.poll(no_message) + server.poll(none) == 0);
      return channel.credits() > 0;
    }));
  }

  MessageChannel channel;
  std::optional<Connection> connection;
};

}  // namespace uroce::api
