// Polling where another thread has but the same core.
#include <sched.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <cstdint>
#include <thread>

#include "test/abi/verbs_side.h"

namespace uroce::test {
namespace {

/// This thread and those that it makes may run on one of its cores only.
class OneCore {
 public:
  OneCore() {
    REQUIRE(sched_getaffinity(0, sizeof before_, &before_) == 0);
    std::size_t core = 0;
    while (!CPU_ISSET(core, &before_)) ++core;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(core, &one);
    REQUIRE(sched_setaffinity(0, sizeof one, &one) == 0);
  }
  ~OneCore() { CHECK(sched_setaffinity(0, sizeof before_, &before_) == 0); }
  OneCore(const OneCore&) = delete;
  OneCore& operator=(const OneCore&) = delete;

 private:
  cpu_set_t before_;
};

/// Takes turns with a thread that leaves the core whenever it is not its turn.
/// @return how many polls that took
template <typename Poll>
std::uint64_t polls_of_turns(std::uint32_t turns, Poll&& poll) {
  std::atomic<std::uint32_t> turn{0};
  std::thread other([&] {
    for (std::uint32_t mine = 1; mine < 2 * turns; mine += 2) {
      while (turn.load() != mine) sched_yield();
      turn.store(mine + 1);
    }
  });
  std::uint64_t polls = 0;
  for (std::uint32_t mine = 0; mine < 2 * turns; mine += 2) {
    turn.store(mine + 1);
    for (; turn.load() != mine + 2; ++polls) poll();
  }
  other.join();
  return polls;
}

}  // namespace

TEST_CASE("whoever polls in vain on one core leaves it to others long before its time slice is over",
          "[abi][poll]") {
  const OneCore here;
  VerbsSide side;
  ibv_cq_init_attr_ex attr{};
  attr.cqe = 8;
  ibv_cq_ex* extended = ibv_create_cq_ex(side.context, &attr);
  REQUIRE(extended != nullptr);
  constexpr std::uint32_t kTurns = 200;
  constexpr std::uint64_t kMost = kTurns * std::uint64_t{2000};  // a time slice has fifty thousand
  ibv_wc wc{};
  bool is_empty = true;
  // In one of a few attempts: while the other thread stands still, nobody else wants the core.
  const auto leaves_it = [](auto&& poll) {
    int attempts = 5;
    while (attempts > 0 && polls_of_turns(kTurns, poll) >= kMost) --attempts;
    return attempts > 0;
  };
  CHECK(leaves_it([&] { is_empty &= ibv_poll_cq(side.cq, 1, &wc) == 0; }));
  ibv_poll_cq_attr none{};
  CHECK(leaves_it([&] { is_empty &= ibv_start_poll(extended, &none) == ENOENT; }));
  CHECK(is_empty);
  CHECK(ibv_destroy_cq(ibv_cq_ex_to_cq(extended)) == 0);
}

TEST_CASE("a poll that left the core to others finds what they have brought about meanwhile", "[abi][poll]") {
  const OneCore here;
  VerbsSide a;
  VerbsSide b;
  join(a, b);
  constexpr std::uint32_t kTurns = 200;
  std::atomic<std::uint32_t> wanted{0};
  std::atomic<std::uint32_t> delivered{0};
  std::thread other([&] {
    for (std::uint32_t i = 1; i <= kTurns; ++i) {
      while (wanted.load() != i) sched_yield();
      a.post(i, a.sge(0, 8));
      CHECK(a.take().status == IBV_WC_SUCCESS);
      delivered.store(i);
    }
  });
  std::uint32_t missed = 0;
  for (std::uint32_t i = 1; i <= kTurns; ++i) {
    b.post_receive(i, b.sge(0, 8));
    wanted.store(i);
    ibv_wc wc{};
    while (ibv_poll_cq(b.cq, 1, &wc) == 0) missed += delivered.load() == i ? 1 : 0;
    while (delivered.load() != i) sched_yield();  // assertions are one thread's at a time
  }
  other.join();
  CHECK(missed < kTurns / 4);  // the thread may lose the core behind its last look, too
}

}  // namespace uroce::test
