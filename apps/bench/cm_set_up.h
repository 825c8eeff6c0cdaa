/// How long it takes to be connected by the communication manager.
#pragma once

#include "apps/common/worker.h"
#include "uroce/cq.h"
#include "uroce/device.h"
#include "uroce/pd.h"

namespace uroce::apps {

/// Creates QPs and has them connected to the other end, which accepts as many: one after the other, each
/// ended before the next. Blocks for seconds at most where nobody answers.
/// @param to  an address of the other end's device
/// @return {"ns"}: of creating and connecting all, without their ends; the first one, which also finds the
/// other end, is one more and does not count
Result<Json> connect_by_cm(Device& device, Pd& pd, const Gid& to, std::uint32_t count);
/// The other end of it. @return an empty object
Result<Json> accept_by_cm(Device& device, Pd& pd, std::uint32_t count);

}  // namespace uroce::apps
