/// One direction of a simulated link: a bounded FIFO with bandwidth and delay.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/cache_line.h"
#include "base/random.h"
#include "port/port.h"

namespace uroce::drivers {

/// What a simulated link is like. The same for all its directions.
struct LoopbackConfig {
  std::uint64_t delay_ns = 1000;     ///< propagation, behind the last bit
  std::uint64_t bandwidth_bps = 0;   ///< bits per second; 0: infinite
  std::uint32_t queue_frames = 256;  ///< frames that a direction holds, waiting or on their way
  std::uint32_t ce_threshold_frames =
      0;  ///< frames waiting from which on ECN-capable ones are marked; 0: never
  /// Frames waiting from which on all of them are: below, RED marks up to ce_percent of them, the more the
  /// longer the queue is. 0: all from the threshold on.
  std::uint32_t ce_full_frames = 0;
  std::uint32_t ce_percent = 0;
  std::uint64_t seed = 1;  ///< of what RED marks
  std::uint32_t link_mtu = 4200;
  bool kernel_sends = false;                  ///< what PortInfo says
  std::uint32_t burst_frames = port::kBurst;  ///< most that a burst shows
  /// Bits per second of each port towards a switch, which then refuses frames as a link does; 0: infinite.
  std::uint64_t input_bps = 0;
};

namespace loopback {

/// Threads: one. Everything is allocated at construction.
class Channel {
 public:
  explicit Channel(const LoopbackConfig& config);

  /// Room for a frame, or nullptr if the queue is full.
  [[nodiscard]] std::byte* claim(std::uint32_t len) noexcept;
  /// The claimed frame begins to leave at `now_ns`, or behind those before it.
  void commit(std::uint64_t now_ns) noexcept;
  [[nodiscard]] std::uint32_t claimed_len() const noexcept { return claimed_len_; }

  /// Shows frames that have arrived by `now_ns`; release() gives them back.
  unsigned show(std::span<port::RxFrame> frames, std::uint64_t now_ns) noexcept;
  void release() noexcept;
  /// When the oldest frame not yet shown arrives, or did.
  [[nodiscard]] std::optional<std::uint64_t> next_arrival_ns() const noexcept;
  /// Frames that have not left the queue.
  [[nodiscard]] std::uint32_t queued(std::uint64_t now_ns) noexcept;

 private:
  struct Slot {
    std::uint32_t len = 0;
    std::uint64_t departure_ps = 0;
    std::uint64_t arrival_ns = 0;
  };
  [[nodiscard]] std::size_t index(std::uint64_t position) const noexcept { return position % slots_.size(); }
  [[nodiscard]] std::byte* room(std::uint64_t position) noexcept {
    return room_[index(position) * (slot_bytes_ / sizeof(CacheLine))].data();
  }
  void mark_if_crowded(std::uint64_t now_ns) noexcept;
  [[nodiscard]] bool is_marked(std::uint32_t queued) noexcept;

  LoopbackConfig config_;
  Random random_;
  std::size_t slot_bytes_;
  std::vector<Slot> slots_;
  std::vector<CacheLine> room_;
  std::uint64_t tail_ = 0;      // next to be committed
  std::uint64_t departed_ = 0;  // first that has not left the queue
  std::uint64_t head_ = 0;      // first not released
  unsigned shown_ = 0;
  std::uint32_t claimed_len_ = 0;
  std::uint64_t busy_until_ps_ = 0;
};

}  // namespace loopback
}  // namespace uroce::drivers
