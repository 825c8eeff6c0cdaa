/// Runs schedules of connections that are made and ended over a random network in virtual time.
///
/// cm_sim [--schedules N] [--seed S] [--trace]
///
/// Schedule i has the seed S + i. The first one that breaks a promise ends the run; its seed and the command
/// that replays it are printed. --trace writes every MAD and event to standard error.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string_view>

#include "sim/cm_world.h"

namespace {

using namespace uroce::sim;

/// @return whether the schedule kept all promises.
bool run_one(std::uint64_t seed, bool trace, CmTotals& totals) {
  try {
    CmWorld world(make_cm_plan(seed), trace);
    world.run();
    world.add_to(totals);
    return true;
  } catch (const std::exception& error) {
    const auto number = static_cast<unsigned long long>(seed);
    std::printf("seed %llu: %s\nreplay: cm_sim --schedules 1 --seed %llu --trace\n", number, error.what(),
                number);
    return false;
  }
}

void print(const CmTotals& totals, double seconds) {
  const auto number = [](std::uint64_t value) { return static_cast<unsigned long long>(value); };
  std::printf(
      "%llu schedules (%llu harsh), %llu connections asked for, %llu still there at the end, %.1f s\n",
      number(totals.schedules), number(totals.harsh), number(totals.attempts), number(totals.established),
      seconds);
  std::printf(
      "%llu ids ended, %llu MADs, %llu lost, %llu repeated, %llu restarts, %llu requests told again\n",
      number(totals.ended), number(totals.mads), number(totals.lost), number(totals.repeated),
      number(totals.restarts), number(totals.again));
}

}  // namespace

int main(int argc, char** argv) {
  std::uint64_t schedules = 1000;
  std::uint64_t seed = 1;
  bool trace = false;
  for (int i = 1; i < argc; ++i) {
    const std::string_view name = argv[i];
    if (name == "--trace") {
      trace = true;
    } else if (i + 1 < argc && (name == "--schedules" || name == "--seed")) {
      (name == "--seed" ? seed : schedules) = std::strtoull(argv[++i], nullptr, 0);
    } else {
      std::fprintf(stderr, "usage: cm_sim [--schedules N] [--seed S] [--trace]\n");
      return 2;
    }
  }
  const auto start = std::chrono::steady_clock::now();
  CmTotals totals;
  bool ok = true;
  for (std::uint64_t i = 0; i < schedules && ok; ++i) ok = run_one(seed + i, trace, totals);
  print(totals, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  return ok ? 0 : 1;
}
