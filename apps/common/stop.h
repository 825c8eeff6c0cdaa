/// Signals that end the program in good order: what it has opened it closes again.
#pragma once

#include <csignal>

#include "uroce/result.h"

namespace uroce::apps {

/// The signal that told the program to end; 0: none.
inline volatile std::sig_atomic_t stop_signal = 0;

/// To be asked where a program waits, or goes on for long.
[[nodiscard]] inline bool is_stopped() noexcept {
  return stop_signal != 0;
}

/// Set by a command that goes on until it is stopped: its exit code stays what it is then.
inline bool stop_is_success = false;

/// What waiting ends with then. fail() does not print it.
[[nodiscard]] inline Error stopped() {
  return {.code = Errc::kTimeout, .text = "stopped by a signal"};
}

/// Seconds in which a program that was told to end closes what it has opened; a process that was forked has
/// half of them. A busy machine needs more than one: to open a port, which is ended first, takes a whole one.
inline constexpr unsigned kStopSeconds = 10;

/// From now on SIGINT, SIGTERM and SIGHUP, if they are not ignored, set `stop_signal`. A second one, or
/// kStopSeconds, end the program at once.
void stop_on_signals();

/// In a process that was forked: those three are its parent's matter. It is told by kStopWorker that all
/// ends, also by the kernel when its parent is gone, and ends by itself if it cannot in order.
void stop_with_parent();
inline constexpr int kStopWorker = SIGUSR1;

}  // namespace uroce::apps
