/// Memory that a program unmaps while it is registered.
#pragma once

#include "uroce/device.h"

namespace uroce::abi {

/// An adapter has pinned what is registered: of what was unmapped it reads and writes pages that nobody else
/// sees. While this lives, empty pages take their place where the engine finds none, and stay there: nothing
/// tells when the program uses those addresses again. It does so by handling SIGSEGV; faults that are not the
/// engine's, or not of that kind, go to the handler that there was. What the program has mapped there
/// meanwhile is written to, and its protection is respected.
///
/// Threads: made and destroyed by one at a time. Lifetime: within that of the device, which has no objects
/// left when this goes. One at a time.
class UnmappedMemory {
 public:
  explicit UnmappedMemory(const Device& device) noexcept;
  ~UnmappedMemory();
  UnmappedMemory(const UnmappedMemory&) = delete;
  UnmappedMemory& operator=(const UnmappedMemory&) = delete;
};

}  // namespace uroce::abi
