/// What `uroce perf` measures: options of perftest, and the part of them that both sides must agree on.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "apps/common/worker.h"
#include "uroce/qp_attr.h"
#include "uroce/result.h"
#include "uroce/types.h"

namespace uroce::apps::perf {

enum class Verb : std::uint8_t { kSend, kWrite, kRead, kAtomic };

/// The most that may be asked for, by an option or by a client.
namespace most {
inline constexpr std::uint32_t kSize = 1U << 30U;
inline constexpr std::uint32_t kIterations = 1'000'000'000;
inline constexpr unsigned kSeconds = 86'400;
inline constexpr std::uint32_t kQps = 16'384;
inline constexpr std::uint32_t kDepth = 32'768;
inline constexpr std::uint32_t kList = 64;
inline constexpr std::uint32_t kReads = 128;
inline constexpr std::uint32_t kTimeout = 31;
inline constexpr double kRate = 1e8;
}  // namespace most

/// The client's wishes; the server takes them over.
struct TestSpec {
  Verb verb{};
  QpType type = QpType::kRc;
  bool latency = false;          ///< else bandwidth
  bool all_sizes = false;        ///< 2 .. 2^23; UD: .. the path MTU
  std::uint32_t size = 0;        ///< bytes; UD: 0 is the path MTU, until that is known
  std::uint32_t iterations = 0;  ///< per QP
  unsigned seconds = 0;          ///< instead of iterations, if not 0
  std::uint32_t qps = 1;
  std::uint32_t tx_depth = 128;
  std::uint32_t rx_depth = 512;
  std::uint32_t path_mtu = 0;  ///< bytes; 0: what the client's port allows
  std::uint32_t inline_bytes = 0;
  std::uint32_t post_list = 1;
  std::uint32_t cq_mod = 100;  ///< one completion for so many; latency: one of so many is waited for, 0 none
  std::uint32_t outstanding_reads = 16;
  std::uint32_t timeout = 14;  ///< ack timeout code
  bool compare_swap = false;   ///< atomics: else fetch and add
  bool bidirectional = false;
  bool verify = false;

  [[nodiscard]] Json to_json() const;
  /// What a peer asks for. @return kPeer if no command line could ask for that.
  [[nodiscard]] static Result<TestSpec> from(const Json& json);
  /// Whether `verb` can be done over QPs of that type.
  [[nodiscard]] bool has(QpType other) const noexcept {
    if (other == QpType::kUd) return verb == Verb::kSend;
    return other == QpType::kRc || (other == QpType::kUc && is_ping_pong());
  }

  /// "send_lat"
  [[nodiscard]] std::string name() const;
  /// Once the path MTU is known.
  [[nodiscard]] std::uint32_t largest() const noexcept {
    return !all_sizes ? size : is_datagram() ? path_mtu : 1U << 23U;
  }
  [[nodiscard]] bool is_datagram() const noexcept { return type == QpType::kUd; }
  /// Else messages may be lost, and SENDs carry their numbers as immediate data.
  [[nodiscard]] bool is_reliable() const noexcept { return type == QpType::kRc; }
  /// Bytes that a receive has in front of the message.
  [[nodiscard]] std::uint32_t headroom() const noexcept { return is_datagram() ? kGrhBytes : 0; }
  /// Of a receive that takes any message of the test.
  [[nodiscard]] std::uint32_t receive_bytes() const noexcept { return headroom() + largest(); }
  /// SEND and WRITE go there and back as two messages; READ and atomics are one.
  [[nodiscard]] bool is_ping_pong() const noexcept { return verb == Verb::kSend || verb == Verb::kWrite; }
};

/// Of -c: "RC", "UC" or "UD".
[[nodiscard]] std::optional<QpType> type_from(std::string_view text);

/// What concerns one side only.
struct LocalOptions {
  std::string host;                ///< empty: be the server
  std::uint16_t tcp_port = 18515;  ///< with `by_cm` that of RDMA-CM
  bool by_cm = false;
  std::optional<std::uint32_t> gid_index;
  bool gigabits = false;
  bool no_peak = false;
  bool sleeps = false;         ///< on completions, instead of polling
  bool sorted = false;         ///< latency: print each sample, in order of size ...
  bool as_it_came = false;     ///< ... or of time
  bool cycles = false;         ///< latency: in cycles of the time stamp counter, not in microseconds
  double rate = 0;             ///< latency: operations due per second; 0: each when the one before it is done
  std::string hgrm_file;       ///< latency: for the distribution
  bool warms_up = false;       ///< bandwidth: before what counts
  double least_bandwidth = 0;  ///< the test fails below that, in the unit in which it is reported
  double least_rate = 0;       ///< likewise, Mpps
  std::uint32_t service_level = 0;
  std::uint32_t traffic_class = 0;
  std::string json_file;

  [[nodiscard]] bool is_client() const noexcept { return !host.empty(); }
};

}  // namespace uroce::apps::perf
