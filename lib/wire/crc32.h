/// CRC-32 (IEEE 802.3, reflected, as in zlib) over bytes of which some of the first count as ones.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>

#include "base/fetch_ahead.h"

namespace uroce::wire {

/// Which bits of the first bytes of a packet count as ones.
struct CrcMask {
  /// As far as a mask may reach, and room behind it so that it can be read in blocks of 16 from any offset
  /// below.
  static constexpr std::size_t kReach = 64;

  std::array<std::byte, kReach + 16> ones{};
};

/// Continues `crc`, which like the result is in its final (inverted) form, over `in` | `mask`.
///
/// By carry-less multiplication: of AVX-512 vectors, of AVX2 vectors, or of blocks of 16 bytes, whatever the
/// CPU has; those of a short input all at once. Without AVX2's, long ones by ISA-L.
/// @param in     at least 32 bytes
/// @param ahead  lines of which some are fetched meanwhile, if it takes long enough
[[nodiscard]] std::uint32_t masked_crc32(std::uint32_t crc, std::span<const std::byte> in,
                                         const CrcMask& mask, FetchAhead* ahead = nullptr) noexcept;

/// The shortest input of masked_crc32_beside_copy(), and the least it copies, bytes.
inline constexpr std::size_t kShortestBeside = 1024;
/// masked_crc32() of an input of at least so many bytes, and besides copies as many or more `others` to `to`:
/// on CPUs that multiply vectors, where the CRC waits for multiplications and a copy for memory, so that both
/// together take hardly longer than one of them.
/// @return nullopt, and nothing was done, on other CPUs
[[nodiscard]] std::optional<std::uint32_t> masked_crc32_beside_copy(
    std::uint32_t crc, std::span<const std::byte> in, const CrcMask& mask, std::byte* to,
    std::span<const std::byte> others) noexcept;

/// masked_crc32() by blocks, and by ISA-L, on CPUs that multiply no vectors: with AVX2 and PCLMULQDQ.
[[nodiscard]] std::uint32_t narrow_masked_crc32(std::uint32_t crc, std::span<const std::byte> in,
                                                const CrcMask& mask) noexcept;
/// The same with ISA-L alone, on CPUs without carry-less multiplication or AVX2.
[[nodiscard]] std::uint32_t portable_masked_crc32(std::uint32_t crc, std::span<const std::byte> in,
                                                  const CrcMask& mask) noexcept;

/// Copies `from`, each byte read once, and continues `crc`, which like the result is in its final (inverted)
/// form, over it: in one pass on CPUs that multiply vectors.
/// @param to  best in memory that no other core reads: on other CPUs the CRC is that of the copy
[[nodiscard]] std::uint32_t copy_crc32(std::uint32_t crc, std::byte* to,
                                       std::span<const std::byte> from) noexcept;
/// The same on CPUs that do not.
[[nodiscard]] std::uint32_t narrow_copy_crc32(std::uint32_t crc, std::byte* to,
                                              std::span<const std::byte> from) noexcept;

/// Whether copy_crc32() does not read what it has written, if it is at least 64 bytes.
[[nodiscard]] bool copies_in_one_pass() noexcept;

/// The CRC of two parts, one behind the other: `first`, and `second` as continued from 0, of `bytes` bytes.
/// @param bytes  at least 64
[[nodiscard]] std::uint32_t join_crc32(std::uint32_t first, std::uint32_t second, std::size_t bytes) noexcept;

/// A clock, ns.
using Now = std::function<std::uint64_t()>;
/// CPUs differ in which of their vector instructions are fast. Where there is a choice it is tried, 0.1 ms.
/// Without it masked_crc32() and copy_crc32() do what is bad nowhere. Threads: any.
void tune_crc32(const Now& now);

/// From now on masked_crc32() gives 0 in this process, and nobody calls the others, so that its packets carry
/// no ICRC and all others are refused. For measuring what the ICRC costs, and for nothing else: no
/// configuration and no peer leads here. Threads: before the first packet.
void leave_out_crc32() noexcept;
/// Whether it was not called.
[[nodiscard]] bool computes_crc32() noexcept;
/// Whether this CPU can compute it by whole AVX-512 vectors, and does: false before the first packet.
[[nodiscard]] bool computes_wide_crc32() noexcept;
/// Whether this CPU can sum it up part by part as these are written, and does: AVX2 and carry-less
/// multiplication. False before the first packet.
[[nodiscard]] bool computes_crc32_of_parts() noexcept;

}  // namespace uroce::wire
