#include "engine/loop_runner.h"

#include <sched.h>
#include <time.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <new>
#include <thread>

#include "engine/loop_fixture.h"

using namespace uroce;
using namespace uroce::test;

TEST_CASE("what a command throws comes back to its caller, and the loop goes on", "[engine][runner]") {
  const Mode mode = GENERATE(Mode::kApp, Mode::kAuto, Mode::kLcore);
  LoopFixture f;
  const engine::Clock clock;
  engine::LoopRunner runner(f.loop, clock, mode, std::nullopt);
  REQUIRE(runner.start());
  const auto fail = [](engine::PollLoop&, Ticks) { throw std::bad_alloc(); };
  CHECK_THROWS_AS(runner.execute(fail), std::bad_alloc);
  bool done = false;
  runner.execute([&done](engine::PollLoop&, Ticks) { done = true; });
  CHECK(done);
  runner.stop();
}

TEST_CASE("a command finds done what was posted before it", "[engine][runner]") {
  const Mode mode = GENERATE(Mode::kApp, Mode::kAuto, Mode::kLcore);
  LoopFixture f;
  const engine::Clock clock;
  engine::LoopRunner runner(f.loop, clock, mode, std::nullopt);
  auto qp = f.make_qp(0x10);
  REQUIRE(f.connect(*qp));
  introduce(f);
  REQUIRE(runner.start());
  std::atomic<bool> is_held{false};
  std::atomic<bool> may_go{false};
  std::thread holder([&] {
    runner.execute([&](engine::PollLoop&, Ticks) {
      is_held = true;
      is_held.notify_all();
      may_go.wait(false);
    });
  });
  is_held.wait(false);
  REQUIRE(qp->context().sq.put({.wr_id = 1}, 0));
  qp->context().sq.publish(1);
  runner.post(*qp);  // nobody can send it now
  CHECK(qp->in_flight() == 0);
  may_go = true;
  may_go.notify_all();
  std::uint32_t in_flight = 0;
  runner.execute([&](engine::PollLoop&, Ticks) { in_flight = qp->in_flight(); });
  CHECK(in_flight == 1);
  holder.join();
  runner.stop();
  f.loop.remove(*qp, f.now());
}

namespace {

/// Puts the calling thread on one core for as long as it lives.
class OnOneCore {
 public:
  OnOneCore() {
    sched_getaffinity(0, sizeof before_, &before_);
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(core_, &one);
    sched_setaffinity(0, sizeof one, &one);
  }
  ~OnOneCore() { sched_setaffinity(0, sizeof before_, &before_); }
  OnOneCore(const OnOneCore&) = delete;
  OnOneCore& operator=(const OnOneCore&) = delete;
  [[nodiscard]] unsigned core() const noexcept { return core_; }

 private:
  unsigned core_ = static_cast<unsigned>(sched_getcpu());
  cpu_set_t before_{};
};

double cpu_ms() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) * 1e3 + static_cast<double>(time.tv_nsec) * 1e-6;
}

}  // namespace

TEST_CASE("a loop that has its core together with the application leaves it when it has no work",
          "[engine][runner][core]") {
  // The time that the loop's own thread runs: whatever else runs on the machine has no part in it.
  const OnOneCore here;
  LoopFixture f;
  const engine::Clock clock;
  engine::LoopRunner runner(f.loop, clock, Mode::kLcore, here.core());
  REQUIRE(runner.start());
  double at = 0;
  const auto look = [&at](engine::PollLoop&, Ticks) { at = cpu_ms(); };
  for (int i = 0; i < 50; ++i) runner.execute(look);  // until it has noticed
  const double begin = at;
  for (int i = 0; i < 500; ++i) runner.execute(look);
  CHECK(at - begin < 100);  // time slices of milliseconds otherwise, one a command
  runner.stop();
}

TEST_CASE("a loop's own thread lends it to the application that has its core", "[engine][runner][core]") {
  const OnOneCore here;
  LoopFixture f;
  const engine::Clock clock;
  engine::LoopRunner runner(f.loop, clock, Mode::kLcore, here.core());
  CHECK_FALSE(runner.run_from_application());
  REQUIRE(runner.start());
  for (int i = 0; i < 200; ++i) runner.execute([](engine::PollLoop&, Ticks) {});  // until it has noticed
  int mine = 0;
  for (int i = 0; i < 1000; ++i) {
    if (runner.run_from_application()) ++mine;
    if (i % 100 == 0) sched_yield();
  }
  CHECK(mine > 500);
  runner.stop();
}
