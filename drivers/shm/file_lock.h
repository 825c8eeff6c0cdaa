/// Locks on the backing file of a link, which the kernel drops when their process dies in any way.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>

#include <ctime>
#include <string>

namespace uroce::drivers::shm {

// Bytes of the file that locks are laid on; the locks have nothing to do with what is stored there.
inline constexpr off_t kSetupLock = 0;
inline constexpr off_t kSideLock = 1;  // and 2

/// Open file description locks: they belong to the open file, so two ends in one process exclude each other
/// too.
[[nodiscard]] inline struct flock lock_of(off_t byte) noexcept {
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_start = byte;
  lock.l_len = 1;
  return lock;
}

[[nodiscard]] inline bool try_lock(int file, off_t byte) noexcept {
  struct flock lock = lock_of(byte);
  return ::fcntl(file, F_OFD_SETLK, &lock) == 0;
}

inline void unlock(int file, off_t byte) noexcept {
  struct flock lock = lock_of(byte);
  lock.l_type = F_UNLCK;
  ::fcntl(file, F_OFD_SETLK, &lock);
}

[[nodiscard]] inline bool is_locked_by_other(int file, off_t byte) noexcept {
  struct flock lock = lock_of(byte);
  return ::fcntl(file, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

/// Waits up to `tries` ms.
[[nodiscard]] inline bool lock_within(int file, off_t byte, int tries) noexcept {
  for (int i = 0; i < tries; ++i) {
    if (try_lock(file, byte)) return true;
    const timespec pause{.tv_sec = 0, .tv_nsec = 1'000'000};
    ::nanosleep(&pause, nullptr);
  }
  return try_lock(file, byte);
}

/// False if somebody has removed or replaced the file since it was opened.
[[nodiscard]] inline bool is_still_at(int file, const std::string& path) noexcept {
  struct stat by_file {};
  struct stat by_path {};
  return ::fstat(file, &by_file) == 0 && ::lstat(path.c_str(), &by_path) == 0 &&
         by_file.st_ino == by_path.st_ino && by_file.st_dev == by_path.st_dev;
}

}  // namespace uroce::drivers::shm
