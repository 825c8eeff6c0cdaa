/// Counters that other processes show: their pages, found and read. Whoever wrote them is not trusted.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace uroce::apps {

struct LoopFigures {
  std::uint64_t time_ns = 0;  ///< CLOCK_MONOTONIC; 0: nobody has run the loop yet
  std::vector<std::uint64_t> values;
};

/// A device.
struct DeviceFigures {
  std::uint32_t pid = 0;     ///< as the process knows itself
  std::uint32_t device = 0;  ///< tells the devices of a process apart
  std::string port;
  std::vector<std::string> addresses;
  std::vector<std::string> names;  ///< of the counters
  std::vector<LoopFigures> loops;  ///< each with a value for every name
};

/// @param fd  any file
/// @return nullopt if that is no page, or its writer stands still amid a change
[[nodiscard]] std::optional<DeviceFigures> read_page(int fd);

struct ProcessPage {
  unsigned pid = 0;
  std::string program;
  DeviceFigures page;
};

/// Those of the processes that the caller may look at; or of one of them.
/// @param pid  0: of all
/// @return in the order of their numbers
[[nodiscard]] std::vector<ProcessPage> find_pages(unsigned pid);

}  // namespace uroce::apps
