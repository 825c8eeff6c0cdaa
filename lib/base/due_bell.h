/// A sleeper that is to be woken, though not yet.
#pragma once

#include <utility>

#include "base/eventfd.h"

namespace uroce {

/// A descriptor, of a pipe say, that somebody sleeps on. Who wakes up may take the waker's core at once: what
/// others need is to be given back before. Measured: ib_write_lat of four threads on two cores, where one
/// that had its loop rang and lost its core, and the helper waited for that loop: 131 -> 110 us.
///
/// Threads: one at a time.
class DueBell {
 public:
  /// Only one is kept: a former one rings now.
  void put(int fd) noexcept {
    if (fd_ >= 0 && fd_ != fd) ring(fd_);
    fd_ = fd;
  }
  /// @return what is due to ring(); -1: nothing
  [[nodiscard]] int take() noexcept { return fd_ < 0 ? -1 : std::exchange(fd_, -1); }

  static void ring(int fd) noexcept {
    const char byte = 1;
    // A pipe that is full is readable already: a refused byte is no loss.
    static_cast<void>(write_uncancelled(fd, &byte, 1));
  }

 private:
  int fd_ = -1;
};

}  // namespace uroce
