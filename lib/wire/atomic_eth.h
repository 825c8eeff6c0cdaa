#pragma once

#include "uroce/types.h"
#include "wire/bytes.h"

namespace uroce::wire {

/// Atomic Extended Transport Header. IBA 9.3.4.
///
///    0-7  virtual address    8-11  R_Key    12-19  swap or add operand    20-27  compare operand
struct AtomicEth {
  static constexpr std::size_t kSize = 28;  // bytes

  std::uint64_t va = 0;
  Rkey rkey{};
  std::uint64_t swap_add = 0;
  std::uint64_t compare = 0;  // not used by FETCH_ADD

  friend constexpr bool operator==(const AtomicEth&, const AtomicEth&) = default;

  [[nodiscard]] static constexpr AtomicEth parse(std::span<const std::byte, kSize> in) noexcept {
    return {.va = load_be<0, 8>(in),
            .rkey = Rkey{load_be<8, 4>(in)},
            .swap_add = load_be<12, 8>(in),
            .compare = load_be<20, 8>(in)};
  }

  [[nodiscard]] constexpr Words<kSize> words() const noexcept {
    return {be_word<0, 8>(va), be_word<0, 4>(raw(rkey)) | be_word<4, 4>(swap_add >> 32),
            be_word<0, 4>(swap_add) | be_word<4, 4>(compare >> 32), be_word<0, 4>(compare)};
  }
};

static_assert([] {
  constexpr AtomicEth h{.va = 0x10, .rkey = Rkey{0x20}, .swap_add = 0x3000'0000'0000'0030, .compare = 0x40};
  std::array<std::byte, AtomicEth::kSize> b{};
  emit_at(b.data(), h);
  return b[7] == std::byte{0x10} && b[11] == std::byte{0x20} && b[12] == std::byte{0x30} &&
         b[27] == std::byte{0x40} && AtomicEth::parse(b) == h;
}());

}  // namespace uroce::wire
