/// Counters of devices that close, in a file.
#pragma once

#include <span>
#include <string>

#include "uroce/device.h"
#include "uroce/result.h"

namespace uroce {

/// @return kConfig if `path` is neither empty nor a file that can be appended to.
[[nodiscard]] Status check_counters_file(const std::string& path);
/// Adds those that are not zero, a line each, below one that names the process and `what` they are of. Does
/// nothing without a path; other processes may write there, too. The first failure of the process is told on
/// stderr.
void append_counters(const std::string& path, const std::string& what, std::span<const Counter> counters);

}  // namespace uroce
