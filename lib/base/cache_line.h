/// Memory in whole cache lines.
#pragma once

#include <array>
#include <cstddef>

namespace uroce {

struct alignas(64) CacheLine : std::array<std::byte, 64> {};

}  // namespace uroce
