// Starting what `uroce bench scale` measures.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "apps/bench/local_loops.h"
#include "apps/bench/scale.h"
#include "apps/bench/scale_service.h"
#include "apps/common/port_spec.h"
#include "lib/wire/crc32.h"

namespace uroce::apps {
namespace {

constexpr std::uint32_t kChunk = 1000;  // QPs or keys in one request: it must fit into a message

/// One end's configuration.
Config end_config(Config config, const PairPlan& plan, int core, const std::string& fault) {
  config.mode = plan.mode;
  config.lcores = plan.loop_on_core && core >= 0 ? std::to_string(core) : "";
  config.fault = fault;
  config.selective_repeat = config.selective_repeat || plan.selective;
  config.max_qp = std::max(config.max_qp, plan.qps + 16);
  return config;
}

}  // namespace

Stage::Stage(Config config, const CorePair& cores, const ScaleOptions& options,
             std::function<void(const std::string&)> on_step)
    : config_(std::move(config)), cores_(cores), options_(options), on_step_(std::move(on_step)) {}

Result<Pair*> Stage::pair(const std::string& name, const PairPlan& plan) {
  if (const auto known = pairs_.find(name); known != pairs_.end()) return &known->second;
  if (auto begun = begin(name); !begun) return begun.error();
  const bool give_way = cores_.shared || plan.loop_on_core;
  const auto end = [&](int core, const std::string& fault, bool server) {
    return [=, this] {  // in the process of that end
      if (!plan.with_icrc) wire::leave_out_crc32();
      Config config = end_config(config_, plan, core, fault);
      config.port = port_of(name, server);
      config.pcap = capture_for_end(config.pcap, name, server);
      return std::make_unique<ScaleService>(std::move(config), give_way);
    };
  };
  auto pair = Pair::spawn(name, cores_.client, cores_.server, end(cores_.client, plan.client_fault, false),
                          end(cores_.server, plan.server_fault, true));
  if (!pair) return pair.error();
  if (auto opened = pair->open_and_connect(); !opened) return opened.error();
  SetUpCost cost;
  if (auto made = add_qps(*pair, plan, cost); !made) return made.error();
  if (auto made = add_regions(*pair, plan.regions, cost); !made) return made.error();
  costs_[name] = cost;
  return &pairs_.emplace(name, std::move(*pair)).first->second;
}

std::string Stage::port_of(const std::string& pair, bool server) const {
  if (has_one_link()) return server ? options_.peer_port : config_.port;
  return port_spec_for_end(another_link(config_.port, "-" + pair), server);
}

Status Stage::begin(const std::string& pair) const {
  if (has_one_link() && !pairs_.empty()) {
    return Error{.code = Errc::kBusy,
                 .text =
                     "compares several links, and --peer-port names one: choose others by --only, e.g. "
                     "--only fairness,noisy"};
  }
  on_step_(pair + ": setting up");
  return {};
}

Status Stage::add_qps(Pair& pair, const PairPlan& plan, SetUpCost& cost) {
  for (std::uint32_t made = 0; made < plan.qps; made += kChunk) {
    const Json make = {{"op", "make"},
                       {"count", std::min(kChunk, plan.qps - made)},
                       {"send_depth", plan.send_depth},
                       {"recv_depth", plan.recv_depth}};
    const auto ends = pair.call(make, make, Pair::kStartNs);
    if (!ends) return ends.error();
    const auto joined = pair.call({{"op", "join"}, {"qpns", ends->server.at("qpns")}},
                                  {{"op", "join"}, {"qpns", ends->client.at("qpns")}}, Pair::kStartNs);
    if (!joined) return joined.error();
    cost.make_ns += ends->client.at("ns").get<double>();
    cost.join_ns += joined->client.at("ns").get<double>();
    cost.bytes += ends->client.at("bytes").get<double>() + joined->client.at("bytes").get<double>();
  }
  return {};
}

Status Stage::add_regions(Pair& pair, std::uint32_t count, SetUpCost& cost) {
  if (count == 0) return {};
  const Json regions = {{"op", "regions"}, {"count", count}};
  const auto made = pair.call(regions, regions, 2 * Pair::kStartNs);
  if (!made) return made.error();
  cost.regions_ns = made->client.at("ns").get<double>();
  for (std::uint32_t first = 0; first < count; first += kChunk) {
    const std::uint32_t some = std::min(kChunk, count - first);
    const auto keys = pair.call({{"op", "learn"}, {"rkeys", Json::array()}},
                                {{"op", "rkeys"}, {"first", first}, {"count", some}}, Pair::kStartNs);
    if (!keys) return keys.error();
    const auto told = pair.call({{"op", "learn"}, {"rkeys", keys->server.at("rkeys")}},
                                {{"op", "learn"}, {"rkeys", Json::array()}}, Pair::kStartNs);
    if (!told) return told.error();
  }
  return {};
}

Result<Pair*> Stage::loops() {
  const std::string name = "loops";
  if (const auto known = pairs_.find(name); known != pairs_.end()) return &known->second;
  if (auto begun = begin(name); !begun) return begun.error();
  Config config = config_;
  config.port = port_of(name, true);
  config.pcap = capture_for_end(config.pcap, name, true);
  auto pair = Pair::spawn(
      name, cores_.client, cores_.server, [&] { return std::make_unique<LocalLoops>(config, cores_); },
      [] { return std::make_unique<NoService>(); });
  if (!pair) return pair.error();
  if (auto opened = pair->open_and_connect(); !opened) return opened.error();
  return &pairs_.emplace(name, std::move(*pair)).first->second;
}

Sample Stage::sample(Kind kind, std::uint32_t bytes) const {
  return {.kind = kind,
          .style = Style::kSpin,
          .bytes = bytes,
          .frame_payload = 0,
          .run_ns = options_.sample_ms * kMillisecond,
          .id = 0};
}

Result<std::map<std::string, Samples>> Stage::in_turns(std::span<const Turn> turns) {
  return take_in_turns(turns, options_.rounds, on_step_, [this] { look(); });
}

Result<std::map<std::string, Samples>> Stage::in_turns_unseen(std::span<const Turn> turns) const {
  return take_in_turns(turns, options_.rounds, on_step_, [] {});
}

}  // namespace uroce::apps
