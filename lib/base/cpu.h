/// What differs between processors that have the same instructions.
#pragma once

namespace uroce::cpu {

/// What is fast for bytes that another core has written differs by vendor, and is not told by any flag.
/// Measured over shm between two cores of a Xeon of 2024 that need 0.1 us for a line, WRITEs of 4 KiB and 64
/// KiB, Gb/s: copied by `rep movsb` and fetched into L2 88 -> 101 and 83 -> 98; lines not handed over by the
/// reader 93 -> 106 and 85 -> 100. On AMD all three lose: bench/README.md.
inline const bool is_intel = [] {
#if defined(__x86_64__)
  __builtin_cpu_init();
  return __builtin_cpu_is("intel") != 0;
#else
  return false;
#endif
}();

/// A long packet's CRC takes as long as some lines need to come from a far core: without AVX-512.
inline const bool sums_slowly = [] {
#if defined(__x86_64__)
  __builtin_cpu_init();
  return __builtin_cpu_supports("avx512f") == 0;
#else
  return true;
#endif
}();

}  // namespace uroce::cpu
