#include "engine/clock.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace uroce::engine {

namespace {

#if defined(__x86_64__)
bool has_invariant_tsc() noexcept {
  unsigned a = 0;
  unsigned b = 0;
  unsigned c = 0;
  unsigned d = 0;
  return __get_cpuid(0x8000'0007, &a, &b, &c, &d) != 0 && (d & 1U << 8) != 0;
}
#endif

}  // namespace

Clock::Clock() noexcept : base_(steady_ns()) {
#if defined(__x86_64__)
  if (!has_invariant_tsc()) return;
  constexpr std::uint64_t kMeasureNs = 5'000'000;
  const std::uint64_t ns0 = steady_ns();
  const std::uint64_t tsc0 = __rdtsc();
  std::uint64_t ns1 = ns0;
  while (ns1 - ns0 < kMeasureNs) ns1 = steady_ns();
  const std::uint64_t tsc1 = __rdtsc();
  scale_ = static_cast<std::uint64_t>((static_cast<Wide>(ns1 - ns0) << 32) / (tsc1 - tsc0));
  base_ = tsc0;
#endif
}

}  // namespace uroce::engine
