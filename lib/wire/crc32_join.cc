// The CRC-32 of two parts of which the CRCs are known.

#include <algorithm>
#include <array>
#include <cassert>

#include "wire/crc32.h"
#include "wire/crc32_fold.h"

namespace uroce::wire {
namespace {

constexpr std::size_t kStep = 64;  // bytes
constexpr std::uint32_t kOne = 0x8000'0000;

/// The product of two polynomials mod P, all reflected.
constexpr std::uint32_t multiply(std::uint32_t a, std::uint32_t b) noexcept {
  constexpr std::uint32_t kPolynomial = 0xedb8'8320;
  std::uint32_t product = 0;
  for (; a != 0; a <<= 1) {
    if ((a & kOne) != 0) product ^= b;
    b = (b >> 1) ^ ((b & 1) != 0 ? kPolynomial : 0);
  }
  return product;
}

constexpr std::uint32_t power_of_x(unsigned exponent) noexcept {
  std::uint32_t power = kOne;
  for (std::uint32_t square = kOne >> 1; exponent != 0; exponent >>= 1, square = multiply(square, square)) {
    if ((exponent & 1) != 0) power = multiply(power, square);
  }
  return power;
}

/// Powers of x: the first, and each times `ratio` the one before.
constexpr auto powers(std::uint32_t first, std::uint32_t ratio) noexcept {
  std::array<std::uint32_t, kStep> table{first};
  for (std::size_t i = 1; i < table.size(); ++i) table[i] = multiply(table[i - 1], ratio);
  return table;
}

// shift() multiplies by x^32 besides, so these stand 32 lower.
constexpr auto kSteps = powers(power_of_x(8 * kStep - 32), power_of_x(8 * kStep));  ///< 1, 2.. kSteps
constexpr auto kBytes = powers(power_of_x(8 * kStep - 32), power_of_x(8));          ///< kStep + 0, 1.. bytes

static_assert(multiply(kSteps[1], power_of_x(32)) == power_of_x(8 * 2 * kStep));
static_assert(multiply(kBytes[1], power_of_x(32)) == power_of_x(8 * (kStep + 1)));

#if defined(__x86_64__)

[[gnu::target("pclmul,sse4.1")]] std::uint32_t shift_by_clmul(std::uint32_t crc,
                                                              std::uint32_t power) noexcept {
  // A product of reflected words stands one bit too low, and reduce() multiplies by x^32 what stands in the
  // last four bytes of a block.
  const __m128i product =
      _mm_clmulepi64_si128(_mm_cvtsi64_si128(crc), _mm_cvtsi64_si128(std::int64_t{power} << 1), 0x00);
  return reduce(_mm_slli_si128(product, 8));
}

#endif

/// crc * power * x^32.
std::uint32_t shift(std::uint32_t crc, std::uint32_t power) noexcept {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1")) return shift_by_clmul(crc, power);
#endif
  return multiply(multiply(crc, power), power_of_x(32));
}

}  // namespace

std::uint32_t join_crc32(std::uint32_t first, std::uint32_t second, std::size_t bytes) noexcept {
  assert(bytes >= kStep);
  while (bytes >= 2 * kStep) {
    const std::size_t steps = std::min(bytes / kStep - 1, kSteps.size());
    first = shift(first, kSteps[steps - 1]);
    bytes -= steps * kStep;
  }
  return shift(first, kBytes[bytes - kStep]) ^ second;
}

}  // namespace uroce::wire
