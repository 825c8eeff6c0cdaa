/// Where a QP takes its receives from: a queue of its own, or one that it shares.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "transport/wqe_ring.h"

namespace uroce::transport {

/// A copy of a receive, which outlives its slot in a shared queue.
class TakenReceive {
 public:
  explicit TakenReceive(std::uint32_t max_sge)
      : size_(sizeof(RecvWqe) + std::max(max_sge, 1U) * sizeof(Sge)),
        memory_(std::make_unique<Slot[]>((size_ + sizeof(Slot) - 1) / sizeof(Slot))) {}

  void copy(const RecvWqe& wqe) noexcept {
    std::memcpy(memory_.get(), static_cast<const void*>(&wqe), sizeof(RecvWqe) + wqe.num_sge * sizeof(Sge));
  }
  [[nodiscard]] const RecvWqe& wqe() const noexcept {
    return *static_cast<const RecvWqe*>(static_cast<const void*>(memory_.get()));
  }

 private:
  struct alignas(16) Slot {
    std::byte bytes[16];
  };
  std::size_t size_;
  std::unique_ptr<Slot[]> memory_;
};

/// Shared receive queue. IBA 10.2.9. A receive belongs to the QP whose message it was taken for.
///
/// Threads: put() and publish() of `ring` by one application thread; the rest by the loop.
class SharedReceives {
 public:
  SharedReceives(std::uint32_t srq_number, std::uint32_t pd_number, std::uint32_t depth, std::uint32_t sges)
      : number(srq_number), pd(pd_number), max_sge(std::max(sges, 1U)), ring(depth, sges) {}

  const std::uint32_t number;
  const std::uint32_t pd;
  const std::uint32_t max_sge;
  RecvQueue ring;

  [[nodiscard]] bool is_empty() const noexcept { return returned_count_ == 0 && head_ == ring.tail(); }
  /// Receives that nobody has taken.
  [[nodiscard]] std::uint32_t count() const noexcept { return ring.tail() - head_ + returned_count_; }
  /// Moves the oldest receive out. Not when empty.
  void take(TakenReceive& out) noexcept {
    if (returned_count_ > 0) {
      out.copy(returned_[--returned_count_].wqe());
    } else {
      out.copy(ring.at(head_));
      ring.retire(++head_);
    }
    look_at_limit();
  }
  /// Control, while the caller owns the loop: room for what more QPs may give back.
  void make_room(std::size_t more) {
    while (returned_.size() < users_ + more) returned_.emplace_back(max_sge);
  }
  void add_user() {
    make_room(1);
    ++users_;
  }
  void remove_user() noexcept { --users_; }
  /// A QP that goes has no use for what it took.
  void give_back(const TakenReceive& taken) noexcept { returned_[returned_count_++].copy(taken.wqe()); }

  /// Control, while nobody else uses the queue: another depth, with all that is posted.
  /// @return false if more than that is posted, or the limit that is armed is above it.
  [[nodiscard]] bool resize(std::uint32_t depth) {
    return count() <= depth && limit_ <= depth && ring.resize(depth);
  }

  /// One event once fewer than `limit` receives are left, be it now; 0: none. IBA 10.2.9.2 ?
  void arm(std::uint32_t limit) noexcept {
    limit_ = limit;
    look_at_limit();
  }
  [[nodiscard]] std::uint32_t limit() const noexcept { return limit_; }
  [[nodiscard]] bool take_limit_event() noexcept {
    const bool reached = limit_reached_;
    limit_reached_ = false;
    return reached;
  }
  /// Of what was taken, for the next time.
  void put_back_limit_event() noexcept { limit_reached_ = true; }

 private:
  void look_at_limit() noexcept {
    if (limit_ == 0 || count() >= limit_) return;
    limit_ = 0;
    limit_reached_ = true;
  }

  std::uint32_t head_ = 0;
  std::uint32_t limit_ = 0;
  bool limit_reached_ = false;
  std::vector<TakenReceive> returned_;  // room for one of each QP, as many as there ever were at once
  std::uint32_t returned_count_ = 0;
  std::size_t users_ = 0;  // QPs
};

/// The receives of one QP, oldest first.
///
/// Threads: put() and publish() of `own` by one application thread; the rest by the loop.
class Receives {
 public:
  Receives(std::uint32_t depth, std::uint32_t max_sge, SharedReceives* shared)
      : own(shared == nullptr ? depth : 1, shared == nullptr ? max_sge : 1),
        shared_(shared),
        taken_(shared == nullptr ? max_sge : shared->max_sge) {}
  Receives(const Receives&) = delete;
  Receives& operator=(const Receives&) = delete;

  [[no_unique_address]] RecvQueue own;

  [[nodiscard]] SharedReceives* shared() const noexcept { return shared_; }
  /// XRC target: takes from another shared queue, or from none, from now on. Not within a message.
  void use(SharedReceives* other) noexcept {
    if (shared_ == other) return;
    put_back();
    shared_ = other;
  }
  /// Whether there is one for the next message.
  [[nodiscard]] bool available() const noexcept {
    if (shared_ != nullptr) [[unlikely]]
      return has_taken_ || !shared_->is_empty();
    return head_ != own.tail();
  }
  /// Whether the QP has one: of its own, or taken from those it shares.
  [[nodiscard]] bool holds_one() const noexcept {
    return shared_ != nullptr ? has_taken_ : head_ != own.tail();
  }
  /// Of its own: posted so far, and taken by messages that have ended.
  [[nodiscard]] std::uint32_t posted() const noexcept { return own.tail(); }
  [[nodiscard]] std::uint32_t taken() const noexcept { return head_; }
  /// The one for the present message. Only if available().
  [[nodiscard]] const RecvWqe& front() noexcept {
    if (shared_ == nullptr) [[likely]]
      return own.at(head_);
    if (!has_taken_) shared_->take(taken_);
    has_taken_ = true;
    return taken_.wqe();
  }
  /// The front has completed.
  void pop() noexcept {
    if (shared_ == nullptr) [[likely]] {
      own.retire(++head_);
    } else {
      has_taken_ = false;
    }
  }
  /// The message came to nothing: a shared receive is for others again.
  void put_back() noexcept {
    if (has_taken_) shared_->give_back(taken_);
    has_taken_ = false;
  }
  /// Forgets its own, and gives back what it shares.
  void reset() noexcept {
    head_ = own.tail();
    own.retire(head_);
    put_back();
  }

 private:
  std::uint32_t head_ = 0;
  bool has_taken_ = false;
  SharedReceives* shared_;
  TakenReceive taken_;
};

}  // namespace uroce::transport
