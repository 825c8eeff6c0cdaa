/// The machine and the run as parts of results: figures mean little without them.
#pragma once

#include <string_view>
#include <vector>

#include "apps/common/cores.h"
#include "apps/common/machine.h"
#include "apps/common/worker.h"
#include "uroce/config.h"

namespace uroce::apps {

[[nodiscard]] Json machine_json(const Machine& machine);
/// The one that this runs on.
/// @param cores  that the process might use before it was pinned
[[nodiscard]] Json machine_json(std::vector<int> cores = allowed_cores());

/// What JSON objects have alike: the schema, the command line, the time (UTC), which uroce it is, and the
/// configuration: all keys, as their options take them.
[[nodiscard]] Json run_json(std::string_view schema, const Config& config);

}  // namespace uroce::apps
