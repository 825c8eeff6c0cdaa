/// Lines on stderr.
#pragma once

#include <fmt/format.h>

#include <cstdio>
#include <string>
#include <utility>

namespace uroce::apps {

/// Says it on stderr, or to nobody: that this is closed or full is no reason to end.
template <typename... Args>
void tell(fmt::format_string<Args...> text, Args&&... args) {
  const std::string line = fmt::format(text, std::forward<Args>(args)...);
  (void)std::fwrite(line.data(), 1, line.size(), stderr);
}

}  // namespace uroce::apps
