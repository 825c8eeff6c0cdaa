/// Runs schedules of random work over a random network in virtual time.
///
/// rc_sim [--mixed | --multicast] [--selective] [--schedules N] [--messages M] [--seed S] [--trace] [--pcap
/// FILE]
///
/// RC with all operations, or with --mixed RC, UC, UD and XRC QPs, some of which share their receives, or
/// with
/// --multicast datagrams to groups.
///
/// --selective has all RC QPs repeat selectively; some do without it.
///
/// --trace writes every packet in words to standard error, --pcap as sent to a capture file.
///
/// Schedule i has the seed S + i. The first one that breaks a promise ends the run; its seed and the command
/// that replays it are printed. 500 schedules or more must also have met everything that such schedules are
/// about.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "sim/mix_world.h"
#include "sim/multicast_world.h"
#include "sim/world.h"
#include "uroce/ece.h"

namespace {

using namespace uroce::sim;

struct Options {
  std::uint64_t schedules = 500;
  std::uint64_t messages = 200;
  std::uint64_t seed = 1;
  std::string kind;  // "", "--mixed" or "--multicast"
  bool selective = false;
  bool trace = false;
  std::string pcap;
};

std::optional<Options> parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string_view name = argv[i];
    if (name == "--trace") {
      options.trace = true;
      continue;
    }
    if (name == "--selective") {
      options.selective = true;
      continue;
    }
    if (name == "--mixed" || name == "--multicast") {
      options.kind = name;
      continue;
    }
    if (i + 1 == argc) return std::nullopt;
    if (name == "--pcap") {
      options.pcap = argv[++i];
      continue;
    }
    const std::uint64_t value = std::strtoull(argv[++i], nullptr, 0);
    if (name == "--schedules")
      options.schedules = value;
    else if (name == "--messages")
      options.messages = value;
    else if (name == "--seed")
      options.seed = value;
    else
      return std::nullopt;
  }
  return options;
}

template <typename World>
void run_world(World&& world, const Options& options, Totals& totals) {
  world.net().set_trace(options.trace);
  if (!options.pcap.empty()) world.net().set_capture(options.pcap);
  world.run();
  world.add_to(totals);
}

/// @return whether the schedule kept all promises.
bool run_one(std::uint64_t seed, const Options& options, Totals& totals) {
  try {
    if (options.kind == "--multicast") {
      run_world(MulticastWorld(seed, options.messages), options, totals);
    } else if (options.kind == "--mixed") {
      const MixPlan plan = make_mix_plan(seed, options.messages);
      run_world(MixWorld(plan), options, totals);
    } else {
      Plan plan = make_plan(seed, options.messages);
      for (FlowPlan& flow : plan.flows) flow.ece |= options.selective ? uroce::ece::kSelectiveRepeat : 0;
      run_world(World(plan), options, totals);
    }
    return true;
  } catch (const std::exception& error) {
    std::printf(
        "seed %llu: %s\nreplay: rc_sim %s %s --schedules 1 --messages %llu --seed %llu --trace --pcap "
        "failed.pcap\n",
        static_cast<unsigned long long>(seed), error.what(), options.kind.c_str(),
        options.selective ? "--selective" : "", static_cast<unsigned long long>(options.messages),
        static_cast<unsigned long long>(seed));
    return false;
  }
}

void print(const Totals& totals, double seconds) {
  const auto number = [](std::uint64_t value) { return static_cast<unsigned long long>(value); };
  std::printf("%llu schedules, %llu messages, %llu packets, %.1f s virtual, %.1f s real\n",
              number(totals.schedules), number(totals.messages), number(totals.packets),
              static_cast<double>(totals.virtual_ns) / 1e9, seconds);
  std::printf(
      "%llu damaged, %llu go-backs, %llu timeouts, %llu probes, %llu RNR NAKs, %llu implied NAKs, %llu "
      "duplicates, "
      "%llu replays\n",
      number(totals.damaged), number(totals.go_backs), number(totals.timeouts), number(totals.probes),
      number(totals.rnr_naks), number(totals.implied_naks), number(totals.duplicates),
      number(totals.replays));
  std::printf("%llu waits for credits, %llu updates, %llu questions, %llu messages begun without\n",
              number(totals.credit_waits), number(totals.credit_updates), number(totals.credit_questions),
              number(totals.limited));
  std::printf("%llu selective NAKs, %llu packets held, %llu repeated, %llu joint ACKs\n",
              number(totals.selective_naks), number(totals.held), number(totals.repeated),
              number(totals.joint_acks));
  std::printf("%llu CNPs sent, %llu handled, %llu ignored, %llu waits for the pacer\n",
              number(totals.cnps_sent), number(totals.cnps_handled), number(totals.cnps_ignored),
              number(totals.paced));
  if (totals.received == 0) return;
  std::printf(
      "%llu received, %llu dropped, %llu without receive, %llu with a wrong Q_Key, %llu limit events\n",
      number(totals.received), number(totals.lost_messages), number(totals.no_receive),
      number(totals.bad_qkeys), number(totals.limit_events));
}

constexpr std::uint64_t kEnough = 500;  // schedules in which everything happens

/// What must have happened in many schedules.
struct Happening {
  const char* what;
  std::uint64_t Totals::*count;
};
constexpr Happening kAlways[] = {{"damaged packets", &Totals::damaged}};
constexpr Happening kWithConnections[] = {{"go-backs", &Totals::go_backs},
                                          {"timeouts", &Totals::timeouts},
                                          {"probes", &Totals::probes},
                                          {"RNR NAKs", &Totals::rnr_naks},
                                          {"duplicates", &Totals::duplicates},
                                          {"repeated packets", &Totals::repeated},
                                          {"CNPs sent", &Totals::cnps_sent},
                                          {"CNPs handled", &Totals::cnps_handled},
                                          {"CNPs ignored", &Totals::cnps_ignored},
                                          {"waits for the pacer", &Totals::paced}};
constexpr Happening kWithAllOperations[] = {{"implied NAKs", &Totals::implied_naks},
                                            {"replays", &Totals::replays},
                                            {"waits for credits", &Totals::credit_waits},
                                            {"credit updates", &Totals::credit_updates},
                                            {"questions for credits", &Totals::credit_questions},
                                            {"messages begun without credits", &Totals::limited},
                                            {"selective NAKs", &Totals::selective_naks},
                                            {"packets held", &Totals::held},
                                            {"joint ACKs", &Totals::joint_acks}};
constexpr Happening kWithAllTypes[] = {{"messages received", &Totals::received},
                                       {"messages dropped", &Totals::lost_messages},
                                       {"packets without receive", &Totals::no_receive},
                                       {"wrong Q_Keys", &Totals::bad_qkeys},
                                       {"limit events", &Totals::limit_events}};

/// @return whether all of it happened.
bool happened(std::span<const Happening> things, const Totals& totals) {
  bool all = true;
  for (const Happening& thing : things) {
    if (totals.*thing.count > 0) continue;
    std::printf("no %s: nothing was shown of that\n", thing.what);
    all = false;
  }
  return all;
}

bool met_everything(const Options& options, const Totals& totals) {
  bool all = happened(kAlways, totals);
  if (options.kind == "--multicast") return all;
  all = happened(kWithConnections, totals) && all;
  return happened(options.kind.empty() ? std::span<const Happening>(kWithAllOperations) : kWithAllTypes,
                  totals) &&
         all;
}

}  // namespace

int main(int argc, char** argv) {
  const auto options = parse(argc, argv);
  if (!options) {
    std::fprintf(stderr,
                 "usage: rc_sim [--mixed | --multicast] [--selective] [--schedules N] [--messages M] [--seed "
                 "S] [--trace] "
                 "[--pcap FILE]\n");
    return 2;
  }
  const auto start = std::chrono::steady_clock::now();
  Totals totals;
  bool ok = true;
  for (std::uint64_t i = 0; i < options->schedules && ok; ++i)
    ok = run_one(options->seed + i, *options, totals);
  print(totals, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  if (ok && options->schedules >= kEnough) ok = met_everything(*options, totals);
  return ok ? 0 : 1;
}
