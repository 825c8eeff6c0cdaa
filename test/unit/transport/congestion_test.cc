// The rate of a connection under congestion control. Zhu et al., SIGCOMM 2015, section 3.
#include "transport/dcqcn.h"

#include <catch2/catch.hpp>

using namespace uroce;
using transport::Dcqcn;
using transport::NotificationPoint;
using transport::Pacer;

namespace {

constexpr std::uint64_t kLine = 10'000'000'000;
constexpr std::uint64_t kUs = 1000;
constexpr Ticks kStart{1'000'000'000};

Ticks at_us(std::uint64_t us) {
  return kStart + us * kUs;
}

Pacer dcqcn(std::uint64_t line_bps) {
  return Pacer(std::make_unique<Dcqcn>(line_bps));
}

/// Each CNP takes a gigabit per second of ten away, and nothing gives it back.
class Stairs final : public transport::RateControl {
 public:
  void reset() noexcept override { rate_bps_ = kLine; }
  void on_cnp(Ticks) noexcept override { rate_bps_ -= kLine / 10; }
  void on_sent(std::uint32_t, Ticks) noexcept override {}
  [[nodiscard]] std::uint64_t rate_bps() const noexcept override {
    return rate_bps_ == kLine ? 0 : rate_bps_;
  }

 private:
  std::uint64_t rate_bps_ = kLine;
};

/// Sends 1250 bytes each microsecond, which is the line's rate, and more slowly where the limit is below.
/// @return bits per second
std::uint64_t send_for(Pacer& point, std::uint64_t from_us, std::uint64_t to_us) {
  std::uint64_t bytes = 0;
  for (std::uint64_t us = from_us; us < to_us; ++us) {
    for (int burst = 0; burst < 20 && point.may_send(at_us(us)); ++burst) {
      point.on_sent(1250, at_us(us));
      bytes += 1250;
      if (!point.is_limited()) break;
    }
  }
  return bytes * 8 * 1'000'000 / (to_us - from_us);
}

}  // namespace

TEST_CASE("packets are held back to the rate of whatever control there is", "[dcqcn]") {
  Pacer point(std::make_unique<Stairs>());
  for (std::uint64_t cnps = 0; cnps < 9; ++cnps) {
    CAPTURE(cnps);
    const std::uint64_t start = cnps * 1000;
    const std::uint64_t rate = send_for(point, start, start + 1000);
    const std::uint64_t allowed = kLine - cnps * kLine / 10;
    CHECK(rate > allowed * 98 / 100);
    CHECK(rate < allowed * 102 / 100);
    point.on_cnp(at_us(start + 1000));
    CHECK(point.is_limited());
  }
  point.reset();
  CHECK(send_for(point, 10'000, 11'000) == kLine);
}

TEST_CASE("a connection that was never told of marks has no limit", "[dcqcn]") {
  Pacer point = dcqcn(kLine);
  CHECK_FALSE(point.is_limited());
  CHECK(point.rate_bps() == 0);
  for (int i = 0; i < 1000; ++i) {
    REQUIRE(point.may_send(kStart));
    point.on_sent(4096, kStart);
  }
  CHECK_FALSE(point.deadline().is_set());
}

TEST_CASE("the first CNP halves what was sent of late, and not the line's rate", "[dcqcn]") {
  Pacer point = dcqcn(100 * kLine);
  send_for(point, 0, 300);
  point.on_cnp(at_us(300));
  CHECK(point.is_limited());
  CHECK(point.rate_bps() > kLine * 45 / 100);
  CHECK(point.rate_bps() < kLine * 55 / 100);
}

TEST_CASE("a pause is no rate: the first CNP behind one does not cut to it", "[dcqcn]") {
  Pacer point = dcqcn(kLine);
  point.on_sent(64, at_us(0));
  send_for(point, 1'000'000, 1'000'010);
  point.on_cnp(at_us(1'000'010));
  CHECK(point.rate_bps() > kLine * 45 / 100);
}

TEST_CASE("what is sent keeps to the rate", "[dcqcn]") {
  Pacer point = dcqcn(kLine);
  send_for(point, 0, 300);
  point.on_cnp(at_us(300));
  const std::uint64_t rate = point.rate_bps();
  const std::uint64_t sent = send_for(point, 300, 350);  // before the first rise
  CHECK(sent > rate * 90 / 100);
  CHECK(sent < rate * 125 / 100);  // with what a late sender makes up for
}

TEST_CASE("CNPs that follow each other closely cut once", "[dcqcn]") {
  Pacer point = dcqcn(kLine);
  point.on_cnp(at_us(0));
  const std::uint64_t once = point.rate_bps();
  for (std::uint64_t us = 1; us < 50; ++us) point.on_cnp(at_us(us));
  CHECK(point.rate_bps() == once);
  point.on_cnp(at_us(50));
  CHECK(point.rate_bps() < once * 51 / 100);
}

TEST_CASE("CNPs without end leave a least rate", "[dcqcn]") {
  Pacer point = dcqcn(kLine);
  for (std::uint64_t us = 0; us < 100'000; us += 50) point.on_cnp(at_us(us));
  CHECK(point.rate_bps() == Dcqcn::kMinBps);
}

TEST_CASE("after a cut the rate comes half of the way back each period, then slowly beyond", "[dcqcn]") {
  Pacer point = dcqcn(kLine);
  point.on_cnp(at_us(0));  // nothing was measured: from the line's rate
  std::uint64_t rate = point.rate_bps();
  REQUIRE(rate == kLine / 2);
  for (std::uint64_t step = 1; step < 5; ++step) {
    point.on_sent(64, at_us(55 * step));
    CHECK(kLine - point.rate_bps() == (kLine - rate) / 2);
    rate = point.rate_bps();
  }
  for (std::uint64_t step = 5; point.is_limited(); ++step) {
    REQUIRE(step < 20);
    point.on_sent(64, at_us(55 * step));
  }
  CHECK(point.rate_bps() == 0);
}

TEST_CASE("CNPs that come seldom cut less", "[dcqcn]") {
  Pacer point = dcqcn(kLine);
  std::uint64_t left_percent = 0;                          // of the rate by a cut
  for (std::uint64_t us = 0; us < 200 * 165; us += 165) {  // alpha falls by 1/256 three times in between
    point.on_sent(64, at_us(us));
    const std::uint64_t before = point.is_limited() ? point.rate_bps() : kLine;
    point.on_cnp(at_us(us));
    left_percent = point.rate_bps() * 100 / before;
    if (us == 0) CHECK(left_percent == 50);
  }
  CHECK(left_percent > 80);
}

TEST_CASE("a connection that was idle for an hour has forgotten its limit at once", "[dcqcn]") {
  Pacer point = dcqcn(100 * kLine);
  for (std::uint64_t us = 0; us < 100'000; us += 50) point.on_cnp(at_us(us));
  point.on_sent(64, at_us(3'600'000'000));
  CHECK_FALSE(point.is_limited());
}

TEST_CASE("what is held may leave when its time has come, and not before", "[dcqcn]") {
  Pacer point = dcqcn(kLine);
  for (std::uint64_t us = 0; us < 100'000; us += 50) point.on_cnp(at_us(us));  // 10 Mb/s
  const Ticks now = at_us(100'000);
  point.on_sent(1250, now);  // a millisecond
  REQUIRE_FALSE(point.may_send(now + 900 * kUs));
  CHECK_FALSE(point.deadline().is_set());  // nobody waits
  point.hold();
  const Ticks due = point.deadline();
  REQUIRE(due.is_set());
  CHECK_FALSE(point.may_send(Ticks{due.ns() - 1}));
  CHECK(point.may_send(due));
  point.on_timer(Ticks{due.ns() - 1});
  CHECK(point.deadline() == due);
  point.on_timer(due);
  CHECK_FALSE(point.deadline().is_set());
}

TEST_CASE("a reset lifts the limit", "[dcqcn]") {
  Pacer point = dcqcn(kLine);
  point.on_cnp(at_us(0));
  point.hold();
  point.reset();
  CHECK_FALSE(point.is_limited());
  CHECK(point.may_send(at_us(0)));
  CHECK_FALSE(point.deadline().is_set());
}

TEST_CASE("marks are told once a gap", "[dcqcn]") {
  NotificationPoint point(50 * kUs);
  CHECK_FALSE(point.is_due());
  point.on_mark(at_us(0));
  point.on_mark(at_us(1));
  REQUIRE(point.is_due());
  point.on_sent(at_us(2));
  point.on_mark(at_us(51));
  CHECK_FALSE(point.is_due());
  point.on_mark(at_us(52));
  CHECK(point.is_due());
}
