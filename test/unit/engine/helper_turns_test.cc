#include "engine/helper_turns.h"

#include <catch2/catch.hpp>

using namespace uroce;
using engine::HelperTurns;

namespace {

constexpr std::uint64_t kUs = 1000;

/// A helper and an application that both live in this clock.
struct World {
  HelperTurns turns{true};
  Ticks now{1'000'000'000};
  HelperTurns::Applications seen;

  void pass(std::uint64_t ns) { now = now + ns; }
  void poll() { seen.last_poll = now; }
  void post(std::uint32_t times) { seen.posts += times; }
  std::uint64_t away() { return turns.away(now, seen); }
  /// Turns until the helper is away. @return how many, at most that
  unsigned turns_until_away(const HelperTurns::Turn& turn, unsigned most) {
    for (unsigned done = 0; done < most; ++done) {
      if (away() != 0) return done;
      pass(5 * kUs);
      poll();
      turns.end(turn, seen.last_poll);
    }
    return most;
  }
};

}  // namespace

TEST_CASE("a helper that comes too late for every frame leaves the loop to those who poll",
          "[engine][helper]") {
  World w;
  CHECK(w.turns_until_away({}, 1000) == 8);
  for (const std::uint64_t us : {50U, 100U, 200U, 400U, 800U, 1000U, 1000U}) {  // and they go on polling
    w.pass(us / 2 * kUs);
    w.poll();
    w.pass(us / 2 * kUs + 60 * kUs);  // it wakes up late, which takes the core of those who poll
    CHECK(w.away() == std::min<std::uint64_t>(2 * us, 1000) * kUs);
  }
  w.pass(499 * kUs);
  w.poll();  // not any more
  w.pass(501 * kUs);
  CHECK(w.away() == 0);
}

TEST_CASE("a helper that is woken while it is away goes on being away", "[engine][helper]") {
  World w;
  CHECK(w.turns_until_away({}, 1000) == 8);
  w.pass(10 * kUs);
  CHECK(w.away() == 40 * kUs);
  w.pass(40 * kUs - 1);
  CHECK(w.away() == 1);
  w.pass(1);
  CHECK(w.away() == 0);
}

TEST_CASE("a helper that always finds others at the loop leaves it to them", "[engine][helper]") {
  World w;
  CHECK(w.turns_until_away({.is_shared = true}, 1000) == 8);
}

TEST_CASE("a helper that finds the frames is away on trial, too, and stays if nobody has polled",
          "[engine][helper]") {
  World w;
  unsigned stayed = 8;
  for (int trial = 0; trial < 12; ++trial) {
    CHECK(w.turns_until_away({.found = true}, 10'000) == stayed);
    w.pass(50 * kUs);  // the application spins on memory
    CHECK(w.away() == 0);
    stayed = std::min(2 * stayed, 4096U);
  }
  // It polls all the time from now on: the helper is no longer needed.
  CHECK(w.turns_until_away({.found = true}, 10'000) == 4096);
  for (int look = 0; look < 3; ++look) {
    w.pass(200 * kUs);
    w.poll();
    CHECK(w.away() != 0);
  }
  w.pass(400 * kUs);
  CHECK(w.away() == 0);
  CHECK(w.turns_until_away({.found = true}, 10'000) == 8);
}

TEST_CASE("a helper that is away while many are posted at once does not take that for the end of polling",
          "[engine][helper]") {
  // As ib_send_bw: 100 messages are posted in 40 us, then polled for.
  World w;
  CHECK(w.turns_until_away({.found = true}, 1000) == 8);
  w.pass(50 * kUs);
  w.post(30);
  CHECK(w.away() == 50 * kUs);  // no poll: undecided
  w.pass(40 * kUs);
  w.poll();
  w.pass(10 * kUs);
  CHECK(w.away() == 100 * kUs);
  w.pass(100 * kUs);
  for (int period = 0; period < 16; ++period) {  // long messages, each of which takes its time
    w.post(6);
    CHECK(w.away() == 50 * kUs);
    w.pass(50 * kUs);
  }
  w.poll();
  CHECK(w.away() == 100 * kUs);
}

TEST_CASE("a helper is not kept away by those who post, poll once and do something else",
          "[engine][helper]") {
  World w;
  CHECK(w.turns_until_away({}, 1000) == 8);
  for (int trial = 0; trial < 6; ++trial) {  // it polls all the time at first
    w.pass(1000 * kUs);
    w.poll();
    CHECK(w.away() != 0);
  }
  w.pass(1000 * kUs);
  w.post(4);
  CHECK(w.away() == 50 * kUs);
  w.pass(50 * kUs);
  CHECK(w.away() == 0);
}

TEST_CASE("a helper looks after the loop of those who post on and hardly ever poll", "[engine][helper]") {
  // A publisher that asks for few completions: acknowledgements, READs of peers and timers are the helper's.
  World w;
  for (int trial = 0; trial < 4; ++trial) {
    CHECK(w.turns_until_away({.found = true}, 10'000) == 8U << static_cast<unsigned>(trial));
    for (int period = 0; period < 20; ++period) {  // there was a poll just before
      w.pass(50 * kUs);
      w.post(10);
      CHECK(w.away() == 50 * kUs);
    }
    w.pass(50 * kUs);
    w.post(10);
    CHECK(w.away() == 0);
  }
}

TEST_CASE("a helper stays for those who spin on memory after a few posts", "[engine][helper]") {
  World w;
  unsigned stayed = 8;
  for (int trial = 0; trial < 4; ++trial) {
    CHECK(w.turns_until_away({.found = true}, 10'000) == stayed);
    w.pass(50 * kUs);
    w.post(1);
    CHECK(w.away() == 0);
    stayed *= 2;
  }
  for (int trial = 0; trial < 4; ++trial) {  // or many, at first
    CHECK(w.turns_until_away({.found = true}, 10'000) == stayed);
    w.pass(50 * kUs);
    w.post(16);
    CHECK(w.away() == 50 * kUs);
    w.pass(50 * kUs);
    CHECK(w.away() == 0);
    stayed *= 2;
  }
}

TEST_CASE("a helper stays where nobody polls, and for those who sleep until there is an event",
          "[engine][helper]") {
  World idle;
  for (int turn = 0; turn < 10'000; ++turn) {
    REQUIRE(idle.away() == 0);
    idle.pass(kUs);
    idle.turns.end({.found = turn % 2 == 0}, idle.seen.last_poll);
  }
  World events;
  for (int round = 0; round < 1000; ++round) {
    events.turns.expect_sleeper();
    REQUIRE(events.turns_until_away({}, 5) == 5);
  }
  // Also from where it is away.
  World away;
  CHECK(away.turns_until_away({}, 1000) == 8);
  away.pass(50 * kUs);
  away.poll();
  CHECK(away.away() != 0);
  away.turns.expect_sleeper();
  CHECK(away.away() == 0);
}

TEST_CASE("a helper is away while an application sleeps in its place", "[engine][helper]") {
  World w;
  w.seen.watch = true;
  for (const std::uint64_t us : {50U, 100U, 200U, 400U, 800U, 1000U, 1000U}) {
    CHECK(w.away() == us * kUs);
    w.pass(us * kUs);
  }
  w.seen.watch = false;  // it does something else now
  CHECK(w.away() == 0);
  w.seen.watch = true;
  CHECK(w.away() == 50 * kUs);
}

TEST_CASE("a helper spins for as long as that has brought frames", "[engine][helper]") {
  HelperTurns turns(true);
  CHECK(turns.patience() == 20 * kUs);
  unsigned longest = 0;
  for (int turn = 1; turn < 320; ++turn) {
    turns.end({.found = true}, {});
    if (turns.patience() == 20 * kUs) ++longest;
    if (turn > 20 && turn % 32 != 0) CHECK(turns.patience() == 0);
  }
  CHECK(longest <= 4 + 9);  // until it had learnt, and a try in 32 turns
  turns.end({.found = true, .gap_ns = 3 * kUs}, {});
  turns.end({.found = true, .gap_ns = 3 * kUs}, {});  // that was the try
  CHECK(turns.patience() == 6 * kUs);
  for (int turn = 0; turn < 3; ++turn) turns.end({.found = true}, {});
  CHECK(turns.patience() == 6 * kUs);
  turns.end({.found = true, .gap_ns = 100 * kUs}, {});
  CHECK(turns.patience() == 20 * kUs);
  // Where frames do not wake it, it would sleep over them.
  HelperTurns sleepless(false);
  for (int turn = 0; turn < 100; ++turn) {
    sleepless.end({}, {});
    CHECK(sleepless.patience() == 20 * kUs);
  }
}
