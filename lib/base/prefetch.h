/// Cache lines that will be needed soon.
#pragma once

namespace uroce {

/// Brings the line of `address` into the cache. A hint: any address will do. Not __builtin_prefetch() alone:
/// gcc 12 takes a function that does nothing else for one without effect, and drops the calls of it.
inline void prefetch(const void* address) noexcept {
  __builtin_prefetch(address);
  asm volatile("");
}

/// Into L2, where many more lines can be under way than into L1. Likewise.
inline void prefetch_many(const void* address) noexcept {
  __builtin_prefetch(address, 0, 2);
  asm volatile("");
}

/// Into this core's cache, to be written, and out of all others. Likewise.
inline void prefetch_to_write(void* address) noexcept {
#if defined(__x86_64__)
  asm volatile("prefetchw %0" : : "m"(*static_cast<char*>(address)));
#else
  __builtin_prefetch(address, 1);
#endif
}

}  // namespace uroce
