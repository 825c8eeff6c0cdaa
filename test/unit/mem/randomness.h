/// Statistics that tell random numbers from others.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace uroce::test {

/// Deviation of the ones among `width` low bits of all numbers, in standard deviations: the monobit test of
/// NIST SP 800-22 2.1.
inline double monobit_deviation(std::span<const std::uint32_t> numbers, unsigned width) {
  double ones = 0;
  for (const std::uint32_t number : numbers)
    ones += __builtin_popcount(number & (~std::uint32_t{0} >> (32 - width)));
  const double bits = static_cast<double>(numbers.size()) * width;
  return std::abs(2 * ones - bits) / std::sqrt(bits);
}

/// The same for the worst single bit.
inline double worst_bit_deviation(std::span<const std::uint32_t> numbers, unsigned width) {
  double worst = 0;
  for (unsigned bit = 0; bit < width; ++bit) {
    double ones = 0;
    for (const std::uint32_t number : numbers) ones += number >> bit & 1;
    const auto count = static_cast<double>(numbers.size());
    worst = std::max(worst, std::abs(2 * ones - count) / std::sqrt(count));
  }
  return worst;
}

/// Sum of squared deviations of `counts` from `expected` each, as deviation from its own mean in standard
/// deviations.
inline double chi_square_deviation(std::span<const std::uint32_t> counts, double expected) {
  double sum = 0;
  for (const std::uint32_t count : counts) {
    const double off = static_cast<double>(count) - expected;
    sum += off * off / expected;
  }
  const auto freedom = static_cast<double>(counts.size() - 1);
  return std::abs(sum - freedom) / std::sqrt(2 * freedom);
}

/// Serial test: pairs of neighbouring numbers, by 7 bits of each from `shift` on.
inline double pair_deviation(std::span<const std::uint32_t> numbers, unsigned shift) {
  std::vector<std::uint32_t> counts(1U << 14);
  for (std::size_t i = 0; i + 1 < numbers.size(); i += 2) {
    ++counts[(numbers[i] >> shift & 0x7f) << 7 | (numbers[i + 1] >> shift & 0x7f)];
  }
  return chi_square_deviation(counts, static_cast<double>(numbers.size() / 2) / (1U << 14));
}

/// Serial test: pairs of neighbouring bits within the numbers.
inline double bit_pair_deviation(std::span<const std::uint32_t> numbers, unsigned width) {
  std::array<std::uint32_t, 4> counts{};
  for (const std::uint32_t number : numbers) {
    for (unsigned bit = 0; bit + 1 < width; bit += 2) ++counts[number >> bit & 3];
  }
  double pairs = 0;
  for (const std::uint32_t count : counts) pairs += count;
  return chi_square_deviation(counts, pairs / 4);
}

}  // namespace uroce::test
