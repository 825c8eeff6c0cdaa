/// How far away the other end's core is.
#pragma once

#include <algorithm>
#include <cstdint>

namespace uroce::drivers::shm {

/// Judges by the time that a cache line takes which the other core has just written: on an AMD EPYC (Zen 5),
/// with the clock, 40 ns between cores that share a cache and 150 ns between others. Most of the last decide.
class Nearness {
 public:
  /// @param ns  such a time
  void saw(std::uint64_t ns) noexcept {
    balance_ = std::clamp(balance_ + (ns <= kMostNs ? 1 : -1), -kMostBalance, kMostBalance);
  }
  /// False until enough was seen.
  [[nodiscard]] bool is_near() const noexcept { return balance_ > 0; }

 private:
  static constexpr std::uint64_t kMostNs = 90;
  static constexpr int kMostBalance = 4;

  int balance_ = -kMostBalance;
};

}  // namespace uroce::drivers::shm
