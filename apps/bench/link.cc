// uroce bench link: where the time goes on one kind of link.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <memory>
#include <utility>

#include "apps/bench/link_goals.h"
#include "apps/bench/rate.h"
#include "apps/bench/scale.h"
#include "apps/commands.h"
#include "apps/common/cli.h"
#include "apps/common/compare.h"
#include "apps/common/json_text.h"
#include "apps/common/machine_json.h"
#include "apps/common/port_spec.h"
#include "apps/common/progress.h"

namespace uroce::apps {
namespace {

struct Options {
  std::string peer_port;
  std::array<std::string, 2> bare_ports;  ///< client's, server's
  std::vector<std::uint32_t> rtt = {64, 288, 1024, 4096};
  std::vector<std::uint32_t> rate = {64, 288};
  std::vector<std::uint32_t> stream = {4096, 65536, 1048576, 128U << 20U};
  unsigned rounds = 5;
  unsigned sample_ms = 150;
};

/// What af_xdp has opened, no other process can open: there are two ports on each interface otherwise.
Status check_ports(const Config& config, const Options& options) {
  const auto& bare = options.bare_ports;
  if (config.port.starts_with("af_xdp:") &&
      (options.peer_port.empty() || bare[0].empty() || bare[1].empty())) {
    return Error{.code = Errc::kInvalid,
                 .text =
                     "an interface has room for one af_xdp port: name the other ends of two links by "
                     "--peer-port, --bare-port and --bare-peer-port af_xdp:IFACE, e.g. two veth pairs"};
  }
  return {};
}

/// All goals are of two cores.
std::vector<Judged> goals_of(const CorePair& cores, const std::vector<Row>& rows) {
  return cores.shared ? std::vector<Judged>{} : judge_rows(rows);
}

/// @param failure  of the case that ended it; rows are those before
Result<Json> run_all(const Config& config, const CorePair& cores, const Options& options,
                     std::vector<Row>& rows, Status& failure) {
  Progress progress;
  if (auto checked = check_ports(config, options); !checked) return checked.error();
  const auto ports = ends_of_link(config.port, options.peer_port);
  if (!ports) return ports.error();
  auto tcp = TcpUnderTest::start(cores);
  if (!tcp) return tcp.error();
  const auto largest = options.stream.empty() ? 0U : *std::ranges::max_element(options.stream);
  auto link = LinkUnderTest::start(config.port.substr(0, config.port.find(':')), cores, config, *ports,
                                   largest, options.bare_ports);
  if (!link) return link.error();

  std::vector<Case> cases;
  for (const auto size : options.rtt) cases.push_back({Kind::kRtt, size});
  for (const auto size : options.rate) cases.push_back({Kind::kRate, size});
  for (const auto size : options.stream) cases.push_back({Kind::kStream, size});
  const Plan plan{
      .rounds = options.rounds, .run_ns = options.sample_ms * kMillisecond, .with_all = true, .cores = cores};
  for (const auto& one : cases) {
    const auto measured =
        measure(*link, *tcp, one, plan, [&](const std::string& text) { progress.step(text); });
    if (!measured && rows.empty()) return measured.error();
    if (!measured) {
      failure = measured.error();
      break;
    }
    rows.insert(rows.end(), measured->begin(), measured->end());
    for (const auto& text : std::exchange(link->notes, {})) progress.note(text);
  }
  link->looks.push_back(look_at_cores(cores));
  Json result = run_json("uroce.bench.link/1", config);
  result.update({{"machine", machine_json()},
                 {"port", config.port},
                 {"path_mtu", link->path_mtu},
                 {"cores", cores.text()},
                 {"interruptions", link->interruptions},
                 {"tcp", {{"path", tcp->path}, {"congestion", tcp->congestion}}},
                 {"rows", rows_json(rows)},
                 {"goals", judged_json(goals_of(cores, rows))}});
  result.update(looks_json(link->looks));
  return result;
}

void print_text(const Config& config, const CorePair& cores, const Json& result,
                const std::vector<Row>& rows) {
  fmt::print("{}\n", rows_table(rows, true));
  fmt::print(
      "{}, path MTU {}, {}. raw link: frames of the same size, payload written; over af_packet by DPDK's\n"
      "driver, unless --bare-port says otherwise. REF: the same with a copy from and to application memory\n"
      "and CRC-32 on both sides. UCX: tag matching over its shared memory. TCP and UDP over {}, {}, no\n"
      "delay. \"uroce is\": how many times faster than that yardstick; spread: of the samples.\n"
      "Interruptions of uroce: {}.\n",
      config.port, result.at("path_mtu").get<unsigned>(), cores.text(),
      result.at("tcp").at("path").get<std::string>(), result.at("tcp").at("congestion").get<std::string>(),
      result.at("interruptions").get<std::uint64_t>());
  fmt::print("{}", rates_text(rows));
  if (cores.shared) return fmt::print("On one core nobody spins, and no figure is beside a goal.\n");
  fmt::print("{}", looks_text(result));
  const auto goals = goals_of(cores, rows);
  if (!goals.empty()) fmt::print("\n{}", judged_table(goals));
}

int run(const SharedOptions& shared, const Options& options) {
  const auto config = shared.resolve();
  if (!config) return fail(config.error());
  const auto cores = cores_from(config->lcores);
  if (!cores) return fail(cores.error());
  std::vector<Row> rows;
  Status failure;
  const auto result = run_all(without_addresses(*config), *cores, options, rows, failure);
  tell_of_captures(config->pcap);
  if (!result) return fail(result.error());
  if (shared.json()) {
    fmt::print("{}\n", to_text(*result, 2));
  } else {
    print_text(*config, *cores, *result, rows);
  }
  return failure ? 0 : fail(failure.error());
}

}  // namespace

void add_bench(CLI::App& program, int& exit_code) {
  CLI::App* bench = program.add_subcommand("bench", "yardsticks");
  bench->require_subcommand(1);
  CLI::App* command = bench->add_subcommand(
      "link",
      "uroce beside the bare link, the link with CRC and copies, and TCP, in turns on the same two cores");
  const auto shared = std::make_shared<SharedOptions>(*command);
  const auto options = std::make_shared<Options>();
  const auto size = CLI::Range(1U, 4096U);
  command
      ->add_option("--peer-port", options->peer_port,
                   "port of the other end, opened first (default: the same link)")
      ->type_name("SPEC");
  command
      ->add_option(
          "--bare-port", options->bare_ports[0],
          "port for the bare link (default: that of uroce, af_packet by DPDK's driver, or a link beside it)")
      ->type_name("SPEC");
  command->add_option("--bare-peer-port", options->bare_ports[1], "its other end")->type_name("SPEC");
  command->add_option("--rtt", options->rtt, "message sizes for round trips")->delimiter(',')->check(size);
  command->add_option("--rate", options->rate, "message sizes for rates")->delimiter(',')->check(size);
  command->add_option("--stream", options->stream, "WRITE sizes for goodput; above 4 MiB: cold memory")
      ->delimiter(',')
      ->check(CLI::Range(1U, 256U << 20U));
  command->add_option("--rounds", options->rounds, "samples of each")->check(CLI::Range(1U, 100U));
  command->add_option("--sample-ms", options->sample_ms, "length of a sample")
      ->check(CLI::Range(10U, 10'000U));
  command->callback([=, &exit_code] { exit_code = run(*shared, *options); });
  add_bench_scale(*bench, exit_code);
  add_bench_rate(*bench, exit_code);
}

}  // namespace uroce::apps
