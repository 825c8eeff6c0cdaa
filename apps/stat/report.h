/// Counters of devices and QPs as text, JSON and for Prometheus.
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
/// All counters in its text exposition format, and how many devices there are: perhaps none.
[[nodiscard]] std::string stat_prometheus(const std::vector<ProcessPage>& pages, std::uint64_t now_ns);

// Likewise of the QPs of all pages, those that have counted most first. What a QP counts is rare, so there
// are no rates.
[[nodiscard]] std::string qps_text(const std::vector<ProcessPage>& pages, bool all);
/// One line, of schema uroce.stat.qps/1.
[[nodiscard]] std::string qps_json(const std::vector<ProcessPage>& pages, bool all);
[[nodiscard]] std::string qps_prometheus(const std::vector<ProcessPage>& pages);

}  // namespace uroce::apps
