/// Completion queues.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>

#include "uroce/device.h"
#include "uroce/wc.h"

namespace uroce {

/// What a CQ is made with.
struct CqAttr {
  std::uint32_t entries =
      0;                    ///< completions that must fit, 1..Limits::max_cqe (rounded up to a power of two)
  unsigned loop = 0;        ///< which of the device's loops it belongs to; QPs follow their CQ
  bool timestamps = false;  ///< each completion carries Wc::timestamp_ns
};

/// Completion queue: a ring from one poll loop to the application.
///
/// Threads: poll() from one application thread at a time; create, destroy, moderate, arm and fd() from any;
/// resize() while no thread is in another call of this CQ.
/// Lifetime: outlives the QPs, and the SRQs of XRC, that use it; the Device outlives it.
class Cq {
 public:
  /// @return kInvalid if `attr` is out of range, kNoMemory.
  static Result<Cq> create(Device& device, const CqAttr& attr);
  static Result<Cq> create(Device& device, std::uint32_t entries, unsigned loop = 0) {
    return create(device, CqAttr{.entries = entries, .loop = loop});
  }
  Cq(Cq&&) noexcept;
  Cq& operator=(Cq&&) noexcept;
  ~Cq();

  /// Takes completions. In Mode::kApp and kAuto it also runs the loop once, so a busy application makes its
  /// own progress. An overflowed CQ loses nothing silently: its QPs go to Error with AsyncEventType::kCqErr.
  /// A place in a send queue is free again once the completion of its request has one in the CQ: what posts
  /// until a queue is full, and polls only then, does not overflow a CQ that is as large as its send queues
  /// were asked to be, together. One in a receive queue is free once its receive is used, whether or not the
  /// CQ has room; if that is as large as all its queues were asked to be, as many completions as it has
  /// entries wait for room then, and it overflows beyond.
  /// @return how many entries of `out` were filled. If not all were, nothing more had come: where completions
  ///   had no room, it waits for the loop to bring them.
  [[nodiscard]] std::size_t poll(std::span<Wc> out) noexcept;

  /// Asks for one event on fd() at the next completion (`solicited_only`: a solicited receive or an error).
  /// Poll once more after it: completions may have come before.
  /// @param lingers  the caller will call linger(), and then Device::sleep(): the loop's helper, which may
  ///   otherwise take a millisecond until it looks, need not be woken now
  void arm(bool solicited_only = false, bool lingers = false) noexcept;
  /// Before the calling thread sleeps until `fd` is readable, which is fd() or stands for several. In
  /// Mode::kAuto it runs the loop itself first, for as long as that has paid lately, 20 us at most from when
  /// there was work last, a millisecond at most: what comes soon finds it awake. In the other modes it does
  /// nothing.
  /// @return whether `fd` is readable
  bool linger(int fd) noexcept;
  /// Readable after an event; wait for it with poll(2) or epoll, then call clear_event(). Made when first
  /// asked for.
  /// @return -1, with errno, if no descriptor is left.
  [[nodiscard]] int fd() const noexcept;
  /// @return whether there was one: of several threads that wait for it, one is told so.
  bool clear_event() noexcept;
  /// Likewise, but of several events that came one behind the other it leaves the others there.
  bool take_event() noexcept;
  /// Blocks until a completion may be there or the time is over. Makes progress itself in Mode::kApp.
  /// @return false when the time was over.
  [[nodiscard]] bool wait(std::chrono::nanoseconds timeout);

  /// Unique per Device: what AsyncEvent::cq names.
  [[nodiscard]] std::uint32_t number() const noexcept;
  /// Completions that fit.
  [[nodiscard]] std::uint32_t entries() const noexcept;
  /// Takes on another size; what is in the CQ stays there, also if this fails. IBA 11.2.8.4 ?
  /// @param entries  as for create()
  /// @return kInvalid if it is out of range or below what is in the CQ; kNoMemory.
  Status resize(std::uint32_t entries);

  /// An event that was armed comes only once `count` completions of its kind are there since the last event,
  /// or the first of them is `period` old (looked at once an iteration; a sleeping loop looks every
  /// millisecond), whichever is first; an error does not wait. Count 0: the period alone; period 0: the
  /// count alone, so that fewer completions than that bring no event. 0 and 0: at once, as after creation.
  /// As ibv_modify_cq(3). In Mode::kApp a period passes only while the application polls.
  Status moderate(std::uint16_t count, std::chrono::microseconds period);

  struct Impl;
  [[nodiscard]] Impl& impl() const noexcept { return *impl_; }

 private:
  explicit Cq(std::unique_ptr<Impl> impl) noexcept;
  std::unique_ptr<Impl> impl_;
};

}  // namespace uroce
