#include "apps/common/percentiles.h"

#include <fmt/format.h>

#include <cmath>

namespace uroce::apps {
namespace {

constexpr double kTicksPerHalf = 5;

/// The percentile after `percent`, which is below 100.
double next_percentile(double percent) {
  const double halvings = std::floor(std::log2(100 / (100 - percent))) + 1;
  return percent + 100 / (kTicksPerHalf * std::exp2(halvings));
}

}  // namespace

std::string percentiles_text(const Histogram& histogram, double unit) {
  std::string text =
      fmt::format("{:>12} {:>14} {:>10} {:>14}\n\n", "Value", "Percentile", "TotalCount", "1/(1-Percentile)");
  const std::uint64_t total = histogram.count();
  std::uint64_t seen = 0;
  double percent = 0;
  histogram.for_each([&](double value, std::uint64_t count) {
    seen += count;
    const double reached = 100 * static_cast<double>(seen) / static_cast<double>(total);
    for (; seen < total && percent <= reached; percent = next_percentile(percent)) {
      const double part = percent / 100;
      text += fmt::format("{:12.3f} {:14.12f} {:10} {:14.2f}\n", value * unit, part, seen, 1 / (1 - part));
    }
  });
  const double max = static_cast<double>(histogram.max()) * unit;
  if (total > 0) text += fmt::format("{:12.3f} {:14.12f} {:10}\n", max, 1.0, total);
  text += fmt::format("#[Mean    = {:12.3f}, StdDeviation   = {:12.3f}]\n", histogram.mean() * unit,
                      histogram.stdev() * unit);
  return text + fmt::format("#[Max     = {:12.3f}, Total count    = {:12}]\n", max, total);
}

}  // namespace uroce::apps
