// How those who look after a loop sleep: the helper, and applications in its place.
#include <poll.h>
#include <signal.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <optional>
#include <utility>

#include "base/asymmetric_barrier.h"
#include "base/bounded_time.h"
#include "base/eventfd.h"
#include "base/no_signals.h"
#include "engine/loop_runner.h"

namespace uroce::engine {

/// An application's thread in the helper's place, or next to it. Given back also if that is cancelled.
class LoopRunner::Watch {
 public:
  enum class State : std::uint8_t {
    kNone,       ///< the helper stays on, if there is one
    kWork,       ///< there is something to do
    kFollowing,  ///< somebody else has the place, and will say when it is free
    kWatching,
  };
  explicit Watch(LoopRunner& runner) noexcept : runner_(runner), state_(begin()) {
    if (state_ == State::kNone) runner.expect_sleeper();
  }
  ~Watch() {
    if (state_ == State::kFollowing) runner_.followers_.fetch_sub(1, std::memory_order_relaxed);
    if (state_ == State::kWatching) end();
  }
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  /// Whether the caller is to run the loop, once it does not watch any more.
  [[nodiscard]] bool has_work() const noexcept { return state_ == State::kWork || is_called_; }
  /// @return as LoopRunner::sleep()
  int sleep(std::span<const int> fds, std::chrono::nanoseconds longest);

 private:
  using Wanted = std::array<pollfd, kMostFds + 2>;

  State begin() noexcept;
  State lie_down() noexcept;
  void end() noexcept;
  void look() noexcept;
  int wait(Wanted& wanted, std::chrono::nanoseconds longest, const sigset_t* mask);
  bool take_place() noexcept {
    for (const Place from : {Place::kFree, Place::kHelperSleeps}) {
      if (!runner_.take_place(from, Place::kWatcher)) continue;
      runner_.watcher_.store(&kHere, std::memory_order_relaxed);
      return true;
    }
    // A signal handler has jumped out of its sleep.
    return runner_.is_watched() && runner_.watcher_.load(std::memory_order_relaxed) == &kHere;
  }
  static inline thread_local const char kHere = 0;

  LoopRunner& runner_;
  Bed bed_;
  bool is_woken_ = true;
  bool is_called_ = false;
  State state_;
};

LoopRunner::Watch::State LoopRunner::Watch::begin() noexcept {
  if (runner_.mode_ != Mode::kAuto) return State::kNone;
  if (const auto left = runner_.unwatched_.load(std::memory_order_relaxed); left != 0) {
    runner_.unwatched_.store(left - 1, std::memory_order_relaxed);
    return State::kNone;
  }
  if (!take_place()) {
    runner_.followers_.fetch_add(1, std::memory_order_seq_cst);  // pairs with free_place()
    if (!take_place()) return State::kFollowing;
    runner_.followers_.fetch_sub(1, std::memory_order_relaxed);
  }
  runner_.watches_.fetch_add(1, std::memory_order_relaxed);
  return lie_down();
}

/// @return kWatching, or it has not got the place any more
LoopRunner::Watch::State LoopRunner::Watch::lie_down() noexcept {
  runner_.looks_.fetch_add(1, std::memory_order_relaxed);
  bed_ = {};
  runner_.lie_down(bed_);
  if (bed_.quiet && bed_.rx_fd >= 0) return State::kWatching;
  is_woken_ = true;
  end();
  if (bed_.owned && !bed_.quiet) return State::kWork;
  runner_.wake_helper();  // it may be asleep: its place was taken
  return State::kNone;
}

void LoopRunner::Watch::end() noexcept {
  runner_.get_up(bed_, is_woken_);
  runner_.watcher_.store(nullptr, std::memory_order_relaxed);
  runner_.free_place();
  if (runner_.is_far_.load(std::memory_order_seq_cst)) runner_.wake_helper();  // pairs with rest()
}

/// Nothing has come for a while: there may be timers.
void LoopRunner::Watch::look() noexcept {
  runner_.get_up(bed_, false);
  static_cast<void>(runner_.run_from_application());
  state_ = lie_down();
  if (state_ == State::kNone) runner_.expect_sleeper();
}

/// @return as ppoll(2)
int LoopRunner::Watch::wait(Wanted& wanted, std::chrono::nanoseconds longest, const sigset_t* mask) {
  pollfd& called = wanted[kMostFds];
  pollfd& link = wanted[kMostFds + 1];
  link.fd = -1;
  switch (state_) {
    case State::kWatching:
      called.fd = runner_.watch_fd_;
      link.fd = bed_.rx_fd;
      longest = std::min(longest, std::chrono::nanoseconds(bed_.ns));
      break;
    case State::kFollowing:
      called.fd = runner_.hand_fd_;
      break;
    case State::kNone:
    case State::kWork:
      called.fd = runner_.none_fd_;
      break;
  }
  const timespec limit = timespec_of(longest);
  const int count = ppoll(wanted.data(), wanted.size(), &limit, mask);
  if (count <= 0) return count;
  is_called_ = state_ == State::kWatching && (called.revents | link.revents) != 0;
  if (called.revents != 0) drain_eventfd(called.fd);
  return count;
}

int LoopRunner::Watch::sleep(std::span<const int> fds, std::chrono::nanoseconds longest) {
  Wanted wanted;
  wanted.fill({.fd = -1, .events = POLLIN, .revents = 0});
  for (std::size_t i = 0; i < std::min(fds.size(), kMostFds); ++i) wanted[i].fd = fds[i];
  // A signal ends the sleep, also one that comes while it looks at timers.
  std::optional<NoSignals> looks;
  const std::uint64_t begin = runner_.clock_.now().ns();
  for (auto left = longest; state_ != State::kWork;) {
    const int count = wait(wanted, left, looks.has_value() ? &looks->before() : nullptr);
    is_woken_ = count != 0;
    if (count < 0) return -1;
    if (count > 0) break;
    left = longest - std::chrono::nanoseconds(runner_.clock_.now().ns() - begin);
    if (state_ != State::kWatching || left.count() <= 0) return 0;
    if (!looks.has_value()) looks.emplace();
    look();
  }
  return static_cast<int>(std::count_if(wanted.begin(), wanted.begin() + kMostFds,
                                        [](const pollfd& fd) { return fd.revents != 0; }));
}

int LoopRunner::sleep(std::span<const int> fds, std::chrono::nanoseconds longest) {
  int count = 0;
  int error = 0;
  bool has_work = false;
  {
    Watch watch(*this);
    if (!watch.has_work()) count = watch.sleep(fds, longest);
    error = errno;
    has_work = watch.has_work();
  }
  if (has_work) run_awake();
  errno = error;
  return count;
}

/// Until what has come is answered, too. Frames that others take in time, because they poll, wake a watcher
/// in vain.
void LoopRunner::run_awake() noexcept {
  constexpr int kMostRuns = 16;
  constexpr std::uint32_t kMostInVain = 8;
  constexpr std::uint32_t kUnwatched = 64;
  int runs = 0;
  while (runs < kMostRuns && run_from_application().value_or(0) != 0) ++runs;
  if (runs != 0) {
    in_vain_.store(0, std::memory_order_relaxed);
    return;
  }
  const std::uint32_t in_vain = in_vain_.load(std::memory_order_relaxed) + 1;
  if (in_vain == kMostInVain) unwatched_.store(kUnwatched, std::memory_order_relaxed);
  in_vain_.store(in_vain % kMostInVain, std::memory_order_relaxed);
}

void LoopRunner::disturb() noexcept {
  for (const int fd : {watch_fd_, hand_fd_, none_fd_}) signal_eventfd(fd);
}

void LoopRunner::free_place() noexcept {
  place_.store(Place::kFree, std::memory_order_seq_cst);
  if (followers_.load(std::memory_order_seq_cst) != 0) signal_eventfd(hand_fd_);  // pairs with Watch::begin()
}

/// Leaves the loop alone for a while, unless somebody is about to sleep. Who polls need not wake anybody. Who
/// sleeps in the helper's place for long does not need it to look now and then; it says when it ends.
void LoopRunner::rest(std::uint64_t ns, std::uint32_t sleepers) noexcept {
  const std::uint32_t watches = watches_.load(std::memory_order_relaxed);
  const bool is_as_before = std::exchange(seen_watches_, watches) == watches;
  if (is_as_before && sleep_.load(std::memory_order_relaxed) != Sleep::kNo) keep_awake();
  rests_.store(true, std::memory_order_seq_cst);                           // pairs with expect_sleeper()
  is_far_.store(is_as_before && is_watched(), std::memory_order_seq_cst);  // pairs with Watch::end()
  if (is_far_.load(std::memory_order_relaxed) && is_watched()) ns = kLinkLookNs;
  if (sleepers_.load(std::memory_order_seq_cst) == sleepers) wait_for_kick(-1, ns);
  is_far_.store(false, std::memory_order_relaxed);
  rests_.store(false, std::memory_order_relaxed);
}

/// From now on nobody pays for sleeps. The next one takes longer.
void LoopRunner::keep_awake() noexcept {
  if (!take_place(Place::kFree, Place::kHelper)) return;
  if (try_own()) {  // else another time
    loop_.port().keep_awake();
    sleep_.store(Sleep::kNo, std::memory_order_relaxed);
    disown();
  }
  free_place();
}

/// Helper: whether an application sleeps in its place, and looks up now and then. One that does not is kept
/// from it by a signal handler or a debugger: the helper looks after the loop then.
bool LoopRunner::is_well_watched(Ticks now) noexcept {
  constexpr std::uint64_t kMostNs = 3 * kLinkLookNs;
  if (std::exchange(seen_looks_, looks_.load(std::memory_order_relaxed)) != seen_looks_) looked_ = now;
  well_watched_ = is_watched() && now < looked_ + kMostNs;
  return well_watched_;
}

/// The helper. @return whether it has slept: there was no work
bool LoopRunner::sleep_until_work() noexcept {
  if (!take_place(Place::kFree, Place::kHelper)) {
    if (well_watched_ || !is_watched()) return false;
    wait_for_kick(-1, kLookNs);
    return true;
  }
  Bed bed;
  lie_down(bed);
  bool is_woken = true;
  if (bed.quiet) {
    is_far_.store(bed.ns > kLookNs, std::memory_order_seq_cst);  // pairs with Watch::end()
    let_take_place();
    is_woken = wait_for_kick(bed.rx_fd, bed.ns);
    is_far_.store(false, std::memory_order_relaxed);
    if (!take_place(Place::kHelperSleeps, Place::kHelper)) return true;  // it has not got the place any more
  }
  get_up(bed, is_woken);
  free_place();
  return bed.quiet;
}

/// The helper, while others have the loop: for a while, or until a frame comes, for which they may not look
/// any more. What came before is theirs if they look once more, and waits for the end of the nap if not.
void LoopRunner::nap() noexcept {
  const bool has_place = take_place(Place::kFree, Place::kHelper);
  const bool is_armed = has_place && loop_.port().arm_rx_beside();
  if (has_place) let_take_place();
  wait_for_kick(is_armed ? loop_.port().rx_fd() : -1, nap_ns_);
  nap_ns_ = std::min(2 * nap_ns_, kLastNapNs);
  if (!has_place || !take_place(Place::kHelperSleeps, Place::kHelper)) return;
  if (is_armed) loop_.port().disarm_rx();
  free_place();
}

/// The helper's, by an application that is about to sleep, one that waits for it already with them.
void LoopRunner::let_take_place() noexcept {
  place_.store(Place::kHelperSleeps, std::memory_order_seq_cst);
  if (followers_.load(std::memory_order_seq_cst) != 0) signal_eventfd(hand_fd_);  // pairs with Watch::begin()
}

void LoopRunner::lie_down(Bed& bed) noexcept {
  bed.polled = last_poll_.load(std::memory_order_relaxed);
  const bool is_drowsy = sleep_.load(std::memory_order_relaxed) != Sleep::kNo;
  sleep_.store(may_sleep_long_ ? Sleep::kLong : Sleep::kShort, std::memory_order_release);
  std::atomic_thread_fence(std::memory_order_seq_cst);  // pairs with kick()
  if (!is_drowsy) heavy_barrier();                      // likewise
  bed.owned = try_own();
  if (bed.owned) {
    bed.rx_fd = loop_.port().rx_fd();
    bed.quiet = !loop_.has_work() && loop_.port().arm_rx();
    const bool has_timer = loop_.deadline(clock_.now()).is_set();
    disown();
    if (bed.quiet && !has_timer && bed.rx_fd >= 0 && may_sleep_long_) bed.ns = kLinkLookNs;
  }
  // Its kick may have been taken already.
  bed.quiet = bed.quiet && !stopping_.load(std::memory_order_acquire);
}

void LoopRunner::get_up(const Bed& bed, bool is_woken) noexcept {
  sleep_.store(Sleep::kDrowsy, std::memory_order_relaxed);
  may_sleep_long_ = bed.quiet && !is_woken && bed.polled == last_poll_.load(std::memory_order_relaxed);
  if (bed.rx_fd >= 0 && try_own()) {
    loop_.port().disarm_rx();
    disown();
  }
}

/// The helper. @return whether there was a kick, or `rx_fd` is readable, before that time was over
bool LoopRunner::wait_for_kick(int rx_fd, std::uint64_t ns) noexcept {
  pollfd fds[2] = {{.fd = kick_fd_, .events = POLLIN, .revents = 0},
                   {.fd = rx_fd, .events = POLLIN, .revents = 0}};
  const timespec longest = timespec_of(std::chrono::nanoseconds(ns));
  go_first(true);
  const bool is_woken = ppoll(fds, 2, &longest, nullptr) > 0;
  awake_since_ = clock_.now();
  if (fds[0].revents != 0) drain_eventfd(kick_fd_);
  return is_woken;
}

}  // namespace uroce::engine
