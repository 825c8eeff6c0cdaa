/// How far away from each other two cores are: hosts move them.
#pragma once

#include "apps/common/cores.h"

namespace uroce::apps {

/// The time that a cache line takes there and back between the two cores, ns: the median of many short
/// series, a millisecond in all. 0 if it is one core.
[[nodiscard]] double line_round_trip_ns(const CorePair& cores);

}  // namespace uroce::apps
