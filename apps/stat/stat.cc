// uroce stat: what the devices of running processes have counted.
#include <fmt/format.h>
#include <time.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <memory>

#include "apps/commands.h"
#include "apps/common/cli.h"
#include "apps/common/clock.h"
#include "apps/common/stop.h"
#include "apps/stat/explain.h"
#include "apps/stat/report.h"

namespace uroce::apps {
namespace {

struct StatOptions {
  unsigned pid = 0;  ///< 0: all
  unsigned interval_ms = 1000;
  unsigned count = 1;  ///< samples; 0: without end
  bool qps = false;
  bool all = false;
  bool json = false;
  bool prometheus = false;
  bool explain = false;
};

/// Or until the program is told to end.
void sleep_until(std::uint64_t end_ns) {
  constexpr std::uint64_t kLookNs = 100 * kMillisecond;
  for (std::uint64_t now = now_ns(); now < end_ns && !is_stopped(); now = now_ns()) {
    const timespec rest{.tv_sec = 0, .tv_nsec = static_cast<long>(std::min(end_ns - now, kLookNs - 1))};
    (void)nanosleep(&rest, nullptr);
  }
}

Error nobody(unsigned pid) {
  return {.code = Errc::kNotFound,
          .text = pid == 0 ? "no process that this user may look at has a device open; root sees all"
                           : fmt::format("process {} has no device open, or belongs to somebody else; root "
                                         "sees all",
                                         pid)};
}

/// Whether none is what there is to tell: who scrapes would else go on with the figures of those that are
/// gone.
bool may_be_none(const StatOptions& options) {
  return options.prometheus && options.pid == 0;
}

/// QPs one by one: their counters need no time to be read.
int show_qps(const StatOptions& options) {
  for (unsigned i = 0; options.count == 0 || i < options.count; ++i) {
    if (i != 0) sleep_until(now_ns() + options.interval_ms * kMillisecond);
    if (is_stopped()) break;
    const auto pages = find_pages(options.pid, Detail::kQps);
    if (pages.empty() && !may_be_none(options)) return fail(nobody(options.pid));
    if (options.prometheus) {
      fmt::print("{}", qps_prometheus(pages));
      return 0;
    }
    if (i != 0 && !options.json) fmt::print("\n");
    fmt::print("{}", options.json ? qps_json(pages, options.all) : qps_text(pages, options.all));
    std::fflush(stdout);
  }
  return 0;
}

int show_stat(const StatOptions& options) {
  if (options.explain) {
    fmt::print("{}", counters_explained());
    return 0;
  }
  if (options.qps) return show_qps(options);
  StatSample sample{.before = find_pages(options.pid), .now = {}, .now_ns = now_ns()};
  if (sample.before.empty() && !may_be_none(options)) return fail(nobody(options.pid));
  if (options.prometheus) {
    fmt::print("{}", stat_prometheus(sample.before, sample.now_ns));
    return 0;
  }
  for (unsigned i = 0; options.count == 0 || i < options.count; ++i) {
    sleep_until(sample.now_ns + options.interval_ms * kMillisecond);
    if (is_stopped()) break;
    sample.now = find_pages(options.pid);
    sample.now_ns = now_ns();
    if (sample.now.empty()) return fail(nobody(options.pid));
    if (i != 0 && !options.json) fmt::print("\n");
    fmt::print("{}", options.json ? stat_json(sample, options.all) : stat_text(sample, options.all));
    std::fflush(stdout);
    sample.before = std::move(sample.now);
  }
  return 0;
}

}  // namespace

void add_stat(CLI::App& program, int& exit_code) {
  CLI::App* command = program.add_subcommand(
      "stat", "what the devices of running processes have counted, in all and per second");
  const auto options = std::make_shared<StatOptions>();
  command->add_option("PID", options->pid, "only of this process")
      ->default_str("")
      ->check(CLI::Range(1U, 4'194'304U));
  command->add_option("--interval-ms", options->interval_ms, "time from one sample to the next")
      ->check(CLI::Range(200U, 86'400'000U));  // figures change ten times a second
  command->add_option("--count", options->count, "samples; 0: until told to end");
  command->add_flag("--qp", options->qps,
                    "QPs one by one: peers, states and what is rare, those that have counted most first");
  command->add_flag("--all", options->all, "also counters that are zero");
  CLI::Option* json =
      command->add_flag("--json", options->json, "print one JSON object a sample, each on a line");
  command->add_flag("--prometheus", options->prometheus, "print all once, in Prometheus' text format")
      ->excludes(json);
  command->add_flag("--explain", options->explain, "print what each counter means, and nothing else")
      ->excludes(json, "--prometheus", "--qp", "PID");
  command->callback([options, &exit_code] { exit_code = show_stat(*options); });
}

}  // namespace uroce::apps
