#include "apps/common/line_probe.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <thread>

#include "apps/common/clock.h"

namespace uroce::apps {
namespace {

constexpr std::uint32_t kSeries = 31;
constexpr std::uint32_t kTurns = 100;  // of a series
constexpr std::uint32_t kAll = kSeries * kTurns;
constexpr std::uint64_t kLimitNs = 100 * kMillisecond;

struct alignas(128) Line {
  std::atomic<std::uint32_t> value{0};
};

/// Spins until the line is `wanted`. @return false if that takes for ever
bool wait_for(const Line& line, std::uint32_t wanted, std::uint64_t until_ns) noexcept {
  for (std::uint32_t polls = 1; line.value.load(std::memory_order_acquire) != wanted; ++polls) {
    if (polls % 4096 == 0 && now_ns() >= until_ns) return false;
  }
  return true;
}

}  // namespace

double line_round_trip_ns(const CorePair& cores) {
  if (cores.shared) return 0;
  Line line;
  const std::uint64_t until = now_ns() + kLimitNs;
  std::thread other([&] {
    if (!pin_to_core(cores.server)) return;
    for (std::uint32_t i = 0; i < kAll && wait_for(line, 2 * i + 1, until); ++i)
      line.value.store(2 * i + 2, std::memory_order_release);
  });
  std::array<double, kSeries> series{};
  std::uint32_t done = 0;
  std::thread one([&] {
    if (!pin_to_core(cores.client)) return;
    for (; done < kSeries; ++done) {
      const std::uint64_t begin = now_ns();
      for (std::uint32_t i = done * kTurns; i < (done + 1) * kTurns; ++i) {
        line.value.store(2 * i + 1, std::memory_order_release);
        if (!wait_for(line, 2 * i + 2, until)) return;
      }
      series[done] = static_cast<double>(now_ns() - begin) / kTurns;
    }
  });
  one.join();
  other.join();
  if (done == 0) return 0;
  const auto middle = series.begin() + done / 2;
  std::nth_element(series.begin(), middle, series.begin() + done);
  return *middle;
}

Json lines_json(std::vector<double> all) {
  if (all.empty()) all.push_back(0);
  std::sort(all.begin(), all.end());
  return {{"least", all.front()}, {"median", all[all.size() / 2]}, {"most", all.back()}};
}

std::string lines_text(const Json& lines) {
  return fmt::format("A cache line there and back, before each sample: {:.0f} ns, {:.0f} to {:.0f}.\n",
                     lines.at("median").get<double>(), lines.at("least").get<double>(),
                     lines.at("most").get<double>());
}

}  // namespace uroce::apps
