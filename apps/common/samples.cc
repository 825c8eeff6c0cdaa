#include "apps/common/samples.h"

#include <algorithm>
#include <utility>

#include "apps/common/rate_meter.h"

namespace uroce::apps {

std::vector<double> Samples::measured(double Reached::*field) const {
  std::vector<double> values;
  for (const auto& sample : all) {
    if (sample.*field > 0) values.push_back(sample.*field);
  }
  return values;
}

Reached Samples::middle() const {
  return {.p50 = median(measured(&Reached::p50)),
          .p99 = median(measured(&Reached::p99)),
          .rate = median(measured(&Reached::rate)),
          .p999 = median(measured(&Reached::p999)),
          .max = median(measured(&Reached::max)),
          .cpu_ns = median(measured(&Reached::cpu_ns))};
}

double Samples::beside(const Samples& base, double Reached::*field) const {
  std::vector<double> ratios;
  for (std::size_t round = 0; round < std::min(all.size(), base.all.size()); ++round) {
    const double value = all[round].*field;
    const double other = base.all[round].*field;
    if (value > 0 && other > 0) ratios.push_back(value / other);
  }
  return median(std::move(ratios));
}

double Samples::spread(double Reached::*field) const {
  const auto values = measured(field);
  if (values.empty()) return 0;
  const auto [least, most] = std::minmax_element(values.begin(), values.end());
  return (*most - *least) / median(values);
}

bool Samples::saturated() const {
  return 2 * std::ranges::count_if(all, &Reached::saturated) > std::ssize(all);
}

}  // namespace uroce::apps
