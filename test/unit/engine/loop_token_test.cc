#include "engine/loop_token.h"

#include <linux/filter.h>
#include <linux/membarrier.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <catch2/catch.hpp>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <thread>
#include <vector>

#include "support/full_at.h"
#include "support/skip.h"

using uroce::engine::LoopToken;
using uroce::test::end_of;

namespace {

/// Turns of threads that fight are as many as are wanted, or as there is time for: where all threads have one
/// core, beside others, each that gives way costs time slices.
class Until {
 public:
  [[nodiscard]] bool is_over() const { return std::chrono::steady_clock::now() >= end_; }

 private:
  const std::chrono::steady_clock::time_point end_ =
      std::chrono::steady_clock::now() + std::chrono::seconds(5);
};

/// Threads whose favours are short. @return whether no two of them have held the token together
bool fights_well() {
  constexpr int kTurns = 1'000'000;
  const Until until;
  LoopToken token({.first = 1, .longest = 1});
  std::atomic<int> inside{0};
  std::atomic<int> together{0};
  std::atomic<int> turns{0};
  const auto goes_on = [&] {
    return turns.load(std::memory_order_relaxed) < kTurns && together.load() == 0 && !until.is_over();
  };
  const auto work = [&](unsigned streak) {
    while (goes_on()) {
      for (unsigned i = 0; i < streak; ++i) {
        if (!token.try_take()) {
          if (i % 8 == 7) std::this_thread::yield();
          continue;
        }
        if (inside.fetch_add(1) != 0) together.fetch_add(1);
        turns.fetch_add(1, std::memory_order_relaxed);
        if (i % 16 == 15) std::this_thread::yield();  // holds it while others have the core
        inside.fetch_sub(1);
        token.release();
      }
    }
  };
  std::vector<std::thread> threads;
  for (const unsigned streak : {3U, 5U, 9U, 100U, 1000U}) threads.emplace_back(work, streak);
  for (auto& thread : threads) thread.join();
  return together == 0;
}

/// As a program does that shuts itself in with what it needs. For good.
bool refuse_membarrier() {
  constexpr auto kNumber = static_cast<std::uint32_t>(offsetof(seccomp_data, nr));
  std::array<sock_filter, 4> filter{
      {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, kNumber), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_membarrier, 0, 1),
       BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)}};
  const sock_fprog program{.len = filter.size(), .filter = filter.data()};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0 &&
         syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0) != 0;
}

}  // namespace

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

TEST_CASE("the thread that holds the token is told from all others, favourite or not", "[engine][token]") {
  LoopToken token;
  const auto is_held_elsewhere = [&token] {
    bool held = false;
    std::thread([&] { held = token.is_held_here(); }).join();
    return held;
  };
  CHECK_FALSE(token.is_held_here());
  for (int round = 0; round < 100; ++round) {
    REQUIRE(token.try_take());
    CHECK(token.is_held_here());
    CHECK_FALSE(is_held_elsewhere());
    token.release();
    CHECK_FALSE(token.is_held_here());
  }
  std::thread([&] {
    REQUIRE(token.try_take());
    CHECK(token.is_held_here());
    token.release();
    CHECK_FALSE(token.is_held_here());
  }).join();
  CHECK_FALSE(token.is_held_here());
}

TEST_CASE("threads that fight for the token never hold it together", "[engine][token][race]") {
  constexpr int kTurns = 20'000;
  LoopToken token;
  const Until until;
  std::uint64_t guarded = 0;  // not atomic on purpose: a second holder would lose counts
  std::atomic<std::uint64_t> turns{0};
  const auto work = [&](unsigned pause) {
    int turn = 0;
    while (turn < kTurns && !until.is_over()) {
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
    turns.fetch_add(static_cast<std::uint64_t>(turn));
  };
  std::vector<std::thread> threads;
  for (const unsigned pause : {0U, 1U, 100U}) threads.emplace_back(work, pause);
  for (auto& thread : threads) thread.join();
  CHECK(guarded == turns.load());
  CHECK((guarded == 3 * kTurns || until.is_over()));
}

// A thread that is interrupted between two steps of a take goes on when others have been the favourite since.
TEST_CASE("favourites that change quickly never hold the token together", "[engine][token][race]") {
  CHECK(fights_well());
}

TEST_CASE("a process that may no longer order its threads' stores goes on in good order",
          "[engine][token][race]") {
  if (end_of(refuse_membarrier) != "good") return uroce::test::skip("membarrier(2) cannot be refused here");
  CHECK(end_of([] { return refuse_membarrier() && fights_well(); }) == "good");
}
