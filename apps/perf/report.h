/// Results of `uroce perf` as perftest's tables and as JSON.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "apps/perf/tests.h"

namespace uroce::apps::perf {

struct Results {
  std::vector<std::pair<std::uint32_t, Latency>> latency;  ///< by message size
  std::vector<std::pair<std::uint32_t, Bandwidth>> bandwidth;

  [[nodiscard]] bool empty() const noexcept { return latency.empty() && bandwidth.empty(); }
  [[nodiscard]] std::uint64_t data_errors() const;
  /// Whether no test ended before its time. Of one that did, not all data were looked at: the peer has not
  /// said what it found.
  [[nodiscard]] bool is_whole() const;
};

/// -U and -H: each sample on a line, as perftest prints them. Those in order of size are within 0.4 %.
void print_samples(const TestSpec& spec, const LocalOptions& local, const Results& results);
[[nodiscard]] std::string results_text(const TestSpec& spec, const LocalOptions& local,
                                       const Results& results);
/// What a test that goes on has done in a second.
[[nodiscard]] std::string second_text(const TestSpec& spec, const LocalOptions& local, std::uint32_t size,
                                      const Second& second);
/// The first row that is below -w or -y; empty: none.
[[nodiscard]] std::string below_limit(const LocalOptions& local, const Results& results);
/// The round trips of the one size that was measured, usec.
[[nodiscard]] std::string hgrm_text(const Results& results);
/// What a server tells at the end.
[[nodiscard]] std::string served_text(const TestSpec& spec, const Served& served);
[[nodiscard]] Json served_json(Session& session, const Served& served);
/// @param cores  that the program might use before it was pinned
[[nodiscard]] Json results_json(Session& session, const Results& results, const std::vector<int>& cores);

}  // namespace uroce::apps::perf
