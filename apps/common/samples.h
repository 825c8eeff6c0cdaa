/// What short measurements reached, and how they stand beside others taken in turns with them.
#pragma once

#include <cstdint>
#include <vector>

namespace uroce::apps {

/// What one sample reached. Rates in units per second, times in nanoseconds.
struct Reached {
  double p50 = 0;
  double p99 = 0;
  double rate = 0;
  std::uint64_t interruptions = 0;  ///< of the measured processes by other programs
  // Of an open loop.
  double p999 = 0;
  double max = 0;
  double cpu_ns = 0;           ///< of both ends, of one message
  std::uint64_t offered = 0;   ///< messages that were due
  std::uint64_t answered = 0;  ///< of these
  bool saturated = false;
};

/// All samples of one who is measured, by round.
struct Samples {
  std::vector<Reached> all{};

  /// The median of each figure of type double; those of 0 were not measured.
  [[nodiscard]] Reached middle() const;
  /// The median of what each sample is of the one of `base` in the same round: what moves both from one round
  /// to the next does not count. 0 if none was measured.
  [[nodiscard]] double beside(const Samples& base, double Reached::*field) const;
  /// Largest less smallest over the median.
  [[nodiscard]] double spread(double Reached::*field) const;
  /// Most of them were.
  [[nodiscard]] bool saturated() const;

 private:
  [[nodiscard]] std::vector<double> measured(double Reached::*field) const;
};

}  // namespace uroce::apps
