/// How a thread that spins leaves its core to others that want to run there.
#pragma once

#include <sched.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstdint>
#include <utility>

namespace uroce::engine {

/// Where nobody else wants the core, it is offered ever more rarely, about once a millisecond in the end.
/// Where an application shares it, as on a machine with one core, it is offered whenever there is no work:
/// each would otherwise wait for the end of the other's time slice, milliseconds.
///
/// Threads: the one that spins.
class GiveWay {
 public:
  /// After an iteration of the loop.
  void after(unsigned work) noexcept {
    if (work != 0) {
      idle_ = 0;
    } else if (++idle_ >= patience_) {
      idle_ = 0;
      offer();
    }
  }

  /// Somebody else has run here lately.
  [[nodiscard]] bool is_shared() const noexcept { return patience_ == 1; }

 private:
  static constexpr std::uint32_t kLongest = 1U << 14U;  // iterations without work
  static constexpr std::uint32_t kLookEvery = 64;       // offers, while the core is shared

  void offer() noexcept {
    sched_yield();
    if (patience_ == 1 && ++offers_ % kLookEvery != 0) return;
    const long before = std::exchange(switches_, switches());
    patience_ = switches_ != before ? 1 : std::min(2 * patience_, kLongest);
  }
  /// How often another thread has run here instead, though this one could have gone on.
  [[nodiscard]] static long switches() noexcept {
    rusage usage{};
    return getrusage(RUSAGE_THREAD, &usage) == 0 ? usage.ru_nivcsw : 0;
  }

  std::uint32_t idle_ = 0;
  std::uint32_t patience_ = kLookEvery;  // iterations without work before the core is offered
  std::uint32_t offers_ = 0;
  long switches_ = 0;
};

}  // namespace uroce::engine
