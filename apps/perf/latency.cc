// Latency tests.
#include <algorithm>

#include "apps/common/schedule.h"
#include "apps/perf/one_at_a_time.h"

namespace uroce::apps::perf {
namespace {

// Operations that are not counted: so many or for so long, whichever comes first, but one at least.
constexpr std::uint64_t kWarmUp = 500;
constexpr std::uint64_t kWarmUpNs = 200 * kMillisecond;
/// Results that there is room for before the time runs, if each is kept and nobody knows how many there will
/// be.
constexpr std::uint64_t kMany = 1U << 22U;

/// Why the client's test ended before its time.
Error interrupted(Session& session, const OneAtATime& test) {
  if (test.error()) return *test.error();
  const auto news = session.hear(kAnswerNs);
  return news ? Error{.code = Errc::kPeer, .text = "the peer ended the test"} : news.error();
}

/// That are over, whether they are timed or not.
std::uint64_t operations(const Latency& result) {
  return result.ticks->count() + result.repeated;
}

/// What an operation took, unless no answer came to it.
void count(Latency& result, const OneAtATime& test, std::uint64_t took, bool keeps_all) {
  if (test.was_repeated()) {
    ++result.repeated;
    return;
  }
  result.ticks->add(took);
  if (keeps_all) result.as_it_came.push_back(took);
}

/// For results that are kept. Of operations that are due at fixed times those would be late that come while
/// there is made more, or while the kernel finds a page: there is room for all, and it is touched.
void make_room(std::vector<std::uint64_t>& results, std::uint64_t most, bool is_fixed) {
  if (!is_fixed) return results.reserve(most == UINT64_MAX ? kMany : most);
  results.resize(most);
  results.clear();
}

/// What has been measured, if there is anything: the peer is told nothing more.
/// @param ns  that it took
Result<Latency> until_now(Session& session, const OneAtATime& test, Latency& result, double ns, Error why) {
  if (result.ticks->count() == 0) return why;
  result.rate = achieved_rate(session.local().rate, operations(result), ns);
  result.data_errors = test.data_errors();
  result.ended = std::move(why);
  return std::move(result);
}

/// The peer's part of the result.
/// @return what it has found wrong
Result<std::uint64_t> end_test(Session& session) {
  if (auto said = session.say({{"done", true}}); !said) return said.error();
  const auto answer = session.hear(kAnswerNs);
  if (!answer) return answer.error();
  return answer->at("errors").get<std::uint64_t>();
}

}  // namespace

Result<Latency> measure_latency(Session& session, std::uint32_t size, const OnSecond& on_second) {
  const TestSpec& spec = session.spec();
  OneAtATime test(session, size);
  Latency result{.clock = TickClock::calibrate()};
  const TickClock& clock = result.clock;
  const Extent extent(spec.seconds, spec.iterations, session.local().rate, clock.from_ns(kSecond));
  Schedule schedule(clock, session.local().rate);
  if (schedule.is_fixed()) result.backlog = Backlog(0, extent.most());
  const bool keeps_all = session.local().as_it_came;
  if (keeps_all) make_room(result.as_it_came, extent.most(), schedule.is_fixed());
  if (auto said = session.say({{"run", size}}); !said) return said.error();
  if (auto ready = session.hear(kAnswerNs); !ready) return ready.error();

  const std::uint64_t run = clock.from_ns(spec.seconds * kSecond);
  const std::uint64_t most = clock.from_ns(kWarmUpNs);
  const std::uint64_t warm = clock.ticks() + (run > 0 ? std::min(run / 10, most) : most);
  schedule.begin(clock.ticks());
  // What is due at fixed times would wait for each line.
  Seconds seconds(schedule.is_fixed() ? 0 : spec.seconds, clock.from_ns(kSecond));
  std::uint64_t start = 0;  // of what counts; 0: warming up
  for (std::uint64_t number = 0;; ++number) {
    if (spec.verify) test.fill(number);
    const std::uint64_t now = clock.ticks();
    if (is_stopped()) return until_now(session, test, result, clock.ns(now - start), stopped());
    if (start == 0 && (number >= kWarmUp || (number > 0 && now >= warm))) {
      schedule.begin(start = now);
      seconds.begin(now);
    }
    if (start > 0 && schedule.is_fixed()) result.backlog.look(schedule, now, operations(result));
    const std::uint64_t done = extent.is_timed() ? operations(result) : result.ticks->count();
    if (start > 0 && extent.is_over(now - start, done)) {
      result.rate = achieved_rate(session.local().rate, operations(result), clock.ns(now - start));
      result.missing = extent.missing(done);
      break;
    }
    const std::uint64_t begin = schedule.is_fixed() ? schedule.next_due() : now;
    const bool is_due = !schedule.is_fixed() || test.wait_until(clock, begin);
    if (!is_due || !test.turn(number)) {
      if (is_stopped()) continue;
      return until_now(session, test, result, clock.ns(now - start), interrupted(session, test));
    }
    if (start > 0) count(result, test, clock.ticks() - begin, keeps_all);
    if (spec.verify) test.check(number);
    if (seconds.is_over(now)) on_second(seconds.take(now, result.ticks->count()));
  }
  const auto errors = end_test(session);
  if (!errors) result.ended = errors.error();
  result.data_errors = test.data_errors() + (errors ? *errors : 0);
  return result;
}

Result<Served> serve_latency(Session& session, std::uint32_t size) {
  OneAtATime test(session, size);
  if (auto said = session.say({{"ready", true}}); !said) return said.error();
  if (session.spec().is_ping_pong()) {
    while (!is_stopped() && test.answer()) {
    }
  } else {
    test.wait_for_news();
  }
  if (test.error()) return *test.error();
  if (auto done = session.hear(kAnswerNs); !done) return done.error();
  if (auto said = session.say({{"errors", test.data_errors()}}); !said) return said.error();
  return Served{};
}

}  // namespace uroce::apps::perf
