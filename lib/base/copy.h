/// Copies of message payloads.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

#include "base/cpu.h"

namespace uroce {

/// memcpy() for what fits a packet. Moves 16 bytes at a time: narrower than the pieces that the library's
/// memcpy() reads and writes, so that reads of what has just been written need not wait for it to reach the
/// cache. Measured: SEND of 64 B in loop_bench 330 -> 303 ns. And long ones overlap with what comes behind
/// them, which `rep movsb`, the library's way, does not on AMD: bench/README.md.
inline void copy_payload(std::byte* to, const std::byte* from, std::size_t size) noexcept {
  constexpr std::size_t kStep = 16;
  constexpr std::size_t kLongest = 8192;       // bytes; beyond, the library may know better
  constexpr std::size_t kLongByString = 1024;  // where that is fast
  if (size < kStep || size > (cpu::is_intel ? kLongByString : kLongest)) {
    if (size > 0) std::memcpy(to, from, size);
    return;
  }
  std::size_t at = 0;
#pragma GCC unroll 4
  for (; at + kStep <= size; at += kStep) std::memcpy(to + at, from + at, kStep);
  if (at < size) std::memcpy(to + size - kStep, from + size - kStep, kStep);
}

/// Bytes of a message that no cache holds once it is complete: reading it will take as long wherever it was
/// written to.
inline constexpr std::uint64_t kBeyondCaches = 64U << 20U;

/// copy_payload() for a part of such a message: to memory itself. Its lines are not read before they are
/// written, and nothing else has to leave the caches for them. Measured: WRITEs of 128 MiB over shm on an
/// Intel Xeon 46 -> 62 Gb/s; of 32 MiB, again and again to the same place, it would be 84 -> 61. On AMD it is
/// 74 -> 56.
/// Seen by all before anything that is written afterwards.
[[gnu::noinline]] inline void copy_past_caches(std::byte* to, const std::byte* from,
                                               std::size_t size) noexcept {
#if defined(__x86_64__)
  constexpr std::size_t kLine = 64;
  constexpr std::size_t kStep = sizeof(__m128i);
  const std::size_t before = std::min(size, -std::bit_cast<std::uintptr_t>(to) % kLine);
  copy_payload(to, from, before);
  const std::size_t lines_end = before + (size - before) / kLine * kLine;
  for (std::size_t at = before; at < lines_end; at += kStep) {
    __m128i part;
    std::memcpy(&part, from + at, kStep);
    _mm_stream_si128(static_cast<__m128i*>(static_cast<void*>(to + at)), part);
  }
  _mm_sfence();
  copy_payload(to + lines_end, from + lines_end, size - lines_end);
#else
  copy_payload(to, from, size);
#endif
}

/// The one or the other, whichever is faster on this CPU.
/// @param whole  bytes of the message, as far as they are known
inline void copy_part(std::byte* to, const std::byte* from, std::size_t size, std::uint64_t whole) noexcept {
  if (whole >= kBeyondCaches && cpu::is_intel) [[unlikely]]
    return copy_past_caches(to, from, size);
  copy_payload(to, from, size);
}

}  // namespace uroce
