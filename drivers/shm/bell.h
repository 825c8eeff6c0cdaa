/// Wakes a sleeping end of a link: a named FIFO, which both ends hold open and which outlives either.
#pragma once

#include <string>

#include "uroce/result.h"

namespace uroce::drivers::shm {

/// One named FIFO.
///
/// Threads: any. Lifetime: the file is removed by the last end of the link that leaves.
class Bell {
 public:
  /// Creates the FIFO if it does not exist.
  static Result<Bell> open(const std::string& path);
  Bell(Bell&& other) noexcept;
  Bell& operator=(Bell&& other) noexcept;
  ~Bell();

  /// Makes fd() readable.
  void ring() const noexcept;
  /// Makes fd() not readable.
  void silence() const noexcept;
  [[nodiscard]] int fd() const noexcept { return fd_; }

 private:
  explicit Bell(int fd) noexcept : fd_(fd) {}
  int fd_ = -1;
};

/// Makes this process take part in expose_to_producers(). Once per process is enough; more do no harm.
/// @return false if the system cannot: this process must then put a full fence between publishing and looking
///         whether the consumer sleeps.
[[nodiscard]] bool register_producer() noexcept;

/// After this, each producer either sees what the caller stored before, or the caller sees what it published.
/// Microseconds, paid by the one that falls asleep, so that producers need no fence before kDrowsy
/// (layout.h).
void expose_to_producers() noexcept;

}  // namespace uroce::drivers::shm
