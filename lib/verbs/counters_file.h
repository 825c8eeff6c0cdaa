/// Counters of devices that close, in a file.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "uroce/device.h"
#include "uroce/result.h"

namespace uroce {

/// @return kConfig if `path` is neither empty nor a file that can be appended to.
[[nodiscard]] Status check_counters_file(const std::string& path);
/// Adds those that are not zero, a line each, below one that names the process and `what` they are of. Does
/// nothing without a path; other processes may write there, too. The first failure of the process is told on
/// stderr, and so is that there is no memory to tell them.
void append_counters(const std::string& path, std::string_view what,
                     const std::function<std::vector<Counter>()>& counters) noexcept;

}  // namespace uroce
