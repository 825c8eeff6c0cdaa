/// Who runs a loop: the ownership token, the mailbox, and the threads of the modes.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <thread>

#include "base/asymmetric_barrier.h"
#include "base/due_bell.h"
#include "base/eventfd.h"
#include "engine/clock.h"
#include "engine/helper_turns.h"
#include "engine/loop_token.h"
#include "engine/poll_loop.h"
#include "uroce/config.h"

namespace uroce::engine {

/// Runs one PollLoop in the mode of its device.
///
/// kLcore: a pinned thread owns the loop; commands reach it through the mailbox. While it has its core
/// together with an application it lends the loop to whoever posts or polls: it cannot run it then. kApp and
/// kAuto: the token goes to whoever posts or polls; commands take it too. kAuto: a helper thread looks after
/// the loop of those who do not poll all the time (HelperTurns), and sleeps when nothing happens. One
/// application that sleeps for its events does so in the helper's place: what comes wakes that one at once.
///
/// Threads: run_from_application(), post(), sleep() and execute() by any; start() and stop() by the creator,
/// when no thread is in sleep() any more.
class LoopRunner final : public Sleeper {
 public:
  LoopRunner(PollLoop& loop, const Clock& clock, Mode mode, std::optional<unsigned> core);
  ~LoopRunner() override;
  LoopRunner(const LoopRunner&) = delete;
  LoopRunner& operator=(const LoopRunner&) = delete;

  /// Starts the thread that the mode needs. All runners of a device stop before the first one goes.
  Status start();
  void stop() noexcept;

  /// One iteration in the calling thread, unless somebody else is at it or the mode has its own thread. What
  /// it took is answered in the next one: if that is not the caller's, the helper's, whom the frames woke in
  /// vain, since they were gone when it came to look.
  /// @return how much work it has found; nullopt: there was none
  std::optional<unsigned> run_from_application() noexcept {
    if (!try_own()) return std::nullopt;
    const Ticks now = clock_.now();
    const unsigned work = loop_.run_once(now);
    last_poll_.store(now.ns(), std::memory_order_relaxed);
    const bool wakes = work != 0 && is_helper_wanted();
    disown();
    if (wakes) wake_sleeper();
    return work;
  }

  /// Work was posted to `qp`: sends it from the calling thread if the loop is free, and tells the loop if
  /// not.
  void post(transport::QueuePair& qp) noexcept {
    if (try_own()) {
      loop_.post(qp, clock_);
      posts_.store(posts_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
      const bool wakes = is_helper_wanted();
      disown();
      if (wakes) wake_sleeper();
    } else {
      loop_.ring(qp);
      kick();
    }
  }

  /// An application that has armed a CQ may sleep from now on: the helper takes over, if it rests.
  void expect_sleeper() noexcept {
    if (mode_ != Mode::kAuto) return;
    sleepers_.fetch_add(1, std::memory_order_seq_cst);  // pairs with rest()
    if (rests_.load(std::memory_order_seq_cst) && !is_watched()) wake_helper();
  }

  /// The calling thread, an application's, sleeps until one of `fds` is readable or the time is over. In
  /// kAuto it does so in the helper's place if nobody else does, and runs the loop when there is work or a
  /// timer may be due: for work it returns then, too. A point of cancellation.
  /// @param fds  at most kMostFds; those below 0 do not count
  /// @return how many of them are readable; -1 with errno, as ppoll(2)
  int sleep(std::span<const int> fds, std::chrono::nanoseconds longest);
  static constexpr std::size_t kMostFds = 2;
  /// Who is in sleep() returns soon; who is about to go there may not.
  void disturb() noexcept;

  /// Runs `command` while nobody else touches the loop, and returns when it is done: behind an iteration that
  /// takes what was posted before. A no-op command is the way to wait until the loop has passed an iteration
  /// boundary. What it throws, this throws; it allocates nothing itself.
  template <typename Run>
  void execute(Run&& command) {
    do_execute(std::ref(command));
  }

  void wake() noexcept override { kick(); }
  void wake_peer() noexcept override {
    if (const int bell = due_bell_.take(); bell >= 0) DueBell::ring(bell);
  }

  /// Whether the calling thread is running the loop, or a command. Async-signal-safe.
  [[nodiscard]] bool is_run_here() const noexcept { return token_.is_held_here(); }

  /// When an application, or run_from_application(), has run the loop.
  [[nodiscard]] Ticks last_poll() const noexcept { return Ticks{last_poll_.load(std::memory_order_relaxed)}; }
  [[nodiscard]] PollLoop& loop() noexcept { return loop_; }
  [[nodiscard]] Mode mode() const noexcept { return mode_; }

 private:
  using CommandFunction = std::function<void(PollLoop&, Ticks)>;  // a reference
  struct Command {
    const CommandFunction* run;
    Command* next = nullptr;
    std::exception_ptr failure;  // what it threw
    std::atomic<bool> done{false};
  };

  bool try_own() noexcept {
    if (mode_ == Mode::kLcore && !lends_.load(std::memory_order_relaxed)) return false;
    if (waiting_.load(std::memory_order_relaxed) != 0) return false;  // commands go first
    return token_.try_take();
  }
  /// Gives the loop back, and only then wakes the peer that has got something: with the waker's core it would
  /// take the loop from everybody.
  void disown() noexcept {
    const int bell = due_bell_.take();
    token_.release();
    if (bell >= 0) [[unlikely]]
      DueBell::ring(bell);
  }
  class Held;
  /// Whether the helper, or who sleeps in its place, must wake up for what the calling thread leaves behind
  /// in the loop. The token makes it see a sleeper that falls asleep, and that one what there is.
  [[nodiscard]] bool is_helper_wanted() const noexcept {
    switch (sleep_.load(std::memory_order_relaxed)) {
      case Sleep::kNo:
      case Sleep::kDrowsy:
        return false;
      case Sleep::kShort:
        return loop_.has_work() || loop_.port().holds_back();
      case Sleep::kLong:
        return true;  // there may be a timer now
    }
    return true;
  }
  /// Wakes a sleeping helper: there is work that the calling thread does not do.
  void kick() noexcept {
    if (mode_ != Mode::kAuto) return;
    light_barrier();  // between the post and the look; pairs with lie_down()
    if (sleep_.load(std::memory_order_relaxed) == Sleep::kNo) return;
    std::atomic_thread_fence(std::memory_order_seq_cst);  // likewise, unless that was the first sleep
    if (sleep_.load(std::memory_order_acquire) != Sleep::kDrowsy) wake_sleeper();
  }
  void wake_helper() noexcept { signal_eventfd(kick_fd_); }
  /// Who has called it has left work behind before: a sleeper who takes the place afterwards sees that.
  void wake_sleeper() noexcept { signal_eventfd(is_watched() ? watch_fd_ : kick_fd_); }
  void do_execute(const CommandFunction& command);
  void run(const CommandFunction& command);
  void run_lcore() noexcept;
  void run_helper() noexcept;
  HelperTurns::Turn help(std::uint64_t patience_ns) noexcept;
  enum class Found : std::uint8_t { kOthers, kNothing, kWork };
  Found run_helped(Ticks& now) noexcept;
  void rest(std::uint64_t ns, std::uint32_t sleepers) noexcept;
  void keep_awake() noexcept;
  void run_mailbox() noexcept;

  /// Who sleeps for the loop, and whom a kick wakes.
  enum class Place : std::uint8_t {
    kFree,
    kHelper,        ///< is about to lie down, or to get up
    kHelperSleeps,  ///< an application that is about to sleep may take its place
    kWatcher,       ///< an application
  };
  /// How a thread lies there.
  struct Bed {
    int rx_fd = -1;
    std::uint64_t ns = kLookNs;  // until it looks again
    std::uint64_t polled = 0;    // last_poll_ when it lay down
    bool owned = false;          // it had the loop for a moment
    bool quiet = false;          // and there was no work
  };
  class Watch;
  [[nodiscard]] bool is_watched() const noexcept {
    return place_.load(std::memory_order_seq_cst) == Place::kWatcher;
  }
  bool take_place(Place from, Place to) noexcept {
    return place_.compare_exchange_strong(from, to, std::memory_order_seq_cst);
  }
  void free_place() noexcept;
  bool is_well_watched(Ticks now) noexcept;
  void run_awake() noexcept;
  bool sleep_until_work() noexcept;
  void nap() noexcept;
  void let_take_place() noexcept;
  void lie_down(Bed& bed) noexcept;
  void get_up(const Bed& bed, bool is_woken) noexcept;
  bool wait_for_kick(int rx_fd, std::uint64_t ns) noexcept;
  void learn_nice() noexcept;
  void go_first(bool yes) noexcept;

  PollLoop& loop_;
  const Clock& clock_;
  const Mode mode_;
  const std::optional<unsigned> core_;
  std::thread thread_;
  std::atomic<bool> stopping_{false};

  LoopToken token_;
  std::atomic<std::uint32_t> waiting_{0};    // commands that want the token
  std::atomic<std::uint64_t> last_poll_{0};  // by an application, ns of the clock
  std::atomic<std::uint32_t> posts_{0};      // by applications that had the token
  std::atomic<bool> lends_{false};           // kLcore: applications may run the loop
  DueBell due_bell_;                         // who has the token

  alignas(64) std::atomic<bool> has_mail_{false};
  std::mutex mail_mutex_;
  Command* mail_head_ = nullptr;
  Command* mail_tail_ = nullptr;

  /// Of who has the place. Drowsy: awake, but it may fall asleep at any time without making others pass a
  /// barrier. Short: it looks at timers soon.
  enum class Sleep : std::uint8_t { kNo, kDrowsy, kShort, kLong };
  alignas(64) std::atomic<Sleep> sleep_{Sleep::kNo};
  std::atomic<bool> rests_{false};                     // it leaves the loop to applications that poll
  std::atomic<std::uint32_t> sleepers_{0};             // how often one was about to sleep
  static constexpr std::uint64_t kLookNs = 1'000'000;  // between two looks at timers
  static constexpr std::uint64_t kFirstNapNs = 10'000;
  static constexpr std::uint64_t kLastNapNs = 50'000;
  bool may_sleep_long_ = false;         // who has the place: nothing has happened during a short sleep
  std::uint64_t nap_ns_ = kFirstNapNs;  // helper: until it tries again to get the loop
  Ticks turn_begin_;                    // helper: of the turn that has not ended; unset: the next one begins
  Ticks turn_polled_;                   // helper: when an application had run the loop by then
  std::uint32_t seen_watches_ = 0;      // helper: when it last looked
  std::uint32_t seen_looks_ = 0;        // likewise
  Ticks looked_;                        // helper: when it saw that a watcher has looked
  bool well_watched_ = false;           // helper: is_well_watched() said so
  static constexpr int kFirstNice = -10;
  int nice_ = 0;               // helper: as it began; setpriority(2)
  bool may_go_first_ = false;  // helper: before other threads of its core
  bool goes_first_ = false;    // helper
  Ticks awake_since_;          // helper
  int kick_fd_ = -1;           // wakes the helper
  int watch_fd_ = -1;          // who sleeps in its place
  int hand_fd_ = -1;           // those who would, once the place is free
  int none_fd_ = -1;           // those who do not
  std::atomic<Place> place_{Place::kFree};
  std::atomic<const void*> watcher_{nullptr};  // its thread
  std::atomic<bool> is_far_{false};            // the helper looks up later than after kLookNs
  std::atomic<std::uint32_t> watches_{0};      // begun
  std::atomic<std::uint32_t> looks_{0};        // a watcher has lain down, to sleep for kLinkLookNs at most
  std::atomic<std::uint32_t> followers_{0};    // they wait for the place
  std::atomic<std::uint32_t> in_vain_{0};    // watches in a row that were woken for work that others had done
  std::atomic<std::uint32_t> unwatched_{0};  // so many sleeps are none, since others poll
};

}  // namespace uroce::engine
