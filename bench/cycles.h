/// How a benchmark tells what a packet costs; bench/compare.py reads it.
#pragma once

#include <benchmark/benchmark.h>
#include <x86intrin.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "wire/crc32.h"

namespace uroce::bench {

/// Packets in a window: short beside a time slice, so that a window that the kernel or the host interrupts is
/// an outlier, and long beside a read of the time stamp counter.
inline constexpr std::int64_t kWindowPackets = 256;
inline constexpr int kWarmUpWindows = 8;

/// `bench/compare.py --instructions` has callgrind count in here, and nowhere else.
template <typename Body>
[[gnu::noinline]] void run_window(Body& body, std::int64_t iterations) {
  for (; iterations > 0; --iterations) body();
}

/// Repeats `body`, and leaves these counters beside the time per iteration:
/// - cycles_per_packet: the median of windows, in ticks of the time stamp counter. It runs at the nominal
///   frequency whatever the core does: this is time, in the unit that a packet's budget is counted in.
/// - window_packets: how many packets run_window() has run in all.
///
/// @param packets  what one iteration costs is shared among: the packets that carry its data. ACKs are part
/// of
///                 their cost, so that a change that sends more of them shows.
template <typename Body>
void measure(benchmark::State& state, std::int64_t packets, Body body) {
  const std::int64_t iterations = std::max<std::int64_t>(1, kWindowPackets / packets);
  std::vector<std::uint64_t> windows;
  windows.reserve(1 << 16);
  std::int64_t count = kWarmUpWindows;
  for (int i = 0; i < kWarmUpWindows; ++i) run_window(body, iterations);
  while (state.KeepRunningBatch(iterations)) {
    const std::uint64_t begin = __rdtsc();
    run_window(body, iterations);
    const std::uint64_t end = __rdtsc();
    if (windows.size() < windows.capacity()) windows.push_back(end - begin);
    ++count;
  }
  const auto middle = windows.begin() + static_cast<std::ptrdiff_t>(windows.size() / 2);
  std::nth_element(windows.begin(), middle, windows.end());
  const auto window_packets = static_cast<double>(iterations * packets);
  state.counters["cycles_per_packet"] = static_cast<double>(*middle) / window_packets;
  state.counters["window_packets"] = static_cast<double>(count) * window_packets;
  state.SetItemsProcessed(state.iterations() * packets);
}

/// main() of a program of benchmarks.
inline int run(int argc, char** argv) {
  wire::tune_crc32([] { return std::uint64_t{__rdtsc()}; });  // as a loop does
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}

}  // namespace uroce::bench
