/// How far away from each other two cores are: hosts move them.
#pragma once

#include <string>
#include <vector>

#include "apps/common/cores.h"
#include "apps/common/worker.h"

namespace uroce::apps {

/// The time that a cache line takes there and back between the two cores, ns: the median of many short
/// series, a millisecond in all. 0 if it is one core.
[[nodiscard]] double line_round_trip_ns(const CorePair& cores);

/// Of many such: {"least", "median", "most"}.
[[nodiscard]] Json lines_json(std::vector<double> all);
/// The same as a sentence, on a line of its own.
[[nodiscard]] std::string lines_text(const Json& lines);

}  // namespace uroce::apps
