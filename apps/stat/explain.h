/// What `uroce stat --explain` prints.
#pragma once

#include <string>

namespace uroce::apps {

/// Each counter of a device and what it means, in the order in which `uroce stat` prints them.
[[nodiscard]] std::string counters_explained();

}  // namespace uroce::apps
