/// Packets that came ahead of one that is missing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "transport/psn_bitmap.h"
#include "wire/held_eth.h"
#include "wire/packet.h"

namespace uroce::transport {

/// Copies of packets, one slot for each PSN of a window behind the one that is missing. Memory: `slots` times
/// the path MTU and its headers, of which the kernel gives what is used first.
///
/// Threads: loop.
class HeldFrames {
 public:
  /// @param slots  power of 2, at most PsnBitmap::kSpan
  HeldFrames(std::uint32_t slots, std::uint32_t mtu);

  enum class Put : std::uint8_t { kHeld, kAlready, kNoRoom };
  /// Keeps a copy of `packet`, which comes ahead of `missing`.
  Put put(Psn missing, const wire::PacketView& packet) noexcept;
  /// Shows the packet with this PSN, which is then held no more, until the next put(). Where a link shows
  /// frames in memory that the peer can write to, they may have changed before they were copied.
  /// @return false: there is none, or it is no longer such a packet as was put
  [[nodiscard]] bool take(Psn psn, wire::PacketView& packet) noexcept;
  [[nodiscard]] bool has(Psn psn) const noexcept { return held_.has(psn); }
  /// Forgets what is not ahead of `missing`.
  void advance(Psn missing) noexcept { held_.advance(missing); }
  void clear() noexcept { held_.restart(held_.base()); }
  [[nodiscard]] bool is_empty() const noexcept { return held_.is_empty(); }
  /// What is held behind `missing`, to tell the peer.
  [[nodiscard]] wire::HeldEth tell(Psn missing) noexcept;

 private:
  [[nodiscard]] std::byte* slot(Psn psn) noexcept {
    return bytes_.get() + std::size_t{psn.value() & (slots_ - 1)} * slot_bytes_;
  }

  /// Of a copy, what was judged.
  struct Known {
    std::uint32_t length = 0;
    const wire::OpcodeInfo* op = nullptr;
  };

  std::uint32_t slots_;
  std::uint32_t slot_bytes_;
  std::unique_ptr<std::byte[]> bytes_;
  std::unique_ptr<Known[]> known_;
  PsnBitmap held_;
};

}  // namespace uroce::transport
