/// Work that never changes, against which the same benchmarks are compared on different machines.
#pragma once

#include <benchmark/benchmark.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "bench/cycles.h"

namespace uroce::bench {

/// Tables of CRC-32 for eight bytes at once, which no machine has instructions for.
inline constexpr auto kCrcTables = [] {
  std::array<std::array<std::uint32_t, 256>, 8> tables{};
  for (std::uint32_t i = 0; i < 256; ++i) {
    std::uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0xedb8'8320 : 0);
    tables[0][i] = crc;
  }
  for (std::size_t k = 1; k < 8; ++k) {
    for (std::size_t i = 0; i < 256; ++i) {
      tables[k][i] = (tables[k - 1][i] >> 8) ^ tables[0][tables[k - 1][i] & 0xff];
    }
  }
  return tables;
}();

/// Continues the CRC of eight bytes at `at`.
inline std::uint64_t table_crc(std::uint64_t crc, const std::byte* at) noexcept {
  std::uint64_t block = 0;
  std::memcpy(&block, at, sizeof block);
  block ^= crc;
  crc = 0;
  for (std::size_t k = 0; k < 8; ++k) crc ^= kCrcTables[7 - k][(block >> (8 * k)) & 0xff];
  return crc;
}

/// A payload of 1 KiB copied, and the CRCs of its halves by tables, side by side: as many instructions at a
/// time as in a packet's path, so that a CPU shared with another thread slows both alike. Both benchmark
/// programs have it, so that the ratio to it is taken inside one run.
inline void BM_Reference(benchmark::State& state) {
  constexpr std::size_t kHalf = 512;
  std::array<std::byte, 2 * kHalf> from{};
  std::array<std::byte, 2 * kHalf> to{};
  measure(state, 1, [&] {
    benchmark::DoNotOptimize(from.data());
    std::memcpy(to.data(), from.data(), to.size());
    benchmark::ClobberMemory();
    std::uint64_t first = 0xffff'ffff;
    std::uint64_t second = 0xffff'ffff;
    for (std::size_t at = 0; at < kHalf; at += 8) {
      first = table_crc(first, &to[at]);
      second = table_crc(second, &to[kHalf + at]);
    }
    benchmark::DoNotOptimize(first);
    benchmark::DoNotOptimize(second);
  });
}

}  // namespace uroce::bench
