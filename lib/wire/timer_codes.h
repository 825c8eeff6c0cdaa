/// Times that travel as 5-bit codes.
#pragma once

#include <array>
#include <cstdint>

namespace uroce::wire {

/// How long a requester waits after an RNR NAK with this timer code, ns. IBA 9.7.5.2.8, table 45.
/// @param code  0..31 (higher bits are ignored); code 0 is the longest time, 655.36 ms
[[nodiscard]] constexpr std::uint64_t rnr_timer_ns(std::uint8_t code) noexcept {
  constexpr std::array<std::uint32_t, 32> kTensOfMicroseconds{
      65536, 1,   2,   3,   4,    6,    8,    12,   16,   24,   32,   48,    64,    96,    128,   192,
      256,   384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152};
  return std::uint64_t{kTensOfMicroseconds[code & 31]} * 10'000;
}

/// The local ACK timeout for a code: 4.096 us * 2^code, ns. IBA 9.7.6.1.3.
/// @return 0 for code 0: wait for ever
[[nodiscard]] constexpr std::uint64_t ack_timeout_ns(std::uint8_t code) noexcept {
  return (code & 31) == 0 ? 0 : std::uint64_t{4096} << (code & 31);
}

static_assert(rnr_timer_ns(0) == 655'360'000 && rnr_timer_ns(1) == 10'000 && rnr_timer_ns(12) == 640'000);
static_assert(rnr_timer_ns(20) == 10'240'000 && rnr_timer_ns(25) == 61'440'000 &&
              rnr_timer_ns(31) == 491'520'000);
static_assert(ack_timeout_ns(0) == 0 && ack_timeout_ns(14) == 67'108'864 &&
              ack_timeout_ns(31) > 8'796'000'000'000);

}  // namespace uroce::wire
