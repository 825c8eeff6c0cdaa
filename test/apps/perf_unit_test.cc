#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <vector>

#include "apps/common/backlog.h"
#include "apps/perf/seconds.h"
#include "apps/perf/wr_ids.h"

namespace uroce::apps::perf {
namespace {

constexpr std::uint64_t kTook = 10'000;  // ns, of each operation

/// A time in which nothing goes on.
struct Pause {
  std::uint64_t begin = 0;  // ns
  std::uint64_t end = 0;

  [[nodiscard]] std::uint64_t after(std::uint64_t now) const {
    return now >= begin ? std::max(now, end) : now;
  }
};

struct Run {
  std::vector<std::uint64_t> latencies{};  // ns, each from when it was due
  std::uint64_t missing = 0;
  std::uint64_t took = 0;
  double rate = 0;
  Backlog backlog{0, 0};

  [[nodiscard]] bool is_too_much(double offered) const {
    return is_saturated({.offered = offered,
                         .achieved = rate,
                         .messages = backlog.messages(),
                         .missing = missing,
                         .backlog = backlog.marks()});
  }
};

/// What the loop of a latency test does, on a clock of its own.
Run simulated(std::uint64_t seconds, double rate, Pause pause, std::uint64_t each = kTook) {
  const Extent extent(seconds, 0, rate, kSecond);
  Schedule schedule(TickClock{}, rate);  // a tick is a nanosecond
  schedule.begin(0);
  Run run{.backlog = Backlog(0, extent.most())};
  std::uint64_t now = 0;
  while (!extent.is_over(now, run.latencies.size())) {
    const auto due = static_cast<std::uint64_t>(static_cast<double>(run.latencies.size()) * 1e9 / rate);
    now = pause.after(std::max(now, due) + each);
    run.latencies.push_back(now - due);
    run.backlog.look(schedule, now, run.latencies.size());
  }
  run.missing = extent.missing(run.latencies.size());
  run.took = now;
  run.rate = achieved_rate(rate, run.latencies.size(), static_cast<double>(now));
  return run;
}

TEST_CASE("what a pause at the end holds up is measured", "[apps][perf]") {
  const std::uint64_t ms = kMillisecond;
  for (const Pause pause :
       {Pause{1980 * ms, 1990 * ms}, Pause{1985 * ms, 2050 * ms}, Pause{1999 * ms, 2300 * ms}}) {
    const Run run = simulated(2, 1000, pause);
    CHECK(run.latencies.size() == 2000);
    CHECK(run.missing == 0);
    CHECK(*std::ranges::max_element(run.latencies) >= pause.end - pause.begin - ms);
  }
}

TEST_CASE("a run at a rate is over with the last operation that was due in it", "[apps][perf]") {
  for (const double rate : {1.0, 3.0, 3000.0, 12'345.6, 99'999.0}) {
    const Run run = simulated(3, rate, {});
    CHECK(run.latencies.size() == static_cast<std::size_t>(std::ceil(3 * rate - 1e-6)));
    CHECK(run.took < 3 * kSecond);
  }
  CHECK(simulated(10, 3.3, {}).latencies.size() == 33);
}

TEST_CASE("a link that is too slow for the rate gets a fifth more, and what is missing is told",
          "[apps][perf]") {
  const Run run = simulated(2, 1000, {}, 2 * kMillisecond);
  CHECK(Extent(2, 10, 1000, kSecond).most() == 2000);
  CHECK(run.latencies.size() == 1200);
  CHECK(run.missing == 800);
  const Run paused = simulated(2, 1000, {1 * kSecond, 5 * kSecond});
  CHECK(paused.latencies.size() == 1001);  // the last one is what the pause held up
  CHECK(paused.missing == 999);
}

TEST_CASE("a queue that grows slowly is told from a pause just before the end", "[apps][perf]") {
  const Run grows = simulated(2, 1000, {}, kMillisecond + 5000);
  CHECK(grows.missing == 0);
  CHECK(grows.rate > 990);
  CHECK(grows.is_too_much(1000));
  const Run paused = simulated(1, 1000, {980 * kMillisecond, 1100 * kMillisecond});
  CHECK(paused.rate < 990);
  CHECK_FALSE(paused.is_too_much(1000));
  CHECK_FALSE(simulated(2, 1000, {}).is_too_much(1000));
  CHECK(simulated(2, 1000, {}, 2 * kMillisecond).is_too_much(1000));
}

TEST_CASE("without a rate the time alone ends a run, without a time the count", "[apps][perf]") {
  const Extent timed(2, 10, 0, kSecond);
  CHECK(timed.is_timed());
  CHECK(timed.most() == UINT64_MAX);
  CHECK_FALSE(timed.is_over(2 * kSecond - 1, UINT64_MAX - 1));
  CHECK(timed.is_over(2 * kSecond, 0));
  CHECK(timed.missing(0) == 0);
  for (const double rate : {0.0, 1000.0}) {
    const Extent counted(0, 10, rate, kSecond);
    CHECK_FALSE(counted.is_timed());
    CHECK(counted.most() == 10);
    CHECK_FALSE(counted.is_over(UINT64_MAX - 1, 9));
    CHECK(counted.is_over(0, 10));
    CHECK(counted.missing(10) == 0);
  }
}

TEST_CASE("operations keep their QP, however many there are", "[apps][perf]") {
  constexpr std::uint64_t kMany = 20'000'000ULL * most::kSeconds;  // a day of them, more than 2^40
  constexpr std::array<std::uint64_t, 5> kCounts = {1, 1ULL << 32U, (1ULL << 40U) - 1, 1ULL << 40U, kMany};
  for (const std::size_t qp : {std::size_t{0}, std::size_t{1}, std::size_t{most::kQps - 1}}) {
    for (const std::uint64_t count : kCounts) {
      const SentId id{.qp = qp, .up_to = count};
      CHECK(SentId::of(id.packed()) == id);
      CHECK((id.packed() & kReceiveFlag) == 0);
    }
  }
}

}  // namespace
}  // namespace uroce::apps::perf
