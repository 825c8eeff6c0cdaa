/// The tests of `uroce perf`: each runs on both sides of a session at the same time.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "apps/common/backlog.h"
#include "apps/common/histogram.h"
#include "apps/perf/seconds.h"
#include "apps/perf/session.h"

namespace uroce::apps::perf {

/// What a latency test gives: full round trips, in ticks of `clock`.
struct Latency {
  std::unique_ptr<Histogram> ticks = std::make_unique<Histogram>();
  std::vector<std::uint64_t> as_it_came{};  ///< the same one by one; empty unless asked for
  TickClock clock;
  double rate = 0;             ///< operations per second
  std::uint64_t repeated = 0;  ///< that no answer came to, so that they were sent again; they are no samples
  std::uint64_t missing = 0;   ///< operations that were due in the time of the test and never begun
  Backlog backlog{0, 0};       ///< with --rate
  std::uint64_t data_errors = 0;
  std::optional<Error> ended{};  ///< before its time, and why: this is what had been measured until then
};

/// What a bandwidth test gives, both directions together if there are two.
struct Bandwidth {
  std::uint64_t messages = 0;
  double average = 0;  ///< bytes per second
  double peak = 0;     ///< of the best millisecond, or longer: see RateMeter
  double rate = 0;     ///< messages per second
  std::uint64_t lost = 0;
  std::uint64_t data_errors = 0;
  std::optional<Error> ended{};  ///< as in Latency

  /// The part of the messages that came.
  [[nodiscard]] double share() const noexcept {
    return messages == 0 ? 1 : static_cast<double>(messages - lost) / static_cast<double>(messages);
  }
};

/// Of a bandwidth test.
enum class Part : std::uint8_t {
  kWarmUp,    ///< as many operations as the send queue takes, which do not count
  kMeasured,  ///< those that were asked for
};

/// What a server has got over UC or UD, of all sizes.
struct Served {
  std::uint64_t received = 0;
  std::uint64_t lost = 0;
};

/// The client's part for one size.
Result<Latency> measure_latency(Session& session, std::uint32_t size, const OnSecond& on_second);
Result<Bandwidth> measure_bandwidth(Session& session, std::uint32_t size, const OnSecond& on_second);

/// The server's part: runs tests until the client ends the session.
Result<Served> serve(Session& session);

/// The server's part of one size: from the answer to {"run"} to the answer to {"done"}.
Result<Served> serve_latency(Session& session, std::uint32_t size);
Result<Served> serve_bandwidth(Session& session, std::uint32_t size, Part part);

}  // namespace uroce::apps::perf
