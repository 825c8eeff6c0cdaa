/// One flow, or two through one queue, all of whose packets arrive with marks: when CNPs of each leave, and
/// who counts them.
#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <memory>
#include <optional>
#include <vector>

#include "sim/loop_host.h"
#include "sim/net.h"

using namespace uroce;
using namespace uroce::sim;

namespace {

constexpr std::uint64_t kStartNs = 1'000'000'000;
constexpr std::uint64_t kPollNs = 500;
constexpr std::uint64_t kFrameNs = 900;  // at 10 Gb/s, longer than a frame of 1024 bytes takes
constexpr std::uint64_t kRunNs = 1'000'000'000;

/// What one end of a flow sees of marks and makes of them.
struct Watch {
  std::uint64_t marked = 0;
  std::uint64_t cnps_sent = 0;
  std::uint64_t cnps_arrived = 0;
  std::uint64_t shortest_gap_ns = ~std::uint64_t{0};
  std::uint64_t longest_gap_ns = 0;
  std::uint64_t longest_debt_ns = 0;  // from the mark that may be told of to its CNP
  std::uint64_t without_mark = 0;     // CNPs that no mark asked for
  std::optional<std::uint64_t> last_cnp_ns;
  std::optional<std::uint64_t> owed_since_ns;

  void on_arrival(const wire::PacketView& packet, std::uint64_t now_ns, std::uint64_t gap_ns) {
    if (packet.op->transport == wire::Transport::kCnp) {
      ++cnps_arrived;
      return;
    }
    ++marked;
    if (!owed_since_ns && (!last_cnp_ns || now_ns >= *last_cnp_ns + gap_ns)) owed_since_ns = now_ns;
  }
  void on_sent(const wire::PacketView& packet, std::uint64_t now_ns) {
    if (packet.op->transport != wire::Transport::kCnp) return;
    ++cnps_sent;
    if (last_cnp_ns) {
      shortest_gap_ns = std::min(shortest_gap_ns, now_ns - *last_cnp_ns);
      longest_gap_ns = std::max(longest_gap_ns, now_ns - *last_cnp_ns);
    }
    if (owed_since_ns) longest_debt_ns = std::max(longest_debt_ns, now_ns - *owed_since_ns);
    without_mark += owed_since_ns ? 0 : 1;
    last_cnp_ns = now_ns;
    owed_since_ns.reset();
  }
};

/// A sender and a receiver, which is the second one, over a network that marks everything. Each flow has a QP
/// at either end.
class MarkedFlows {
 public:
  MarkedFlows(unsigned count, std::uint64_t gap_ns, bool slows_down)
      : flows(count),
        net_({.delay_ns = 1000, .bandwidth_bps = 10'000'000'000, .mark = 1}, 2, 1),
        hosts_{LoopHost(net_.open(0), 0), LoopHost(net_.open(1), 1)},
        qps_(count) {
    const auto path = [gap_ns](bool is_on) {
      return LoopPath{
          .traffic_class = wire::kEct0,
          .bounds = {.gid_count = 2,
                     .probe_floor_ns = 100'000,
                     .congestion = {.is_on = is_on, .line_bps = 10'000'000'000, .cnp_gap_ns = gap_ns}}};
    };
    for (unsigned flow = 0; flow < count; ++flow) {
      for (unsigned end = 0; end < 2; ++end) qps_[flow][end] = hosts_[end].make_qp(qpn(flow, end));
      hosts_[0].connect(*qps_[flow][0], hosts_[1], qpn(flow, 1), path(slows_down), now());
      hosts_[1].connect(*qps_[flow][1], hosts_[0], qpn(flow, 0), path(true), now());
    }
    net_.add_observer([this](unsigned from, const wire::PacketView& packet) {
      watch(packet)[from].on_sent(packet, net_.now_ns());
    });
    net_.set_arrival_observer([this, gap_ns](unsigned at, const wire::PacketView& packet) {
      watch(packet)[at].on_arrival(packet, net_.now_ns(), gap_ns);
    });
  }

  /// Always WRITEs posted for `time_ns`, then what is in flight.
  void run(std::uint64_t time_ns) {
    unsigned posted = 0;
    while (net_.now_ns() < time_ns || posted > 0) {
      REQUIRE(net_.now_ns() < 100 * time_ns);
      for (LoopHost& host : hosts_) host.loop.run_once(now());
      posted -= hosts_[0].take_completions();
      if (net_.now_ns() < time_ns) {
        for (const auto& ends : qps_) posted += hosts_[0].post(*ends[0], hosts_[1], LoopHost::kPosted);
      }
      advance();
    }
    for (int i = 0; i < 100; ++i) {
      for (LoopHost& host : hosts_) host.loop.run_once(now());
      net_.advance_to(net_.now_ns() + kPollNs);
    }
  }
  [[nodiscard]] std::uint64_t count(unsigned end, Count what) const {
    return const_cast<LoopHost&>(hosts_[end]).loop.counters().get(what);
  }

  [[nodiscard]] std::uint64_t sum(unsigned end, std::uint64_t Watch::*what) const {
    std::uint64_t all = 0;
    for (const auto& ends : flows) all += ends[end].*what;
    return all;
  }

  std::vector<std::array<Watch, 2>> flows;  // [flow][end]

 private:
  static constexpr Qpn qpn(unsigned flow, unsigned end) noexcept { return Qpn{0x100 * (end + 1) + flow}; }
  [[nodiscard]] std::array<Watch, 2>& watch(const wire::PacketView& packet) {
    return flows[raw(packet.bth.dest_qpn) % 0x100];
  }
  [[nodiscard]] Ticks now() const noexcept { return Ticks{kStartNs + net_.now_ns()}; }
  /// To the first poll that may find something.
  void advance() {
    std::uint64_t next = net_.now_ns() + 1'000'000;
    for (unsigned i = 0; i < hosts_.size(); ++i) {
      if (hosts_[i].loop.has_work()) next = 0;
      if (const auto arrival = net_.next_arrival_ns(i)) next = std::min(next, *arrival);
      if (const Ticks due = hosts_[i].deadline(now()); due.is_set())
        next = std::min(next, due.ns() - kStartNs);
    }
    const std::uint64_t polls = next <= net_.now_ns() ? 1 : (next - net_.now_ns() + kPollNs - 1) / kPollNs;
    net_.advance_to(net_.now_ns() + std::max<std::uint64_t>(polls, 1) * kPollNs);
  }

  Net net_;
  std::array<LoopHost, 2> hosts_;
  std::vector<std::array<std::unique_ptr<transport::RcQp>, 2>> qps_;
};

}  // namespace

TEST_CASE("each flow of marks is told of once a gap, and no later", "[congestion][T21]") {
  const std::uint64_t gap_ns = GENERATE(4'000U, 50'000U, 1'000'000U);
  const unsigned count = GENERATE(1U, 2U);
  CAPTURE(gap_ns, count);
  MarkedFlows flows(count, gap_ns, false);  // the senders go on as fast as they can
  flows.run(kRunNs);
  for (const auto& ends : flows.flows) {
    const Watch& receiver = ends[1];
    INFO("gap " << gap_ns << " ns: " << receiver.cnps_sent << " CNPs of " << receiver.marked << " marks, "
                << receiver.shortest_gap_ns << " to " << receiver.longest_gap_ns << " ns apart");
    CHECK(receiver.marked > kRunNs / kFrameNs / count / 2);
    CHECK(receiver.cnps_sent > 10);
    CHECK(receiver.shortest_gap_ns >= gap_ns);
    if (count == 1) CHECK(receiver.longest_gap_ns <= gap_ns + kFrameNs + 2 * kPollNs);
    CHECK(receiver.longest_debt_ns <= kPollNs);
    CHECK(receiver.without_mark == 0);
    CHECK(ends[0].cnps_arrived == receiver.cnps_sent);
    CHECK(ends[0].cnps_sent == 0);  // it was told to ignore marks, too
  }
  CHECK(flows.count(1, Count::kMarkedPackets) == flows.sum(1, &Watch::marked));
  CHECK(flows.count(1, Count::kCnpsSent) == flows.sum(1, &Watch::cnps_sent));
  CHECK(flows.count(0, Count::kCnpsIgnored) == flows.sum(1, &Watch::cnps_sent));
  CHECK(flows.count(0, Count::kCnpsHandled) == 0);
}

TEST_CASE("a sender that slows down handles each CNP that was sent", "[congestion][T21]") {
  const std::uint64_t gap_ns = GENERATE(4'000U, 50'000U, 1'000'000U);
  const unsigned count = GENERATE(1U, 2U);
  CAPTURE(gap_ns, count);
  MarkedFlows flows(count, gap_ns, true);
  flows.run(kRunNs);
  for (unsigned end = 0; end < 2; ++end) {
    for (const auto& ends : flows.flows) {
      const Watch& watch = ends[end];
      INFO("gap " << gap_ns << " ns, end " << end << ": " << watch.cnps_sent << " CNPs of " << watch.marked
                  << " marks");
      CHECK(watch.cnps_sent > 10);
      CHECK(watch.shortest_gap_ns >= gap_ns);
      CHECK(watch.longest_debt_ns <= kPollNs);
      CHECK(watch.without_mark == 0);
      CHECK(ends[1 - end].cnps_arrived == watch.cnps_sent);
    }
    CHECK(flows.count(end, Count::kMarkedPackets) == flows.sum(end, &Watch::marked));
    CHECK(flows.count(end, Count::kCnpsSent) == flows.sum(end, &Watch::cnps_sent));
    CHECK(flows.count(1 - end, Count::kCnpsHandled) == flows.sum(end, &Watch::cnps_sent));
    CHECK(flows.count(end, Count::kCnpsIgnored) == 0);
    CHECK(flows.count(end, Count::kRequesterGoBacks) == 0);
  }
}
