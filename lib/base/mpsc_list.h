/// Intrusive multi-producer single-consumer queue.
#pragma once

#include <atomic>

namespace uroce {

/// Node to embed (or inherit) in whatever is queued.
struct MpscNode {
  std::atomic<MpscNode*> next{nullptr};
};

/// Unbounded queue of nodes owned by others; a node is in it at most once.
///
/// Threads: push() from any, pop() from one. Source: D. Vyukov, intrusive MPSC node-based queue.
class MpscList {
 public:
  void push(MpscNode* node) noexcept {
    node->next.store(nullptr, std::memory_order_relaxed);
    MpscNode* previous = tail_.exchange(node, std::memory_order_acq_rel);
    previous->next.store(node, std::memory_order_release);  // pairs with pop()
  }

  /// @return nullptr when empty, or when a push is half done (its node comes with a later call).
  [[nodiscard]] MpscNode* pop() noexcept {
    MpscNode* head = head_;
    MpscNode* next = head->next.load(std::memory_order_acquire);  // pairs with push()
    if (head == &stub_) {
      if (next == nullptr) return nullptr;
      head_ = next;
      head = next;
      next = next->next.load(std::memory_order_acquire);
    }
    if (next != nullptr) {
      head_ = next;
      return head;
    }
    if (head != tail_.load(std::memory_order_acquire)) return nullptr;
    push(&stub_);
    next = head->next.load(std::memory_order_acquire);
    if (next == nullptr) return nullptr;
    head_ = next;
    return head;
  }

  /// Cheap test for the consumer; a concurrent push may be missed until the next call.
  [[nodiscard]] bool looks_empty() const noexcept {
    return head_ == &stub_ && stub_.next.load(std::memory_order_relaxed) == nullptr;
  }

 private:
  MpscNode stub_;
  alignas(64) std::atomic<MpscNode*> tail_{&stub_};
  alignas(64) MpscNode* head_ = &stub_;
};

}  // namespace uroce
