/// Seeded randomness: an argument of everything that needs chance, so that each run can be replayed.
#pragma once

#include <cstdint>

namespace uroce {

__extension__ using Wide = unsigned __int128;

/// xoshiro256** (Blackman, Vigna 2018), seeded through splitmix64. Not for cryptography.
class Random {
 public:
  constexpr explicit Random(std::uint64_t seed) noexcept {
    for (auto& word : state_) {
      seed += 0x9e3779b97f4a7c15ULL;
      std::uint64_t z = seed;
      z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
      z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
      word = z ^ (z >> 31);
    }
  }

  constexpr std::uint64_t next() noexcept {
    const std::uint64_t result = rotl(state_[1] * 5, 7) * 9;
    const std::uint64_t t = state_[1] << 17;
    state_[2] ^= state_[0];
    state_[3] ^= state_[1];
    state_[1] ^= state_[2];
    state_[0] ^= state_[3];
    state_[2] ^= t;
    state_[3] = rotl(state_[3], 45);
    return result;
  }
  constexpr std::uint32_t next32() noexcept { return static_cast<std::uint32_t>(next() >> 32); }
  /// Uniform in [0, bound); bound > 0.
  constexpr std::uint64_t below(std::uint64_t bound) noexcept {
    return static_cast<std::uint64_t>((static_cast<Wide>(next()) * bound) >> 64);
  }

 private:
  static constexpr std::uint64_t rotl(std::uint64_t x, int k) noexcept { return x << k | x >> (64 - k); }
  std::uint64_t state_[4]{};
};

}  // namespace uroce
