#include "apps/bench/link_goals.h"

#include <fmt/format.h>

#include <string_view>

namespace uroce::apps {
namespace {

/// What is judged.
enum class By : std::uint8_t {
  kTimes,   ///< uroce over the yardstick
  kFaster,  ///< the yardstick over uroce
  kValue,   ///< uroce itself
};

/// What eRPC has reached over memif, without ICRC, on a machine of 2 cores at 2.6 GHz: RPCs of two packets
/// each, 8 in flight, millions a second; p50 of a 64 B RPC with its congestion control off, 1.30 us where an
/// echo over the bare link took 0.985. Links differ from host to host: the raw link here tells what that is.
constexpr std::string_view kErpc = "eRPC, not measured here";
constexpr std::string_view kErpcByRaw = "eRPC's part of the raw link's";
constexpr double kErpcRate = 2.6;
constexpr double kErpcRttByRaw = 1.30 / 0.985;

struct RowGoal {
  std::string_view link;  ///< empty: any
  std::string_view test;
  std::uint32_t bytes;
  std::string_view base;  ///< yardstick; "p50": uroce's own p50; kErpc, kErpcByRaw; empty: none
  By by;
  Goal goal;
};

const std::vector<RowGoal>& row_goals() {
  constexpr std::string_view kShm = "shm";
  static const std::vector<RowGoal> all = {
      {kShm, "rtt_p50", 64, "ucx", By::kFaster, {"1", 1, 1}},
      {kShm, "rtt_p50", 64, "ref", By::kTimes, {"1", 2.2, 1.6, false}},
      {kShm, "rtt_p50", 64, "tcp_spin", By::kFaster, {"2", 7, 10}},
      {kShm, "rtt_p50", 64, "tcp_block", By::kFaster, {"2", 80, 80}},
      {"memif", "rtt_p50", 64, "ref", By::kTimes, {"3", 1.20, 1.10, false}},
      {"memif", "rtt_p50", 64, kErpcByRaw, By::kFaster, {"3", 1, 1}},
      {"", "rtt_p99", 64, "p50", By::kTimes, {"4", 1.6, 1.3, false}},
      {kShm, "send_rate", 64, "", By::kValue, {"5", 8, 15}},
      {kShm, "send_rate", 64, "tcp_spin", By::kTimes, {"5", 11, 11}},
      {kShm, "send_rate", 64, kErpc, By::kTimes, {"5", 3, 3}},
      {kShm, "write_goodput", 4096, "ref", By::kTimes, {"6", 0.75, 0.90}},
      {kShm, "write_goodput", 4096, "tcp_spin", By::kTimes, {"6", 6, 6}},
      {kShm, "write_goodput", 65536, "tcp_spin", By::kTimes, {"7", 1.4, 1.8}},
      {kShm, "write_goodput", 1U << 20U, "tcp_spin", By::kTimes, {"7", 1.0, 1.25}},
      {kShm, "write_goodput", 128U << 20U, "ref", By::kTimes, {"8", 0.85, 1.0}},
      {"af_packet", "rtt_p50", 64, "raw", By::kTimes, {"17", 1.15, 1.08, false}},
      {"af_packet", "rtt_p50", 64, "tcp_spin", By::kFaster, {"17", 2, 2}},
  };
  return all;
}

std::optional<double> value_of(const Row& row, std::string_view name) {
  const auto found = row.value.find(std::string(name));
  return found == row.value.end() ? std::nullopt : found->second;
}

std::optional<double> spread_of(const Row& row, const std::string& name) {
  const auto found = row.spread.find(name);
  return found == row.spread.end() ? std::nullopt : std::optional(found->second);
}

std::optional<double> base_of(const std::vector<Row>& rows, const Row& row, std::string_view name) {
  if (name == kErpc) return kErpcRate;
  if (name == kErpcByRaw) {
    const std::optional<double> raw = value_of(row, "raw");
    return raw.has_value() ? std::optional(kErpcRttByRaw * *raw) : std::nullopt;
  }
  if (name != "p50") return value_of(row, name);
  for (const Row& other : rows) {
    if (other.link == row.link && other.bytes == row.bytes && other.test == "rtt_p50") {
      return value_of(other, "uroce");
    }
  }
  return std::nullopt;
}

std::string words(const RowGoal& one) {
  const std::string base(one.base);
  const std::string beside = base.empty() ? "" : base == "p50" ? " beside its p50" : " beside " + base;
  return fmt::format("{} of {} B{}", one.test, one.bytes, beside);
}

}  // namespace

std::vector<Judged> judge_rows(const std::vector<Row>& rows) {
  std::vector<Judged> all;
  for (const RowGoal& one : row_goals()) {
    for (const Row& row : rows) {
      if (row.test != one.test || row.bytes != one.bytes) continue;
      if (!one.link.empty() && row.link != one.link) continue;
      Judged judged{.test = row.test,
                    .what = words(one),
                    .unit = row.unit,
                    .value = value_of(row, "uroce"),
                    .base = one.base.empty() ? std::nullopt : base_of(rows, row, one.base),
                    .spread = spread_of(row, "uroce"),
                    .goal = one.goal};
      if (!judged.value || (!one.base.empty() && !judged.base)) continue;
      judged.figure = one.by == By::kValue   ? *judged.value
                      : one.by == By::kTimes ? *judged.value / *judged.base
                                             : *judged.base / *judged.value;
      all.push_back(std::move(judged));
    }
  }
  return all;
}

}  // namespace uroce::apps
