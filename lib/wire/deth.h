#pragma once

#include "uroce/types.h"
#include "wire/bytes.h"

namespace uroce::wire {

/// Datagram Extended Transport Header. IBA 9.3.2.
///
///    0-3  Q_Key    4  0    5-7  source QPN
struct Deth {
  static constexpr std::size_t kSize = 8;  // bytes

  std::uint32_t qkey = 0;
  Qpn src_qpn{};

  friend constexpr bool operator==(const Deth&, const Deth&) = default;

  [[nodiscard]] static constexpr Deth parse(std::span<const std::byte, kSize> in) noexcept {
    return {.qkey = load_be<0, 4>(in), .src_qpn = Qpn{load_be<5, 3>(in)}};
  }

  [[nodiscard]] constexpr Words<kSize> words() const noexcept {
    return {be_word<0, 4>(qkey) | be_word<5, 3>(raw(src_qpn))};
  }
};

static_assert([] {
  constexpr Deth h{.qkey = 0x8001'0000, .src_qpn = Qpn{0xab'cdef}};
  std::array<std::byte, Deth::kSize> b{};
  emit_at(b.data(), h);
  return b[0] == std::byte{0x80} && b[4] == std::byte{0} && b[5] == std::byte{0xab} &&
         b[7] == std::byte{0xef} && Deth::parse(b) == h;
}());

}  // namespace uroce::wire
