/// Frames that the fault decorator keeps: altered, duplicated, or waiting for others to overtake them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace uroce::drivers::fault {

/// A fixed store of frames, released in the order they became due.
///
/// Threads: one. Everything is allocated at construction.
class HeldFrames {
 public:
  /// A held frame leaves after this many polls at the latest, however little traffic overtakes it.
  static constexpr std::uint32_t kMaxPolls = 1000;

  struct Frame {
    std::span<std::byte> room;
    std::uint32_t len = 0;
    std::uint64_t frames_left = 0;  ///< to be overtaken by
    std::uint32_t polls_left = 0;   ///< 0: not held back by polls and frames
    std::uint64_t due_ns = 0;

    [[nodiscard]] std::span<std::byte> bytes() const noexcept { return room.first(len); }
    [[nodiscard]] bool is_due(std::uint64_t now_ns) const noexcept {
      return (frames_left == 0 || polls_left == 0) && now_ns >= due_ns;
    }
  };

  HeldFrames(std::size_t count, std::size_t frame_bytes);

  /// Copies a frame in. @return nullptr if the store is full.
  [[nodiscard]] Frame* take(std::span<const std::byte> bytes) noexcept;
  void give_back(Frame* frame) noexcept { free_.push_back(frame); }  // room was reserved

  /// Lets the frame wait for its conditions.
  void hold(Frame* frame) noexcept { held_.push_back(frame); }
  [[nodiscard]] bool has_held() const noexcept { return !held_.empty(); }
  void on_frame_passed() noexcept;
  void on_poll() noexcept;
  /// The first held frame that is due; nullptr if there is none.
  [[nodiscard]] Frame* first_due(std::uint64_t now_ns) const noexcept;
  /// It is no longer held, and not free yet.
  void unhold(Frame* frame) noexcept;

 private:
  std::vector<std::byte> room_;
  std::vector<Frame> frames_;
  std::vector<Frame*> free_;
  std::vector<Frame*> held_;
};

}  // namespace uroce::drivers::fault
