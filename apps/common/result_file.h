/// Files that results are written to.
#pragma once

#include <fmt/format.h>

#include <fstream>
#include <string>

#include "uroce/result.h"

namespace uroce::apps {

[[nodiscard]] inline Error unwritable(const std::string& file) {
  return {.code = Errc::kSystem, .text = fmt::format("{} cannot be written", file)};
}

/// An empty name is no file.
inline Status write_file(const std::string& file, const std::string& text) {
  if (file.empty() || std::ofstream(file) << text << std::flush) return {};
  return unwritable(file);
}

}  // namespace uroce::apps
