/// CRC-32 by carry-less multiplication of AVX2 vectors, which are pairs of blocks, alone or while bytes are
/// copied: for CPUs that have no AVX-512, or none that multiplies (Zen 3, Intel's client CPUs since Alder
/// Lake).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "wire/crc32.h"

namespace uroce::wire {

/// The shortest input of pairs_copy_crc32(), bytes.
inline constexpr std::size_t kShortestPairs = 64;

/// Whether this CPU can run them: AVX2 and VPCLMULQDQ.
[[nodiscard]] bool has_pairs_crc32() noexcept;

/// masked_crc32().
[[nodiscard]] std::uint32_t pairs_masked_crc32(std::uint32_t crc, std::span<const std::byte> in,
                                               const CrcMask& mask, FetchAhead* ahead = nullptr) noexcept;

/// masked_crc32_beside_copy(), of at least kShortestBeside bytes.
[[nodiscard]] std::uint32_t pairs_masked_crc32_beside_copy(std::uint32_t crc, std::span<const std::byte> in,
                                                           const CrcMask& mask, std::byte* to,
                                                           std::span<const std::byte> others) noexcept;

/// copy_crc32().
[[nodiscard]] std::uint32_t pairs_copy_crc32(std::uint32_t crc, std::byte* to,
                                             std::span<const std::byte> from) noexcept;

}  // namespace uroce::wire
