/// Completion queue ring from the loop to the application.
#pragma once

#include <atomic>
#include <bit>
#include <cstdint>
#include <memory>
#include <span>

#include "base/asymmetric_barrier.h"
#include "uroce/wc.h"

namespace uroce::transport {

/// Ring of completion queue entries. Each entry carries its own sequence number, so that a consumer on
/// another core waits for one cache line only.
///
/// Threads: push() by the loop; poll() and is_empty() by one application thread; arm() by any.
class CqRing {
 public:
  /// @param event_fd  eventfd that a wake-up writes; -1: none
  explicit CqRing(std::uint32_t entries, int event_fd = -1)
      : event_fd_(event_fd),
        mask_(std::bit_ceil(entries < 2 ? 2U : entries) - 1),
        slots_(std::make_unique<Cqe[]>(std::size_t{mask_} + 1)) {}

  [[nodiscard]] int event_fd() const noexcept { return event_fd_; }
  [[nodiscard]] std::uint32_t entries() const noexcept { return mask_ + 1; }

  /// @param solicited  also wakes an application that armed for solicited completions only
  /// @return false: the ring is full and the completion is lost; the caller fails the QP.
  [[nodiscard]] bool push(const Wc& wc, bool solicited) noexcept {
    if (tail_ - cached_head_ > mask_) {
      cached_head_ = head_.load(std::memory_order_acquire);  // pairs with poll()
      if (tail_ - cached_head_ > mask_) return false;
    }
    Cqe& cqe = slots_[tail_ & mask_];
    cqe.wc = wc;
    cqe.sequence.store(++tail_, std::memory_order_release);  // pairs with poll()
    light_barrier();  // pairs with Cq::arm(): either it sees the entry or this the arming
    if (armed_.load(std::memory_order_relaxed) != Armed::kNo) on_armed(solicited || !wc.ok());
    return true;
  }

  [[nodiscard]] std::size_t poll(std::span<Wc> out) noexcept {
    std::size_t count = 0;
    std::uint32_t head = head_.load(std::memory_order_relaxed);
    while (count < out.size()) {
      Cqe& cqe = slots_[head & mask_];
      if (cqe.sequence.load(std::memory_order_acquire) != head + 1) break;  // pairs with push()
      out[count++] = cqe.wc;
      ++head;
    }
    if (count > 0) head_.store(head, std::memory_order_release);  // pairs with push()
    return count;
  }
  [[nodiscard]] bool is_empty() const noexcept {
    const std::uint32_t head = head_.load(std::memory_order_relaxed);
    return slots_[head & mask_].sequence.load(std::memory_order_acquire) != head + 1;
  }

  enum class Armed : std::uint8_t { kNo, kSolicited, kAny };

  /// Asks for one event.
  void arm(bool solicited_only) noexcept {
    armed_.store(solicited_only ? Armed::kSolicited : Armed::kAny, std::memory_order_seq_cst);
  }
  /// Loop: takes a pending wake-up, if one is due. The caller writes the event descriptor.
  [[nodiscard]] bool take_wake() noexcept {
    if (!wake_) return false;
    wake_ = false;
    return true;
  }
  /// Index one past the newest entry: entries before it existed when it was read. Loop or quiescent caller.
  [[nodiscard]] std::uint32_t tail() const noexcept { return tail_; }
  [[nodiscard]] std::uint32_t head() const noexcept { return head_.load(std::memory_order_relaxed); }

 private:
  struct Cqe {
    Wc wc;
    std::atomic<std::uint32_t> sequence{0};  // index + 1 of the entry that is in the slot
  };

  void on_armed(bool solicited) noexcept {
    if (armed_.load(std::memory_order_relaxed) == Armed::kSolicited && !solicited) return;
    armed_.store(Armed::kNo, std::memory_order_relaxed);
    wake_ = true;
  }

  int event_fd_;
  std::uint32_t mask_;
  std::unique_ptr<Cqe[]> slots_;
  alignas(64) std::uint32_t tail_ = 0;  // loop's line
  std::uint32_t cached_head_ = 0;
  bool wake_ = false;
  std::atomic<Armed> armed_{Armed::kNo};
  alignas(64) std::atomic<std::uint32_t> head_{0};  // application's line
};

}  // namespace uroce::transport
