#include "drivers/shm/bell.h"

#include <fcntl.h>
#include <linux/membarrier.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/asymmetric_barrier.h"
#include "base/due_bell.h"
#include "base/eventfd.h"

namespace uroce::drivers::shm {

Result<Bell> Bell::open(const std::string& path) {
  if (::mkfifo(path.c_str(), 0600) != 0 && errno != EEXIST) {
    return Error{Errc::kSystem, "cannot create FIFO " + path + ": " + std::strerror(errno)};
  }
  // Open for both directions: neither end blocks, and a peer that left raises no SIGPIPE.
  Bell bell{::open(path.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW)};
  if (bell.fd_ < 0) return Error{Errc::kSystem, "cannot open FIFO " + path + ": " + std::strerror(errno)};
  struct stat status {};
  if (::fstat(bell.fd_, &status) != 0 || !S_ISFIFO(status.st_mode) || status.st_uid != ::geteuid()) {
    return Error{Errc::kPermission, path + " is not a FIFO of this user; remove it: rm -f " + path};
  }
  return bell;
}

Bell::Bell(Bell&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

Bell& Bell::operator=(Bell&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

Bell::~Bell() {
  if (fd_ >= 0) ::close(fd_);
}

void Bell::ring() const noexcept {
  DueBell::ring(fd_);
}

void Bell::silence() const noexcept {
  char bytes[64];
  for (int reads = 0; reads < 1024; ++reads) {
    if (read_uncancelled(fd_, bytes, sizeof(bytes)) < static_cast<long>(sizeof(bytes))) return;
  }
}

bool register_producer() noexcept {
  return ::syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED, 0, 0) == 0;
}

void expose_to_producers() noexcept {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (::syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0, 0) != 0) await_stores_of_others();
}

}  // namespace uroce::drivers::shm
