#pragma once

#include "uroce/types.h"
#include "wire/bytes.h"

namespace uroce::wire {

/// The syndrome byte of an AETH: ACK, RNR NAK or NAK with its argument. IBA 9.7.5.2.8, table 44.
namespace syndrome {

enum class Kind : std::uint8_t { kAck, kRnrNak, kNak, kReserved };

inline constexpr std::uint8_t kNoCredits = 0x1f;  ///< credit code: end-to-end flow control is not in use
inline constexpr std::uint8_t kNakPsnSequence = 0x60;
inline constexpr std::uint8_t kNakInvalidRequest = 0x61;
inline constexpr std::uint8_t kNakRemoteAccess = 0x62;
inline constexpr std::uint8_t kNakRemoteOp = 0x63;
inline constexpr std::uint8_t kNakInvalidRdRequest = 0x64;

/// @param credits  credit code, 0..31
[[nodiscard]] constexpr std::uint8_t ack(std::uint8_t credits = kNoCredits) noexcept {
  return static_cast<std::uint8_t>(credits & 0x1f);
}
/// @param timer  RNR timer code, 0..31; see rnr_timer_ns()
[[nodiscard]] constexpr std::uint8_t rnr_nak(std::uint8_t timer) noexcept {
  return static_cast<std::uint8_t>(0x20 | (timer & 0x1f));
}
/// The credit or timer code of an ACK or RNR NAK.
[[nodiscard]] constexpr std::uint8_t code(std::uint8_t value) noexcept {
  return static_cast<std::uint8_t>(value & 0x1f);
}
[[nodiscard]] constexpr Kind classify(std::uint8_t value) noexcept {
  if (value <= 0x1f) return Kind::kAck;
  if (value >= 0x20 && value <= 0x3f) return Kind::kRnrNak;
  if (value >= kNakPsnSequence && value <= kNakInvalidRdRequest) return Kind::kNak;
  return Kind::kReserved;
}

static_assert(classify(ack()) == Kind::kAck && classify(rnr_nak(31)) == Kind::kRnrNak && rnr_nak(12) == 0x2c);
static_assert(classify(0x40) == Kind::kReserved && classify(0x65) == Kind::kReserved);
static_assert(classify(0x80) == Kind::kReserved && classify(kNakRemoteOp) == Kind::kNak);

}  // namespace syndrome

/// ACK Extended Transport Header. IBA 9.3.5.
///
///    0  syndrome    1-3  MSN: completed messages mod 2^24
struct Aeth {
  static constexpr std::size_t kSize = 4;  // bytes

  std::uint8_t syndrome = syndrome::ack();
  std::uint32_t msn = 0;  // 24 bits

  friend constexpr bool operator==(const Aeth&, const Aeth&) = default;

  [[nodiscard]] static constexpr Aeth parse(std::span<const std::byte, kSize> in) noexcept {
    return {.syndrome = load_be<0, 1>(in), .msn = load_be<1, 3>(in)};
  }

  [[nodiscard]] constexpr Words<kSize> words() const noexcept {
    return {std::uint64_t{syndrome} | be_word<1, 3>(msn)};
  }
};

static_assert([] {
  constexpr Aeth h{.syndrome = syndrome::kNakPsnSequence, .msn = 0x12'3456};
  std::array<std::byte, Aeth::kSize> b{};
  emit_at(b.data(), h);
  return b[0] == std::byte{0x60} && b[1] == std::byte{0x12} && b[3] == std::byte{0x56} && Aeth::parse(b) == h;
}());

}  // namespace uroce::wire
