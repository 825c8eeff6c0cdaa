/// Hashed timer wheel with lazy deadlines.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/time.h"

namespace uroce {

/// One timer, embedded in its owner. The owner's true deadline may move later without telling the wheel: when
/// the node comes up, the owner is asked and armed again. So the packet path never touches the wheel.
struct TimerNode {
  TimerNode* next = nullptr;
  TimerNode* previous = nullptr;
  Ticks due;  ///< slot it sits in; unset: not in the wheel
};

/// Timers with a resolution of 4 us. A node fires at the earliest at its deadline, at the latest one slot
/// later.
///
/// Threads: loop.
class TimerWheel {
 public:
  static constexpr std::uint64_t kSlotNs = 4096;
  static constexpr std::size_t kSlots = 4096;  // one turn: 17 ms; later deadlines go round again

  TimerWheel() noexcept {
    for (auto& head : slots_) head.next = head.previous = &head;
  }
  TimerWheel(const TimerWheel&) = delete;
  TimerWheel& operator=(const TimerWheel&) = delete;

  /// Puts `node` in, or moves it, to fire at `due`.
  void arm(TimerNode& node, Ticks due) noexcept {
    cancel(node);
    node.due = due;
    TimerNode& head = slots_[slot_of(due)];
    node.next = &head;
    node.previous = head.previous;
    head.previous->next = &node;
    head.previous = &node;
    ++armed_;
  }
  void cancel(TimerNode& node) noexcept {
    if (!node.due.is_set()) return;
    node.previous->next = node.next;
    node.next->previous = node.previous;
    node.due = Ticks{};
    --armed_;
  }

  /// Whether expire() has anything to look at.
  [[nodiscard]] bool is_due(Ticks now) const noexcept { return now.ns() / kSlotNs != done_slot_; }
  /// From when on is_due() says so.
  [[nodiscard]] Ticks next_tick() const noexcept { return Ticks((done_slot_ + 1) * kSlotNs); }
  /// Calls `on_due(node)` for every node whose time has come. The node is out of the wheel by then and may be
  /// armed again from inside; no other node may be cancelled from inside. One that is armed again for what
  /// has passed by now waits for the next call.
  template <typename F>
  void expire(Ticks now, F&& on_due) {
    const std::uint64_t target = now.ns() / kSlotNs;
    if (target == done_slot_) return;
    if (armed_ == 0 || target - done_slot_ > kSlots) {
      if (armed_ == 0) {
        done_slot_ = target;
        return;
      }
      done_slot_ = target - kSlots;
    }
    std::uint64_t slot = done_slot_;
    done_slot_ = target;  // where those go that are armed for now
    for (; slot < target; ++slot) expire_slot(slot, now, on_due);
  }

  [[nodiscard]] std::size_t armed() const noexcept { return armed_; }

 private:
  // The slot that ends at or after `due`, never one that has been passed.
  [[nodiscard]] std::size_t slot_of(Ticks due) const noexcept {
    const std::uint64_t slot = due.ns() / kSlotNs;
    return (slot < done_slot_ ? done_slot_ : slot) % kSlots;
  }

  template <typename F>
  void expire_slot(std::uint64_t slot, Ticks now, F& on_due) {
    TimerNode& head = slots_[slot % kSlots];
    TimerNode* const last = head.previous;  // behind it is what is armed meanwhile: `now` may be in this slot
    TimerNode* node = &head;
    TimerNode* next = head.next;
    while (node != last) {
      node = next;
      next = node->next;
      if (node->due > now) continue;
      cancel(*node);
      on_due(*node);
    }
  }

  std::array<TimerNode, kSlots> slots_;
  std::uint64_t done_slot_ = 0;  // slots before this one have been expired
  std::size_t armed_ = 0;
};

}  // namespace uroce
