/// Shared by the sources of configuration.
#pragma once

#include <string>
#include <string_view>

#include "uroce/config.h"

namespace uroce::config {

/// The key of that name, or nullptr.
[[nodiscard]] const ConfigKey* find_key(std::string_view name) noexcept;

/// "unknown key; allowed port, ip, ...", or the key that was most likely meant.
[[nodiscard]] std::string unknown_key_text(std::string_view name);

}  // namespace uroce::config
