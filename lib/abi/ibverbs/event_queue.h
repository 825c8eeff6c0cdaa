/// Asynchronous events of one context, and the descriptor that tells of them.
#pragma once

#include <cstddef>
#include <deque>
#include <mutex>

#include "abi/ibverbs/verbs.h"

namespace uroce::abi {

/// The count of the descriptor is the number of events, so that events of objects that are destroyed can be
/// taken out again without waiting.
///
/// Threads: any.
class EventQueue {
 public:
  EventQueue();
  ~EventQueue();
  EventQueue(const EventQueue&) = delete;
  EventQueue& operator=(const EventQueue&) = delete;

  [[nodiscard]] int fd() const noexcept { return fd_; }
  void push(const ibv_async_event& event);
  /// Takes the oldest; waits for one unless the descriptor has O_NONBLOCK.
  /// @param on_taken  called with it before a purge() can return that does not find it any more
  /// @return false with errno set: EAGAIN, or a signal came.
  [[nodiscard]] bool take(ibv_async_event& event, void (*on_taken)(ibv_async_event&));
  /// Removes those of an object: `element` is its address.
  void purge(const void* element);

 private:
  [[nodiscard]] bool try_take(ibv_async_event& event, void (*on_taken)(ibv_async_event&));
  void count_down();

  int fd_;
  std::mutex mutex_;
  std::deque<ibv_async_event> events_;
};

}  // namespace uroce::abi
