#include "apps/common/open_loop.h"

#include <time.h>

#include <algorithm>
#include <cmath>

#include "apps/common/percentiles.h"
#include "apps/common/result_file.h"

namespace uroce::apps {
namespace {

std::uint64_t process_cpu_ns() noexcept {
  timespec t{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return static_cast<std::uint64_t>(t.tv_sec) * kSecond + static_cast<std::uint64_t>(t.tv_nsec);
}

std::uint64_t messages_in(double rate, std::uint64_t ns) noexcept {
  return static_cast<std::uint64_t>(std::llround(rate * static_cast<double>(ns) / 1e9));
}

}  // namespace

void CpuMeter::add(std::uint64_t units) noexcept {
  if (begin_ == 0) {  // the first ones took unknown time
    begin_ = process_cpu_ns();
  } else {
    units_ += units;
  }
}

double CpuMeter::per_unit() const noexcept {
  return units_ == 0 ? 0 : static_cast<double>(process_cpu_ns() - begin_) / static_cast<double>(units_);
}

OpenLoop::OpenLoop(const Sample& sample, const TickClock& clock, std::uint64_t begin) noexcept
    : clock_(clock),
      schedule_(clock, sample.rate),
      rate_(sample.rate),
      file_(sample.hgrm_file),
      warm_(messages_in(sample.rate, sample.warm_up_ns())),
      total_(warm_ + std::max<std::uint64_t>(1, messages_in(sample.rate, sample.run_ns))),
      backlog_(warm_, total_ - warm_) {
  schedule_.begin(begin);
  end_ = schedule_.due(total_);
  last_call_ = end_ + clock_.from_ns(sample.run_ns / 5);
}

std::uint64_t OpenLoop::due(std::uint64_t now) noexcept {
  const std::uint64_t all = std::min(schedule_.due_by(now), total_);
  if (all <= warm_) warm_ups_ = answered_;
  backlog_.look(schedule_, now, answered_);
  return now >= last_call_ ? 0 : all - sent_;
}

void OpenLoop::add_answered(std::uint64_t messages, std::uint64_t now) noexcept {
  for (const std::uint64_t behind = answered_ + messages; answered_ < behind; ++answered_) {
    if (answered_ >= warm_) ticks_.add(now - schedule_.due(answered_));
  }
  last_ = now;
  cpu_.add(messages);
}

std::uint64_t OpenLoop::idle_ns(std::uint64_t now) const noexcept {
  constexpr std::uint64_t kLongest = 10 * kMillisecond;
  if (has_sent_all(now)) return kLongest;
  const std::uint64_t next = schedule_.due(sent_);
  return next <= now ? 0 : std::min(kLongest, static_cast<std::uint64_t>(clock_.ns(next - now)));
}

/// Of answers since the first message that counts was due, the late ones to warm-ups with them: those are
/// what a load that is too much has most of.
double OpenLoop::achieved() const noexcept {
  const double ns = clock_.ns(std::max(last_, end_) - schedule_.due(warm_));
  return achieved_rate(rate_, answered_ - warm_ups_, ns);
}

Result<Json> OpenLoop::result() const {
  const std::uint64_t offered = total_ - warm_;
  const bool saturated = is_saturated({.offered = rate_,
                                       .achieved = achieved(),
                                       .messages = offered,
                                       .missing = total_ - sent_,
                                       .backlog = backlog_.marks()});
  Json result = {{"max", clock_.ns(ticks_.max())}, {"rate", achieved()},     {"offered", offered},
                 {"answered", ticks_.count()},     {"saturated", saturated}, {"cpu_ns", cpu_.per_unit()}};
  for (const auto& [name, percent] : {std::pair("p50", 50.0), {"p99", 99.0}, {"p999", 99.9}}) {
    if (ticks_.is_sound(percent, kAbove)) result[name] = clock_.ns(1) * ticks_.interpolated(percent);
  }
  if (!file_.empty()) {
    if (auto written = write_file(file_, percentiles_text(ticks_, clock_.ns(1) / 1000)); !written)
      return written.error();
  }
  return result;
}

}  // namespace uroce::apps
