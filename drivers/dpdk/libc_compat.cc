/// The two functions for which DPDK would need libbsd (see meson.build).
#include <algorithm>
#include <cstddef>
#include <cstring>

extern "C" {
std::size_t uroce_dpdk_strlcpy(char* target, const char* source, std::size_t size);
std::size_t uroce_dpdk_strlcat(char* target, const char* source, std::size_t size);
}

/// Copies at most size - 1 characters and always ends the target with 0. @return strlen(source).
std::size_t uroce_dpdk_strlcpy(char* target, const char* source, std::size_t size) {
  const std::size_t len = std::strlen(source);
  if (size > 0) {
    const std::size_t copied = std::min(len, size - 1);
    std::memcpy(target, source, copied);
    target[copied] = '\0';
  }
  return len;
}

/// Appends likewise. @return the length that was wanted.
std::size_t uroce_dpdk_strlcat(char* target, const char* source, std::size_t size) {
  const std::size_t used = strnlen(target, size);
  return used + uroce_dpdk_strlcpy(target + used, source, size - used);
}
