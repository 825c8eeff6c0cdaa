#pragma once

#include "uroce/types.h"
#include "wire/bytes.h"

namespace uroce::wire {

/// RDMA Extended Transport Header: what a WRITE or READ touches at the responder. IBA 9.3.3.
///
///    0-7  virtual address    8-11  R_Key    12-15  DMA length, bytes of the whole message
struct Reth {
  static constexpr std::size_t kSize = 16;  // bytes

  std::uint64_t va = 0;
  Rkey rkey{};
  std::uint32_t length = 0;

  friend constexpr bool operator==(const Reth&, const Reth&) = default;

  [[nodiscard]] static constexpr Reth parse(std::span<const std::byte, kSize> in) noexcept {
    return {.va = load_be<0, 8>(in), .rkey = Rkey{load_be<8, 4>(in)}, .length = load_be<12, 4>(in)};
  }

  [[nodiscard]] constexpr Words<kSize> words() const noexcept {
    return {be_word<0, 8>(va), be_word<0, 4>(raw(rkey)) | be_word<4, 4>(length)};
  }
};

static_assert([] {
  constexpr Reth h{.va = 0x0102'0304'0506'0708, .rkey = Rkey{0xa1b2'c3d4}, .length = 0x8000'0001};
  std::array<std::byte, Reth::kSize> b{};
  emit_at(b.data(), h);
  return b[0] == std::byte{1} && b[7] == std::byte{8} && b[8] == std::byte{0xa1} &&
         b[12] == std::byte{0x80} && b[15] == std::byte{1} && Reth::parse(b) == h;
}());

}  // namespace uroce::wire
