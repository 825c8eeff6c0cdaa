#include "transport/congestion.h"

#include <algorithm>

#include "transport/dcqcn.h"

namespace uroce::transport {

void Pacer::reset() noexcept {
  control_->reset();
  rate_bps_ = 0;
  waits_ = false;
}

void Pacer::on_cnp(Ticks now) noexcept {
  const bool was_limited = is_limited();
  control_->on_cnp(now);
  rate_bps_ = control_->rate_bps();
  if (!was_limited) next_send_ = now;
}

void Pacer::on_sent(std::uint32_t bytes, Ticks now) noexcept {
  constexpr std::uint64_t kSecond = 1'000'000'000;
  control_->on_sent(bytes, now);
  rate_bps_ = control_->rate_bps();
  if (!is_limited()) return;
  const Ticks late{now.ns() - std::min(now.ns(), kLateNs)};
  next_send_ = std::max(next_send_, late) + std::uint64_t{bytes} * 8 * kSecond / rate_bps_;
}

/// Another control than DCQCN has its name in Config::congestion and is chosen here.
Congestion::Congestion(const CongestionSettings& settings)
    : line_bps(std::max(settings.line_bps, Dcqcn::kMinBps)),
      cnp_traffic_class(settings.cnp_traffic_class),
      rate(std::make_unique<Dcqcn>(line_bps)),
      marks(settings.cnp_gap_ns) {}

}  // namespace uroce::transport
