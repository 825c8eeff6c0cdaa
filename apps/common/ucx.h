/// UCX over its shared memory, by its own program, where that is installed.
#pragma once

#include <cstdint>

#include "apps/common/cores.h"
#include "apps/common/sample.h"
#include "apps/common/samples.h"
#include "uroce/result.h"

namespace uroce::apps {

[[nodiscard]] bool has_ucx();

/// One run of ucx_perftest: tag matching, latency for round trips (twice what it says, the median; p99 is not
/// told), else rate. Two processes, one on each core.
/// @return units as other samples: ns, messages or bytes a second; interruptions those of whole runs, from
/// the programs' start on
Result<Reached> take_ucx(Kind kind, std::uint32_t bytes, const CorePair& cores);

}  // namespace uroce::apps
