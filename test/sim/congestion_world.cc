#include "sim/congestion_world.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/random.h"

namespace uroce::sim {

namespace {

constexpr std::uint64_t kStartNs = 1'000'000'000;
constexpr std::uint64_t kStepNs =
    250;  // an iteration that leaves work behind is followed by one so much later
constexpr std::uint64_t kFullNs = 1000;              // likewise if the port had no room
constexpr std::uint64_t kStartGapNs = 3'000'000;     // between the first posts of two flows
constexpr std::uint64_t kStartJitterNs = 1'000'000;  // later by up to this
constexpr std::uint32_t kFrameOverhead = 24;         // FCS, preamble and gap
constexpr std::uint64_t kProbeFloorNs = 100'000;

drivers::LoopbackConfig fabric_of(const CongestionPlan& plan) {
  return {.delay_ns = plan.delay_ns,
          .bandwidth_bps = plan.line_bps,
          .queue_frames = plan.queue_frames,
          .ce_threshold_frames = plan.ce_least_frames,
          .ce_full_frames = plan.ce_full_frames,
          .ce_percent = plan.ce_percent,
          .seed = plan.seed,
          .input_bps = plan.line_bps};
}

}  // namespace

double fairness(std::span<const double> rates) noexcept {
  double sum = 0, squares = 0;
  for (const double rate : rates) {
    sum += rate;
    squares += rate * rate;
  }
  return squares == 0 ? 0 : sum * sum / (static_cast<double>(rates.size()) * squares);
}

struct CongestionWorld::Sender {
  Sender(LoopHost& from, LoopHost& to, std::uint64_t start)
      : host(from),
        qp(from.make_qp(Qpn{0x100 + from.number})),
        sink(to.make_qp(qp->context().qpn)),
        start_ns(start) {}

  LoopHost& host;
  std::unique_ptr<transport::RcQp> qp;
  std::unique_ptr<transport::RcQp> sink;
  std::uint64_t start_ns;
  unsigned posted = 0;
  std::uint64_t completed = 0;
};

CongestionWorld::CongestionWorld(const CongestionPlan& plan)
    : plan_(plan), fabric_(fabric_of(plan), plan.senders + 1), due_ns_(plan.senders + 1) {
  const LoopPath path{.mtu = plan.mtu,
                      .bounds = {.gid_count = 2,
                                 .max_unacked = plan.max_unacked,
                                 .probe_floor_ns = kProbeFloorNs,
                                 .congestion = {.is_on = plan.is_controlled, .line_bps = plan.told_bps}}};
  Random random(plan.seed);
  for (unsigned i = 0; i <= plan.senders; ++i)
    hosts_.push_back(std::make_unique<LoopHost>(fabric_.open_port(i), i));
  LoopHost& receiver = *hosts_[0];
  for (unsigned i = 0; i < plan.senders; ++i) {
    LoopHost& host = *hosts_[i + 1];
    senders_.push_back(
        std::make_unique<Sender>(host, receiver, i * kStartGapNs + random.below(kStartJitterNs)));
    const Qpn qpn = senders_.back()->qp->context().qpn;
    host.connect(*senders_.back()->qp, receiver, qpn, path, now());
    receiver.connect(*senders_.back()->sink, host, qpn, path, now());
  }
}

CongestionWorld::~CongestionWorld() = default;

Ticks CongestionWorld::now() const noexcept {
  return Ticks{kStartNs + now_ns_};
}

CongestionFigures CongestionWorld::run() {
  run_until(plan_.settle_ns);
  CongestionFigures figures;
  figures.worst_fairness = 1;
  figures.longest_queue_before = std::exchange(longest_queue_, 0);
  figures.repeated_before = repeated();
  queue_time_ = 0;
  const std::vector<std::uint64_t> before = sent_bytes();
  const std::uint64_t wire_before = wire_bytes();
  std::vector<std::uint64_t> last = before;
  const auto rates = [this](const std::vector<std::uint64_t>& from, std::uint64_t ns) {
    std::vector<double> all;
    const std::vector<std::uint64_t> to = sent_bytes();
    for (std::size_t i = 0; i < to.size(); ++i)
      all.push_back(static_cast<double>(to[i] - from[i]) * 8000 / static_cast<double>(ns));
    return all;
  };
  for (std::uint64_t done = 0; done < plan_.measure_ns; done += kSliceNs) {
    run_until(plan_.settle_ns + done + kSliceNs);
    figures.worst_fairness = std::min(figures.worst_fairness, fairness(rates(last, kSliceNs)));
    last = sent_bytes();
  }
  figures.rates_mbps = rates(before, plan_.measure_ns);
  figures.fairness = fairness(figures.rates_mbps);
  const auto time = static_cast<double>(plan_.measure_ns);
  figures.utilisation =
      static_cast<double>(wire_bytes() - wire_before) * 8e9 / (time * static_cast<double>(plan_.line_bps));
  figures.mean_queue = queue_time_ / time;
  figures.longest_queue = longest_queue_;
  figures.dropped = hosts_[0]->port->counters().rx_missed;
  figures.repeated = repeated() - figures.repeated_before;
  figures.marked = sum(Count::kMarkedPackets);
  figures.cnps_sent = sum(Count::kCnpsSent);
  figures.cnps_handled = sum(Count::kCnpsHandled);
  return figures;
}

/// Wherever something arrives or is due, an iteration runs.
void CongestionWorld::run_until(std::uint64_t end_ns) {
  while (now_ns_ < end_ns) {
    std::uint64_t next = end_ns;
    for (unsigned i = 0; i < hosts_.size(); ++i) {
      if (due_ns_[i] <= now_ns_ || !hosts_[i]->port->arm_rx()) due_ns_[i] = run_host(i);
      next = std::min(next, due_ns_[i]);
    }
    if (const auto arrival = fabric_.next_arrival_ns()) next = std::min(next, *arrival);
    advance_to(std::max(next, now_ns_ + 1));
  }
}

void CongestionWorld::advance_to(std::uint64_t now_ns) {
  queue_time_ += static_cast<double>(queue_) * static_cast<double>(now_ns - now_ns_);
  now_ns_ = now_ns;
  fabric_.advance_to(now_ns);
  queue_ = fabric_.queued(0);
  longest_queue_ = std::max(longest_queue_, queue_);
}

/// @return when it is due again.
std::uint64_t CongestionWorld::run_host(unsigned index) {
  LoopHost& host = *hosts_[index];
  const std::uint64_t refused = host.loop.counters().get(Count::kLoopTxNoRoom);
  host.loop.run_once(now());
  std::uint64_t next = std::numeric_limits<std::uint64_t>::max();
  if (index > 0) {
    Sender& sender = *senders_[index - 1];
    const unsigned done = host.take_completions();
    sender.completed += done;
    sender.posted -= done;
    if (now_ns_ < sender.start_ns) {
      next = sender.start_ns;
    } else if (sender.posted < LoopHost::kPosted) {
      sender.posted += host.post(*sender.qp, *hosts_[0], LoopHost::kPosted - sender.posted);
    }
  }
  if (host.loop.has_work())
    return now_ns_ + (host.loop.counters().get(Count::kLoopTxNoRoom) != refused ? kFullNs : kStepNs);
  const Ticks due = host.deadline(now());
  return due.is_set() ? std::min(next, std::max(now_ns_ + kStepNs, due.ns() - kStartNs)) : next;
}

std::vector<std::uint64_t> CongestionWorld::sent_bytes() const {
  std::vector<std::uint64_t> bytes;
  for (const auto& sender : senders_) bytes.push_back(sender->completed * LoopHost::kMessageBytes);
  return bytes;
}

std::uint64_t CongestionWorld::wire_bytes() const {
  const port::PortCounters counters = hosts_[0]->port->counters();
  return counters.rx_bytes + counters.rx_frames * kFrameOverhead;
}

std::uint64_t CongestionWorld::repeated() const {
  return sum(Count::kRequesterGoBacks);
}

std::uint64_t CongestionWorld::sum(Count count) const {
  std::uint64_t all = 0;
  for (const auto& host : hosts_) all += host->loop.counters().get(count);
  return all;
}

}  // namespace uroce::sim
