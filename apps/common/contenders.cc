// Starting the processes that are compared.
#include <fmt/format.h>

#include <utility>

#include "apps/common/compare.h"
#include "apps/common/netns.h"
#include "apps/common/raw_service.h"
#include "apps/common/tcp_service.h"
#include "apps/common/uroce_service.h"

namespace uroce::apps {
namespace {

constexpr std::uint64_t kStartNs = 15 * kSecond;  // EAL, hugepages and links take their time

Result<Pair> spawn_pair(const std::string& what, const CorePair& cores, const Worker::Factory& client,
                        const Worker::Factory& server) {
  auto one = Worker::spawn(what + " client process", cores.client, client);
  if (!one) return one.error();
  auto two = Worker::spawn(what + " server process", cores.server, server);
  if (!two) return two.error();
  return Pair{.client = std::move(*one), .server = std::move(*two)};
}

/// Opens both ends and tells each about the other. @return what the client's end said.
Result<Json> open_and_connect(Pair& pair) {
  const auto opened = pair.call({{"op", "open"}}, {{"op", "open"}}, kStartNs);
  if (!opened) return opened.error();
  const auto connected = pair.call({{"op", "connect"}, {"peer", opened->server}},
                                   {{"op", "connect"}, {"peer", opened->client}}, kStartNs);
  if (!connected) return connected.error();
  return opened->client;
}

/// The configuration of a bare port: two-ended links get another name ("shm:x" -> "shm:x-raw"); an interface
/// is shared.
Config bare(Config config) {
  config.fault.clear();
  config.pcap.clear();
  const bool is_named = config.port.starts_with("shm:") || config.port.starts_with("memif:");
  if (is_named) config.port.insert(std::min(config.port.find(','), config.port.size()), "-raw");
  return config;
}

Status set_up_veth(Pair& pair) {
  auto entered = pair.call({{"op", "netns"}}, {{"op", "netns"}}, kStartNs);
  if (!entered) return entered.error();
  if (auto sent = pair.client.send({{"op", "veth"}, {"peer_pid", entered->server.at("pid")}}); !sent)
    return sent;
  if (auto made = pair.client.receive(now_ns() + kStartNs); !made) return made.error();
  if (auto sent = pair.server.send({{"op", "address"}}); !sent) return sent;
  if (auto made = pair.server.receive(now_ns() + kStartNs); !made) return made.error();
  return {};
}

}  // namespace

Result<LinkUnderTest> LinkUnderTest::start(std::string name, const CorePair& cores, const Config& at_client,
                                           const Config& at_server) {
  const bool shared = cores.shared;
  auto uroce = spawn_pair(
      name, cores, [&] { return std::make_unique<UroceService>(at_client, shared); },
      [&] { return std::make_unique<UroceService>(at_server, shared); });
  if (!uroce) return uroce.error();
  auto raw = spawn_pair(
      name + " raw", cores, [&] { return std::make_unique<RawService>(bare(at_client), shared); },
      [&] { return std::make_unique<RawService>(bare(at_server), shared); });
  if (!raw) return raw.error();
  const auto opened = open_and_connect(*uroce);
  if (!opened) return opened.error();
  if (auto bare_opened = open_and_connect(*raw); !bare_opened) return bare_opened.error();
  return LinkUnderTest{.name = std::move(name),
                       .uroce = std::move(*uroce),
                       .raw = std::move(*raw),
                       .path_mtu = opened->at("measured").at("path_mtu").get<std::uint32_t>()};
}

Result<TcpUnderTest> TcpUnderTest::start(const CorePair& cores) {
  const auto factory = [&] { return std::make_unique<TcpService>(cores.shared); };
  std::string path = "veth";
  std::string host = kVethServer;
  auto pair = spawn_pair("TCP", cores, factory, factory);
  if (!pair) return pair.error();
  if (!set_up_veth(*pair)) {
    path = "loopback";
    host = "127.0.0.1";
    pair = spawn_pair("TCP", cores, factory, factory);
    if (!pair) return pair.error();
  }
  if (auto sent = pair->server.send({{"op", "listen"}, {"host", host}}); !sent) return sent.error();
  const auto listening = pair->server.receive(now_ns() + kStartNs);
  if (!listening) return listening.error();
  if (auto sent = pair->client.send({{"op", "connect"}, {"host", host}, {"port", listening->at("port")}});
      !sent) {
    return sent.error();
  }
  if (auto ready = pair->client.receive(now_ns() + kStartNs); !ready) return ready.error();
  return TcpUnderTest{.pair = std::move(*pair),
                      .path = std::move(path),
                      .congestion = listening->value("congestion", "unknown")};
}

}  // namespace uroce::apps
