/// For how long a thread spins before it sleeps.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

namespace uroce::engine {

/// As long as that has brought something lately: it then gains the time that waking up takes. It brings
/// nothing where frames come rarely, nor where who is to send the next one waits for the core of the thread
/// that spins. Now and then the whole time is tried again.
///
/// Threads: any; what several learn at once may be lost.
class Patience {
 public:
  static constexpr std::uint64_t kLongestNs = 20'000;

  [[nodiscard]] std::uint64_t ns() const noexcept {
    return load(sleeps_) % kTryEvery == 0 ? kLongestNs : load(ns_);
  }
  /// It has come after that time. Whether it was in time for ns() does not matter.
  void pays(std::uint64_t after_ns) noexcept {
    store(ns_, std::clamp(2 * after_ns, std::max(load(ns_), kLeastNs), kLongestNs));
    store(misses_, 0);
    count();
  }
  /// Nothing has come.
  void fails() noexcept {
    store(misses_, load(misses_) + 1);
    if (load(misses_) >= kMostMisses) {
      store(ns_, load(ns_) / 2 < kLeastNs ? 0 : load(ns_) / 2);
      store(misses_, 0);
    }
    count();
  }

 private:
  using Value = std::atomic<std::uint64_t>;
  static constexpr std::uint64_t kLeastNs = 1'000;
  static constexpr std::uint64_t kTryEvery = 32;
  static constexpr std::uint64_t kMostMisses = 4;  // in a row

  static std::uint64_t load(const Value& value) noexcept { return value.load(std::memory_order_relaxed); }
  static void store(Value& value, std::uint64_t to) noexcept { value.store(to, std::memory_order_relaxed); }
  void count() noexcept { store(sleeps_, load(sleeps_) + 1); }

  Value ns_{kLongestNs};
  Value misses_{0};
  Value sleeps_{0};
};

}  // namespace uroce::engine
