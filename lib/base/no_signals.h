/// Threads that have no part in the program's signals.
#pragma once

#include <csignal>

namespace uroce {

/// Whether it tells a thread what it has done itself.
constexpr bool is_fault(int signal) noexcept {
  return signal == SIGSEGV || signal == SIGBUS || signal == SIGILL || signal == SIGFPE || signal == SIGABRT ||
         signal == SIGTRAP;
}

/// Threads that are made meanwhile leave all signals to those of the program. Faults of their own are theirs:
/// one that is blocked ends the process, whatever handler it has.
class NoSignals {
 public:
  NoSignals() noexcept {
    sigset_t all;
    sigfillset(&all);
    for (int signal = 1; signal < SIGRTMIN; ++signal) {
      if (is_fault(signal)) sigdelset(&all, signal);
    }
    pthread_sigmask(SIG_BLOCK, &all, &before_);
  }
  ~NoSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  NoSignals(const NoSignals&) = delete;
  NoSignals& operator=(const NoSignals&) = delete;
  /// Those that were blocked before.
  [[nodiscard]] const sigset_t& before() const noexcept { return before_; }

 private:
  sigset_t before_{};
};

}  // namespace uroce
