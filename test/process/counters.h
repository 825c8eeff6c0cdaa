/// What a device counts, for tests whose children cannot use Catch2.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "uroce/device.h"

namespace uroce::test {

/// @return nothing, which equals no number, if there is no counter of that name
inline std::optional<std::uint64_t> counter(const Device& device, std::string_view name) {
  for (const Counter& one : device.counters()) {
    if (one.name == name) return one.value;
  }
  return std::nullopt;
}

}  // namespace uroce::test
