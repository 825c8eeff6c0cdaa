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

/// The configuration of a bare port: two-ended links get another name ("shm:x" -> "shm:x-raw"); an interface
/// is shared, by DPDK's driver alone, whose way of sending uroce's port does not use.
/// @param port  empty: derived from the configuration's
Config bare(Config config, const std::string& port) {
  config.fault.clear();
  config.pcap.clear();
  config.port = port.empty() ? another_link(config.port, "-raw") : port;
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

Result<LinkUnderTest> LinkUnderTest::start(std::string name, const CorePair& cores, const Config& config,
                                           const std::array<std::string, 2>& ports,
                                           std::uint32_t largest_write,
                                           const std::array<std::string, 2>& bare_ports) {
  const bool shared = cores.shared;
  const auto at_end = [&](bool server) {
    Config one = config;
    one.mode = Mode::kApp;
    one.lcores.clear();
    one.port = ports[server ? 1 : 0];
    one.pcap = capture_for_end(config.pcap, name, server);
    return one;
  };
  const Config at_client = at_end(false);
  const Config at_server = at_end(true);
  auto uroce = Pair::spawn(
      name, cores.client, cores.server,
      [&] { return std::make_unique<UroceService>(at_client, shared, largest_write); },
      [&] { return std::make_unique<UroceService>(at_server, shared, largest_write); });
  if (!uroce) return uroce.error();
  auto raw = Pair::spawn(
      name + " raw", cores.client, cores.server,
      [&] { return std::make_unique<RawService>(bare(at_client, bare_ports[0]), shared, largest_write); },
      [&] { return std::make_unique<RawService>(bare(at_server, bare_ports[1]), shared, largest_write); });
  if (!raw) return raw.error();
  const auto opened = uroce->open_and_connect();
  if (!opened) return opened.error();
  if (auto bare_opened = raw->open_and_connect(); !bare_opened) return bare_opened.error();
  return LinkUnderTest{.name = std::move(name),
                       .uroce = std::move(*uroce),
                       .raw = std::move(*raw),
                       .path_mtu = opened->at("measured").at("path_mtu").get<std::uint32_t>()};
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
