#include "engine/loop_token.h"

#include <catch2/catch.hpp>
#include <thread>
#include <vector>

using uroce::engine::LoopToken;

TEST_CASE("the token has one holder at a time, favourite or not", "[engine][token]") {
  LoopToken token;
  const auto try_elsewhere = [&token] {
    bool taken = false;
    std::thread([&] {
      taken = token.try_take();
      if (taken) token.release();
    }).join();
    return taken;
  };
  for (int round = 0; round < 100; ++round) {  // long enough to become the favourite on the way
    REQUIRE(token.try_take());
    CHECK_FALSE(try_elsewhere());
    token.release();
  }
  CHECK(try_elsewhere());
  REQUIRE(token.try_take());
  CHECK_FALSE(try_elsewhere());
  token.release();
}

TEST_CASE("threads that fight for the token never hold it together", "[engine][token][race]") {
  constexpr int kTurns = 20'000;
  LoopToken token;
  std::uint64_t guarded = 0;  // not atomic on purpose: a second holder would lose counts
  const auto work = [&](unsigned pause) {
    for (int turn = 0; turn < kTurns;) {
      if (!token.try_take()) {
        std::this_thread::yield();
        continue;
      }
      ++guarded;
      token.release();
      ++turn;
      // The rare visitor lets the other one become the favourite again.
      if (pause != 0 && static_cast<unsigned>(turn) % pause == 0) std::this_thread::yield();
    }
  };
  std::vector<std::thread> threads;
  for (const unsigned pause : {0U, 1U, 100U}) threads.emplace_back(work, pause);
  for (auto& thread : threads) thread.join();
  CHECK(guarded == 3 * kTurns);
}
