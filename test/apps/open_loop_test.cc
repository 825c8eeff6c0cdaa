#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "apps/common/open_loop.h"
#include "apps/common/samples.h"

namespace uroce::apps {
namespace {

constexpr TickClock kClock{};  // a tick is a nanosecond
constexpr std::uint64_t kBegin = 5 * kSecond;

/// 100 messages 10 us apart behind 20 that are not counted.
Sample sample() {
  return {.kind = Kind::kOpen, .run_ns = kMillisecond, .rate = 100'000};
}

/// Of a message each microsecond that is answered when the next one is due.
Json answered_after_a_microsecond(std::uint64_t run_ns) {
  const Sample what{.kind = Kind::kOpen, .run_ns = run_ns, .rate = 1'000'000};
  const auto loop = std::make_unique<OpenLoop>(what, kClock, kBegin);
  for (std::uint64_t now = kBegin; !loop->is_over(now); now += 1000) {
    if (loop->in_flight() > 0) loop->add_answered(1, now);
    loop->add_sent(loop->due(now));
  }
  return *loop->result();
}

}  // namespace

TEST_CASE("operations are due at fixed times, however late those before them are", "[apps][open-loop]") {
  Schedule schedule(kClock, 1e6 / 3);
  CHECK(schedule.is_fixed());
  schedule.begin(kBegin);
  CHECK(schedule.due_by(kBegin) == 1);
  CHECK(schedule.due_by(kBegin + 2999) == 1);
  CHECK(schedule.due_by(kBegin + 3001) == 2);
  CHECK(schedule.due(1'000'000) == kBegin + 3 * kSecond);
  CHECK(schedule.next_due() == kBegin);
  CHECK(schedule.next_due() == kBegin + 3000);
  schedule.begin(kBegin + 7);
  CHECK(schedule.next_due() == kBegin + 7);

  Schedule at_once(kClock, 0);
  CHECK_FALSE(at_once.is_fixed());
}

TEST_CASE("a load is too much when its backlog grows, or stays and costs 1 % of its rate",
          "[apps][open-loop]") {
  const auto is_too_much = [](double achieved, const std::vector<std::uint64_t>& backlog,
                              std::uint64_t messages, std::uint64_t missing = 0) {
    return is_saturated(
        {.offered = 1e6, .achieved = achieved, .messages = messages, .missing = missing, .backlog = backlog});
  };
  const std::vector<std::uint64_t> none = {3, 1, 4, 1, 5, 9, 2, 6};
  const std::vector<std::uint64_t> grows = {10, 20, 30, 40, 50, 60, 70, 80};
  const std::vector<std::uint64_t> pause = {10, 9000, 8000, 7000, 6000, 5000, 4000, 3000};
  const std::vector<std::uint64_t> stays = {0, 500, 400, 600, 500, 700, 600, 800};
  const std::vector<std::uint64_t> late_pause = {3, 1, 4, 1, 5, 9, 2, 4000};
  CHECK_FALSE(is_too_much(0.99e6, none, 100'000));
  CHECK_FALSE(is_too_much(0.995e6, grows, 100'000));  // by less than a thousandth
  CHECK(is_too_much(0.995e6, grows, 10'000));
  CHECK_FALSE(is_too_much(1e6, pause, 100'000));
  CHECK_FALSE(is_too_much(1e6, {}, 100'000));
  CHECK_FALSE(is_too_much(1e6, {40}, 100));  // stopped in a pause
  CHECK(is_too_much(0.9899e6, stays, 100'000));
  CHECK_FALSE(is_too_much(0.99e6, stays, 100'000));
  CHECK_FALSE(is_too_much(0.98e6, late_pause, 100'000));  // nothing is left of the time to catch up in
  CHECK(is_too_much(0.98e6, late_pause, 100'000, 1));
  CHECK_FALSE(is_too_much(0.98e6, {0, 0, 0, 0, 0, 1, 2, 2}, 50));
  CHECK(is_too_much(0.5e6, {3, 6, 9, 12, 15, 18, 21, 25}, 50));
}

TEST_CASE("a latency begins when its message is due", "[apps][open-loop]") {
  auto loop = std::make_unique<OpenLoop>(sample(), kClock, kBegin);
  CHECK(loop->due(kBegin) == 1);
  CHECK_FALSE(loop->is_over(kBegin));
  CHECK(loop->idle_ns(kBegin) == 0);
  loop->add_sent(1);
  CHECK(loop->due(kBegin) == 0);
  CHECK(loop->idle_ns(kBegin + 4000) == 6000);
  loop->add_answered(1, kBegin + 4000);

  // Nothing is done for a millisecond; then all that is left goes and comes at once.
  const std::uint64_t late = kBegin + 1'195'000;
  CHECK(loop->due(late) == 119);
  loop->add_sent(119);
  CHECK(loop->in_flight() == 119);
  CHECK_FALSE(loop->is_over(late));
  loop->add_answered(119, late);
  CHECK(loop->is_over(late));
  const Json result = *loop->result();
  CHECK(result.at("offered") == 100);
  CHECK(result.at("answered") == 100);
  CHECK(result.at("rate").get<double>() == Approx(100'000));
  CHECK(result.at("max").get<double>() == 995'000);  // of the first that counts, due at 200 us
  CHECK_FALSE(result.at("saturated").get<bool>());
}

TEST_CASE("what cannot be sent in time is not sent, and the load was too much", "[apps][open-loop]") {
  auto loop = std::make_unique<OpenLoop>(sample(), kClock, kBegin);
  std::uint64_t now = kBegin;
  for (; !loop->is_over(now); now += 20'000) {  // half of them
    if (loop->due(now) == 0) continue;
    loop->add_sent(1);
    loop->add_answered(1, now);
  }
  CHECK(now >= kBegin + 1'400'000);
  CHECK(loop->due(now) == 0);
  const Json result = *loop->result();
  CHECK(result.at("saturated").get<bool>());
  CHECK(result.at("offered") == 100);
  CHECK(result.at("answered") == loop->sent() - 20);
  CHECK(result.at("answered").get<int>() < 60);
  CHECK(result.at("rate").get<double>() == Approx(50'000).epsilon(0.05));
}

TEST_CASE("where only warm-ups are answered the rate is known", "[apps][open-loop]") {
  auto loop = std::make_unique<OpenLoop>(sample(), kClock, kBegin);
  for (std::uint64_t now = kBegin; !loop->is_over(now); now += 100'000) {  // a tenth
    if (loop->due(now) == 0) continue;
    loop->add_sent(1);
    loop->add_answered(1, now);
  }
  const Json result = *loop->result();
  CHECK(result.at("answered") == 0);
  CHECK(result.at("rate").get<double>() == Approx(10'000).epsilon(0.2));  // the first and the last of eleven
  CHECK(result.at("saturated").get<bool>());
  CHECK_FALSE(result.contains("p50"));
}

TEST_CASE("a percentile with fewer than a hundred messages above it is not told", "[apps][open-loop]") {
  const Json fewer = answered_after_a_microsecond(99 * kMillisecond);
  CHECK(fewer.contains("p99"));
  CHECK_FALSE(fewer.contains("p999"));
  const Json enough = answered_after_a_microsecond(100 * kMillisecond);
  CHECK(enough.at("p999").get<double>() == Approx(1000).epsilon(0.01));
  CHECK(enough.at("p50").get<double>() == Approx(1000).epsilon(0.01));
  CHECK(enough.at("answered") == 100'000);
}

TEST_CASE("a distribution that has no place is an error", "[apps][open-loop]") {
  Sample what = sample();
  what.hgrm_file = "/nonexistent/x.hgrm";
  OpenLoop loop(what, kClock, kBegin);
  CHECK_FALSE(loop.result());
}

TEST_CASE("most samples say whether a load is too much", "[apps][open-loop]") {
  Samples samples;
  CHECK_FALSE(samples.saturated());
  samples.all = {{.saturated = true}, {.saturated = false}};
  CHECK_FALSE(samples.saturated());
  samples.all.push_back({.saturated = true});
  CHECK(samples.saturated());
}

}  // namespace uroce::apps
