/// Completion queues.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>

#include "uroce/device.h"
#include "uroce/wc.h"

namespace uroce {

/// Completion queue: a ring from one poll loop to the application.
///
/// Threads: poll() from one application thread at a time; create and destroy from any.
/// Lifetime: outlives the QPs that use it; the Device outlives it.
class Cq {
 public:
  /// @param entries  completions that must fit, 1..Limits::max_cqe (rounded up to a power of two)
  /// @param loop     which of the device's loops it belongs to; QPs follow their CQ
  static Result<Cq> create(Device& device, std::uint32_t entries, unsigned loop = 0);
  Cq(Cq&&) noexcept;
  Cq& operator=(Cq&&) noexcept;
  ~Cq();

  /// Takes completions. In Mode::kApp and kAuto it also runs the loop once, so a busy application makes its
  /// own progress. An overflowed CQ loses nothing silently: its QPs go to Error with AsyncEventType::kCqErr.
  /// @return how many entries of `out` were filled.
  [[nodiscard]] std::size_t poll(std::span<Wc> out) noexcept;

  /// Asks for one event on fd() at the next completion (`solicited_only`: a solicited receive or an error).
  /// Poll once more after it: completions may have come before.
  void arm(bool solicited_only = false) noexcept;
  /// Readable after an event; wait for it with poll(2) or epoll, then call clear_event().
  [[nodiscard]] int fd() const noexcept;
  void clear_event() noexcept;
  /// Blocks until a completion may be there or the time is over. Makes progress itself in Mode::kApp.
  /// @return false when the time was over.
  [[nodiscard]] bool wait(std::chrono::nanoseconds timeout);

  struct Impl;
  [[nodiscard]] Impl& impl() const noexcept { return *impl_; }

 private:
  explicit Cq(std::unique_ptr<Impl> impl) noexcept;
  std::unique_ptr<Impl> impl_;
};

}  // namespace uroce
