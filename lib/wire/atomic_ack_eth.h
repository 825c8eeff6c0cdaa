#pragma once

#include "wire/bytes.h"

namespace uroce::wire {

/// Atomic ACK Extended Transport Header; follows the AETH. IBA 9.5.3.
///
///    0-7  value of the target before the operation
struct AtomicAckEth {
  static constexpr std::size_t kSize = 8;  // bytes

  std::uint64_t original = 0;

  friend constexpr bool operator==(const AtomicAckEth&, const AtomicAckEth&) = default;

  [[nodiscard]] static constexpr AtomicAckEth parse(std::span<const std::byte, kSize> in) noexcept {
    return {.original = load_be<0, 8>(in)};
  }

  [[nodiscard]] constexpr Words<kSize> words() const noexcept { return {be_word<0, 8>(original)}; }
};

static_assert([] {
  constexpr AtomicAckEth h{.original = 0x0102'0304'0506'0708};
  std::array<std::byte, AtomicAckEth::kSize> b{};
  emit_at(b.data(), h);
  return b[0] == std::byte{1} && b[7] == std::byte{8} && AtomicAckEth::parse(b) == h;
}());

}  // namespace uroce::wire
