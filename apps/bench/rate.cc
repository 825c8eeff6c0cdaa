#include "apps/bench/rate.h"

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "apps/common/cli.h"
#include "apps/common/compare.h"
#include "apps/common/core_probe.h"
#include "apps/common/json_text.h"
#include "apps/common/machine_json.h"
#include "apps/common/port_spec.h"
#include "apps/common/progress.h"
#include "apps/common/result_file.h"
#include "apps/common/turns.h"

namespace uroce::apps {
namespace {

struct RateOptions {
  std::vector<std::uint32_t> rates = {10'000, 100'000, 500'000, 1'000'000};
  std::vector<std::uint32_t> sizes = {288};
  std::string peer_port;
  bool with_block = false;
  std::string hgrm_folder;
  unsigned rounds = 5;
  unsigned sample_ms = 1000;
};

struct Carrier {
  const char* name;
  Pair* pair;
  Style style;
};

/// The processes that take the load, and what is measured of them.
class RateBench {
 public:
  RateBench(const CorePair& cores, const RateOptions& options, UroceUnderTest uroce, TcpUnderTest tcp)
      : cores_(cores), options_(options), uroce_(std::move(uroce)), tcp_(std::move(tcp)) {}

  /// All points, or those up to one that fails.
  Status run(Progress& progress) {
    for (const auto bytes : options_.sizes) {
      for (const auto rate : options_.rates) {
        if (auto measured = measure({.bytes = bytes, .offered = rate}, progress); !measured) return measured;
      }
    }
    looks_.push_back(look_at_cores(cores_));
    return {};
  }
  [[nodiscard]] const std::vector<LoadPoint>& points() const noexcept { return points_; }
  [[nodiscard]] Json result(const Config& config) const {
    Json all = run_json("uroce.bench.rate/1", config);
    all.update({{"machine", machine_json()},
                {"port", config.port},
                {"path_mtu", uroce_.path_mtu},
                {"cores", cores_.text()},
                {"rounds", options_.rounds},
                {"sample_ms", options_.sample_ms},
                {"tcp", {{"path", tcp_.path}, {"congestion", tcp_.congestion}}},
                {"unit", "us"},
                {"rows", points_json(points_)}});
    all.update(looks_json(looks_));
    if (ended_) all["ended"] = ended_->text;
    return all;
  }

 private:
  /// On one core nobody spins.
  [[nodiscard]] std::vector<Carrier> carriers() {
    std::vector<Carrier> all = {{"uroce", &uroce_.pair, Style::kSpin}};
    if (!cores_.shared) all.push_back({"tcp_spin", &tcp_.pair, Style::kSpin});
    if (cores_.shared || options_.with_block) all.push_back({"tcp_block", &tcp_.pair, Style::kBlock});
    return all;
  }

  Status measure(LoadPoint point, Progress& progress) {
    for (unsigned round = 1; round <= options_.rounds; ++round) {
      for (const auto& one : carriers()) {
        progress.step(fmt::format("{} B, {} a second: {} ({}/{})", point.bytes, point.offered, one.name,
                                  round, options_.rounds));
        looks_.push_back(look_at_cores(cores_));
        const Sample sample = sample_of(point, one, round);
        const auto reached = take({.name = one.name,
                                   .pair = one.pair,
                                   .client = sample.request(true),
                                   .server = sample.request(false),
                                   .limit_ns = sample.limit_ns()});
        if (!reached) {
          point.ended = ended_ = reached.error();
          if (!point.carried.empty()) points_.push_back(std::move(point));
          return reached.error();
        }
        point.carried[one.name].all.push_back(*reached);
      }
    }
    points_.push_back(std::move(point));
    return {};
  }

  [[nodiscard]] Sample sample_of(const LoadPoint& point, const Carrier& one, unsigned round) const {
    const std::string& folder = options_.hgrm_folder;
    const auto file = [&] {
      return fmt::format("{}/{}-{}B-{}-{}.hgrm", folder, one.name, point.bytes, point.offered, round);
    };
    return {.kind = Kind::kOpen,
            .style = one.style,
            .bytes = point.bytes,
            .run_ns = options_.sample_ms * kMillisecond,
            .rate = static_cast<double>(point.offered),
            .hgrm_file = folder.empty() ? "" : file()};
  }

  CorePair cores_;
  const RateOptions& options_;
  UroceUnderTest uroce_;
  TcpUnderTest tcp_;
  std::vector<CoreLook> looks_;
  std::vector<LoadPoint> points_;
  std::optional<Error> ended_{};  ///< before its time: what there is had been measured until then
};

Result<RateBench> start_bench(const Config& config, const CorePair& cores, const RateOptions& options) {
  const auto ports = ends_of_link(config.port, options.peer_port);
  if (!ports) return ports.error();
  auto tcp = TcpUnderTest::start(cores);
  if (!tcp) return tcp.error();
  auto uroce = UroceUnderTest::start(config.port.substr(0, config.port.find(':')), cores, config, *ports);
  if (!uroce) return uroce.error();
  return RateBench(cores, options, std::move(*uroce), std::move(*tcp));
}

void print_text(const CorePair& cores, const Json& result) {
  fmt::print("{}\n", points_table(result.at("rows")));
  fmt::print(
      "{}, path MTU {}, {}; TCP over {}, {}, no delay.\n"
      "Medians of {} samples of {} ms, taken in turns; the longest of all. Open loop: each message is due\n"
      "at a fixed time and is echoed; its latency begins then, whether it could be sent or not. What is\n"
      "due, or has come, goes in one call; of uroce's at most 256 wait for answers. CPU: seconds of both\n"
      "ends for a million messages. \"is\": how many times as fast as TCP spinning. n/a: fewer than 100\n"
      "messages lie above. Saturated: a backlog that grows or, with less than 99 % of the rate, is there\n"
      "most of the time, or messages that were never sent; latencies then are of what was sent.\n",
      result.at("port").get<std::string>(), result.at("path_mtu").get<unsigned>(), cores.text(),
      result.at("tcp").at("path").get<std::string>(), result.at("tcp").at("congestion").get<std::string>(),
      result.at("rounds").get<unsigned>(), result.at("sample_ms").get<unsigned>());
  if (result.contains("ended"))
    fmt::print("Ended before its time: {}\n", result.at("ended").get<std::string>());
  if (cores.shared) return fmt::print("On one core nobody spins.\n");
  fmt::print("{}", looks_text(result));
}

/// Of --hgrm; empty: none.
Status check_folder(const std::string& folder) {
  if (folder.empty() || ::access((folder + "/.").c_str(), W_OK | X_OK) == 0) return {};
  return unwritable(folder);
}

int run(const SharedOptions& shared, const RateOptions& options) {
  const auto config = shared.resolve();
  if (!config) return fail(config.error());
  const auto cores = cores_from(config->lcores);
  if (!cores) return fail(cores.error());
  if (auto checked = check_folder(options.hgrm_folder); !checked) return fail(checked.error());
  Progress progress;
  auto bench = start_bench(without_addresses(*config), *cores, options);
  if (!bench) return fail(bench.error());
  const Status ran = bench->run(progress);
  progress.clear();
  tell_of_captures(config->pcap);
  if (!ran && bench->points().empty()) return fail(ran.error());
  const Json result = bench->result(*config);
  if (shared.json()) {
    fmt::print("{}\n", to_text(result, 2));
  } else {
    print_text(*cores, result);
  }
  return ran ? 0 : fail(ran.error());
}

}  // namespace

void add_bench_rate(CLI::App& bench, int& exit_code) {
  CLI::App* command = bench.add_subcommand(
      "rate",
      "latency of messages that are due at fixed times, over uroce and over TCP, in turns on the same cores");
  const auto shared = std::make_shared<SharedOptions>(*command);
  const auto options = std::make_shared<RateOptions>();
  command->add_option("--rates", options->rates, "messages a second")
      ->delimiter(',')
      ->check(CLI::Range(1U, 100'000'000U));
  command->add_option("--sizes", options->sizes, "message sizes")
      ->delimiter(',')
      ->check(CLI::Range(1U, 4096U));
  command
      ->add_option("--peer-port", options->peer_port,
                   "port of the other end, opened first (default: the same link)")
      ->type_name("SPEC");
  command->add_flag("--tcp-block", options->with_block,
                    "also TCP that sleeps until something comes or is due");
  command
      ->add_option(
          "--hgrm", options->hgrm_folder,
          "write the distribution of each sample into the folder DIR, as HdrHistogram's plotters read "
          "it, us")
      ->type_name("DIR");
  command->add_option("--rounds", options->rounds, "samples of each")->check(CLI::Range(1U, 100U));
  command->add_option("--sample-ms", options->sample_ms, "length of a sample")
      ->check(CLI::Range(10U, 60'000U));
  command->callback([=, &exit_code] { exit_code = run(*shared, *options); });
}

}  // namespace uroce::apps
