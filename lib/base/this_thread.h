/// Which thread this is, for the price of one load.
#pragma once

#include <pthread.h>

#include <cstdint>

namespace uroce {

/// A number that no other running thread of the process has; 0 is none's. Another thread may have it once
/// this one has ended. In a shared library neither this nor its result's comparison calls anything, as
/// pthread_self() and thread-local variables do.
inline std::uintptr_t this_thread() noexcept {
#if defined(__x86_64__) && defined(__linux__)
  std::uintptr_t pointer;
  asm("mov %%fs:0, %0" : "=r"(pointer));  // the ABI: the thread pointer points to itself
  return pointer;
#else
  return static_cast<std::uintptr_t>(pthread_self());
#endif
}

}  // namespace uroce
