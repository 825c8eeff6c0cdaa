/// What the host does to two cores: how far away from each other they are, and how often they stand still.
#pragma once

#include <string>
#include <vector>

#include "apps/common/cores.h"
#include "apps/common/machine.h"
#include "apps/common/worker.h"

namespace uroce::apps {

/// One look at two cores, a few milliseconds long.
struct CoreLook {
  double line_ns = 0;  ///< a cache line's way there and back: the median of many short series; 0: unknown
  Hiccups holds;       ///< of a core that only reads its clock, of 1 us or longer
};

/// All 0 if it is one core.
[[nodiscard]] CoreLook look_at_cores(const CorePair& cores);

/// Of many looks, one before each sample and one after the last: {"looks": how many, "line_ns": {"least",
/// "median", "most"}, "held_up": {"per_second", "percent"}}, of which the latter are means.
[[nodiscard]] Json looks_json(const std::vector<CoreLook>& all);
/// The same as sentences, on lines of their own; empty: there was none. @param looks  an object that has
/// these members
[[nodiscard]] std::string looks_text(const Json& looks);

}  // namespace uroce::apps
