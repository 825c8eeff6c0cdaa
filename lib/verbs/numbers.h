/// Numbers by which objects of a device are known to others.
#pragma once

#include <cstdint>
#include <unordered_set>

namespace uroce {

/// 1 to `most`, each for one at a time. One that was given back comes again after all others: who still
/// speaks of its last holder has had the time to stop.
///
/// Threads: one at a time.
class Numbers {
 public:
  explicit Numbers(std::uint32_t most) noexcept : most_(most) {}

  /// @return 0: all are in use. Throws bad_alloc.
  [[nodiscard]] std::uint32_t take() {
    if (in_use_.size() >= most_) return 0;
    do {
      last_ = last_ % most_ + 1;
    } while (!in_use_.insert(last_).second);
    return last_;
  }
  void give_back(std::uint32_t number) noexcept { in_use_.erase(number); }

 private:
  const std::uint32_t most_;
  std::uint32_t last_ = 0;
  std::unordered_set<std::uint32_t> in_use_;
};

}  // namespace uroce
