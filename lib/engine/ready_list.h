/// The QPs of a loop that have packets to send.
#pragma once

#include "transport/queue_pair.h"

namespace uroce::engine {

/// First in, first out; each QP is at most once in one of the lists of its loop.
///
/// Threads: loop.
class ReadyList {
 public:
  [[nodiscard]] bool empty() const noexcept { return head_ == nullptr; }
  [[nodiscard]] const transport::QueuePair* first() const noexcept { return head_; }
  [[nodiscard]] const transport::QueuePair* last() const noexcept { return tail_; }

  /// @pre `qp` is in no list
  void push(transport::QueuePair& qp) noexcept {
    qp.context().is_ready = true;
    qp.context().next_ready = nullptr;
    (tail_ == nullptr ? head_ : tail_->context().next_ready) = &qp;
    tail_ = &qp;
  }
  /// Likewise, before all others: it has not had its turn yet.
  void put_back(transport::QueuePair& qp) noexcept {
    qp.context().is_ready = true;
    qp.context().next_ready = head_;
    if (head_ == nullptr) tail_ = &qp;
    head_ = &qp;
  }
  /// @return nullptr if there is none
  transport::QueuePair* pop() noexcept {
    transport::QueuePair* const qp = head_;
    if (qp == nullptr) return nullptr;
    head_ = qp->context().next_ready;
    if (head_ == nullptr) tail_ = nullptr;
    qp->context().is_ready = false;
    return qp;
  }
  void remove(const transport::QueuePair& qp) noexcept {
    ReadyList kept;
    while (transport::QueuePair* const ready = pop()) {
      if (ready != &qp) kept.push(*ready);
    }
    *this = kept;
  }

 private:
  transport::QueuePair* head_ = nullptr;
  transport::QueuePair* tail_ = nullptr;
};

}  // namespace uroce::engine
