/// Many senders, one receiver, one switch output that is too slow for them: what congestion control is for.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "drivers/loopback/loopback.h"
#include "sim/loop_host.h"

namespace uroce::sim {

struct CongestionPlan {
  unsigned senders = 2;
  bool is_controlled = true;
  std::uint64_t settle_ns = 100'000'000;   ///< not measured
  std::uint64_t measure_ns = 400'000'000;  ///< a multiple of kSliceNs
  std::uint64_t seed = 1;
  std::uint64_t line_bps = 10'000'000'000;
  std::uint64_t told_bps = 10'000'000'000;  ///< what the senders think that this is
  PathMtu mtu = PathMtu::k1024;
  std::uint32_t max_unacked = 384;
  std::uint64_t delay_ns = 1000;       ///< of each of the four ways of a round trip
  std::uint32_t queue_frames = 640;    ///< that the switch holds
  std::uint32_t ce_least_frames = 36;  ///< Kmin
  std::uint32_t ce_full_frames = 146;  ///< Kmax
  std::uint32_t ce_percent = 20;       ///< Pmax
};

/// What was seen from the end of the settling time on.
struct CongestionFigures {
  double fairness = 0;        ///< Jain's index of the flows' rates over the whole time
  double worst_fairness = 0;  ///< of a slice
  double utilisation = 0;     ///< of the receiver's link, with everything that takes time on it
  double mean_queue = 0;      ///< frames
  std::uint32_t longest_queue = 0;
  std::uint32_t longest_queue_before = 0;  ///< while the flows started
  std::uint64_t dropped = 0;               ///< from the start
  std::uint64_t repeated_before = 0;
  std::uint64_t repeated = 0;  ///< go-backs, which timeouts and probes are, too
  std::uint64_t marked = 0;
  std::uint64_t cnps_sent = 0;
  std::uint64_t cnps_handled = 0;
  std::vector<double> rates_mbps;  ///< of what the applications sent
};

/// Each sender has one RC QP and always WRITEs posted. They start one after the other.
class CongestionWorld {
 public:
  static constexpr std::uint64_t kSliceNs = 50'000'000;

  explicit CongestionWorld(const CongestionPlan& plan);
  ~CongestionWorld();

  [[nodiscard]] CongestionFigures run();

 private:
  struct Sender;

  void run_until(std::uint64_t end_ns);
  void advance_to(std::uint64_t now_ns);
  std::uint64_t run_host(unsigned index);
  [[nodiscard]] std::vector<std::uint64_t> sent_bytes() const;
  [[nodiscard]] std::uint64_t wire_bytes() const;
  [[nodiscard]] std::uint64_t repeated() const;
  [[nodiscard]] std::uint64_t sum(Count count) const;
  [[nodiscard]] Ticks now() const noexcept;

  CongestionPlan plan_;
  drivers::LoopbackSwitch fabric_;
  std::uint64_t now_ns_ = 0;
  std::vector<std::unique_ptr<LoopHost>> hosts_;  // [0]: the receiver
  std::vector<std::uint64_t> due_ns_;             // of the host with the same index
  std::vector<std::unique_ptr<Sender>> senders_;  // on the host with the next index
  std::uint32_t queue_ = 0;
  std::uint32_t longest_queue_ = 0;
  double queue_time_ = 0;  // frames * ns
};

/// Jain's index: 1 if all are equal, 1/n if one has everything.
[[nodiscard]] double fairness(std::span<const double> rates) noexcept;

}  // namespace uroce::sim
