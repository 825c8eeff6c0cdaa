#include "abi/ibverbs/event_queue.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "abi/ibverbs/signals.h"
#include "base/eventfd.h"

namespace uroce::abi {

EventQueue::EventQueue() : fd_(eventfd(0, EFD_SEMAPHORE | EFD_CLOEXEC)) {}

EventQueue::~EventQueue() {
  if (fd_ >= 0) close(fd_);
}

void EventQueue::push(const ibv_async_event& event) {
  const std::lock_guard lock(mutex_);
  events_.push_back(event);
  if (!signal_eventfd(fd_)) events_.pop_back();  // nobody takes any
}

/// With the mutex held, when there is one: does not block.
void EventQueue::count_down() {
  drain_eventfd(fd_);
}

bool EventQueue::try_take(ibv_async_event& event, void (*on_taken)(ibv_async_event&)) {
  const std::lock_guard lock(mutex_);
  if (events_.empty()) return false;
  event = events_.front();
  events_.pop_front();
  count_down();
  on_taken(event);
  return true;
}

bool EventQueue::take(ibv_async_event& event, void (*on_taken)(ibv_async_event&)) {
  while (!try_take(event, on_taken)) {
    if ((fcntl(fd_, F_GETFL) & O_NONBLOCK) != 0) {
      errno = EAGAIN;
      return false;
    }
    pollfd wanted{.fd = fd_, .events = POLLIN, .revents = 0};
    if (poll(&wanted, 1, -1) < 0 && !(errno == EINTR && goes_on_after_signals())) return false;
  }
  return true;
}

void EventQueue::purge(const void* element) {
  const std::lock_guard lock(mutex_);
  for (auto it = events_.begin(); it != events_.end();) {
    const bool is_of_port = it->event_type == IBV_EVENT_DEVICE_FATAL ||
                            it->event_type == IBV_EVENT_PORT_ACTIVE || it->event_type == IBV_EVENT_PORT_ERR ||
                            it->event_type == IBV_EVENT_GID_CHANGE;
    if (is_of_port || it->element.qp != element) {
      ++it;
      continue;
    }
    it = events_.erase(it);
    count_down();
  }
}

}  // namespace uroce::abi
