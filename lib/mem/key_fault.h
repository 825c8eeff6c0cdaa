/// Why memory cannot be used through a key.
#pragma once

#include <cstdint>

namespace uroce::mem {

/// Why an access was refused, in the order of the checks. IBA 9.7.4.1.5, 10.6.3.
enum class KeyFault : std::uint8_t { kNone, kUnknownKey, kWrongPd, kNoRights, kOutOfRange };

}  // namespace uroce::mem
