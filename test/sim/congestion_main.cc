/// Senders that share an output of a switch, in virtual time: with congestion control they share it fairly
/// and nothing is lost, without it the switch drops.
///
/// congestion_sim [--ms N] [--senders N] [--seed S] [--told-mbps N] [--kmin F] [--kmax F] [--pmax P]
///
/// --ms: measured time of each run with congestion control, a multiple of 50; --senders: only so many;
/// --told-mbps: what they think the line is; --kmin, --kmax, --pmax: RED, in frames and percent.
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string_view>

#include "sim/bank.h"
#include "sim/congestion_world.h"

namespace {

using namespace uroce::sim;

struct Options {
  std::uint64_t ms = 200;
  std::uint64_t senders = 0;  // 0: 2, 4, 8 and 16
  std::uint64_t seed = 1;
  std::uint64_t told_mbps = 10'000;
  std::uint64_t kmin = CongestionPlan{}.ce_least_frames;
  std::uint64_t kmax = CongestionPlan{}.ce_full_frames;
  std::uint64_t pmax = CongestionPlan{}.ce_percent;
};

struct OptionName {
  std::string_view name;
  std::uint64_t Options::*value;
};
constexpr std::array kOptions = {
    OptionName{"--ms", &Options::ms},     OptionName{"--senders", &Options::senders},
    OptionName{"--seed", &Options::seed}, OptionName{"--told-mbps", &Options::told_mbps},
    OptionName{"--kmin", &Options::kmin}, OptionName{"--kmax", &Options::kmax},
    OptionName{"--pmax", &Options::pmax}};

bool parse(int argc, char** argv, Options& options) {
  for (int i = 1; i < argc; i += 2) {
    bool is_known = false;
    for (const OptionName& option : kOptions) {
      if (option.name != argv[i] || i + 1 == argc) continue;
      options.*option.value = std::strtoull(argv[i + 1], nullptr, 0);
      is_known = true;
    }
    if (!is_known) return false;
  }
  return options.ms % 50 == 0 && options.senders < 250 && options.kmin <= options.kmax;
}

unsigned long long number(std::uint64_t value) {
  return value;
}

CongestionFigures run(const CongestionPlan& plan) {
  const auto start = std::chrono::steady_clock::now();
  CongestionFigures figures = CongestionWorld(plan).run();
  std::printf("%2u senders %s: fairness %.4f (of %.0f ms at least %.4f), utilisation %.1f %%,\n",
              plan.senders, plan.is_controlled ? "with control" : "without", figures.fairness,
              static_cast<double>(CongestionWorld::kSliceNs) / 1e6, figures.worst_fairness,
              figures.utilisation * 100);
  std::printf("  queue %.1f frames, at most %u, %u while they started; %llu dropped,", figures.mean_queue,
              figures.longest_queue, figures.longest_queue_before, number(figures.dropped));
  std::printf(" %llu go-backs and %llu while they started,\n", number(figures.repeated),
              number(figures.repeated_before));
  std::printf("  %llu marked, %llu CNPs, %llu handled; %.1f s real\n ", number(figures.marked),
              number(figures.cnps_sent), number(figures.cnps_handled),
              std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  for (const double rate : figures.rates_mbps) std::printf(" %.0f", rate);
  std::printf(" Mb/s\n");
  std::fflush(stdout);
  return figures;
}

void check(const CongestionPlan& plan, const CongestionFigures& figures) {
  require(figures.fairness >= 0.95, "unfair");
  require(figures.worst_fairness >= 0.9, "unfair for a while");
  require(figures.utilisation >= 0.9, "the line is not used");
  require(figures.mean_queue <= plan.ce_full_frames, "a long queue");
  require(figures.longest_queue <= 2 * plan.ce_full_frames, "a queue that grew long");
  require(figures.dropped == 0, "the switch dropped frames");
  require(figures.longest_queue_before < plan.queue_frames, "the queue was full while flows started");
  require(figures.repeated == 0 && figures.repeated_before == 0,
          "congestion was taken for loss: packets were sent again");
  require(
      figures.cnps_handled <= figures.cnps_sent && figures.cnps_sent - figures.cnps_handled <= plan.senders,
      "CNPs were lost");
}

void run_all(const Options& options) {
  for (const std::uint64_t senders : std::array<std::uint64_t, 4>{2, 4, 8, 16}) {
    if (options.senders != 0 && options.senders != senders) continue;
    CongestionPlan plan{.senders = static_cast<unsigned>(senders),
                        .measure_ns = options.ms * 1'000'000,
                        .seed = options.seed,
                        .told_bps = options.told_mbps * 1'000'000,
                        .ce_least_frames = static_cast<std::uint32_t>(options.kmin),
                        .ce_full_frames = static_cast<std::uint32_t>(options.kmax),
                        .ce_percent = static_cast<std::uint32_t>(options.pmax)};
    check(plan, run(plan));
    plan.is_controlled = false;
    plan.settle_ns = 10'000'000;
    plan.measure_ns = CongestionWorld::kSliceNs;
    require(run(plan).dropped > 0,
            "the queue does not overflow without congestion control: nothing was shown");
  }
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  if (!parse(argc, argv, options)) {
    std::fprintf(stderr,
                 "usage: congestion_sim [--ms N] [--senders N] [--seed S] [--told-mbps N] [--kmin F] [--kmax "
                 "F] [--pmax P]\n");
    return 2;
  }
  try {
    run_all(options);
  } catch (const std::exception& error) {
    std::printf("seed %llu: %s\n", number(options.seed), error.what());
    return 1;
  }
  return 0;
}
