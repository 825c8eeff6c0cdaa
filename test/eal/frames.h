/// Test frames whose content follows from their number, an echo, and a pinger that checks what comes back.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "eal/processes.h"
#include "port/port.h"
#include "uroce/result.h"

namespace uroce::test {

/// Opens the first queue of a port without hugepages.
Result<std::unique_ptr<port::Port>> open_port(std::string_view spec, bool no_huge = true);

/// Writes frame `number` of `len` bytes (at least 32): local experimental EtherType, number, pattern.
void write_frame(std::byte* frame, std::uint32_t len, std::uint64_t number, bool is_echo);
/// @return whether `frame` is exactly what write_frame() wrote.
bool is_frame(const port::RxFrame& frame, std::uint32_t len, std::uint64_t number, bool is_echo);

/// Sends every ping back as an echo of the same number, until the deadline.
void echo(port::Port& port, Deadline deadline);

struct PingPlan {
  std::uint64_t frames = 0;
  unsigned window = 16;                                    ///< in flight
  std::function<std::uint32_t(std::uint64_t number)> len;  ///< of a frame
};

/// Sends numbered pings and checks that each comes back once, in order and intact; waits for the link to come
/// up.
/// @return empty, or what went wrong.
std::string ping(port::Port& port, const PingPlan& plan, Deadline deadline);

// Both likewise by a thread that enters the port, and is cancelled when it has done its part.

/// @return false if it was cancelled before
[[nodiscard]] bool echo_and_be_cancelled(port::Port& port, Deadline deadline);
/// @return "cancelled" if it was before
std::string ping_and_be_cancelled(port::Port& port, const PingPlan& plan, Deadline deadline);

}  // namespace uroce::test
