/// Frames that a test gives to a loop, shown one a burst.
#pragma once

#include <deque>
#include <span>
#include <utility>

#include "port/port.h"
#include "support/hex.h"

namespace uroce::test {

/// Threads: one.
class GivenFrames {
 public:
  void give(Bytes frame) { waiting_.push_back(std::move(frame)); }
  [[nodiscard]] bool empty() const noexcept { return waiting_.empty(); }
  /// What a Port's rx_burst() does. A frame stays valid until the next call.
  unsigned show(std::span<port::RxFrame> frames) {
    if (waiting_.empty() || frames.empty()) return 0;
    shown_ = std::move(waiting_.front());
    waiting_.pop_front();
    frames[0] = {.data = shown_.data(), .len = static_cast<std::uint32_t>(shown_.size())};
    return 1;
  }

 private:
  std::deque<Bytes> waiting_;
  Bytes shown_;
};

}  // namespace uroce::test
