/// What counters mean: for `uroce stat --explain`, and for Prometheus.
#pragma once

#include <string>
#include <string_view>

namespace uroce::apps {

/// Each counter of a device and what it means, in the order in which `uroce stat` prints them.
[[nodiscard]] std::string counters_explained();
/// The lines that stand before those of a counter in Prometheus' text format.
/// @param prefix  of the metric's name, "uroce_"
/// @param name    of the counter; one of another version, which this one does not know, is not explained
[[nodiscard]] std::string metric_head(std::string_view prefix, std::string_view name);

}  // namespace uroce::apps
