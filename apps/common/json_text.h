/// JSON as text.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace uroce::apps {

/// What is not UTF-8 in it, such as a file's name may be, has U+FFFD in its place.
/// @param indent  spaces a level; -1: all in one line
template <typename AnyJson>
[[nodiscard]] std::string to_text(const AnyJson& json, int indent = -1) {
  return json.dump(indent, ' ', false, AnyJson::error_handler_t::replace);
}

}  // namespace uroce::apps
