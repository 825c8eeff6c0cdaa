#include "transport/dcqcn.h"

#include <algorithm>

namespace uroce::transport {

namespace {

constexpr std::uint64_t kSecond = 1'000'000'000;

std::uint64_t rate_of(std::uint64_t bytes, std::uint64_t ns) noexcept {
  return static_cast<std::uint64_t>(static_cast<double>(bytes) * 8 * kSecond / static_cast<double>(ns));
}

std::uint64_t span_ns(Ticks from, Ticks to) noexcept {
  return to.ns() - from.ns();
}

}  // namespace

void Dcqcn::reset() noexcept {
  lift();
  last_cut_ = Ticks{};
}

void Dcqcn::lift() noexcept {
  is_limited_ = false;
  window_start_ = Ticks{};
  window_bytes_ = measured_bps_ = 0;
}

/// From no limit to what was sent of late: the line's rate may be far above what this end can do.
void Dcqcn::limit(Ticks now) noexcept {
  constexpr std::uint64_t kEnoughNs = kMeasureNs / 4;
  std::uint64_t rate = measured_bps_;
  if (window_start_.is_set() && span_ns(window_start_, now) >= kEnoughNs)
    rate = std::max(rate, rate_of(window_bytes_, span_ns(window_start_, now)));
  rate_bps_ = rate == 0 ? line_bps_ : std::clamp(rate, kMinBps, line_bps_);
  is_limited_ = true;
  alpha_ = 1;
}

void Dcqcn::on_cnp(Ticks now) noexcept {
  if (is_limited_) catch_up(now);
  if (!is_limited_) {
    limit(now);
  } else if (span_ns(last_cut_, now) < kCutGapNs) {
    return;
  }
  target_bps_ = rate_bps_;
  rate_bps_ =
      std::max(kMinBps, static_cast<std::uint64_t>(static_cast<double>(rate_bps_) * (1 - alpha_ / 2)));
  alpha_ = (1 - kGain) * alpha_ + kGain;
  last_cut_ = now;
  period_end_ = now + kPeriodNs;
  bytes_ = 0;
  time_steps_ = bytes_steps_ = 0;
}

/// What time has brought since the last look.
void Dcqcn::catch_up(Ticks now) noexcept {
  for (; is_limited_ && period_end_ <= now; period_end_ = period_end_ + kPeriodNs) {
    alpha_ *= 1 - kGain;
    ++time_steps_;
    rise();
  }
}

/// Half of the way back, and beyond once that has been reached: Zhu et al., section 5. The paper's steps are
/// for 40 Gb/s: on slower lines they would be so large a part of many flows' shares that marks cut all of
/// them at once.
void Dcqcn::rise() noexcept {
  const std::uint64_t additive = std::min(kAdditiveBps, line_bps_ / 1000);
  const std::uint64_t hyper = std::min(kHyperBps, line_bps_ / 200);
  const unsigned least = std::min(time_steps_, bytes_steps_);
  if (least > kFastSteps) {
    target_bps_ += hyper * (least - kFastSteps);
  } else if (std::max(time_steps_, bytes_steps_) >= kFastSteps) {
    target_bps_ += additive;
  }
  target_bps_ = std::min(target_bps_, line_bps_);
  rate_bps_ = (rate_bps_ + target_bps_) / 2;
  if (rate_bps_ >= line_bps_ - line_bps_ / 128) lift();
}

void Dcqcn::on_sent(std::uint32_t bytes, Ticks now) noexcept {
  if (is_limited_) catch_up(now);
  if (!is_limited_) return measure(bytes, now);
  for (bytes_ += bytes; is_limited_ && bytes_ >= kRiseBytes; bytes_ -= kRiseBytes) {
    ++bytes_steps_;
    rise();
  }
}

void Dcqcn::measure(std::uint32_t bytes, Ticks now) noexcept {
  if (!window_start_.is_set()) window_start_ = now;
  if (const std::uint64_t span = span_ns(window_start_, now); span >= kMeasureNs) {
    measured_bps_ = span < 2 * kMeasureNs ? rate_of(window_bytes_, span) : 0;  // pauses tell no rate
    window_start_ = now;
    window_bytes_ = 0;
  }
  window_bytes_ += bytes;
}

}  // namespace uroce::transport
