/// Threads that are cancelled: pthread_cancel(3).
#pragma once

#include <pthread.h>

namespace uroce::test {

/// Does that in a thread which has been asked to end, as it does at any point of cancellation.
/// @return whether it has done all, and ended then
template <typename F>
[[nodiscard]] bool is_cancelled_after(F&& act) {
  struct Work {
    F& act;
    bool is_done = false;
  } work{act};
  pthread_t thread{};
  const auto run = [](void* of) -> void* {
    pthread_cancel(pthread_self());
    Work& own = *static_cast<Work*>(of);
    own.act();
    own.is_done = true;
    pthread_testcancel();
    return nullptr;
  };
  if (pthread_create(&thread, nullptr, run, &work) != 0) return false;
  void* result = nullptr;
  return pthread_join(thread, &result) == 0 && result == PTHREAD_CANCELED && work.is_done;
}

}  // namespace uroce::test
