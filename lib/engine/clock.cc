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

#if defined(__x86_64__)
/// Both clocks at the same time: the best of some looks, of which any may be interrupted.
Clock::Reading Clock::read_both() noexcept {
  constexpr int kLooks = 8;
  Reading best{};
  std::uint64_t least = UINT64_MAX;
  for (int i = 0; i < kLooks; ++i) {
    const std::uint64_t before = __rdtsc();
    const std::uint64_t ns = steady_ns();
    const std::uint64_t apart = __rdtsc() - before;
    if (apart >= least) continue;
    least = apart;
    best = {.ns = ns, .tsc = before + apart / 2};
  }
  return best;
}
#endif

Clock::Clock() noexcept : base_(steady_ns()) {
#if defined(__x86_64__)
  if (!has_invariant_tsc()) return;
  constexpr std::uint64_t kMeasureNs = 5'000'000;
  const Reading first = read_both();
  while (steady_ns() - first.ns < kMeasureNs) {
  }
  const Reading last = read_both();
  scale_ = static_cast<std::uint64_t>((static_cast<Wide>(last.ns - first.ns) << 32) / (last.tsc - first.tsc));
  base_ = first.tsc;
#endif
}

}  // namespace uroce::engine
