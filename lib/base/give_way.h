/// How a thread that spins leaves its core to others that want to run there.
#pragma once

#include <sched.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstdint>
#include <utility>

namespace uroce {

/// Where nobody else wants the core, it is offered ever more rarely, each Terms::longest iterations in the
/// end. Where another one shares it, as on a machine with one core, it is offered again and again while there
/// is no work: each would otherwise wait for the end of the other's time slice, milliseconds.
///
/// Threads: the one that spins.
class GiveWay {
 public:
  struct Terms {
    std::uint32_t wait = 1;  ///< iterations without work, before the core is offered to one who shares it
    std::uint32_t first_wait = 64;      ///< likewise, before it is known who does
    std::uint32_t longest = 1U << 14U;  ///< likewise, in the end
    bool only_one_core = false;  ///< a thread that may run elsewhere counts as one that shares with nobody
  };
  constexpr GiveWay() noexcept : GiveWay(Terms{}) {}
  constexpr explicit GiveWay(const Terms& terms) noexcept : terms_(terms), patience_(terms.first_wait) {}

  /// After an iteration of the loop. @return whether others may have had the core
  bool after(unsigned work) noexcept {
    if (work != 0) {
      idle_ = 0;
      return false;
    }
    if (++idle_ < patience_) return false;
    offer();
    return true;
  }

  /// Somebody else has run here lately.
  [[nodiscard]] bool is_shared() const noexcept { return patience_ == terms_.wait; }

 private:
  static constexpr std::uint32_t kLookEvery = 64;  // offers, while the core is shared

  void offer() noexcept {
    sched_yield();
    if (!is_shared() || ++offers_ % kLookEvery == 0) look();
    idle_ = is_shared() ? patience_ - 1 : 0;  // to one who shares it until there is work
  }
  void look() noexcept {
    const long before = std::exchange(switches_, switches());
    const bool shares = switches_ != before && !(terms_.only_one_core && may_move());
    patience_ = shares ? terms_.wait : std::min(2 * patience_, terms_.longest);
  }
  /// How often another thread has run here instead, though this one could have gone on.
  [[nodiscard]] static long switches() noexcept {
    rusage usage{};
    return getrusage(RUSAGE_THREAD, &usage) == 0 ? usage.ru_nivcsw : 0;
  }
  /// Whether this thread may run on another core.
  [[nodiscard]] static bool may_move() noexcept {
    cpu_set_t cores;
    return sched_getaffinity(0, sizeof cores, &cores) != 0 || CPU_COUNT(&cores) > 1;
  }

  Terms terms_;
  std::uint32_t idle_ = 0;
  std::uint32_t patience_;  // iterations without work before the core is offered
  std::uint32_t offers_ = 0;
  long switches_ = 0;
};

}  // namespace uroce
