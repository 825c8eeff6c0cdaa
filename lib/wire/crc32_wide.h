/// CRC-32 by carry-less multiplication of whole AVX-512 vectors, alone or while bytes are copied.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "wire/crc32.h"

namespace uroce::wire {

/// The shortest input of wide_copy_crc32(), bytes.
inline constexpr std::size_t kShortestWide = 64;

/// How a vector is made up for further on: by two carry-less multiplications or by four affine transforms of
/// its bytes, its images (crc32_affine.h), which CPUs have different units for.
enum class Folding : std::uint8_t {
  kMultiply,
  kThreeImages,  ///< three vectors of eight by images
  kFiveImages,
  kImages,
};
inline constexpr std::array kFoldings = {Folding::kMultiply, Folding::kThreeImages, Folding::kFiveImages,
                                         Folding::kImages};

/// Whether this CPU can run them: AVX-512 BW, DQ, VL and VBMI, and VPCLMULQDQ (Ice Lake, Zen 4, and later).
[[nodiscard]] bool has_wide_crc32() noexcept;

/// masked_crc32(). `how` concerns long ones only.
[[nodiscard]] std::uint32_t wide_masked_crc32(std::uint32_t crc, std::span<const std::byte> in,
                                              const CrcMask& mask, Folding how,
                                              FetchAhead* ahead = nullptr) noexcept;

/// masked_crc32_beside_copy(), both of at least kShortestBeside bytes.
[[nodiscard]] std::uint32_t wide_masked_crc32_beside_copy(std::uint32_t crc, std::span<const std::byte> in,
                                                          const CrcMask& mask, Folding how, std::byte* to,
                                                          std::span<const std::byte> others) noexcept;

/// copy_crc32().
[[nodiscard]] std::uint32_t wide_copy_crc32(std::uint32_t crc, std::byte* to, std::span<const std::byte> from,
                                            Folding how) noexcept;

}  // namespace uroce::wire
