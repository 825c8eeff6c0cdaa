/// A file descriptor that is closed with its owner.
#pragma once

#include <unistd.h>

#include <utility>

namespace uroce {

/// Threads: one at a time.
class OwnedFd {
 public:
  OwnedFd() noexcept = default;
  /// @param fd  negative: none
  explicit OwnedFd(int fd) noexcept : fd_(fd) {}
  OwnedFd(OwnedFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  /// The old one is closed with `other`, behind whatever the new one has begun.
  OwnedFd& operator=(OwnedFd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~OwnedFd() {
    if (fd_ >= 0) close(fd_);
  }

  [[nodiscard]] bool is_open() const noexcept { return fd_ >= 0; }
  [[nodiscard]] int get() const noexcept { return fd_; }

 private:
  int fd_ = -1;
};

}  // namespace uroce
