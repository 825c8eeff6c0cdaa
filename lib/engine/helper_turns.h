/// When the helper of Mode::kAuto looks after its loop, and for how long it spins.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

#include "base/time.h"
#include "engine/patience.h"

namespace uroce::engine {

/// Judges by what comes of the helper's turns: it wakes, runs the loop until that is quiet, and sleeps.
///
/// Applications that poll all the time need no helper: it comes too late for every frame, or takes their
/// core. Those that sleep until there is an event, or spin on memory that a peer writes, poll now and then,
/// too, and stand still without it. So the helper is away on trial: if they have gone on polling meanwhile,
/// it stays away, and looks ever more rarely; if not, it stays on, ever longer before the next trial. Who is
/// in the middle of posting many at once does not poll meanwhile: the trial is drawn out, for a while.
///
/// To spin for the next frame gains the time that waking up takes, unless the application waits for the
/// helper's core, so that nothing can come meanwhile. The helper spins for as long as that has brought
/// something lately.
///
/// An application that sleeps in the helper's place (LoopRunner::sleep()) needs it as little as one that
/// polls.
///
/// Threads: the helper.
class HelperTurns {
 public:
  struct Turn {
    bool found = false;        ///< there was work
    bool is_shared = false;    ///< others have run the loop for a while, too
    std::uint64_t gap_ns = 0;  ///< for how long the helper has spun before some came, at most; 0: none did
  };
  /// What the applications do, as far as the loop sees it.
  struct Applications {
    Ticks last_poll;          ///< when one has run the loop; unset: none has
    std::uint32_t posts = 0;  ///< that have sent what they brought, so far; wraps
    bool watch = false;       ///< one sleeps in the helper's place
  };
  /// Who has polled no longer ago may be about to do so again.
  static constexpr std::uint64_t kFreshNs = 300;

  /// @param can_be_woken  frames wake the helper; otherwise it always spins for as long as it may
  explicit HelperTurns(bool can_be_woken) noexcept : can_be_woken_(can_be_woken) {}

  /// For how long, in ns, the helper is away from now on; 0: it has its next turn. To be called when it has
  /// been, or was woken before. That it comes back late says nothing of those who poll: waking up has taken
  /// their core.
  [[nodiscard]] std::uint64_t away(Ticks now, const Applications& seen) noexcept {
    if (away_ns_ != 0 && now < since_ + away_ns_) return (since_ + away_ns_).ns() - now.ns();
    const std::uint32_t posts = seen.posts - std::exchange(posts_, seen.posts);
    if (away_ns_ == 0) {
      if (seen.watch || in_vain_ == kMostInVain || turns_left_ == 0) away_ns_ = kFirstAwayNs;
    } else if (seen.watch || (seen.last_poll.is_set() && seen.last_poll >= since_ + away_ns_ / 2)) {
      away_ns_ = std::min(2 * away_ns_, kLastAwayNs);
    } else if (posts < kManyPosts || now > seen.last_poll + kLongestBurstNs) {
      stay(away_ns_ > kFirstAwayNs ? kFirstStay : std::min(2 * stay_, kLastStay));
    } else {
      away_ns_ = kFirstAwayNs;
    }
    since_ = now;
    return away_ns_;
  }
  /// The helper has slept after `turn`, found work in it, or shared it. @param last_poll  as above
  void end(const Turn& turn, Ticks last_poll) noexcept {
    if (std::exchange(last_poll_, last_poll) != last_poll) {
      in_vain_ = turn.found ? 0 : in_vain_ + 1;
      --turns_left_;
    }
    turn.gap_ns != 0 ? patience_.pays(turn.gap_ns) : patience_.fails();
  }
  /// An application sleeps until there is an event: it does not poll.
  void expect_sleeper() noexcept { stay(stay_); }

  /// How long to spin without work in the next turn, ns.
  [[nodiscard]] std::uint64_t patience() const noexcept {
    return can_be_woken_ ? patience_.ns() : Patience::kLongestNs;
  }

 private:
  static constexpr std::uint64_t kFirstAwayNs = 50'000;
  static constexpr std::uint64_t kLastAwayNs = 1'000'000;
  static constexpr unsigned kMostInVain = 8;
  static constexpr unsigned kFirstStay = 8;
  static constexpr unsigned kLastStay = 4096;
  static constexpr std::uint32_t kManyPosts = 3;  // who waits for an answer has made one, perhaps two
  static constexpr std::uint64_t kLongestBurstNs = 1'000'000;  // who posts on without polling needs a helper

  void stay(unsigned turns) noexcept {
    stay_ = turns_left_ = turns;
    in_vain_ = 0;
    away_ns_ = 0;
  }
  bool can_be_woken_;
  unsigned stay_ = kFirstStay;  // turns, while applications poll, before the next trial
  unsigned turns_left_ = kFirstStay;
  unsigned in_vain_ = 0;  // of them in a row, the last ones
  std::uint64_t away_ns_ = 0;
  std::uint32_t posts_ = 0;  // Applications::posts, when away() was called last
  Ticks since_;              // likewise, now
  Ticks last_poll_;
  Patience patience_;
};

}  // namespace uroce::engine
