/// Short measurements that are compared: taken in turns, so that what the machine does meanwhile meets all.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "apps/common/worker.h"

namespace uroce::apps {

/// What one sample reached. Rates in units per second, times in nanoseconds.
struct Reached {
  double p50 = 0;
  double p99 = 0;
  double rate = 0;
  std::uint64_t interruptions = 0;  ///< of the measured processes by other programs
};

/// One who is measured.
struct Turn {
  std::string name;  ///< among those that are compared with it
  Pair* pair = nullptr;
  Json client{};  ///< the requests of a sample
  Json server{};
  std::uint64_t limit_ns = 0;
};

/// One sample. @return the failure with the turn's name.
Result<Reached> take(const Turn& turn);

/// All samples of one turn.
struct Samples {
  std::vector<Reached> all{};

  /// The median of each figure; those of 0 were not measured.
  [[nodiscard]] Reached middle() const;
  /// Largest less smallest over the median.
  [[nodiscard]] double spread(double Reached::*field) const;

 private:
  [[nodiscard]] std::vector<double> measured(double Reached::*field) const;
};

/// `rounds` samples of each, A B A B. `on_step` hears what is going on.
/// @return by name; the first failure
Result<std::map<std::string, Samples>> take_in_turns(std::span<const Turn> turns, unsigned rounds,
                                                     const std::function<void(const std::string&)>& on_step);

}  // namespace uroce::apps
