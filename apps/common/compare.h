/// uroce beside its yardsticks on the same two cores: who is measured, in which order, and the table that
/// comes out.
#pragma once

#include <array>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "apps/common/core_probe.h"
#include "apps/common/cores.h"
#include "apps/common/sample.h"
#include "apps/common/turns.h"
#include "apps/common/worker.h"
#include "uroce/config.h"

namespace uroce::apps {

/// The two ends of a uroce connection, each in a process of its own.
struct UroceUnderTest {
  Pair pair;
  std::uint32_t path_mtu = 1024;  ///< bytes

  /// Forks two processes and connects them.
  /// @param name  of the link, as errors and captures call it
  /// @param config  of both ends, but for mode, loops, port and capture, which follow from the rest
  /// @param ports  client's first
  /// @param largest_write  bytes, of the streams that will be measured
  static Result<UroceUnderTest> start(const std::string& name, const CorePair& cores, const Config& config,
                                      const std::array<std::string, 2>& ports,
                                      std::uint32_t largest_write = Sample::kHotBytes);
};

/// The two ends of one link: processes that run uroce on it, and others that use a second link of the same
/// kind bare.
struct LinkUnderTest {
  std::string name;  ///< as rows call it, e.g. "memif"
  Pair uroce;
  Pair raw;
  std::uint32_t path_mtu = 1024;     ///< bytes
  std::uint64_t interruptions = 0;   ///< of uroce's processes by other programs
  std::vector<std::string> notes{};  ///< yardsticks that failed
  std::vector<CoreLook> looks{};     ///< before each sample; whoever takes the last one adds one behind it

  /// Forks four processes and connects them: uroce's, as above, and the others.
  /// @param bare_ports  of the bare ends, client's first; empty: those of uroce with "raw" in the link's name
  static Result<LinkUnderTest> start(std::string name, const CorePair& cores, const Config& config,
                                     const std::array<std::string, 2>& ports,
                                     std::uint32_t largest_write = Sample::kHotBytes,
                                     const std::array<std::string, 2>& bare_ports = {});
};

/// TCP between two processes.
struct TcpUnderTest {
  Pair pair;
  std::string path;        ///< "veth" or "loopback"
  std::string congestion;  ///< e.g. "cubic"

  /// Uses a veth pair between two namespaces if it may, else the loopback interface.
  static Result<TcpUnderTest> start(const CorePair& cores);
};

/// A test and its size.
struct Case {
  Kind kind{};
  std::uint32_t bytes = 0;
};

/// One line of the result: a figure of uroce with those of its yardsticks, in `unit`.
struct Row {
  std::string link;
  std::string test;
  std::uint32_t bytes = 0;
  std::string unit;
  bool more_is_better = false;
  std::uint32_t list = 0;  ///< SEND rates: messages that uroce posts at a time, with one completion
  std::map<std::string, std::optional<double>>
      value;  ///< by contender: "uroce", "raw", "ref", "ucx", "udp_spin", "tcp_spin", "tcp_block"
  std::map<std::string, double> spread{};  ///< of the samples of each value: (largest - least) / median
  /// Of the processes of each contender by other programs, in all samples; p50 and p99 have the same samples.
  std::map<std::string, std::uint64_t> interruptions{};
};

struct Plan {
  unsigned rounds = 3;  ///< samples of each contender, taken in turns
  std::uint64_t run_ns = 100 * kMillisecond;
  bool with_all = false;  ///< yardsticks; else those that a newcomer knows
  CorePair cores{};       ///< if it is one, nobody spins: two on one core measure the scheduler
};

/// Measures one case. `on_step` hears what is going on.
/// @return one row for rates, two (p50 and p99) for round trips; a failure of uroce. A yardstick that fails
/// is left out.
Result<std::vector<Row>> measure(LinkUnderTest& link, TcpUnderTest& tcp, const Case& one, const Plan& plan,
                                 const std::function<void(const std::string&)>& on_step);

/// Rows as the JSON array that `demo --json` and `bench link --json` print.
[[nodiscard]] Json rows_json(const std::vector<Row>& rows);
/// Rows as a table: behind each yardstick, how many times faster uroce is.
/// @param with_spread  behind each figure that of its samples, in percent
[[nodiscard]] std::string rows_table(const std::vector<Row>& rows, bool with_spread = false);
/// In what the rates of the rows differ, in lines; empty: there are none.
[[nodiscard]] std::string rates_text(const std::vector<Row>& rows);

}  // namespace uroce::apps
