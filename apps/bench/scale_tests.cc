// The tests of `uroce bench scale`: who is compared with whom, and what that is to reach.
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "apps/bench/calls.h"
#include "apps/bench/scale.h"

namespace uroce::apps {
namespace {

using Figures = Result<std::vector<Judged>>;

constexpr std::uint32_t kSmall = 64;      // bytes
constexpr std::uint32_t kInFlight = 512;  // messages of a rate test
constexpr std::uint32_t kDepth = 1024;    // of a QP that sends alone
constexpr double kPerMicrosecond = 1e-3;  // from nanoseconds
constexpr double kMillions = 1e-6;
constexpr double kGigabits = 8e-9;  // from bytes per second

Turn turn(const std::string& name, Pair* pair, const Sample& sample,
          const std::optional<Load>& load = std::nullopt) {
  Turn made{.name = name,
            .pair = pair,
            .client = sample.request(true),
            .server = sample.request(false),
            .limit_ns = sample.limit_ns()};
  if (load) made.client["load"] = made.server["load"] = load->to_json();
  return made;
}

/// What all comparisons say of a figure of one turn beside that of another.
struct Comparison {
  const char* test;
  std::string what;
  const char* unit;
  double Reached::*field;
  double scale;
  std::optional<Goal> goal = std::nullopt;
  bool absolute = false;  ///< the figure itself is judged, not its ratio to the base
};

Judged compare(const std::map<std::string, Samples>& all, const Comparison& how, const std::string& name,
               const std::string& base) {
  Judged made{.test = how.test, .what = how.what, .unit = how.unit, .goal = how.goal};
  const double value = all.at(name).middle().*how.field * how.scale;
  const double beside = base.empty() ? 0 : all.at(base).middle().*how.field * how.scale;
  if (value > 0) made.value = value;
  if (value > 0) made.spread = all.at(name).spread(how.field);
  if (beside > 0) made.base = beside;
  if (how.absolute && value > 0) made.figure = value;
  if (!how.absolute && value > 0 && beside > 0) made.figure = all.at(name).beside(all.at(base), how.field);
  return made;
}

/// A pair with a single QP in its crowd: the base of most tests.
Result<Pair*> one_qp(Stage& stage) {
  return stage.pair("one", {.qps = 1, .send_depth = kDepth});
}
/// As many may be in flight as of the one QP.
Result<Pair*> many_qps(Stage& stage) {
  const std::uint32_t qps = stage.options().qps;
  return stage.pair("many", {.qps = qps, .send_depth = std::max(PairPlan{}.send_depth, kDepth / qps)});
}

/// With one WRITE each every QP has an ACK of its own, while the ACKs of one QP answer many: what the number
/// of QPs costs shows beside few that all fit into the cache.
Figures active_qps(Stage& stage) {
  constexpr std::uint32_t kFew = 64;
  auto one = one_qp(stage);
  if (!one) return one.error();
  auto few = stage.pair("few", {.qps = kFew, .send_depth = kDepth / kFew});
  if (!few) return few.error();
  auto many = many_qps(stage);
  if (!many) return many.error();
  const Sample sample = stage.sample(Kind::kRate, kSmall);
  std::vector<Turn> turns;
  for (const std::uint32_t list : {1U, 4U, 16U}) {
    const Load load{.bytes = kSmall, .list = list, .outstanding = kInFlight / list};
    turns.push_back(turn(fmt::format("one QP, lists of {}", list), *one, sample, load));
    turns.push_back(turn(fmt::format("many QPs, lists of {}", list), *many, sample, load));
  }
  turns.push_back(turn("few QPs", *few, sample, Load{.bytes = kSmall, .outstanding = kInFlight}));
  for (const std::uint32_t list : {1U, 16U}) {
    turns.push_back(
        turn(fmt::format("any QP, lists of {}", list), *many, sample,
             Load{.bytes = kSmall, .list = list, .outstanding = kInFlight / list, .random_qp = true}));
  }
  const auto all = stage.in_turns(turns);
  if (!all) return all.error();
  const auto figure = [&](std::uint32_t list, const std::string& how, const std::string& base,
                          std::optional<Goal> goal) {
    return compare(*all,
                   {"active-qps", fmt::format("{} QPs take turns, {}", stage.options().qps, how), "M/s",
                    &Reached::rate, kMillions, std::move(goal)},
                   fmt::format("many QPs, lists of {}", list), base);
  };
  const auto in_any_order = [&](std::uint32_t list) {
    return compare(*all,
                   {"active-qps", fmt::format("{} QPs in any order, lists of {}", stage.options().qps, list),
                    "M/s", &Reached::rate, kMillions},
                   fmt::format("any QP, lists of {}", list), fmt::format("one QP, lists of {}", list));
  };
  const Goal goal{"10", 0.80, 0.92};
  return std::vector{figure(1, "1 WRITE each", "one QP, lists of 1", goal),
                     figure(1, fmt::format("1 WRITE each, beside {} QPs", kFew), "few QPs", std::nullopt),
                     figure(4, "4 WRITEs each", "one QP, lists of 4", goal),
                     figure(16, "16 WRITEs each", "one QP, lists of 16", goal),
                     in_any_order(1),
                     in_any_order(16)};
}

Figures idle_qps(Stage& stage) {
  auto one = one_qp(stage);
  if (!one) return one.error();
  auto many = many_qps(stage);
  if (!many) return many.error();
  const Sample sample = stage.sample(Kind::kRtt, kSmall);
  const std::vector turns = {turn("alone", *one, sample), turn("among idle QPs", *many, sample)};
  const auto all = stage.in_turns(turns);
  if (!all) return all.error();
  return std::vector{compare(*all,
                             {"idle-qps", fmt::format("round trip beside {} idle QPs", stage.options().qps),
                              "us", &Reached::p50, kPerMicrosecond, Goal{"11", 1.02, 1.0, false}},
                             "among idle QPs", "alone")};
}

Figures memory(Stage& stage) {
  constexpr std::uint32_t kQps = 10'000;  // the system gives memory in pages of up to 2 MiB
  auto pair = stage.pair("memory", {.qps = kQps, .send_depth = 64, .recv_depth = 64});
  if (!pair) return pair.error();
  const double bytes = stage.cost("memory").bytes / kQps;
  return std::vector{Judged{.test = "memory",
                            .what = "memory of a QP of depth 64/64",
                            .unit = "B",
                            .value = bytes,
                            .figure = bytes,
                            .goal = Goal{"12", 8192, 8192, false}}};
}

Figures set_up(Stage& stage) {
  if (auto many = many_qps(stage); !many) return many.error();
  const SetUpCost& cost = stage.cost("many");
  const double rate = stage.options().qps * 1e9 / (cost.make_ns + cost.join_ns);
  return std::vector{Judged{.test = "set-up",
                            .what = "QPs created and connected, without CM",
                            .unit = "k/s",
                            .value = rate * 1e-3,
                            .figure = rate * 1e-3}};
}

/// One after the other: what one takes is what a client waits for. Its pair ends, since the manager's threads
/// would wake beside what is measured next.
Figures set_up_by_cm(Stage& stage) {
  constexpr std::uint32_t kCount = 200;
  auto pair = stage.pair("cm", {});
  if (!pair) return pair.error();
  const auto done = (*pair)->call({{"op", "ask-cm"}, {"count", kCount}},
                                  {{"op", "answer-cm"}, {"count", kCount}}, Pair::kStartNs);
  stage.end("cm");
  if (!done) return done.error();
  const double us = done->client.at("ns").get<double>() / kCount * kPerMicrosecond;
  const auto figure = [](const char* what, const char* unit, double value) {
    return Judged{.test = "cm", .what = what, .unit = unit, .value = value, .figure = value};
  };
  return std::vector{figure("QPs created and connected by CM, one after the other", "1/s", 1e6 / us),
                     figure("one of them", "us", us)};
}

/// A call is two messages, each told of by what carries it, with a deadline, beside two bare ones.
Figures calls(Stage& stage) {
  auto pair = stage.pair("calls", {});
  if (!pair) return pair.error();
  if (auto made = (*pair)->call({{"op", "ask-calls"}}, {{"op", "answer-calls"}}, Pair::kStartNs); !made)
    return made.error();
  const auto of_calls = [&](const std::string& name, Kind kind) {
    Turn made = turn(name, *pair, stage.sample(kind, kSmall));
    made.client["calls"] = made.server["calls"] = true;
    return made;
  };
  const std::vector turns = {turn("round trips", *pair, stage.sample(Kind::kRtt, kSmall)),
                             of_calls("calls", Kind::kRtt), of_calls("many calls", Kind::kRate)};
  const auto all = stage.in_turns(turns);
  if (!all) return all.error();
  return std::vector{
      compare(*all, {"calls", "a call of 64 B, beside a round trip", "us", &Reached::p50, kPerMicrosecond},
              "calls", "round trips"),
      compare(*all, {"calls", "p99 of that", "us", &Reached::p99, kPerMicrosecond}, "calls", "round trips"),
      compare(*all,
              {.test = "calls",
               .what = fmt::format("calls of 64 B, {} under way", Calls::kInFlight),
               .unit = "M/s",
               .field = &Reached::rate,
               .scale = kMillions,
               .absolute = true},
              "many calls", "")};
}

/// Neither end computes it in the base.
Figures icrc(Stage& stage) {
  const Sample sample = stage.sample(Kind::kStream, 4096);
  std::vector<Turn> turns;
  for (const bool with_icrc : {true, false}) {
    const std::string name = with_icrc ? "icrc" : "no-icrc";
    auto pair = stage.pair(name, {.with_icrc = with_icrc});
    if (!pair) return pair.error();
    turns.push_back(turn(name, *pair, sample));
  }
  const auto all = stage.in_turns(turns);
  if (!all) return all.error();
  return std::vector{compare(*all,
                             {"icrc", "4 KiB WRITEs beside those without ICRC", "Gb/s", &Reached::rate,
                              kGigabits, Goal{"9", 0.85, 0.93}},
                             "icrc", "no-icrc")};
}

Figures loss(Stage& stage) {
  struct Lossy {
    const char* name;
    const char* fault;
    std::optional<Goal> goal;
    bool selective = false;
  };
  const Goal few{"13", 0.90, 0.97};
  const Goal many{"14", 0.6, 0.8};
  const std::vector<Lossy> cases = {{"loss-none", "loss=0%", std::nullopt},
                                    {"loss-few", "loss=0.1%", few},
                                    {"loss-few-selective", "loss=0.1%", few, true},
                                    {"loss-many", "loss=1%", many},
                                    {"loss-many-selective", "loss=1%", many, true}};
  const Sample sample = stage.sample(Kind::kStream, 4096);
  std::vector<Turn> turns;
  for (const Lossy& one : cases) {
    auto pair = stage.pair(
        one.name, {.server_fault = one.fault, .client_fault = one.fault, .selective = one.selective});
    if (!pair) return pair.error();
    turns.push_back(turn(one.name, *pair, sample));
  }
  const auto all = stage.in_turns(turns);
  if (!all) return all.error();
  std::vector<Judged> figures;
  for (const Lossy& one : cases) {
    if (!one.goal) continue;
    figures.push_back(compare(
        *all,
        {"loss",
         fmt::format("4 KiB WRITEs, {} both ways{}", one.fault, one.selective ? ", selective repeat" : ""),
         "Gb/s", &Reached::rate, kGigabits, one.goal},
        one.name, "loss-none"));
  }
  return figures;
}

Figures lost_tail(Stage& stage) {
  // One message in ten is lost, once: the 99th percentile is one of these.
  auto pair = stage.pair("tail", {.server_fault = "drop opcode=RC_WRITE_ONLY every=10", .qps = 1});
  if (!pair) return pair.error();
  Turn one = turn("one WRITE at a time, some lost", *pair, stage.sample(Kind::kRtt, kSmall));
  one.client["single"] = one.server["single"] = true;
  const auto all = stage.in_turns({&one, 1});
  if (!all) return all.error();
  return std::vector{compare(*all,
                             {"tail", "a WRITE whose only packet is lost", "us", &Reached::p99,
                              kPerMicrosecond, Goal{"14", 1000, 200, false}, true},
                             one.name, "")};
}

Figures loops(Stage& stage) {
  const Comparison how{"loops",   "two loops in one process", "M/s", &Reached::rate,
                       kMillions, Goal{"15", 1.85, 1.95}};
  if (stage.cores().shared)
    return std::vector{
        Judged{.test = how.test, .what = "two loops take two cores", .unit = how.unit, .goal = how.goal}};
  auto pair = stage.loops();
  if (!pair) return pair.error();
  std::vector<Turn> turns;
  const auto add = [&](const char* name, const std::vector<unsigned>& which) {
    turns.push_back(turn(name, *pair, stage.sample(Kind::kRate, kSmall)));
    turns.back().client["loops"] = which;
  };
  add("first loop", {0});
  add("last loop", {1});
  add("all loops", {0, 1});
  auto all = stage.in_turns(turns);
  if (!all) return all.error();
  // One core may be much slower than the other, for as long as the host shares it: the base is what one loop
  // makes on average.
  Samples& one = (*all)["one loop"];
  for (std::size_t i = 0; i < all->at("first loop").all.size(); ++i)
    one.all.push_back({.rate = (all->at("first loop").all[i].rate + all->at("last loop").all[i].rate) / 2});
  return std::vector{compare(*all, how, "all loops", "one loop")};
}

Figures one_core(Stage& stage) {
  std::vector<Judged> figures;
  for (const auto& [name, mode] : {std::pair{"auto", Mode::kAuto}, std::pair{"lcore", Mode::kLcore}}) {
    stage.look();
    auto pair = stage.pair(name, {.mode = mode, .loop_on_core = true});
    if (!pair) return pair.error();
    const Turn one = turn(name, *pair, stage.sample(Kind::kRtt, kSmall));
    const auto all = stage.in_turns_unseen({&one, 1});
    stage.end(name);
    stage.look();
    if (!all) return all.error();
    figures.push_back(compare(*all,
                              {"one-core", fmt::format("round trip, loop on the same core, mode {}", name),
                               "us", &Reached::p50, kPerMicrosecond, Goal{"16", 3.5, 2.5, false}, true},
                              name, ""));
  }
  return figures;
}

Figures fairness(Stage& stage) {
  auto one = one_qp(stage);
  if (!one) return one.error();
  const Sample sample = stage.sample(Kind::kRtt, kSmall);
  const Load bulk{.bytes = 1U << 20U, .outstanding = 16};
  const std::vector turns = {turn("alone", *one, sample), turn("beside 1 MiB WRITEs", *one, sample, bulk),
                             turn("WRITEs alone", *one, stage.sample(Kind::kRate, bulk.bytes), bulk)};
  const auto all = stage.in_turns(turns);
  if (!all) return all.error();
  const auto figure = [&](const char* what, double Reached::*field, std::optional<Goal> goal) {
    return compare(*all, {"fairness", what, "us", field, kPerMicrosecond, std::move(goal)},
                   "beside 1 MiB WRITEs", "alone");
  };
  return std::vector{
      figure("round trip p50 beside 1 MiB WRITEs", &Reached::p50, std::nullopt),
      figure("round trip p99 beside 1 MiB WRITEs", &Reached::p99, Goal{"fair", 2.0, 1.5, false}),
      compare(*all,
              {"fairness", "1 MiB WRITEs beside round trips", "Gb/s", &Reached::rate, kGigabits * bulk.bytes},
              "beside 1 MiB WRITEs", "WRITEs alone")};
}

/// The neighbours lose 5 % of their packets, which are told by their opcodes from those of the clean QP.
Figures noisy_neighbours(Stage& stage) {
  constexpr std::uint32_t kQps = 32;
  constexpr std::uint64_t kGapNs = 30'000;  // each of them sends a thousand messages a second
  const auto pair = stage.pair(
      "noisy", {.server_fault = "drop opcode=RC_WRITE_FIRST every=20; drop opcode=RC_WRITE_LAST every=20",
                .qps = kQps});
  if (!pair) return pair.error();
  const Load load{.bytes = 8192, .outstanding = 4 * kQps, .gap_ns = kGapNs};
  const Sample rtt = stage.sample(Kind::kRtt, kSmall);
  const Sample stream = stage.sample(Kind::kStream, 4096);
  const std::vector turns = {turn("round trip alone", *pair, rtt), turn("round trip", *pair, rtt, load),
                             turn("goodput alone", *pair, stream), turn("goodput", *pair, stream, load)};
  const auto all = stage.in_turns(turns);
  if (!all) return all.error();
  return std::vector{compare(*all,
                             {"noisy", "goodput beside 32 QPs that lose 5 %", "Gb/s", &Reached::rate,
                              kGigabits, Goal{"T27", 0.9, 0.95}},
                             "goodput", "goodput alone"),
                     compare(*all,
                             {"noisy", "round trip p99 beside 32 such QPs", "us", &Reached::p99,
                              kPerMicrosecond, Goal{"T27", 2.0, 1.5, false}},
                             "round trip", "round trip alone")};
}

Figures regions(Stage& stage) {
  const std::uint32_t count = stage.options().regions;
  auto one = one_qp(stage);
  if (!one) return one.error();
  auto many = stage.pair("regions", {.qps = 1, .send_depth = kDepth, .regions = count});
  if (!many) return many.error();
  const Sample sample = stage.sample(Kind::kRate, kSmall);
  const Load load{.bytes = kSmall, .outstanding = kInFlight};
  Load random = load;
  random.random_region = true;
  const std::vector turns = {turn("one region", *one, sample, load),
                             turn("many regions", *many, sample, load),
                             turn("many regions, random", *many, sample, random)};
  const auto all = stage.in_turns(turns);
  if (!all) return all.error();
  const double us = stage.cost("regions").regions_ns / count * kPerMicrosecond;
  const auto figure = [&](const char* what, const char* name) {
    return compare(
        *all, {"regions", fmt::format("{} of {} regions", what, count), "M/s", &Reached::rate, kMillions},
        name, "one region");
  };
  return std::vector{Judged{.test = "regions",
                            .what = fmt::format("registering one of {} regions", count),
                            .unit = "us",
                            .value = us,
                            .figure = us},
                     figure("WRITEs into one", "many regions"),
                     figure("WRITEs into any", "many regions, random")};
}

}  // namespace

const std::vector<ScaleTest>& scale_tests() {
  static const std::vector<ScaleTest> all = {
      {"active-qps", active_qps}, {"idle-qps", idle_qps}, {"memory", memory},     {"set-up", set_up},
      {"cm", set_up_by_cm},       {"icrc", icrc},         {"loss", loss},         {"tail", lost_tail},
      {"loops", loops},           {"one-core", one_core}, {"fairness", fairness}, {"noisy", noisy_neighbours},
      {"regions", regions},       {"calls", calls}};
  return all;
}

}  // namespace uroce::apps
