#include "apps/perf/spec.h"

#include <fmt/format.h>

#include <array>

namespace uroce::apps::perf {

Json TestSpec::to_json() const {
  return {{"verb", static_cast<int>(verb)},
          {"latency", latency},
          {"all_sizes", all_sizes},
          {"size", size},
          {"iterations", iterations},
          {"seconds", seconds},
          {"qps", qps},
          {"tx_depth", tx_depth},
          {"rx_depth", rx_depth},
          {"path_mtu", path_mtu},
          {"inline_bytes", inline_bytes},
          {"post_list", post_list},
          {"cq_mod", cq_mod},
          {"outstanding_reads", outstanding_reads},
          {"timeout", timeout},
          {"compare_swap", compare_swap},
          {"bidirectional", bidirectional},
          {"verify", verify}};
}

TestSpec TestSpec::from(const Json& json) {
  TestSpec spec;
  spec.verb = static_cast<Verb>(json.at("verb").get<int>());
  json.at("latency").get_to(spec.latency);
  json.at("all_sizes").get_to(spec.all_sizes);
  json.at("size").get_to(spec.size);
  json.at("iterations").get_to(spec.iterations);
  json.at("seconds").get_to(spec.seconds);
  json.at("qps").get_to(spec.qps);
  json.at("tx_depth").get_to(spec.tx_depth);
  json.at("rx_depth").get_to(spec.rx_depth);
  json.at("path_mtu").get_to(spec.path_mtu);
  json.at("inline_bytes").get_to(spec.inline_bytes);
  json.at("post_list").get_to(spec.post_list);
  json.at("cq_mod").get_to(spec.cq_mod);
  json.at("outstanding_reads").get_to(spec.outstanding_reads);
  json.at("timeout").get_to(spec.timeout);
  json.at("compare_swap").get_to(spec.compare_swap);
  json.at("bidirectional").get_to(spec.bidirectional);
  json.at("verify").get_to(spec.verify);
  return spec;
}

std::string TestSpec::name() const {
  constexpr std::array<const char*, 4> kVerbs = {"send", "write", "read", "atomic"};
  return fmt::format("{}_{}", kVerbs[static_cast<std::size_t>(verb)], latency ? "lat" : "bw");
}

}  // namespace uroce::apps::perf
