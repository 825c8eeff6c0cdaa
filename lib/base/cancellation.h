/// Programs that cancel threads (pthread_cancel(3)).
#pragma once

#include <pthread.h>

namespace uroce {

/// While this lives, the thread is not cancelled: what it does has locks, or functions that cannot be left by
/// force. Calls that wait for events do without; what posting and polling do at each call goes
/// by number (base/eventfd.h), which costs nothing.
class NotCancelled {
 public:
  NotCancelled() noexcept { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before_); }
  ~NotCancelled() { pthread_setcancelstate(before_, nullptr); }
  NotCancelled(const NotCancelled&) = delete;
  NotCancelled& operator=(const NotCancelled&) = delete;

 private:
  int before_ = PTHREAD_CANCEL_ENABLE;
};

}  // namespace uroce
