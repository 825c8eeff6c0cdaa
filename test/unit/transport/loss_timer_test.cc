// When an answer is late, and when it is given up. RFC 6298, RFC 9002 6.2, IBA 9.7.6.1.3.
#include "transport/loss_timer.h"

#include <catch2/catch.hpp>

using namespace uroce;
using transport::LossTimer;
using Expiry = LossTimer::Expiry;

namespace {

constexpr std::uint64_t kMs = 1'000'000;
constexpr Ticks kBegin{1'000'000'000};

/// Waits for what comes next. @return after how long that was
std::uint64_t next(LossTimer& timer, Ticks& now, Expiry& expiry) {
  const Ticks due = timer.due();
  REQUIRE(due.is_set());
  CHECK(timer.expire(Ticks{due.ns() - 1}) == Expiry::kNone);
  expiry = timer.expire(due);
  const std::uint64_t waited = due.ns() - now.ns();
  now = due;
  return waited;
}

/// A timer that has measured one round trip of `ns`.
LossTimer measured(std::uint64_t ns, std::uint64_t floor_ns) {
  LossTimer timer;
  timer.reset(floor_ns);
  timer.on_sent(Psn{5}, kBegin);
  timer.on_answered(Psn{6}, kBegin + ns);
  return timer;
}

}  // namespace

TEST_CASE("each probe waits twice as long as the one before, up to the ack timeout", "[transport][timer]") {
  LossTimer timer = measured(kMs, kMs);  // 1 ms, and 4 times its variation of 0.5 ms
  timer.start(kBegin, 100 * kMs);
  Ticks now = kBegin;
  Expiry expiry{};
  for (const std::uint64_t wait : {3U, 6U, 12U, 24U, 48U}) {
    CHECK(next(timer, now, expiry) == wait * kMs);
    CHECK(expiry == Expiry::kProbe);
  }
  CHECK(next(timer, now, expiry) == 7 * kMs);
  CHECK(expiry == Expiry::kTimeout);
  CHECK_FALSE(timer.is_running());
}

TEST_CASE("a round trip whose begin is not known for sure is not measured", "[transport][timer]") {
  const bool is_known = GENERATE(false, true);
  LossTimer timer = measured(kMs, kMs);
  timer.on_sent(Psn{7}, kBegin + kMs);
  timer.forget_time(is_known ? kBegin : kBegin + kMs);
  timer.on_answered(Psn{8}, kBegin + 9 * kMs);
  timer.start(kBegin + 9 * kMs, 100 * kMs);
  CHECK((timer.due() == kBegin + 12 * kMs) == !is_known);  // 3 ms, as before
}

TEST_CASE("what was started at a time that proves old is started at the real one, and nothing else",
          "[transport][timer]") {
  LossTimer timer = measured(kMs, kMs);
  const Ticks late = kBegin + 50 * kMs;
  SECTION("the timer and the measured round trip") {
    timer.start(kBegin, 100 * kMs);
    timer.on_sent(Psn{7}, kBegin);
    timer.correct(kBegin, late, 100 * kMs);
    CHECK(timer.due() == late + 3 * kMs);
    timer.on_answered(Psn{8}, late + kMs);
    timer.start(late, 100 * kMs);
    CHECK(timer.due() == late + kMs + 1'500'000);  // 1 ms, and 4 times 3/4 of 0.5 ms
  }
  SECTION("one that was started before") {
    timer.start(kBegin, 100 * kMs);
    timer.correct(kBegin + kMs, late, 100 * kMs);
    CHECK(timer.due() == kBegin + 3 * kMs);
  }
  SECTION("none") {
    timer.correct(kBegin, late, 100 * kMs);
    CHECK_FALSE(timer.is_running());
  }
  SECTION("one that waits for ever") {
    timer.start(kBegin, 0);
    timer.correct(kBegin, late, 0);
    CHECK_FALSE(timer.is_running());
  }
}

TEST_CASE("a measured round trip ends the doubling, an answer alone does not", "[transport][timer]") {
  // RFC 6298, section 5: the backed-off timer stays until there is a new sample
  LossTimer timer = measured(kMs, kMs);
  timer.start(kBegin, 1000 * kMs);
  Ticks now = kBegin;
  Expiry expiry{};
  for (int i = 0; i < 3; ++i) next(timer, now, expiry);
  timer.start(now, 1000 * kMs);
  CHECK(next(timer, now, expiry) == 24 * kMs);
  for (int i = 0; i < 3; ++i) next(timer, now, expiry);
  timer.start(now, 1000 * kMs);
  CHECK(next(timer, now, expiry) == 96 * kMs);  // no more than that from one answer to the next
  timer.on_sent(Psn{7}, now);
  timer.on_answered(Psn{8}, now + kMs);
  timer.start(now, 1000 * kMs);
  CHECK(next(timer, now, expiry) == kMs + 1'500'000);  // 4 times 3/4 of 0.5 ms
}

TEST_CASE("an ack timeout ends the doubling", "[transport][timer]") {
  LossTimer timer = measured(kMs, kMs);
  timer.start(kBegin, 8 * kMs);
  Ticks now = kBegin;
  Expiry expiry{};
  while (expiry != Expiry::kTimeout) next(timer, now, expiry);
  timer.start(now, 8 * kMs);
  CHECK(next(timer, now, expiry) == 3 * kMs);
}

TEST_CASE("what was sent once tells the round trip, whatever else is sent again", "[transport][timer]") {
  // Karn's rule: RFC 6298, section 3
  const bool is_repeated = GENERATE(false, true);
  LossTimer timer = measured(kMs, kMs);
  timer.on_sent(Psn{0}, kBegin);
  timer.on_sent_again(Psn{0xff'fffe}, is_repeated ? 3 : 2);
  timer.on_answered(Psn{1}, kBegin + 9 * kMs);
  timer.start(kBegin, 1000 * kMs);
  Ticks now = kBegin;
  Expiry expiry{};
  const std::uint64_t wait = next(timer, now, expiry);
  CHECK(is_repeated == (wait == 3 * kMs));
}

TEST_CASE("without probes the ack timeout is all there is", "[transport][timer]") {
  LossTimer timer = measured(kMs, 0);
  timer.start(kBegin, 100 * kMs);
  Ticks now = kBegin;
  Expiry expiry{};
  CHECK(next(timer, now, expiry) == 100 * kMs);
  CHECK(expiry == Expiry::kTimeout);
  timer.start(kBegin, 0);
  CHECK_FALSE(timer.is_running());
}

TEST_CASE("a round trip of any length makes a probe that comes", "[transport][timer]") {
  constexpr std::uint64_t kHour = 3'600'000 * kMs;
  LossTimer timer = measured(kHour, kMs);
  timer.start(kBegin, kHour);
  Ticks now = kBegin;
  Expiry expiry{};
  std::uint64_t last = 0;
  for (next(timer, now, expiry); expiry == Expiry::kProbe; next(timer, now, expiry)) {
    CHECK(now.ns() > last);
    last = now.ns();
  }
  CHECK(expiry == Expiry::kTimeout);
  CHECK(now == kBegin + kHour);
}

TEST_CASE("a round trip that ended before it began, as clocks of two cores may say, is not measured",
          "[transport][timer]") {
  LossTimer timer = measured(kMs, kMs);
  timer.on_sent(Psn{7}, kBegin + kMs);
  timer.on_answered(Psn{8}, kBegin + (kMs - 1));
  timer.start(kBegin + kMs, 100 * kMs);
  CHECK(timer.due() == kBegin + 4 * kMs);  // 3 ms, as before
}
