/// How far away the other end's core is.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/cpu.h"

namespace uroce::drivers::shm {

/// Judges by the time that a cache line takes which the other core has just written: on an AMD EPYC (Zen 5),
/// with the clock, 40 ns between cores that share a cache and 150 ns between others. Most of the last decide.
/// Intel's cores are near each other in what it is asked for, all that share a die: 100 ns.
class Nearness {
 public:
  /// @param most_ns  what a near core's line takes
  explicit Nearness(std::uint64_t most_ns = cpu::is_intel ? 200 : 90) noexcept : most_ns_(most_ns) {}

  /// @param ns  such a time
  void saw(std::uint64_t ns) noexcept {
    balance_ = std::clamp(balance_ + (ns <= most_ns_ ? 1 : -1), -kMostBalance, kMostBalance);
  }
  /// False until enough was seen.
  [[nodiscard]] bool is_near() const noexcept { return balance_ > 0; }

 private:
  static constexpr int kMostBalance = 4;

  const std::uint64_t most_ns_;
  int balance_ = -kMostBalance;
};

}  // namespace uroce::drivers::shm
