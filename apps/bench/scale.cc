#include "apps/bench/scale.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>

#include "apps/common/cli.h"
#include "apps/common/json_text.h"
#include "apps/common/machine_json.h"
#include "apps/common/port_spec.h"
#include "apps/common/progress.h"

namespace uroce::apps {
namespace {

constexpr std::uint32_t kQuickQps = 200;
constexpr std::uint32_t kQuickRegions = 2000;

std::vector<std::string> test_names() {
  std::vector<std::string> names;
  for (const auto& test : scale_tests()) names.push_back(test.name);
  return names;
}

/// @param figures  of all tests before one that fails
Status run_tests(Stage& stage, std::vector<Judged>& figures) {
  const auto& only = stage.options().only;
  for (const auto& test : scale_tests()) {
    if (!only.empty() && std::find(only.begin(), only.end(), test.name) == only.end()) continue;
    auto found = test.run(stage);
    if (!found) {
      return Error{.code = found.error().code, .text = fmt::format("{}: {}", test.name, found.error().text)};
    }
    figures.insert(figures.end(), found->begin(), found->end());
    stage.end_test();
  }
  return {};
}

int run(const SharedOptions& shared, const ScaleOptions& options) {
  const auto config = shared.resolve();
  if (!config) return fail(config.error());
  if (!makes_links(config->port) && options.peer_port.empty()) {
    return fail({.code = Errc::kInvalid,
                 .text =
                     "bench scale opens several links: --port shm:NAME, memif:/PATH or vhost:/PATH; or name "
                     "the other end of one, --peer-port af_packet:IFACE"});
  }
  if (!config->fault.empty()) {
    return fail({.code = Errc::kInvalid,
                 .text = "bench scale has faults of its own: leave --fault and UROCE_FAULT out; bench link "
                         "takes them"});
  }
  const auto cores = cores_from(config->lcores);
  if (!cores) return fail(cores.error());
  Progress progress;
  Stage stage(without_addresses(*config), *cores, options,
              [&](const std::string& text) { progress.step(text); });
  std::vector<Judged> figures;
  const Status ran = run_tests(stage, figures);
  progress.clear();
  tell_of_captures(config->pcap);
  if (!ran && figures.empty()) return fail(ran.error());
  if (shared.json()) {
    Json result = run_json("uroce.bench.scale/1", *config);
    result.update({{"machine", machine_json()},
                   {"port", config->port},
                   {"cores", cores->text()},
                   {"qps", options.qps},
                   {"regions", options.regions},
                   {"rows", judged_json(figures)}});
    result.update(looks_json(stage.looks()));
    fmt::print("{}\n", to_text(result, 2));
  } else {
    fmt::print(
        "{}\n{}, {}; medians of {} samples of {} ms, taken in turns. base: the same without.\n"
        "figure: what is judged, the median of value / base in a turn, or the value itself.\n",
        judged_table(figures), config->port, cores->text(), options.rounds, options.sample_ms);
    if (!cores->shared) fmt::print("{}", looks_text(looks_json(stage.looks())));
  }
  return ran ? 0 : fail(ran.error());
}

}  // namespace

void add_bench_scale(CLI::App& bench, int& exit_code) {
  CLI::App* command = bench.add_subcommand(
      "scale", "many QPs, regions, losses, loops and neighbours, each beside the same without, in turns");
  const auto shared = std::make_shared<SharedOptions>(*command);
  const auto options = std::make_shared<ScaleOptions>();
  const auto quick = std::make_shared<bool>(false);
  command->add_option("--only", options->only, "tests to run (default: all)")
      ->default_str("")
      ->delimiter(',')
      ->check(CLI::IsMember(test_names()));
  command
      ->add_option("--peer-port", options->peer_port,
                   "port of the other end, for tests that need one link, e.g. --only fairness,noisy "
                   "(default: links made from --port)")
      ->type_name("SPEC");
  command->add_option("--qps", options->qps, "QPs of the tests with many")->check(CLI::Range(1U, 1U << 20U));
  command->add_option("--regions", options->regions, "memory regions of the test with many")
      ->check(CLI::Range(1U, 4U << 20U));
  command->add_option("--rounds", options->rounds, "samples of each")->check(CLI::Range(1U, 100U));
  command->add_option("--sample-ms", options->sample_ms, "length of a sample")
      ->check(CLI::Range(10U, 10'000U));
  command->add_flag("--quick", *quick, "few QPs and regions, one short sample of each: whether it runs")
      ->excludes("--qps", "--regions", "--rounds", "--sample-ms");
  command->callback([=, &exit_code] {
    if (*quick) {
      options->qps = kQuickQps;
      options->regions = kQuickRegions;
      options->rounds = 1;
      options->sample_ms = 50;
    }
    exit_code = run(*shared, *options);
  });
}

}  // namespace uroce::apps
