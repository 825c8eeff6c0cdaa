/// Counters of devices as text, JSON and for Prometheus.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "apps/stat/page.h"

namespace uroce::apps {

/// What all pages hold at two points in time.
struct StatSample {
  std::vector<ProcessPage> before;
  std::vector<ProcessPage> now;
  std::uint64_t now_ns = 0;  ///< CLOCK_MONOTONIC
};

/// A table for each device. @param all  also counters that are zero
[[nodiscard]] std::string stat_text(const StatSample& sample, bool all);
/// One line, of schema uroce.stat/1.
[[nodiscard]] std::string stat_json(const StatSample& sample, bool all);
/// All counters in its text exposition format.
[[nodiscard]] std::string stat_prometheus(const std::vector<ProcessPage>& pages, std::uint64_t now_ns);

}  // namespace uroce::apps
