#include "engine/loop_runner.h"

#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <system_error>
#include <utility>

#include "base/eventfd.h"
#include "base/give_way.h"
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

/// Releases the token also when a command throws: memory may run out.
class Held {
 public:
  explicit Held(LoopToken& token) noexcept : token_(token) {}
  ~Held() { token_.release(); }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;

 private:
  LoopToken& token_;
};

/// The applications that run a loop, as seen by its thread. It looks whether they have stopped ever more
/// rarely, until they have: those that wait for what a peer writes into their memory poll now and then, and
/// call nothing meanwhile.
class Pollers {
 public:
  /// In the thread that looks.
  explicit Pollers(const std::atomic<std::uint64_t>& polls) noexcept
      : polls_(polls), seen_(polls.load(std::memory_order_relaxed)) {
    prctl(PR_SET_TIMERSLACK, 1000UL, 0UL, 0UL, 0UL);  // ns
  }
  /// Sleeps for a while if they have polled since the last call. @return whether they have
  bool leave_to_them() noexcept {
    const std::uint64_t now = polls_.load(std::memory_order_relaxed);
    if (std::exchange(seen_, now) == now) {
      look_ns_ = kFirstLookNs;
      return false;
    }
    const timespec look{.tv_sec = 0, .tv_nsec = look_ns_};
    nanosleep(&look, nullptr);  // not "sleeping_": who polls need not wake anybody
    look_ns_ = std::min(2 * look_ns_, kLastLookNs);
    return true;
  }

 private:
  static constexpr long kFirstLookNs = 50'000;
  static constexpr long kLastLookNs = 1'000'000;

  const std::atomic<std::uint64_t>& polls_;
  std::uint64_t seen_;
  long look_ns_ = kFirstLookNs;
};

}  // namespace

LoopRunner::LoopRunner(PollLoop& loop, const Clock& clock, Mode mode, std::optional<unsigned> core)
    : loop_(loop), clock_(clock), mode_(mode), core_(core) {
  loop.set_sleeper(this);
  wire::tune_crc32([&clock] { return clock.now().ns(); });
}

LoopRunner::~LoopRunner() {
  stop();
  loop_.set_sleeper(nullptr);
  if (kick_fd_ >= 0) close(kick_fd_);  // not earlier: other loops may hand frames to this one until all stop
}

Status LoopRunner::start() {
  if (mode_ == Mode::kApp) return {};
  if (mode_ == Mode::kAuto) {
    kick_fd_ = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (kick_fd_ < 0) return Error{Errc::kSystem, std::string("eventfd: ") + std::strerror(errno)};
  }
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
    const Held held(token_);
    run(command);
  }
  kick();
}

/// What was posted while somebody else had the loop is told by a doorbell only: a CQ that is resized has its
/// completions, as if it had been sent at once.
void LoopRunner::run(const CommandFunction& command) {
  if (loop_.has_doorbells()) loop_.run_once(clock_.now());
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
  Pollers pollers(polls_);
  while (!stopping_.load(std::memory_order_relaxed)) {
    unsigned work = 0;
    if (waiting_.load(std::memory_order_relaxed) == 0 && token_.try_take()) {
      const Held held(token_);
      if (has_mail_.load(std::memory_order_acquire)) run_mailbox();  // pairs with do_execute()
      work = loop_.run_once(clock_.now());
      lends_.store(give_way.is_shared(), std::memory_order_relaxed);
    }
    if (!give_way.is_shared() || !pollers.leave_to_them()) give_way.after(work);
  }
  while (!token_.try_take()) sched_yield();
  const Held held(token_);
  lends_.store(false, std::memory_order_relaxed);
  run_mailbox();
}

/// The helper leaves the loop alone while applications poll, runs it while there is work, and sleeps
/// otherwise.
void LoopRunner::run_helper() noexcept {
  constexpr int kLookMs = 1;
  loop_.port().enter_thread();
  Pollers pollers(polls_);
  while (!stopping_.load(std::memory_order_acquire)) {
    if (pollers.leave_to_them()) continue;
    const Ticks now = clock_.now();
    if (!help(now)) sleep_until_work(kLookMs);
  }
}

/// Runs iterations until none has found work for a while. @return whether there was any work.
bool LoopRunner::help(Ticks quiet_since) noexcept {
  constexpr std::uint64_t kPatienceNs = 20'000;
  const std::uint64_t polls = polls_.load(std::memory_order_relaxed);
  bool any = false;
  for (Ticks now = quiet_since; now < quiet_since + kPatienceNs;) {
    if (!try_own()) {  // somebody else makes progress, perhaps as soon as this core is free
      sched_yield();
      return true;
    }
    now = clock_.now();  // not before: the loop's time must not run backwards
    const unsigned work = loop_.run_once(now);
    const bool more = loop_.has_work();
    token_.release();
    if (work == 0 && !more) {
      // To an application that has but this core. Not if the port wakes sleepers: this thread sleeps soon,
      // and on a busy machine gets the core back later from a yield, milliseconds, than from sleep.
      if (loop_.port().rx_fd() < 0) sched_yield();
      if (polls_.load(std::memory_order_relaxed) != polls) return true;
      continue;
    }
    any = true;
    quiet_since = now;
    if (stopping_.load(std::memory_order_relaxed)) break;
  }
  return any;
}

void LoopRunner::sleep_until_work(int timeout_ms) noexcept {
  pollfd fds[2] = {{.fd = kick_fd_, .events = POLLIN, .revents = 0},
                   {.fd = -1, .events = POLLIN, .revents = 0}};
  sleeping_.store(true, std::memory_order_release);
  heavy_barrier();  // pairs with kick()
  bool quiet = try_own();
  if (quiet) {
    fds[1].fd = loop_.port().rx_fd();
    quiet = !loop_.has_work() && loop_.port().arm_rx();
    const Ticks now = clock_.now();
    const bool no_timer = !loop_.deadline(now).is_set();
    token_.release();
    if (quiet && no_timer && fds[1].fd >= 0) timeout_ms = kLinkLookNs / 1'000'000;
  }
  if (quiet) {
    poll(fds, 2, timeout_ms);
    if (fds[0].revents != 0) drain_eventfd(kick_fd_);
  }
  sleeping_.store(false, std::memory_order_relaxed);
  if (fds[1].fd >= 0 && try_own()) {
    loop_.port().disarm_rx();
    token_.release();
  }
}

void LoopRunner::wake_helper() noexcept {
  signal_eventfd(kick_fd_);
}

}  // namespace uroce::engine
