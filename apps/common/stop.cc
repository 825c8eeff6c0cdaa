#include "apps/common/stop.h"

#include <sys/prctl.h>
#include <unistd.h>

namespace uroce::apps {
namespace {

void end_at_once(int /*alarm*/) {
  (void)std::signal(stop_signal, SIG_DFL);
  (void)std::raise(stop_signal);
}

void stop(int signal) {
  stop_signal = signal;
  (void)::alarm(kStopSeconds);
}

void stop_worker(int signal) {
  if (!is_stopped()) (void)::alarm(kStopSeconds / 2);  // ends it
  stop_signal = signal;
}

/// What is written goes on: a pipe that was full gets the result, too. Who waits is woken all the same.
void handle(int signal, void (*handler)(int), int flags = 0) {
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = flags | SA_RESTART;
  (void)sigaction(signal, &action, nullptr);
}

}  // namespace

void stop_on_signals() {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction before {};
    if (sigaction(signal, nullptr, &before) == 0 && before.sa_handler == SIG_IGN) continue;
    handle(signal, stop, static_cast<int>(SA_RESETHAND));
  }
  handle(SIGALRM, end_at_once);
}

void stop_with_parent() {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) handle(signal, SIG_IGN);
  handle(SIGALRM, SIG_DFL);
  handle(kStopWorker, stop_worker);
  sigset_t ends;
  sigemptyset(&ends);
  for (const int signal : {SIGALRM, kStopWorker}) sigaddset(&ends, signal);
  (void)sigprocmask(SIG_UNBLOCK, &ends, nullptr);
  ::prctl(PR_SET_PDEATHSIG, kStopWorker);
}

}  // namespace uroce::apps
