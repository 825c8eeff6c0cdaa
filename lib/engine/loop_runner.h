/// Who runs a loop: the ownership token, the mailbox, and the threads of the modes.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "engine/clock.h"
#include "engine/loop_token.h"
#include "engine/poll_loop.h"
#include "uroce/config.h"

namespace uroce::engine {

/// Runs one PollLoop in the mode of its device.
///
/// kLcore: a pinned thread owns the loop; commands reach it through the mailbox. While it has its core
/// together with an application it lends the loop to whoever posts or polls: it cannot run it then. kApp and
/// kAuto: the token goes to whoever posts or polls; commands take it too. kAuto: a helper thread takes over
/// when nobody has polled for a while, and sleeps when nothing happens.
///
/// Threads: run_from_application(), post() and execute() by any; start() and stop() by the creator.
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
  /// @return whether there was one
  bool run_from_application() noexcept {
    if (!try_own()) return false;
    const unsigned work = loop_.run_once(clock_.now());
    polls_.store(polls_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    token_.release();
    if (work != 0) kick();
    return true;
  }

  /// Work was posted to `qp`: sends it from the calling thread if the loop is free, and tells the loop if
  /// not.
  void post(transport::QueuePair& qp) noexcept {
    if (try_own()) {
      loop_.post(qp, clock_);
      token_.release();
    } else {
      loop_.ring(qp);
    }
    kick();
  }

  /// Runs `command` while nobody else touches the loop, and returns when it is done: behind an iteration that
  /// takes what was posted before. A no-op command is the way to wait until the loop has passed an iteration
  /// boundary. What it throws, this throws; it allocates nothing itself.
  template <typename Run>
  void execute(Run&& command) {
    do_execute(std::ref(command));
  }

  void wake() noexcept override { kick(); }

  /// Whether the calling thread is running the loop, or a command. Async-signal-safe.
  [[nodiscard]] bool is_run_here() const noexcept { return token_.is_held_here(); }

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
  /// Wakes a sleeping helper: work was posted.
  void kick() noexcept {
    if (mode_ != Mode::kAuto) return;
    light_barrier();  // between the post and the look; pairs with sleep_until_work()
    if (sleeping_.load(std::memory_order_acquire)) wake_helper();
  }
  void do_execute(const CommandFunction& command);
  void run(const CommandFunction& command);
  void run_lcore() noexcept;
  void run_helper() noexcept;
  bool help(Ticks quiet_since) noexcept;
  void sleep_until_work(int timeout_ms) noexcept;
  void wake_helper() noexcept;
  void run_mailbox() noexcept;

  PollLoop& loop_;
  const Clock& clock_;
  const Mode mode_;
  const std::optional<unsigned> core_;
  std::thread thread_;
  std::atomic<bool> stopping_{false};

  LoopToken token_;
  std::atomic<std::uint32_t> waiting_{0};  // commands that want the token
  std::atomic<std::uint64_t> polls_{0};    // iterations run by applications
  std::atomic<bool> lends_{false};         // kLcore: applications may run the loop

  alignas(64) std::atomic<bool> has_mail_{false};
  std::mutex mail_mutex_;
  Command* mail_head_ = nullptr;
  Command* mail_tail_ = nullptr;

  alignas(64) std::atomic<bool> sleeping_{false};  // the helper may be asleep
  int kick_fd_ = -1;
};

}  // namespace uroce::engine
