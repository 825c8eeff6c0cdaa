/// The machine as part of results: figures mean little without it.
#pragma once

#include "apps/common/machine.h"
#include "apps/common/worker.h"

namespace uroce::apps {

[[nodiscard]] Json machine_json(const Machine& machine);
/// The one that this runs on.
[[nodiscard]] Json machine_json();

}  // namespace uroce::apps
