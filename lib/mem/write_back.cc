#include "mem/write_back.h"

#include <bit>
#include <cstdint>

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

namespace uroce::mem {

#if defined(__x86_64__)
namespace {

constexpr std::size_t kLine = 64;  // bytes

using FlushLine = void (*)(std::byte*) noexcept;

[[gnu::target("clwb")]] void clwb(std::byte* line) noexcept {
  _mm_clwb(line);
}
[[gnu::target("clflushopt")]] void clflushopt(std::byte* line) noexcept {
  _mm_clflushopt(line);
}
void clflush(std::byte* line) noexcept {
  _mm_clflush(line);
}

FlushLine best() noexcept {
  constexpr unsigned kHasClflushopt = 1U << 23;
  constexpr unsigned kHasClwb = 1U << 24;
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0) return clflush;
  if ((ebx & kHasClwb) != 0) return clwb;
  return (ebx & kHasClflushopt) != 0 ? clflushopt : clflush;
}

}  // namespace

bool can_write_back() noexcept {
  return true;
}

void write_back(std::span<const std::byte> bytes) noexcept {
  static const FlushLine kFlush = best();
  if (bytes.empty()) return;
  auto* first = const_cast<std::byte*>(bytes.data());
  const std::size_t before = std::bit_cast<std::uintptr_t>(first) % kLine;
  for (std::size_t at = 0; at < before + bytes.size(); at += kLine) kFlush(first - before + at);
  _mm_sfence();
}
#else
bool can_write_back() noexcept {
  return false;
}

void write_back(std::span<const std::byte>) noexcept {}
#endif

}  // namespace uroce::mem
