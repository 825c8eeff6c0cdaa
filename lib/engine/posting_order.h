/// In which order the application posts to its QPs.
#pragma once

#include <cassert>

#include "transport/queue_pair.h"

namespace uroce::engine {

/// An application that serves many QPs mostly takes them in the same order again. Remembers which was posted
/// to behind which, so that a QP can be fetched before the application comes to it.
///
/// Threads: loop.
class PostingOrder {
 public:
  /// What came behind a post the last time. A guess.
  struct Next {
    transport::QueuePair* first = nullptr;   ///< nullptr: not known
    transport::QueuePair* second = nullptr;  ///< behind that
  };

  /// The last post was to `qp`, too: on_post() has nothing new to say.
  [[nodiscard]] bool is_newest(const transport::QueuePair& qp) const noexcept { return newest_ == &qp; }
  /// Work was posted to `qp`, which is not the newest.
  Next on_post(transport::QueuePair& qp) noexcept {
    assert(!is_newest(qp));
    if (newest_ != nullptr && newest_->context().sq.neighbours().next != &qp) join(*newest_, qp);
    newest_ = &qp;
    transport::QueuePair* const first = qp.context().sq.neighbours().next;
    return {first, first == nullptr ? nullptr : first->context().sq.neighbours().next};
  }
  /// `qp` goes away.
  void forget(transport::QueuePair& qp) noexcept {
    part(qp.context().sq.neighbours().previous, &qp);
    part(&qp, qp.context().sq.neighbours().next);
    if (newest_ == &qp) newest_ = nullptr;
  }

 private:
  static void part(transport::QueuePair* first, transport::QueuePair* second) noexcept {
    if (first == nullptr || second == nullptr) return;
    first->context().sq.neighbours().next = nullptr;
    second->context().sq.neighbours().previous = nullptr;
  }
  static void join(transport::QueuePair& first, transport::QueuePair& second) noexcept {
    part(&first, first.context().sq.neighbours().next);
    part(second.context().sq.neighbours().previous, &second);
    first.context().sq.neighbours().next = &second;
    second.context().sq.neighbours().previous = &first;
  }

  transport::QueuePair* newest_ = nullptr;
};

}  // namespace uroce::engine
