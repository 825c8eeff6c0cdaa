#include "engine/loop_runner.h"

#include <pthread.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <system_error>
#include <utility>

#include "base/give_way.h"
#include "base/no_signals.h"
#include "wire/crc32.h"

namespace uroce::engine {

namespace {

void relax() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

Status pin_this_thread(std::thread& thread, unsigned core) {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  CPU_SET(core, &cores);
  if (pthread_setaffinity_np(thread.native_handle(), sizeof cores, &cores) != 0) {
    return Error{Errc::kConfig,
                 "core " + std::to_string(core) +
                     " cannot be used: choose others with --lcores (see: nproc, taskset -p $$)"};
  }
  return {};
}

/// The calling thread sleeps for as long as it asks to, not 50 us longer.
void set_fine_timers() noexcept {
  prctl(PR_SET_TIMERSLACK, 1000UL, 0UL, 0UL, 0UL);  // ns
}

/// The calling thread gets a core soon after it has been woken, though another one is running there:
/// Linux 6.12 and later let those go first that ask for little at a time. sched(7), sched_setattr(2).
void ask_for_short_slices() noexcept {
  struct {
    std::uint32_t size;
    std::uint32_t policy;
    std::uint64_t flags;
    std::int32_t nice;
    std::uint32_t priority;
    std::uint64_t runtime_ns;
    std::uint64_t deadline_ns;
    std::uint64_t period_ns;
  } terms{};
  if (syscall(SYS_sched_getattr, 0, &terms, sizeof terms, 0) != 0 || terms.policy != SCHED_OTHER) return;
  terms.runtime_ns = 100'000;  // the least there is
  syscall(SYS_sched_setattr, 0, &terms, 0);
}

/// The applications that run a loop of kLcore, as seen by its thread. It looks whether they have stopped ever
/// more rarely, until they have: those that wait for what a peer writes into their memory poll now and then,
/// and call nothing meanwhile.
class Pollers {
 public:
  /// In the thread that looks.
  explicit Pollers(const std::atomic<std::uint64_t>& last_poll) noexcept
      : last_poll_(last_poll), seen_(last_poll.load(std::memory_order_relaxed)) {
    set_fine_timers();
  }
  /// Sleeps for a while if they have polled since the last call. @return whether they have
  bool leave_to_them() noexcept {
    const std::uint64_t now = last_poll_.load(std::memory_order_relaxed);
    if (std::exchange(seen_, now) == now) {
      look_ns_ = kFirstLookNs;
      return false;
    }
    const timespec look{.tv_sec = 0, .tv_nsec = look_ns_};
    nanosleep(&look, nullptr);
    look_ns_ = std::min(2 * look_ns_, kLastLookNs);
    return true;
  }

 private:
  static constexpr long kFirstLookNs = 50'000;
  static constexpr long kLastLookNs = 1'000'000;

  const std::atomic<std::uint64_t>& last_poll_;
  std::uint64_t seen_;
  long look_ns_ = kFirstLookNs;
};

}  // namespace

/// Gives the loop back also when a command throws: memory may run out.
class LoopRunner::Held {
 public:
  explicit Held(LoopRunner& runner) noexcept : runner_(runner) {}
  ~Held() { runner_.disown(); }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;

 private:
  LoopRunner& runner_;
};

LoopRunner::LoopRunner(PollLoop& loop, const Clock& clock, Mode mode, std::optional<unsigned> core)
    : loop_(loop), clock_(clock), mode_(mode), core_(core) {
  loop.set_sleeper(this);
  loop.port().leave_ringing_to(&due_bell_);
  wire::tune_crc32([&clock] { return clock.now().ns(); });
}

LoopRunner::~LoopRunner() {
  stop();
  loop_.set_sleeper(nullptr);
  loop_.port().leave_ringing_to(nullptr);
  for (const int fd : {kick_fd_, watch_fd_, hand_fd_, none_fd_}) {
    if (fd >= 0) close(fd);  // not earlier: other loops may hand frames to this one until all stop
  }
}

Status LoopRunner::start() {
  if (mode_ == Mode::kApp) return {};
  if (mode_ == Mode::kAuto) {
    for (int* const fd : {&kick_fd_, &watch_fd_, &hand_fd_, &none_fd_}) {
      *fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
      if (*fd < 0) return Error{Errc::kSystem, std::string("eventfd: ") + std::strerror(errno)};
    }
  }
  const NoSignals signals;
  try {
    thread_ = std::thread([this] { mode_ == Mode::kLcore ? run_lcore() : run_helper(); });
  } catch (const std::system_error& error) {
    return Error{Errc::kSystem, std::string("a thread for the poll loop: ") + error.what() +
                                    ": raise the limit of processes (ulimit -u), or use --mode app"};
  }
  return core_.has_value() ? pin_this_thread(thread_, *core_) : Status{};
}

void LoopRunner::stop() noexcept {
  if (thread_.joinable()) {
    stopping_.store(true, std::memory_order_release);
    wake_helper();
    thread_.join();
  }
}

void LoopRunner::do_execute(const CommandFunction& command) {
  if (mode_ == Mode::kLcore && thread_.joinable() && !lends_.load(std::memory_order_relaxed)) {
    Command mail{.run = &command, .failure = {}};
    {
      const std::lock_guard lock(mail_mutex_);
      (mail_head_ == nullptr ? mail_head_ : mail_tail_->next) = &mail;
      mail_tail_ = &mail;
    }
    has_mail_.store(true, std::memory_order_release);  // pairs with run_lcore()
    while (!mail.done.load(std::memory_order_acquire)) sched_yield();
    if (mail.failure != nullptr) std::rethrow_exception(mail.failure);
    return;
  }
  waiting_.fetch_add(1, std::memory_order_relaxed);
  for (unsigned tries = 0; !token_.try_take(); ++tries) {
    if (tries % 64 == 63) {
      sched_yield();
    } else {
      relax();
    }
  }
  waiting_.fetch_sub(1, std::memory_order_relaxed);
  {
    const Held held(*this);
    run(command);
  }
  kick();
}

/// What was posted while somebody else had the loop is told by a doorbell only: a CQ that is resized has its
/// completions, as if it had been sent at once.
void LoopRunner::run(const CommandFunction& command) {
  if (loop_.has_doorbells()) loop_.run_once(clock_.now());
  wake_peer();
  command(loop_, clock_.now());
}

void LoopRunner::run_mailbox() noexcept {
  Command* next = nullptr;
  {
    const std::lock_guard lock(mail_mutex_);
    next = std::exchange(mail_head_, nullptr);
    has_mail_.store(false, std::memory_order_relaxed);
  }
  while (next != nullptr) {
    Command* const command = next;
    next = command->next;
    try {
      run(*command->run);
    } catch (...) {  // memory may run out
      command->failure = std::current_exception();
    }
    command->done.store(true, std::memory_order_release);  // pairs with do_execute()
  }
}

/// A loop whose core is shared cannot run while the application does: as long as that polls, it runs the
/// loop.
void LoopRunner::run_lcore() noexcept {
  loop_.port().enter_thread();
  GiveWay give_way;
  Pollers pollers(last_poll_);
  while (!stopping_.load(std::memory_order_relaxed)) {
    unsigned work = 0;
    if (waiting_.load(std::memory_order_relaxed) == 0 && token_.try_take()) {
      const Held held(*this);
      if (has_mail_.load(std::memory_order_acquire)) run_mailbox();  // pairs with do_execute()
      work = loop_.run_once(clock_.now());
      lends_.store(give_way.is_shared(), std::memory_order_relaxed);
    }
    if (!give_way.is_shared() || !pollers.leave_to_them()) give_way.after(work);
  }
  while (!token_.try_take()) sched_yield();
  const Held held(*this);
  lends_.store(false, std::memory_order_relaxed);
  run_mailbox();
}

void LoopRunner::run_helper() noexcept {
  loop_.port().enter_thread();
  set_fine_timers();
  ask_for_short_slices();
  const bool can_be_woken = loop_.port().rx_fd() >= 0;
  if (can_be_woken) learn_nice();
  HelperTurns turns(can_be_woken);
  std::uint32_t sleepers = 0;
  while (!stopping_.load(std::memory_order_acquire)) {
    if (std::exchange(sleepers, sleepers_.load(std::memory_order_relaxed)) != sleepers)
      turns.expect_sleeper();
    const Ticks now = clock_.now();
    const std::uint64_t away_ns = turns.away(now, {.last_poll = last_poll(),
                                                   .posts = posts_.load(std::memory_order_relaxed),
                                                   .watch = is_well_watched(now)});
    if (away_ns != 0) {
      rest(away_ns, sleepers);
      continue;
    }
    const HelperTurns::Turn turn = help(turns.patience());
    if (!sleep_until_work() && !turn.found && !turn.is_shared) continue;  // it goes on
    turns.end(turn, last_poll());
    turn_begin_ = {};
  }
}

/// A thread that has had more of its core than others does not get it when it is woken, but at the kernel's
/// next tick. This one runs for what those wait for: it goes before them, where it may and nobody has asked
/// for less.
void LoopRunner::learn_nice() noexcept {
  errno = 0;
  nice_ = getpriority(PRIO_PROCESS, 0);
  may_go_first_ = errno == 0 && sched_getscheduler(0) == SCHED_OTHER && nice_ <= 0 && nice_ > kFirstNice;
}

/// Not for long: an application that has only this core is to have it, too.
void LoopRunner::go_first(bool yes) noexcept {
  if (!may_go_first_ || goes_first_ == yes) return;
  may_go_first_ = setpriority(PRIO_PROCESS, 0, yes ? kFirstNice : nice_) == 0;
  goes_first_ = yes;
}

/// Runs iterations until none has found work for as long as that, or others have run some for a while, too,
/// or sleep in the helper's place.
HelperTurns::Turn LoopRunner::help(std::uint64_t patience_ns) noexcept {
  constexpr std::uint64_t kTogetherNs = 50'000;
  HelperTurns::Turn turn;
  bool was_idle = false;
  Ticks now = clock_.now();
  if (!turn_begin_.is_set()) {
    turn_begin_ = now;
    turn_polled_ = last_poll();
  }
  for (Ticks quiet_since = now; !stopping_.load(std::memory_order_relaxed);) {
    const Found found = run_helped(now);
    if (now >= awake_since_ + kTogetherNs) go_first(false);
    turn.found = turn.found || found == Found::kWork;
    turn.is_shared = (now >= turn_begin_ + kTogetherNs && last_poll() != turn_polled_) ||
                     (is_watched() && looks_.load(std::memory_order_relaxed) != seen_looks_);
    if (turn.is_shared) break;
    if (found == Found::kWork) {
      if (was_idle) turn.gap_ns = std::max(turn.gap_ns, now.ns() - quiet_since.ns());
      quiet_since = now;
      was_idle = false;
      continue;
    }
    if (now >= quiet_since + patience_ns) break;
    was_idle = was_idle || found == Found::kNothing;
    // To an application that has but this core. Not if the port wakes sleepers: this thread sleeps soon,
    // and on a busy machine gets the core back later from a yield, milliseconds, than from sleep.
    if (loop_.port().rx_fd() < 0) sched_yield();
  }
  return turn;
}

/// One iteration, unless others are at it.
LoopRunner::Found LoopRunner::run_helped(Ticks& now) noexcept {
  now = clock_.now();
  if (now < last_poll() + HelperTurns::kFreshNs) {
    relax();
    return Found::kOthers;
  }
  if (!try_own()) {  // somebody else makes progress, perhaps as soon as this core is free
    nap();
    return Found::kOthers;
  }
  nap_ns_ = kFirstNapNs;
  now = clock_.now();  // not before: the loop's time must not run backwards
  const bool found = loop_.run_once(now) != 0 || loop_.has_own_work();
  const bool wakes = found && is_helper_wanted();  // somebody has lain down in its place meanwhile
  disown();
  if (wakes) wake_sleeper();
  return found ? Found::kWork : Found::kNothing;
}

}  // namespace uroce::engine
