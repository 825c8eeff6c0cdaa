/// Address vectors of verbs and of the C++ API.
#pragma once

#include "abi/ibverbs/verbs.h"
#include "uroce/ah_attr.h"

namespace uroce::abi {

[[nodiscard]] AhAttr path_of(const ibv_ah_attr& attr) noexcept;
[[nodiscard]] ibv_ah_attr address_of(const AhAttr& path) noexcept;

}  // namespace uroce::abi
