#include "apps/common/core_probe.h"

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
constexpr std::uint64_t kSpinNs = 2 * kMillisecond;
constexpr std::uint64_t kHoldNs = 1000;  // twice a round trip or so

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

CoreLook look_at_cores(const CorePair& cores) {
  if (cores.shared) return {};
  CoreLook look;
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
    look.holds = look_for_hiccups(kSpinNs, kHoldNs);
  });
  one.join();
  other.join();
  if (done == 0) return look;
  const auto middle = series.begin() + done / 2;
  std::nth_element(series.begin(), middle, series.begin() + done);
  look.line_ns = *middle;
  return look;
}

Json looks_json(const std::vector<CoreLook>& all) {
  std::vector<double> lines = {};
  double seconds = 0;
  double holds = 0;
  double lost = 0;  // percent of a second
  for (const CoreLook& look : all) {
    lines.push_back(look.line_ns);
    seconds += look.holds.seconds;
    holds += static_cast<double>(look.holds.count);
    lost += look.holds.lost_percent * look.holds.seconds;
  }
  if (lines.empty()) lines.push_back(0);
  std::sort(lines.begin(), lines.end());
  if (seconds == 0) seconds = 1;
  return {
      {"looks", all.size()},
      {"line_ns", {{"least", lines.front()}, {"median", lines[lines.size() / 2]}, {"most", lines.back()}}},
      {"held_up", {{"per_second", holds / seconds}, {"percent", lost / seconds}}}};
}

std::string looks_text(const Json& looks) {
  if (looks.at("looks") == 0) return "";
  const Json& lines = looks.at("line_ns");
  const Json& held = looks.at("held_up");
  return fmt::format(
      "Before and after each sample: a cache line there and back {:.0f} ns, {:.0f} to {:.0f}; a core that\n"
      "only reads its clock stands still for over 1 us {:.0f} times a second, {:.1f} % of its time.\n",
      lines.at("median").get<double>(), lines.at("least").get<double>(), lines.at("most").get<double>(),
      held.at("per_second").get<double>(), held.at("percent").get<double>());
}

}  // namespace uroce::apps
