/// "shm:NAME": from what the user wrote to ports.
#pragma once

#include <memory>
#include <vector>

#include "drivers/registry.h"

namespace uroce::drivers {

/// What open_shm() refuses whoever else is there.
Status check_shm(const PortOptions& options);

/// Opens an end of a link. Options: ring=BYTES, ends=N, side=N.
/// @return one Port per queue; see shm::Link::open() for failures.
Result<std::vector<std::unique_ptr<port::Port>>> open_shm(const PortOptions& options);

}  // namespace uroce::drivers
