/// Counts of eventfds, and what else is written and read in calls that may not end in the middle: by number,
/// since the functions are points of cancellation, and librspreload takes them over.
#pragma once

#include <poll.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>

namespace uroce {

/// As write() and read().
inline long write_uncancelled(int fd, const void* bytes, std::size_t count) noexcept {
  return syscall(SYS_write, fd, bytes, count);
}
inline long read_uncancelled(int fd, void* bytes, std::size_t count) noexcept {
  return syscall(SYS_read, fd, bytes, count);
}

/// Wakes whoever waits for an eventfd.
/// @param fd  -1 for nobody
/// @return false: it is full, which means that the reader has not looked yet; or it is none.
inline bool signal_eventfd(int fd, std::uint64_t count = 1) noexcept {
  return fd >= 0 && write_uncancelled(fd, &count, sizeof count) > 0;
}

/// @return what its count was, of which one is taken if it is a semaphore; 0: it was not readable.
inline std::uint64_t drain_eventfd(int fd) noexcept {
  std::uint64_t count = 0;
  return read_uncancelled(fd, &count, sizeof count) > 0 ? count : 0;
}

/// Whether read() would not wait.
inline bool is_readable(int fd) noexcept {
  pollfd wanted{.fd = fd, .events = POLLIN, .revents = 0};
  const timespec at_once{};
  return syscall(SYS_ppoll, &wanted, 1, &at_once, nullptr, 0) > 0;
}

}  // namespace uroce
