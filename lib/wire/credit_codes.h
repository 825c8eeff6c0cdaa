/// Receives that travel as 5-bit codes in the AETH of ACKs.
#pragma once

#include <array>
#include <cstdint>

#include "wire/aeth.h"

namespace uroce::wire {

namespace detail {

inline constexpr std::array<std::uint16_t, 31> kCredits{
    0,   1,   2,   3,   4,    6,    8,    12,   16,   24,   32,   48,    64,    96,    128,  192,
    256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768};

}  // namespace detail

/// End-to-end credits of a code. IBA 9.7.7.2 ?
/// @param code  0..30; 31 says that there are none (syndrome::kNoCredits)
[[nodiscard]] constexpr std::uint32_t credits_of(std::uint8_t code) noexcept {
  return detail::kCredits[code];
}

/// The largest code that promises no more than `receives`.
[[nodiscard]] constexpr std::uint8_t credit_code(std::uint32_t receives) noexcept {
  std::uint8_t code = 0;
  for (std::uint8_t step = 16; step > 0; step /= 2) {
    const auto higher = static_cast<std::uint8_t>(code + step);
    if (higher < detail::kCredits.size() && detail::kCredits[higher] <= receives) code = higher;
  }
  return code;
}

static_assert([] {
  for (std::uint8_t code = 0; code < syndrome::kNoCredits; ++code) {
    if (credit_code(credits_of(code)) != code) return false;
    if (code > 0 && credit_code(credits_of(code) - 1) != code - 1) return false;
  }
  return credit_code(5) == 4 && credit_code(95) == 12 && credit_code(0xffff'ffff) == 30;
}());

}  // namespace uroce::wire
