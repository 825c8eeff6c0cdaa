/// uroce bench rate: messages that are due at fixed times, over uroce and over TCP, in turns.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "apps/common/samples.h"
#include "apps/common/worker.h"

namespace CLI {
class App;
}

namespace uroce::apps {

/// Adds `rate` to `uroce bench`.
void add_bench_rate(CLI::App& bench, int& exit_code);

/// Messages of one size at one rate, by whoever carries them: "uroce", "tcp_spin", "tcp_block".
struct LoadPoint {
  std::uint32_t bytes = 0;
  std::uint32_t offered = 0;  ///< a second
  std::map<std::string, Samples> carried{};
  std::optional<Error> ended{};  ///< before its time, and why: there are fewer samples
};

/// A row for each system of each point: medians of the samples, the longest latency of all, their spread, how
/// many times as fast as TCP that spins (none where one of the two is saturated), and the samples themselves.
/// Times in us; null: fewer samples than needed lie above the percentile.
[[nodiscard]] Json points_json(const std::vector<LoadPoint>& points);
/// The same as a table, of what points_json() has made.
[[nodiscard]] std::string points_table(const Json& rows);

}  // namespace uroce::apps
