// Starting the processes that are compared.
#include <fmt/format.h>

#include <utility>

#include "apps/common/compare.h"
#include "apps/common/netns.h"
#include "apps/common/port_spec.h"
#include "apps/common/raw_service.h"
#include "apps/common/tcp_service.h"
#include "apps/common/uroce_service.h"

namespace uroce::apps {
namespace {

/// The configuration of one uroce end.
Config at_end(Config config, const std::string& name, const std::array<std::string, 2>& ports, bool server) {
  config.mode = Mode::kApp;
  config.lcores.clear();
  config.port = ports[server ? 1 : 0];
  config.pcap = capture_for_end(config.pcap, name, server);
  return config;
}

/// The configuration of a bare port: two-ended links get another name ("shm:x" -> "shm:x-raw"); an interface
/// is shared, by DPDK's driver alone, whose way of sending uroce's port does not use.
/// @param port  empty: derived from the configuration's
Config bare(Config config, const std::string& port) {
  config.fault.clear();
  config.pcap.clear();
  config.port = port.empty() ? another_link(config.port, kBareSuffix) : port;
  const bool has_own_way =
      config.port.starts_with("af_packet:") && config.port.find(",ring=") == std::string::npos;
  if (port.empty() && has_own_way) config.port += ",ring=on";
  return config;
}

Status set_up_veth(Pair& pair) {
  auto entered = pair.call({{"op", "netns"}}, {{"op", "netns"}}, Pair::kStartNs);
  if (!entered) return entered.error();
  const Json veth = {{"op", "veth"}, {"peer_pid", entered->server.at("pid")}};
  if (auto made = pair.client.ask(veth, Pair::kStartNs); !made) return made.error();
  if (auto made = pair.server.ask({{"op", "address"}}, Pair::kStartNs); !made) return made.error();
  return {};
}

}  // namespace

Result<UroceUnderTest> UroceUnderTest::start(const std::string& name, const CorePair& cores,
                                             const Config& config, const std::array<std::string, 2>& ports,
                                             std::uint32_t largest_write) {
  const auto end = [&](bool server) -> Worker::Factory {
    return [=, one = at_end(config, name, ports, server), shared = cores.shared] {
      return std::make_unique<UroceService>(one, shared, largest_write);
    };
  };
  auto pair = Pair::spawn(name, cores.client, cores.server, end(false), end(true));
  if (!pair) return pair.error();
  const auto opened = pair->open_and_connect();
  if (!opened) return opened.error();
  return UroceUnderTest{.pair = std::move(*pair),
                        .path_mtu = opened->at("measured").at("path_mtu").get<std::uint32_t>()};
}

Result<LinkUnderTest> LinkUnderTest::start(std::string name, const CorePair& cores, const Config& config,
                                           const std::array<std::string, 2>& ports,
                                           std::uint32_t largest_write,
                                           const std::array<std::string, 2>& bare_ports) {
  auto uroce = UroceUnderTest::start(name, cores, config, ports, largest_write);
  if (!uroce) return uroce.error();
  const auto end = [&](bool server) -> Worker::Factory {
    return [=, one = bare(at_end(config, name, ports, server), bare_ports[server ? 1 : 0]),
            shared = cores.shared] { return std::make_unique<RawService>(one, shared, largest_write); };
  };
  auto raw = Pair::spawn(name + " raw", cores.client, cores.server, end(false), end(true));
  if (!raw) return raw.error();
  if (auto opened = raw->open_and_connect(); !opened) return opened.error();
  return LinkUnderTest{.name = std::move(name),
                       .uroce = std::move(uroce->pair),
                       .raw = std::move(*raw),
                       .path_mtu = uroce->path_mtu};
}

Result<TcpUnderTest> TcpUnderTest::start(const CorePair& cores) {
  const auto factory = [&] { return std::make_unique<TcpService>(cores.shared); };
  std::string path = "veth";
  std::string host = kVethServer;
  auto pair = Pair::spawn("TCP", cores.client, cores.server, factory, factory);
  if (!pair) return pair.error();
  if (!set_up_veth(*pair)) {
    path = "loopback";
    host = "127.0.0.1";
    pair = Pair::spawn("TCP", cores.client, cores.server, factory, factory);
    if (!pair) return pair.error();
  }
  const auto listening = pair->server.ask({{"op", "listen"}, {"host", host}}, Pair::kStartNs);
  if (!listening) return listening.error();
  const Json connect = {{"op", "connect"}, {"host", host}, {"port", listening->at("port")}};
  if (auto ready = pair->client.ask(connect, Pair::kStartNs); !ready) return ready.error();
  return TcpUnderTest{.pair = std::move(*pair),
                      .path = std::move(path),
                      .congestion = listening->value("congestion", "unknown")};
}

}  // namespace uroce::apps
