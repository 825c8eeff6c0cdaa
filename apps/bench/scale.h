/// uroce bench scale: many QPs, regions, losses, loops and neighbours, each beside the same without.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "apps/bench/crowd.h"
#include "apps/common/core_probe.h"
#include "apps/common/cores.h"
#include "apps/common/goals.h"
#include "apps/common/turns.h"

namespace CLI {
class App;
}

namespace uroce::apps {

/// Adds `scale` to `uroce bench`.
void add_bench_scale(CLI::App& bench, int& exit_code);

struct ScaleOptions {
  std::vector<std::string> only{};  ///< names of tests; empty: all
  std::string peer_port{};          ///< the servers' port; empty: each pair has a link of its own
  std::uint32_t qps = 10'000;
  std::uint32_t regions = 300'000;
  unsigned rounds = 5;
  unsigned sample_ms = 150;
};

/// How the two ends of a pair are set up.
struct PairPlan {
  Mode mode = Mode::kApp;
  bool loop_on_core = false;      ///< the loop's thread is pinned to the application's core
  std::string server_fault{};     ///< faults of what the server receives
  std::string client_fault{};     ///< likewise
  bool selective = false;         ///< both ends offer selective repeat
  std::uint32_t qps = 0;          ///< of the crowd
  std::uint32_t send_depth = 16;  ///< of each of them
  std::uint32_t recv_depth = 1;
  std::uint32_t regions = 0;  ///< at both ends
  bool with_icrc = true;
};

/// What it cost to set a pair's client up, nanoseconds and bytes.
struct SetUpCost {
  double make_ns = 0;
  double join_ns = 0;
  double bytes = 0;
  double regions_ns = 0;
};

/// The pairs of processes that tests measure: each is started when it is first asked for, and stays.
class Stage {
 public:
  Stage(Config config, const CorePair& cores, const ScaleOptions& options,
        std::function<void(const std::string&)> on_step);

  /// @param name  of the pair, and the end of its link's name
  /// @return kBusy: there is one link, and another pair has it
  Result<Pair*> pair(const std::string& name, const PairPlan& plan);
  /// Ends a pair: loops with threads of their own would spin beside what is measured next.
  void end(const std::string& name) { pairs_.erase(name); }
  /// Between two tests: where there is one link, the next pair needs it.
  void end_test() {
    if (has_one_link()) pairs_.clear();
  }
  /// The pair that measures two loops in one process.
  Result<Pair*> loops();
  [[nodiscard]] const SetUpCost& cost(const std::string& name) const { return costs_.at(name); }

  [[nodiscard]] Sample sample(Kind kind, std::uint32_t bytes) const;
  [[nodiscard]] const CorePair& cores() const noexcept { return cores_; }
  [[nodiscard]] const ScaleOptions& options() const noexcept { return options_; }
  Result<std::map<std::string, Samples>> in_turns(std::span<const Turn> turns);
  /// The same beside loops with threads of their own, which would be what a look at the cores sees: look()
  /// before there is such a pair and when it has ended.
  Result<std::map<std::string, Samples>> in_turns_unseen(std::span<const Turn> turns) const;
  /// How far away from each other the cores are now, and how often they stand still.
  void look() { looks_.push_back(look_at_cores(cores_)); }
  [[nodiscard]] const std::vector<CoreLook>& looks() const noexcept { return looks_; }

 private:
  [[nodiscard]] bool has_one_link() const noexcept { return !options_.peer_port.empty(); }
  [[nodiscard]] std::string port_of(const std::string& pair, bool server) const;
  /// Says that a pair is set up now, if there is room for it.
  [[nodiscard]] Status begin(const std::string& pair) const;
  Status add_qps(Pair& pair, const PairPlan& plan, SetUpCost& cost);
  Status add_regions(Pair& pair, std::uint32_t count, SetUpCost& cost);

  Config config_;
  CorePair cores_;
  ScaleOptions options_;
  std::function<void(const std::string&)> on_step_;
  std::map<std::string, Pair> pairs_;
  std::map<std::string, SetUpCost> costs_;
  std::vector<CoreLook> looks_;
};

/// A test by name: one or more judged figures.
struct ScaleTest {
  std::string name;
  std::function<Result<std::vector<Judged>>(Stage&)> run;
};

/// In the order in which they are run.
[[nodiscard]] const std::vector<ScaleTest>& scale_tests();

}  // namespace uroce::apps
