/// What a text is as the value of a label for Prometheus.
#pragma once

#include <string>
#include <string_view>

namespace uroce::apps {

[[nodiscard]] inline std::string label(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\' || c == '"') out += '\\';
    out += c;
  }
  return out;
}

}  // namespace uroce::apps
