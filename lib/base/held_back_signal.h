/// Keeps a signal that a thread's own system calls may raise from the program.
#pragma once

#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <csignal>
#include <cstddef>
#include <ctime>

namespace uroce {

/// While it lives, `signal` (SIGPIPE, SIGXFSZ) does not reach the program: the system call that raises it
/// only fails. One that was there before, or that the thread blocks anyway, is left as it was.
///
/// Threads: one.
class HeldBackSignal {
 public:
  explicit HeldBackSignal(int signal) noexcept : signal_(signal) {
    sigset_t before;
    sigset_t pending;
    sigemptyset(&set_);
    sigaddset(&set_, signal);
    sigpending(&pending);
    was_pending_ = sigismember(&pending, signal) == 1;
    pthread_sigmask(SIG_BLOCK, &set_, &before);
    was_blocked_ = sigismember(&before, signal) == 1;
  }
  ~HeldBackSignal() {
    constexpr timespec kNoWait{};
    constexpr std::size_t kSetBytes = 8;  // as the kernel has it
    // By number: sigtimedwait() is a point of cancellation.
    while (!was_pending_ && syscall(SYS_rt_sigtimedwait, &set_, nullptr, &kNoWait, kSetBytes) == signal_) {
    }
    if (!was_blocked_) pthread_sigmask(SIG_UNBLOCK, &set_, nullptr);
  }
  HeldBackSignal(const HeldBackSignal&) = delete;
  HeldBackSignal& operator=(const HeldBackSignal&) = delete;

 private:
  int signal_;
  sigset_t set_;
  bool was_pending_;
  bool was_blocked_;
};

}  // namespace uroce
