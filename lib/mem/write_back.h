/// Out of the processor's caches, for persistent memory.
#pragma once

#include <cstddef>
#include <span>

namespace uroce::mem {

/// Whether this processor can do that from user space. Else no region can be registered for persistence.
[[nodiscard]] bool can_write_back() noexcept;

/// Returns once `bytes` have left the caches for the memory controller, from where they reach persistent
/// memory even if power is lost. CLWB, CLFLUSHOPT or CLFLUSH, whichever is the best there is.
///
/// Threads: any.
void write_back(std::span<const std::byte> bytes) noexcept;

}  // namespace uroce::mem
