#include "drivers/fault/held_frames.h"

#include <algorithm>
#include <cstring>

namespace uroce::drivers::fault {

HeldFrames::HeldFrames(std::size_t count, std::size_t frame_bytes)
    : room_(count * frame_bytes), frames_(count) {
  free_.reserve(count);
  held_.reserve(count);
  for (std::size_t i = 0; i < count; ++i) {
    frames_[i].room = std::span(room_).subspan(i * frame_bytes, frame_bytes);
    free_.push_back(&frames_[i]);
  }
}

HeldFrames::Frame* HeldFrames::take(std::span<const std::byte> bytes) noexcept {
  if (free_.empty() || bytes.size() > free_.back()->room.size()) return nullptr;
  Frame* frame = free_.back();
  free_.pop_back();
  std::memcpy(frame->room.data(), bytes.data(), bytes.size());
  frame->len = static_cast<std::uint32_t>(bytes.size());
  frame->frames_left = 0;
  frame->polls_left = 0;
  frame->due_ns = 0;
  return frame;
}

void HeldFrames::on_frame_passed() noexcept {
  for (Frame* frame : held_) {
    if (frame->frames_left > 0) --frame->frames_left;
  }
}

void HeldFrames::on_poll() noexcept {
  for (Frame* frame : held_) {
    if (frame->polls_left > 0) --frame->polls_left;
  }
}

HeldFrames::Frame* HeldFrames::first_due(std::uint64_t now_ns) const noexcept {
  const auto found = std::find_if(held_.begin(), held_.end(),
                                  [now_ns](const Frame* frame) { return frame->is_due(now_ns); });
  return found == held_.end() ? nullptr : *found;
}

void HeldFrames::unhold(Frame* frame) noexcept {
  held_.erase(std::find(held_.begin(), held_.end(), frame));
}

}  // namespace uroce::drivers::fault
