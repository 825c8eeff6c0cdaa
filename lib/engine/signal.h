/// Wakes whoever waits for an eventfd.
#pragma once

#include <unistd.h>

#include <cstdint>

namespace uroce::engine {

/// @param fd  an eventfd, or -1 for nobody
inline void signal(int fd) noexcept {
  const std::uint64_t one = 1;
  // A full counter means that the reader has not looked yet: it will.
  if (fd >= 0 && write(fd, &one, sizeof one) < 0) return;
}

}  // namespace uroce::engine
