/// DCQCN, as network cards have it. Zhu et al., SIGCOMM 2015.
#pragma once

#include <algorithm>
#include <cstdint>

#include "transport/congestion.h"

namespace uroce::transport {

/// The rate of what is sent: cut by CNPs, regained with time and bytes. Until the first CNP, and once it is
/// back at the line's rate, there is no limit. Numbers are those of the paper.
///
/// Threads: loop.
class Dcqcn final : public RateControl {
 public:
  static constexpr std::uint64_t kMinBps = 10'000'000;

  explicit Dcqcn(std::uint64_t line_bps) noexcept : line_bps_(std::max(line_bps, kMinBps)) {}

  void reset() noexcept override;
  void on_cnp(Ticks now) noexcept override;
  void on_sent(std::uint32_t bytes, Ticks now) noexcept override;
  [[nodiscard]] std::uint64_t rate_bps() const noexcept override { return is_limited_ ? rate_bps_ : 0; }

 private:
  static constexpr std::uint64_t kPeriodNs = 55'000;  // of the decay of alpha, and of the rise by time
  static constexpr std::uint64_t kRiseBytes = 10'000'000;
  static constexpr unsigned kFastSteps = 5;
  static constexpr std::uint64_t kAdditiveBps = 40'000'000;
  static constexpr std::uint64_t kHyperBps = 200'000'000;
  static constexpr double kGain = 1.0 / 256;
  static constexpr std::uint64_t kCutGapNs = 50'000;  // however many CNPs come
  static constexpr std::uint64_t kMeasureNs = 100'000;

  void limit(Ticks now) noexcept;
  void lift() noexcept;
  void catch_up(Ticks now) noexcept;
  void rise() noexcept;
  void measure(std::uint32_t bytes, Ticks now) noexcept;

  std::uint64_t line_bps_;
  bool is_limited_ = false;
  std::uint64_t rate_bps_ = 0;
  std::uint64_t target_bps_ = 0;
  double alpha_ = 1;
  Ticks last_cut_;
  Ticks period_end_;
  std::uint64_t bytes_ = 0;   // since the last rise by bytes
  unsigned time_steps_ = 0;   // rises by time since the last cut
  unsigned bytes_steps_ = 0;  // by bytes
  // Without a limit: how fast it went.
  Ticks window_start_;
  std::uint64_t window_bytes_ = 0;
  std::uint64_t measured_bps_ = 0;
};

}  // namespace uroce::transport
