#pragma once

#include "uroce/types.h"
#include "wire/bytes.h"

namespace uroce::wire {

/// Invalidate Extended Transport Header: the R_Key which a SEND with invalidate revokes. IBA 9.3.7.
struct Ieth {
  static constexpr std::size_t kSize = 4;  // bytes

  Rkey rkey{};

  friend constexpr bool operator==(const Ieth&, const Ieth&) = default;

  [[nodiscard]] static constexpr Ieth parse(std::span<const std::byte, kSize> in) noexcept {
    return {.rkey = Rkey{load_be<0, 4>(in)}};
  }

  [[nodiscard]] constexpr Words<kSize> words() const noexcept { return {be_word<0, 4>(raw(rkey))}; }
};

static_assert([] {
  constexpr Ieth h{.rkey = Rkey{0x0102'0304}};
  std::array<std::byte, Ieth::kSize> b{};
  emit_at(b.data(), h);
  return b[0] == std::byte{1} && b[3] == std::byte{4} && Ieth::parse(b) == h;
}());

}  // namespace uroce::wire
