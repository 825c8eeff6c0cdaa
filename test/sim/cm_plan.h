/// One schedule of the communication manager's simulation, drawn from one seed.
#pragma once

#include <cstdint>

namespace uroce::sim {

/// Probabilities are per MAD.
struct CmPlan {
  std::uint64_t seed = 0;
  unsigned nodes = 2;
  unsigned attempts = 8;  ///< connections that are asked for
  unsigned qpns = 4;      ///< per node: they are soon used again
  double loss = 0;
  double duplicate = 0;
  std::uint64_t delay_ns = 1'000'000;
  std::uint64_t jitter_ns = 0;  ///< uniform; order is not kept
  unsigned most_kills = 2;      ///< of one and the same MAD in a row; 0: any number
  /// Anything may be lost for any time, and nodes restart: then it is the QPs that find out, when the net is
  /// whole again. Otherwise the managers must agree on their own.
  bool is_harsh = false;
  std::uint64_t cut_at_ns = 0;  ///< harsh: nothing passes for `cut_ns`
  std::uint64_t cut_ns = 0;
  unsigned restarts = 0;
};

[[nodiscard]] CmPlan make_cm_plan(std::uint64_t seed);

struct CmTotals {
  std::uint64_t schedules = 0;
  std::uint64_t harsh = 0;
  std::uint64_t attempts = 0;
  std::uint64_t established = 0;  ///< at the end, on both sides
  std::uint64_t ended = 0;        ///< ids that brought the event that says so
  std::uint64_t mads = 0;
  std::uint64_t lost = 0;
  std::uint64_t repeated = 0;
  std::uint64_t restarts = 0;
  std::uint64_t again = 0;  ///< requests that became an event more than once
};

}  // namespace uroce::sim
