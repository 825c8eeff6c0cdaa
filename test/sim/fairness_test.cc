/// What a QP of small messages has of its loop beside others that lose packets or send much.
///
/// Each host is a core with a clock of its own, which runs on by what an iteration and each frame cost. So
/// who sends much or often makes those behind it wait, as it does on a core.
#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <memory>
#include <optional>
#include <vector>

#include "base/random.h"
#include "sim/bank.h"
#include "sim/loop_host.h"
#include "sim/net.h"

using namespace uroce;
using namespace uroce::sim;

namespace {

constexpr std::uint64_t kStartNs = 1'000'000'000;
constexpr std::uint64_t kRunNs = 100'000'000;
constexpr std::uint64_t kIterationNs = 50;  // with nothing to do
constexpr std::uint64_t kFrameNs = 50;      // to send or to take one
constexpr std::uint64_t kBytesPerNs = 10;   // that are copied
constexpr std::uint32_t kSmall = 64;        // bytes
constexpr std::uint32_t kLongest = 1U << 20;
constexpr std::uint32_t kFirstNeighbour = 0x100;
constexpr Qpn kClean{0x200};

/// The other QPs, all of them alike.
struct Neighbours {
  unsigned qps = 0;
  std::uint32_t bytes = 0;  // of a WRITE
  unsigned in_flight = 0;   // WRITEs of each
  double loss = 0;          // of what is for them, at both ends
};

/// What became of the small messages.
struct Figures {
  std::uint64_t messages = 0;
  std::uint64_t p99_ns = 0;  // from post to completion
  std::uint64_t neighbour_writes = 0;
  std::uint64_t lost = 0;
  std::uint64_t repeats = 0;  // go-backs
};

/// Two hosts with the same QPNs. The second one only answers.
class SharedLoop {
 public:
  SharedLoop(const Neighbours& neighbours, std::uint64_t seed)
      : neighbours_(neighbours),
        random_(seed),
        net_({.delay_ns = 1000, .bandwidth_bps = 100'000'000'000}, 2, seed),
        hosts_{LoopHost(net_.open(0), 0, kLongest), LoopHost(net_.open(1), 1, kLongest)} {
    for (unsigned i = 0; i < neighbours.qps; ++i) connect(Qpn{kFirstNeighbour + i});
    connect(kClean);
    net_.add_observer([this](unsigned, const wire::PacketView& packet) { pass(packet); });
    net_.set_arrival_observer([this](unsigned, const wire::PacketView& packet) { pass(packet); });
    net_.set_judge([this](unsigned, const wire::PacketView& packet) { return judge(packet); });
  }

  [[nodiscard]] Figures run() {
    std::vector<std::uint64_t> times;
    for (unsigned i = 0; i < neighbours_.qps; ++i)
      hosts_[0].post(*qps_[i][0], hosts_[1], neighbours_.in_flight, neighbours_.bytes);
    std::uint64_t posted_ns = post_small();
    while (clocks_[0] < kRunNs) {
      const unsigned index = clocks_[0] <= clocks_[1] ? 0 : 1;
      net_.advance_to(clocks_[index]);
      hosts_[index].loop.run_once(Ticks{kStartNs + clocks_[index]});
      if (index == 0 && take_completions()) {
        times.push_back(net_.now_ns() - posted_ns);
        posted_ns = post_small();
      }
      clocks_[index] = net_.now_ns() + kIterationNs;
    }
    figures_.messages = times.size();
    figures_.repeats = hosts_[0].loop.counters().get(Count::kRequesterGoBacks);
    const auto p99 = times.begin() + static_cast<std::ptrdiff_t>(times.size() * 99 / 100);
    require(p99 != times.end(), "no message was completed");
    std::nth_element(times.begin(), p99, times.end());
    figures_.p99_ns = *p99;
    return figures_;
  }

 private:
  void connect(Qpn qpn) {
    const LoopPath path{.bounds = {.gid_count = 2, .probe_floor_ns = 100'000}};
    qps_.push_back({hosts_[0].make_qp(qpn), hosts_[1].make_qp(qpn)});
    for (unsigned i = 0; i < 2; ++i)
      hosts_[i].connect(*qps_.back()[i], hosts_[1 - i], qpn, path, Ticks{kStartNs});
  }
  /// The core that sends or takes the packet is busy with it.
  void pass(const wire::PacketView& packet) {
    net_.advance_to(net_.now_ns() + kFrameNs + packet.roce_len / kBytesPerNs);
  }
  std::optional<Fate> judge(const wire::PacketView& packet) {
    if (packet.bth.dest_qpn == kClean) return Fate::kDeliver;
    if (static_cast<double>(random_.below(1'000'000)) >= neighbours_.loss * 1'000'000) return Fate::kDeliver;
    ++figures_.lost;
    return Fate::kDrop;
  }
  [[nodiscard]] std::uint64_t post_small() {
    require(hosts_[0].post(*qps_.back()[0], hosts_[1], 1, kSmall) == 1, "no room for one message");
    return net_.now_ns();
  }
  /// Neighbours post again at once. @return whether the small message has completed
  [[nodiscard]] bool take_completions() {
    bool is_small_done = false;
    std::array<Wc, 64> wcs;
    for (const Wc& wc : std::span(wcs).first(hosts_[0].cq.poll(wcs))) {
      require(wc.ok(), "a WRITE failed");
      if (wc.qpn == kClean) {
        is_small_done = true;
        continue;
      }
      ++figures_.neighbour_writes;
      hosts_[0].post(*qps_[raw(wc.qpn) - kFirstNeighbour][0], hosts_[1], 1, neighbours_.bytes);
    }
    return is_small_done;
  }

  Neighbours neighbours_;
  Random random_;
  Net net_;
  std::array<LoopHost, 2> hosts_;
  std::vector<std::array<std::unique_ptr<transport::RcQp>, 2>> qps_;  // of both hosts; the last one is clean
  std::array<std::uint64_t, 2> clocks_{};
  Figures figures_;
};

/// The small messages beside other neighbours, and as they were.
struct Comparison {
  Comparison(const Neighbours& before, const Neighbours& after, std::uint64_t seed)
      : is(SharedLoop(after, seed).run()), was(SharedLoop(before, seed).run()) {}

  [[nodiscard]] double rate() const { return ratio(is.messages, was.messages); }
  [[nodiscard]] double p99() const { return ratio(is.p99_ns, was.p99_ns); }
  [[nodiscard]] static double ratio(std::uint64_t a, std::uint64_t b) {
    return static_cast<double>(a) / static_cast<double>(b);
  }

  Figures is;
  Figures was;
};

}  // namespace

TEST_CASE("QPs that lose packets do not slow a clean one", "[fairness][T27]") {
  const std::uint64_t seed = GENERATE(1U, 2U, 3U);
  const Neighbours clean{.qps = 8, .bytes = 4096, .in_flight = 4};
  Neighbours lossy = clean;
  lossy.loss = 0.05;
  const Comparison both(clean, lossy, seed);
  INFO("seed " << seed << ": " << both.is.messages << " messages of " << both.was.messages << ", "
               << both.rate() << "; p99 " << both.is.p99_ns << " ns of " << both.was.p99_ns << ", "
               << both.p99() << "; " << both.is.lost << " packets lost, " << both.is.repeats
               << " go-backs, neighbours " << both.is.neighbour_writes << " WRITEs of "
               << both.was.neighbour_writes);
  CHECK(both.was.lost == 0);
  CHECK(both.was.repeats == 0);
  CHECK(both.is.lost > 10'000);
  CHECK(both.is.repeats > 5'000);
  CHECK(both.is.neighbour_writes > 10'000);  // they go on all the same
  CHECK(both.rate() >= 0.9);
  CHECK(both.p99() <= 2);
}

/// The link takes what one core sends, so what the small messages wait for is the turns of the bulk.
TEST_CASE("a bulk QP does not double the p99 of small messages", "[fairness]") {
  const unsigned in_flight = GENERATE(1U, 2U, 4U);
  const Neighbours bulk{.qps = 1, .bytes = kLongest, .in_flight = in_flight};
  const Comparison both({}, bulk, 1);
  INFO(in_flight << " in flight: " << both.is.messages << " messages of " << both.was.messages << ", "
                 << both.rate() << "; p99 " << both.is.p99_ns << " ns of " << both.was.p99_ns << ", "
                 << both.p99() << "; " << both.is.neighbour_writes << " WRITEs");
  CHECK(both.is.neighbour_writes >= 400);  // of some 630 that a core could send
  CHECK(both.is.repeats == 0);
  CHECK(both.p99() <= 2);
}
