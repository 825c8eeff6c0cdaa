/// The cheapest possible link: two ports that hand each other frames through an array, in one thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "port/port.h"

namespace uroce::bench {

/// One end. What a benchmark measures on it is the engine and nothing else.
class MemoryPort final : public port::Port {
 public:
  static constexpr std::uint32_t kSlots = 256;
  static constexpr std::uint32_t kSlotBytes = 4352;

  explicit MemoryPort(std::uint8_t number) : Port(true) {
    info_.name = "memory";
    info_.mac = {{2, 0, 0, 0, 0, number}};
    info_.link_mtu = 4200;
  }
  static void join(MemoryPort& a, MemoryPort& b) noexcept {
    a.peer_ = &b;
    b.peer_ = &a;
  }

  [[nodiscard]] const port::PortInfo& info() const noexcept override { return info_; }
  unsigned rx_burst(std::span<port::RxFrame> frames) noexcept override {
    const std::uint32_t count =
        std::min<std::uint32_t>(tail_ - head_, static_cast<std::uint32_t>(frames.size()));
    for (std::uint32_t i = 0; i < count; ++i) {
      const Slot& slot = slots_[(head_ + i) % kSlots];
      frames[i] = {slot.frame.data(), slot.len};
    }
    shown_ = count;
    return count;
  }
  void rx_release() noexcept override { head_ += shown_; }
  [[nodiscard]] std::byte* tx_claim(std::uint32_t len) noexcept override {
    if (peer_->tail_ - peer_->head_ == kSlots) return nullptr;
    Slot& slot = peer_->slots_[peer_->tail_ % kSlots];
    slot.len = len;
    return slot.frame.data();
  }
  void tx_commit() noexcept override { ++peer_->tail_; }
  void tx_flush() noexcept override {}
  [[nodiscard]] port::PortCounters counters() const noexcept override { return {}; }

 private:
  struct Slot {
    std::uint32_t len = 0;
    alignas(64) std::array<std::byte, kSlotBytes> frame;
  };

  port::PortInfo info_;
  MemoryPort* peer_ = nullptr;
  std::uint32_t head_ = 0;  // of the frames on their way to this end
  std::uint32_t tail_ = 0;
  std::uint32_t shown_ = 0;
  std::array<Slot, kSlots> slots_;
};

}  // namespace uroce::bench
