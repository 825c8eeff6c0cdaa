/// Frames that go from one loop to another, or from a loop to itself, without the port.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "base/spsc_ring.h"
#include "port/port.h"

namespace uroce::engine {

/// Bounded ring of frames. Everything is allocated at construction.
///
/// Threads: claim() and publish() by the sending loop, front() and pop() by the receiving one.
class FrameRing {
 public:
  static constexpr std::uint32_t kFrames = 128;

  explicit FrameRing(std::uint32_t frame_bytes) : ring_(kFrames), frame_bytes_(frame_bytes) {
    for (std::uint32_t i = 0; i < kFrames; ++i) {  // give every slot its buffer by going round once
      ring_.claim()->frame = std::make_unique<std::byte[]>(frame_bytes);
      ring_.publish();
    }
    while (ring_.front() != nullptr) ring_.pop();
  }

  /// Room for a frame of `len` bytes, which publish() passes on; nullptr if the ring is full or the frame too
  /// long.
  [[nodiscard]] std::byte* claim(std::uint32_t len) noexcept {
    Slot* slot = ring_.claim();
    if (slot == nullptr || len > frame_bytes_) return nullptr;
    slot->len = len;
    return slot->frame.get();
  }
  void publish() noexcept { ring_.publish(); }

  /// The oldest frame; empty if there is none.
  [[nodiscard]] std::span<const std::byte> front() noexcept {
    const Slot* slot = ring_.front();
    return slot == nullptr ? std::span<const std::byte>{} : std::span{slot->frame.get(), slot->len};
  }
  void pop() noexcept { ring_.pop(); }

 private:
  struct Slot {
    std::uint32_t len = 0;
    std::unique_ptr<std::byte[]> frame;
  };

  SpscRing<Slot> ring_;
  std::uint32_t frame_bytes_;
};

}  // namespace uroce::engine
