#pragma once

#include "uroce/types.h"
#include "wire/bytes.h"

namespace uroce::wire {

/// FLUSH Extended Transport Header: what a FLUSH promises and of what. IBA A19.
///
///    0-3  0:26 SEL:2 PLT:4
struct Feth {
  static constexpr std::size_t kSize = 4;  // bytes
  static constexpr std::uint8_t kGlobal = 1;
  static constexpr std::uint8_t kPersistent = 2;
  static constexpr std::uint8_t kRange = 0;
  static constexpr std::uint8_t kWholeMr = 1;

  std::uint8_t placement = 0;    // PLT: kGlobal, kPersistent or both
  std::uint8_t selectivity = 0;  // SEL: the RETH's range, or the whole memory region

  friend constexpr bool operator==(const Feth&, const Feth&) = default;

  /// Whether it asks for something, and for nothing that is not defined.
  [[nodiscard]] constexpr bool is_valid() const noexcept {
    return placement != 0 && placement <= (kGlobal | kPersistent) && selectivity <= kWholeMr;
  }

  [[nodiscard]] static constexpr Feth parse(std::span<const std::byte, kSize> in) noexcept {
    const auto bits = load_be<3, 1>(in);
    return {.placement = static_cast<std::uint8_t>(bits & 0xf),
            .selectivity = static_cast<std::uint8_t>(bits >> 4 & 3)};
  }

  [[nodiscard]] constexpr Words<kSize> words() const noexcept {
    return {be_word<0, 4>(std::uint64_t{selectivity} << 4 | placement)};
  }
};

static_assert([] {
  constexpr Feth h{.placement = Feth::kPersistent, .selectivity = Feth::kWholeMr};
  std::array<std::byte, Feth::kSize> b{};
  emit_at(b.data(), h);
  return b[0] == std::byte{0} && b[3] == std::byte{0x12} && Feth::parse(b) == h && h.is_valid();
}());
static_assert(!Feth{}.is_valid() && !Feth{.placement = 4}.is_valid());

}  // namespace uroce::wire
