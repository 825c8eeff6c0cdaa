/// Test data: bytes that depend on a seed and on their place, so that stale, shifted or torn data shows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace uroce::apps {

/// Eight bytes of the pattern `seed` at 8-byte word `index` (a mixer of two rounds).
[[nodiscard]] constexpr std::uint64_t pattern_word(std::uint64_t seed, std::uint64_t index) noexcept {
  std::uint64_t x = seed * 0x9e37'79b9'7f4a'7c15ULL + (index + 1) * 0xbf58'476d'1ce4'e5b9ULL;
  x ^= x >> 31;
  x *= 0x94d0'49bb'1331'11ebULL;
  return x ^ x >> 29;
}

/// @param index  of the first word
inline void fill_pattern(std::span<std::byte> out, std::uint64_t seed, std::uint64_t index = 0) noexcept {
  while (!out.empty()) {
    const std::uint64_t word = pattern_word(seed, index++);
    const std::size_t take = out.size() < sizeof word ? out.size() : sizeof word;
    std::memcpy(out.data(), &word, take);
    out = out.subspan(take);
  }
}

/// @return how many bytes differ from the pattern.
[[nodiscard]] inline std::uint64_t pattern_errors(std::span<const std::byte> in, std::uint64_t seed,
                                                  std::uint64_t index = 0) noexcept {
  std::uint64_t errors = 0;
  while (!in.empty()) {
    const std::uint64_t word = pattern_word(seed, index++);
    const std::size_t take = in.size() < sizeof word ? in.size() : sizeof word;
    if (std::memcmp(in.data(), &word, take) != 0) {
      std::byte expected[sizeof word];
      std::memcpy(expected, &word, sizeof word);
      for (std::size_t i = 0; i < take; ++i) errors += in[i] != expected[i] ? 1 : 0;
    }
    in = in.subspan(take);
  }
  return errors;
}

}  // namespace uroce::apps
