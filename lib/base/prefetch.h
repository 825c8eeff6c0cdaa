/// Cache lines that will be needed soon.
#pragma once

namespace uroce {

/// Brings the line of `address` into the cache. A hint: any address will do. Not __builtin_prefetch() alone:
/// gcc 12 takes a function that does nothing else for one without effect, and drops the calls of it.
inline void prefetch(const void* address) noexcept {
  __builtin_prefetch(address);
  asm volatile("");
}

}  // namespace uroce
