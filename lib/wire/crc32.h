/// CRC-32 (IEEE 802.3, reflected, as in zlib) over bytes of which some of the first count as ones.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

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
/// On CPUs with AVX-512 this is carry-less multiplication of whole vectors. On others it is that of single
/// blocks while `in` is short, and ISA-L for long ones: most packets are short, and ISA-L's start-up is most
/// of their cost.
/// @param in  at least 32 bytes
[[nodiscard]] std::uint32_t masked_crc32(std::uint32_t crc, std::span<const std::byte> in,
                                         const CrcMask& mask) noexcept;

/// The same on CPUs without AVX-512.
[[nodiscard]] std::uint32_t narrow_masked_crc32(std::uint32_t crc, std::span<const std::byte> in,
                                                const CrcMask& mask) noexcept;
/// The same with ISA-L alone, on CPUs without carry-less multiplication.
[[nodiscard]] std::uint32_t portable_masked_crc32(std::uint32_t crc, std::span<const std::byte> in,
                                                  const CrcMask& mask) noexcept;

/// Copies `from`, each byte read once, and continues `crc`, which like the result is in its final (inverted)
/// form, over it.
///
/// To compute the CRC of the copy would be to read what was written a moment ago, and to wait for it while
/// another core still has its cache lines.
/// @pre copies_with_crc32()
[[nodiscard]] std::uint32_t copy_crc32(std::uint32_t crc, std::byte* to,
                                       std::span<const std::byte> from) noexcept;
/// Whether this CPU can do so faster than both by turns, and the process computes CRCs at all.
[[nodiscard]] bool copies_with_crc32() noexcept;

/// From now on masked_crc32() gives 0 in this process, so that its packets carry no ICRC and all others are
/// refused. For measuring what the ICRC costs, and for nothing else: no configuration and no peer leads here.
/// Threads: before the first packet.
void leave_out_crc32() noexcept;

}  // namespace uroce::wire
