/// Files that results are written to.
#pragma once

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "uroce/result.h"

namespace uroce::apps {

/// As devices say it of --pcap and --counters. errno says why.
[[nodiscard]] inline Error unwritable(const std::string& file) {
  return {.code = Errc::kConfig, .text = fmt::format("{} cannot be written: {}", file, std::strerror(errno))};
}

/// An empty name is no file.
inline Status write_file(const std::string& file, const std::string& text) {
  if (file.empty() || std::ofstream(file) << text << std::flush) return {};
  return unwritable(file);
}

/// Files that are looked at before the run whose results they are to hold; what is in them stays there until
/// then. Those that were made and got nothing are removed.
class AwaitedFiles {
 public:
  AwaitedFiles() = default;
  ~AwaitedFiles() {
    std::error_code error;
    for (const auto& file : made_) {
      if (std::filesystem::is_empty(file, error)) std::filesystem::remove(file, error);
    }
  }
  AwaitedFiles(const AwaitedFiles&) = delete;
  AwaitedFiles& operator=(const AwaitedFiles&) = delete;

  /// An empty name is no file.
  Status add(const std::string& file) {
    if (file.empty()) return {};
    std::error_code error;
    const bool is_new = !std::filesystem::exists(file, error);
    errno = 0;
    if (!std::ofstream(file, std::ios::app)) return unwritable(file);
    if (is_new) made_.push_back(file);
    return {};
  }

 private:
  std::vector<std::string> made_;
};

}  // namespace uroce::apps
