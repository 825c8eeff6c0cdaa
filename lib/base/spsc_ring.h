/// Bounded single-producer single-consumer ring.
#pragma once

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace uroce {

/// Ring of `T` between exactly two threads.
///
/// Threads: push() by the producer, front()/pop() by the consumer.
template <typename T>
class SpscRing {
 public:
  /// @param capacity  rounded up to a power of two
  explicit SpscRing(std::uint32_t capacity)
      : mask_(std::bit_ceil(capacity) - 1), slots_(std::make_unique<T[]>(std::size_t{mask_} + 1)) {}

  /// The slot to fill next, or nullptr when the ring is full; publish() makes it visible.
  [[nodiscard]] T* claim() noexcept {
    const std::uint32_t tail = tail_.load(std::memory_order_relaxed);
    if (tail - cached_head_ > mask_) {
      cached_head_ = head_.load(std::memory_order_acquire);  // pairs with pop()
      if (tail - cached_head_ > mask_) return nullptr;
    }
    return &slots_[tail & mask_];
  }
  void publish() noexcept {
    tail_.store(tail_.load(std::memory_order_relaxed) + 1, std::memory_order_release);  // pairs with front()
  }

  [[nodiscard]] T* front() noexcept {
    const std::uint32_t head = head_.load(std::memory_order_relaxed);
    if (head == cached_tail_) {
      cached_tail_ = tail_.load(std::memory_order_acquire);  // pairs with publish()
      if (head == cached_tail_) return nullptr;
    }
    return &slots_[head & mask_];
  }
  void pop() noexcept {
    head_.store(head_.load(std::memory_order_relaxed) + 1, std::memory_order_release);  // pairs with claim()
  }

 private:
  std::uint32_t mask_;
  std::unique_ptr<T[]> slots_;
  alignas(64) std::atomic<std::uint32_t> tail_{0};  // producer's line
  std::uint32_t cached_head_ = 0;
  alignas(64) std::atomic<std::uint32_t> head_{0};  // consumer's line
  std::uint32_t cached_tail_ = 0;
};

static_assert(sizeof(SpscRing<int>) == 192);

}  // namespace uroce
