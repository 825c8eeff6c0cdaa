/// The ICRC of a packet that has come, but not been looked at: computed while the one before is copied.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "base/copy.h"
#include "wire/crc32.h"
#include "wire/packet.h"

namespace uroce::wire {

/// Of a stream of long packets, the ICRC of the next one: to verify a packet, and to copy its payload, take
/// hardly less time than to copy it and to sum up the one behind it meanwhile.
///
/// A hint: whoever asks for the ICRC of a packet for which it was not computed has to do so.
///
/// Threads: one.
class IcrcAhead {
 public:
  /// The shortest frame that is worth it, bytes.
  static constexpr std::uint32_t kShortest = 1200;
  static_assert(kShortest >= kShortestBeside + 66 + kIcrcSize,
                "Ethernet, VLAN, IPv6 and UDP are not in both");

  /// A long frame is handled now, and behind it `next` comes, or, if that is empty, nobody knows what.
  /// Lifetime: of `next`, until end().
  void begin(std::span<const std::byte> next) noexcept {
    known_ = std::exchange(coming_, {});
    next_ = next;
  }
  /// It has been handled.
  void end() noexcept {
    known_ = {};
    next_ = {};
  }

  /// Whether the ICRC that `packet` carries, which is the one handled now and of RoCE v2, is known to be
  /// right.
  [[nodiscard]] bool approves(const PacketView& packet) const noexcept {
    const auto covered = packet.icrc_covered();
    return covered.data() == known_.covered.data() && covered.size() == known_.covered.size() &&
           packet.is_v6 == known_.is_v6 && packet.icrc() == known_.icrc;
  }

  /// copy_part() of a part of the payload of `packet`, the one that is handled now; and the ICRC of the next
  /// one, if that looks alike.
  void copy(const PacketView& packet, std::byte* to, std::span<const std::byte> part,
            std::uint64_t whole) noexcept;

 private:
  struct Sum {
    std::span<const std::byte> covered{};
    std::uint32_t icrc = 0;
    bool is_v6 = false;
  };

  std::span<const std::byte> next_{};  // frame
  Sum known_;                          // of the frame that is handled now
  Sum coming_;                         // of the next one
};

/// Copies a part of the payload of `packet` to where it belongs: copy_part(), or more than that.
[[gnu::always_inline]] inline void place_part(const PacketView& packet, std::byte* to,
                                              std::span<const std::byte> part, std::uint64_t whole) noexcept {
  if (part.size() >= kShortestBeside && packet.ahead != nullptr) [[unlikely]]
    return packet.ahead->copy(packet, to, part, whole);
  copy_part(to, part.data(), part.size(), whole);
}

/// The payload of a packet, copied piece by piece.
class PayloadCopy {
 public:
  /// @param whole  bytes of the message, if known
  explicit PayloadCopy(const PacketView& packet, std::uint64_t whole = 0) noexcept
      : packet_(packet), next_(packet.payload.data()), whole_(whole) {}

  void operator()(std::byte* to, std::size_t size) noexcept {
    place_part(packet_, to, {next_, size}, whole_);
    next_ += size;
  }

 private:
  const PacketView& packet_;
  const std::byte* next_;
  std::uint64_t whole_;
};

}  // namespace uroce::wire
