#pragma once

#include "wire/bytes.h"

namespace uroce::wire {

/// Immediate data: four opaque bytes, kept as the number that they spell in network order. IBA 9.3.6.
struct ImmDt {
  static constexpr std::size_t kSize = 4;  // bytes

  std::uint32_t value = 0;

  friend constexpr bool operator==(const ImmDt&, const ImmDt&) = default;

  [[nodiscard]] static constexpr ImmDt parse(std::span<const std::byte, kSize> in) noexcept {
    return {.value = load_be<0, 4>(in)};
  }

  [[nodiscard]] constexpr Words<kSize> words() const noexcept { return {be_word<0, 4>(value)}; }
};

static_assert([] {
  constexpr ImmDt h{.value = 0xdead'beef};
  std::array<std::byte, ImmDt::kSize> b{};
  emit_at(b.data(), h);
  return b[0] == std::byte{0xde} && b[3] == std::byte{0xef} && ImmDt::parse(b) == h;
}());

}  // namespace uroce::wire
