/// Counters that other processes show: their pages, found and read. Whoever wrote them is not trusted.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "uroce/qp_attr.h"

namespace uroce::apps {

struct LoopFigures {
  std::uint64_t time_ns = 0;  ///< CLOCK_MONOTONIC; 0: nobody has run the loop yet
  std::vector<std::uint64_t> values;
};

struct QpFigures {
  std::uint32_t qpn = 0;
  QpType type{};
  QpState state{};
  Gid peer;  ///< zero: it has none
  std::uint32_t peer_qpn = 0;
  std::vector<std::uint64_t> values;
};

/// A device.
struct DeviceFigures {
  std::uint32_t pid = 0;     ///< as the process knows itself
  std::uint32_t device = 0;  ///< tells the devices of a process apart
  std::string port;
  std::vector<std::string> addresses;
  std::vector<std::string> names;     ///< of the counters
  std::vector<LoopFigures> loops;     ///< each with a value for every name
  std::vector<std::string> qp_names;  ///< of the counters of a QP
  std::vector<QpFigures> qps;         ///< if asked for; each with a value for every one of these
};

enum class Detail : bool { kDevices, kQps };

/// QPs that come, go or change meanwhile are there whole or not at all.
/// @param fd  any file
/// @return nullopt if that is no page, or its writer stands still amid a change
[[nodiscard]] std::optional<DeviceFigures> read_page(int fd, Detail detail = Detail::kDevices);

struct ProcessPage {
  unsigned pid = 0;
  std::string program;
  DeviceFigures page;
};

/// Those of the processes that the caller may look at; or of one of them.
/// @param pid  0: of all
/// @return in the order of their numbers
[[nodiscard]] std::vector<ProcessPage> find_pages(unsigned pid, Detail detail = Detail::kDevices);

}  // namespace uroce::apps
