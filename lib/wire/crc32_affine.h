/// Folding a CRC-32 by affine transforms of single bytes (GFNI) instead of multiplications.
#pragma once

#if defined(__x86_64__)
#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace uroce::wire {

/// Eight-by-eight matrices of bits as `gf2p8affineqb` takes them, one for each of kAffineSteps.
using AffineMatrices = std::array<std::int64_t, 4>;

/// How many vectors further the four images of a vector are added, by which it is made up for. The remainder
/// has 32 bits and each image of a byte 8 to choose, so four suffice; not all sets of four do. The nearest is
/// so far that nothing waits for it.
inline constexpr std::array<std::size_t, 4> kAffineSteps = {4, 6, 7, 8};

/// The images: matrices A such that for every byte b, with n the bits of a vector,
/// b x^(8n) = A3 b + A2 b x^n + A1 b x^(2n) + A0 b x^(4n) mod P, which is a system of 32 equations with 32
/// unknowns for every bit of b. In a byte the lowest bit is the highest power.
template <std::size_t kVectorBytes>
inline constexpr AffineMatrices kAffineMatrices = [] {
  constexpr std::uint32_t kPolynomial = 0x04c1'1db7;
  constexpr auto times_x = [](std::uint32_t rest) { return rest << 1 ^ (rest >> 31 != 0 ? kPolynomial : 0); };
  // A row is a power of the remainder: 32 coefficients of the unknowns, then 8 of b's bits.
  std::array<std::uint64_t, 32> rows{};
  const auto put = [&rows](std::uint32_t power, unsigned column) {
    for (unsigned row = 0; row < rows.size(); ++row) rows[row] |= std::uint64_t{power >> row & 1} << column;
  };
  const auto put_byte = [&](std::size_t vectors, unsigned first_column) {
    std::uint32_t power = 1;
    for (std::size_t bit = 0; bit < 8 * kVectorBytes * vectors; ++bit) power = times_x(power);
    for (unsigned bit = 0; bit < 8; ++bit, power = times_x(power)) put(power, first_column + bit);
  };
  for (unsigned image = 0; image < 4; ++image) put_byte(kAffineSteps[3] - kAffineSteps[image], 8 * image);
  put_byte(kAffineSteps[3], 32);

  for (unsigned column = 0; column < 32; ++column) {  // Gauss and Jordan
    unsigned pivot = column;
    while ((rows.at(pivot) >> column & 1) == 0) ++pivot;  // does not compile if there is none
    std::swap(rows[column], rows[pivot]);
    for (unsigned row = 0; row < rows.size(); ++row) {
      if (row != column && (rows[row] >> column & 1) != 0) rows[row] ^= rows[column];
    }
  }
  AffineMatrices matrices{};
  for (unsigned unknown = 0; unknown < 32; ++unknown) {
    std::uint64_t taken = 0;  // which bits of b, the lowest the highest power
    for (unsigned bit = 0; bit < 8; ++bit) taken |= (rows[unknown] >> (32 + bit) & 1) << (7 - bit);
    matrices[unknown / 8] |= static_cast<std::int64_t>(taken << (8 * (unknown % 8)));
  }
  return matrices;
}();

}  // namespace uroce::wire

#endif
