/// Views of raw frame bytes with a length known at compile time.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>

#include "base/endian.h"

namespace uroce::wire {

/// The `N` bytes at `at`. The caller has proved that they are there.
template <std::size_t N>
[[nodiscard]] constexpr std::span<const std::byte, N> bytes_at(const std::byte* at) noexcept {
  return std::span<const std::byte, N>{at, N};
}

/// The `N` writable bytes at `at`.
template <std::size_t N>
[[nodiscard]] constexpr std::span<std::byte, N> bytes_at(std::byte* at) noexcept {
  return std::span<std::byte, N>{at, N};
}

/// Reads a header of type `H` at `at`.
template <typename H>
[[nodiscard]] constexpr H parse_at(const std::byte* at) noexcept {
  return H::parse(bytes_at<H::kSize>(at));
}

/// A header as it travels, eight bytes a word, the first one lowest; zero behind its end.
template <std::size_t Size>
using Words = std::array<std::uint64_t, (Size + 7) / 8>;

/// The low `Bytes` bytes of `value`, most significant first, at `Offset` of a word.
template <std::size_t Offset, std::size_t Bytes>
[[nodiscard]] constexpr std::uint64_t be_word(std::uint64_t value) noexcept {
  static_assert(Bytes >= 1 && Offset + Bytes <= 8);
  return __builtin_bswap64(value << (64 - 8 * Bytes)) << (8 * Offset);
}
static_assert(be_word<0, 3>(0xff'0102'0304) == 0x04'0302 && be_word<6, 2>(0x0a0b) == 0x0b0a'0000'0000'0000);

/// Writes what words hold, one by one: not by way of memory that is then read wider than it was written.
template <std::size_t Extent>
constexpr void store_words(std::span<std::byte, Extent> out, const Words<Extent>& words) noexcept {
  if (std::is_constant_evaluated() || std::endian::native != std::endian::little) {
    for (std::size_t i = 0; i < Extent; ++i) out[i] = static_cast<std::byte>(words[i / 8] >> (8 * (i % 8)));
    return;
  }
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::uint64_t word = words[i];
    std::memcpy(out.data() + 8 * i, &word, std::min<std::size_t>(8, Extent - 8 * i));
  }
}

/// Writes `header`, by the words that it travels as if it tells them, at `at`. @return the first byte behind
/// it.
template <typename H>
constexpr std::byte* emit_at(std::byte* at, const H& header) noexcept {
  if constexpr (requires { header.words(); }) {
    store_words(bytes_at<H::kSize>(at), header.words());
  } else {
    header.emit(bytes_at<H::kSize>(at));
  }
  return at + H::kSize;
}

/// Copies `N` bytes at `Offset` into an array of numbers, as addresses are kept.
template <std::size_t Offset, std::size_t N, std::size_t Extent>
[[nodiscard]] constexpr std::array<std::uint8_t, N> load_array(
    std::span<const std::byte, Extent> in) noexcept {
  static_assert(Offset + N <= Extent);
  std::array<std::uint8_t, N> out{};
  for (std::size_t i = 0; i < N; ++i) out[i] = std::to_integer<std::uint8_t>(in[Offset + i]);
  return out;
}

/// Writes an array of numbers at `Offset`.
template <std::size_t Offset, std::size_t N, std::size_t Extent>
constexpr void store_array(std::span<std::byte, Extent> out, const std::array<std::uint8_t, N>& in) noexcept {
  static_assert(Offset + N <= Extent);
  for (std::size_t i = 0; i < N; ++i) out[Offset + i] = std::byte{in[i]};
}

}  // namespace uroce::wire
