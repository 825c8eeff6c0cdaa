#pragma once

#include "wire/bytes.h"

namespace uroce::wire {

/// XRC Extended Transport Header: in every request of an XRC connection, right behind the BTH. IBA A14 ?
///
///    0  0    1-3  number of the shared receive queue
struct Xrceth {
  static constexpr std::size_t kSize = 4;  // bytes

  std::uint32_t srq = 0;  // 24 bits

  friend constexpr bool operator==(const Xrceth&, const Xrceth&) = default;

  [[nodiscard]] static constexpr Xrceth parse(std::span<const std::byte, kSize> in) noexcept {
    return {.srq = load_be<1, 3>(in)};
  }

  [[nodiscard]] constexpr Words<kSize> words() const noexcept { return {be_word<1, 3>(srq)}; }
};

static_assert([] {
  constexpr Xrceth h{.srq = 0xab'cdef};
  std::array<std::byte, Xrceth::kSize> b{std::byte{0xff}};
  emit_at(b.data(), h);
  return b[0] == std::byte{0} && b[1] == std::byte{0xab} && b[3] == std::byte{0xef} && Xrceth::parse(b) == h;
}());

}  // namespace uroce::wire
