/// One flow all of whose packets arrive with marks: when CNPs leave, and who counts them.
#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <memory>
#include <optional>

#include "sim/loop_host.h"
#include "sim/net.h"

using namespace uroce;
using namespace uroce::sim;

namespace {

constexpr std::uint64_t kStartNs = 1'000'000'000;
constexpr std::uint64_t kPollNs = 500;
constexpr std::uint64_t kFrameNs = 900;  // at 10 Gb/s, longer than a frame of 1024 bytes takes
constexpr std::uint64_t kRunNs = 100'000'000;

/// What one end sees of marks and makes of them.
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

/// A sender and a receiver, which is the second one, over a network that marks everything.
class MarkedFlow {
 public:
  MarkedFlow(std::uint64_t gap_ns, bool slows_down)
      : net_({.delay_ns = 1000, .bandwidth_bps = 10'000'000'000, .mark = 1}, 2, 1),
        hosts_{LoopHost(net_.open(0), 0), LoopHost(net_.open(1), 1)},
        qps_{hosts_[0].make_qp(Qpn{0x100}), hosts_[1].make_qp(Qpn{0x200})} {
    const auto path = [gap_ns](bool is_on) {
      return LoopPath{
          .traffic_class = wire::kEct0,
          .bounds = {.gid_count = 2,
                     .probe_floor_ns = 100'000,
                     .congestion = {.is_on = is_on, .line_bps = 10'000'000'000, .cnp_gap_ns = gap_ns}}};
    };
    hosts_[0].connect(*qps_[0], hosts_[1], Qpn{0x200}, path(slows_down), now());
    hosts_[1].connect(*qps_[1], hosts_[0], Qpn{0x100}, path(true), now());
    net_.add_observer(
        [this](unsigned from, const wire::PacketView& packet) { ends[from].on_sent(packet, net_.now_ns()); });
    net_.set_arrival_observer([this, gap_ns](unsigned at, const wire::PacketView& packet) {
      ends[at].on_arrival(packet, net_.now_ns(), gap_ns);
    });
  }

  /// Always WRITEs posted for `time_ns`, then what is in flight.
  void run(std::uint64_t time_ns) {
    unsigned posted = 0;
    while (net_.now_ns() < time_ns || posted > 0) {
      REQUIRE(net_.now_ns() < 100 * time_ns);
      for (LoopHost& host : hosts_) host.loop.run_once(now());
      posted -= hosts_[0].take_completions();
      if (net_.now_ns() < time_ns) posted += hosts_[0].post(*qps_[0], hosts_[1], LoopHost::kPosted - posted);
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

  std::array<Watch, 2> ends;

 private:
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
  std::array<std::unique_ptr<transport::RcQp>, 2> qps_;
};

}  // namespace

TEST_CASE("a flow of marks is told of once a gap, and no later", "[congestion][T21]") {
  const std::uint64_t gap_ns = GENERATE(4'000U, 50'000U, 1'000'000U);
  CAPTURE(gap_ns);
  MarkedFlow flow(gap_ns, false);  // the sender goes on as fast as it can
  flow.run(kRunNs);
  const Watch& receiver = flow.ends[1];
  INFO("gap " << gap_ns << " ns: " << receiver.cnps_sent << " CNPs of " << receiver.marked << " marks, "
              << receiver.shortest_gap_ns << " to " << receiver.longest_gap_ns << " ns apart");
  CHECK(receiver.marked > kRunNs / kFrameNs / 2);
  CHECK(receiver.shortest_gap_ns >= gap_ns);
  CHECK(receiver.longest_gap_ns <= gap_ns + kFrameNs + 2 * kPollNs);
  CHECK(receiver.longest_debt_ns <= kPollNs);
  CHECK(receiver.without_mark == 0);
  CHECK(flow.count(1, Count::kMarkedPackets) == receiver.marked);
  CHECK(flow.count(1, Count::kCnpsSent) == receiver.cnps_sent);
  CHECK(flow.ends[0].cnps_arrived == receiver.cnps_sent);
  CHECK(flow.count(0, Count::kCnpsIgnored) == receiver.cnps_sent);
  CHECK(flow.count(0, Count::kCnpsHandled) == 0);
  CHECK(flow.ends[0].cnps_sent == 0);  // it was told to ignore marks, too
}

TEST_CASE("a sender that slows down handles each CNP that was sent", "[congestion][T21]") {
  const std::uint64_t gap_ns = GENERATE(4'000U, 50'000U, 1'000'000U);
  CAPTURE(gap_ns);
  MarkedFlow flow(gap_ns, true);
  flow.run(kRunNs);
  INFO("gap " << gap_ns << " ns: " << flow.ends[1].cnps_sent << " CNPs of " << flow.ends[1].marked
              << " marks, " << flow.ends[0].cnps_sent << " of " << flow.ends[0].marked << " marked ACKs");
  for (unsigned end = 0; end < 2; ++end) {
    const Watch& watch = flow.ends[end];
    CHECK(watch.cnps_sent > 10);
    CHECK(watch.shortest_gap_ns >= gap_ns);
    CHECK(watch.longest_debt_ns <= kPollNs);
    CHECK(watch.without_mark == 0);
    CHECK(flow.count(end, Count::kMarkedPackets) == watch.marked);
    CHECK(flow.count(end, Count::kCnpsSent) == watch.cnps_sent);
    CHECK(flow.ends[1 - end].cnps_arrived == watch.cnps_sent);
    CHECK(flow.count(1 - end, Count::kCnpsHandled) == watch.cnps_sent);
    CHECK(flow.count(end, Count::kCnpsIgnored) == 0);
    CHECK(flow.count(end, Count::kRequesterGoBacks) == 0);
  }
}
