/// Completions for which their CQ has no room yet.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>

#include "transport/wqe_ring.h"
#include "uroce/wc.h"

namespace uroce::transport {

/// One of them, or none: the end of requests that nobody is told of, behind one that is.
struct LateCompletion {
  Wc wc{};
  bool is_told = true;
  bool is_solicited = false;
  SendQueue* queue = nullptr;  ///< of a send: whose slots before `next` are free with it, and not before
  std::uint32_t next = 0;
};

/// What a program brings about that posts for as long as its queues take it, and only then polls: to an
/// adapter a request has its place until its completion is polled, here until it has one in the CQ. So the
/// queue is full in time.
///
/// Threads: loop.
class LateCompletions {
 public:
  [[nodiscard]] bool empty() const noexcept { return all_.empty(); }
  /// Those that hold no place in a send queue.
  [[nodiscard]] std::size_t receives() const noexcept { return receives_; }
  [[nodiscard]] const LateCompletion& first() const noexcept { return all_.front(); }
  /// Throws bad_alloc.
  void add(const LateCompletion& one) {
    const bool goes_with_last = !one.is_told && !all_.empty() && all_.back().queue == one.queue;
    goes_with_last ? static_cast<void>(all_.back().next = one.next) : all_.push_back(one);
    receives_ += one.queue == nullptr ? 1U : 0U;
  }
  void pop() noexcept {
    receives_ -= first().queue == nullptr ? 1U : 0U;
    all_.pop_front();
  }
  /// Of that QP.
  void forget(Qpn qpn) noexcept {
    std::erase_if(all_, [qpn](const LateCompletion& one) { return one.wc.qpn == qpn; });
    receives_ = static_cast<std::size_t>(std::ranges::count(all_, nullptr, &LateCompletion::queue));
  }

 private:
  std::deque<LateCompletion> all_;
  std::size_t receives_ = 0;
};

}  // namespace uroce::transport
