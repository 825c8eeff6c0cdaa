/// Signals of the program.
#pragma once

#include <cerrno>
#include <csignal>

#include "base/no_signals.h"

namespace uroce::abi {

/// After EINTR of a call that never goes on by itself behind a handler (signal(7): poll), where rdma-core's
/// reads of a descriptor do so if that has SA_RESTART.
/// @return whether the program has handlers of that kind only: which of them ran is not known.
[[nodiscard]] inline bool goes_on_after_signals() noexcept {
  for (int number = 1; number <= SIGRTMAX; ++number) {
    if (is_fault(number)) continue;  // of a thread that does not wait
    struct sigaction action {};
    if (sigaction(number, nullptr, &action) != 0) continue;  // the C library's own
    const bool is_handled = action.sa_handler != SIG_DFL && action.sa_handler != SIG_IGN;
    if (is_handled && (action.sa_flags & SA_RESTART) == 0) return false;
  }
  return true;
}

}  // namespace uroce::abi
