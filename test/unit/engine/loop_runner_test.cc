#include "engine/loop_runner.h"

#include <catch2/catch.hpp>
#include <new>

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
