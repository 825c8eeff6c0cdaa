#include "base/timer_wheel.h"

#include <catch2/catch.hpp>
#include <vector>

#include "base/random.h"

using namespace uroce;

namespace {

struct Timer : TimerNode {
  explicit Timer(int n) : number(n) {}
  int number;
};

/// Numbers of the timers that fire, in order.
std::vector<int> fired(TimerWheel& wheel, std::uint64_t now_ns) {
  std::vector<int> numbers;
  wheel.expire(Ticks{now_ns}, [&](TimerNode& node) { numbers.push_back(static_cast<Timer&>(node).number); });
  return numbers;
}

constexpr std::uint64_t kSlot = TimerWheel::kSlotNs;
constexpr std::uint64_t kTurn = TimerWheel::kSlotNs * TimerWheel::kSlots;

}  // namespace

TEST_CASE("a timer fires once, not before its time and at most one slot after it", "[base][timer]") {
  const std::uint64_t due = GENERATE(1ULL, 4095ULL, 4096ULL, 4097ULL, 1'000'000ULL, kTurn - 1, kTurn,
                                     kTurn + 1, 3 * kTurn + 5, 8'796'000'000'000ULL);
  TimerWheel wheel;
  Timer timer(1);
  wheel.arm(timer, Ticks{due});
  CHECK(wheel.armed() == 1);
  CHECK(fired(wheel, due - 1).empty());
  CHECK(fired(wheel, due + kSlot) == std::vector{1});
  CHECK(wheel.armed() == 0);
  CHECK(fired(wheel, due + 10 * kTurn).empty());
}

TEST_CASE("a timer that is armed again fires at its new time only", "[base][timer]") {
  const std::uint64_t later = GENERATE(5000ULL, 50'000ULL, 5 * kTurn);
  TimerWheel wheel;
  Timer timer(1);
  wheel.arm(timer, Ticks{later});
  wheel.arm(timer, Ticks{2 * later});
  CHECK(wheel.armed() == 1);
  CHECK(fired(wheel, later + kSlot).empty());
  CHECK(fired(wheel, 2 * later + kSlot) == std::vector{1});
}

TEST_CASE("a cancelled timer does not fire, and cancelling twice is nothing", "[base][timer]") {
  TimerWheel wheel;
  Timer one(1), two(2);
  wheel.arm(one, Ticks{10'000});
  wheel.arm(two, Ticks{10'000});
  wheel.cancel(one);
  wheel.cancel(one);
  CHECK(fired(wheel, kTurn) == std::vector{2});
  CHECK(wheel.armed() == 0);
}

TEST_CASE("a timer armed for the past fires at the next slot", "[base][timer]") {
  TimerWheel wheel;
  Timer timer(1);
  CHECK(fired(wheel, 100 * kSlot).empty());
  wheel.arm(timer, Ticks{5});
  CHECK(fired(wheel, 100 * kSlot + 1).empty());
  CHECK(fired(wheel, 101 * kSlot) == std::vector{1});
}

TEST_CASE("a timer may be armed again from inside, also for now", "[base][timer]") {
  TimerWheel wheel;
  Timer timer(1);
  wheel.arm(timer, Ticks{1000});
  int count = 0;
  for (std::uint64_t now = kSlot; now < 100 * kSlot; now += kSlot) {
    wheel.expire(Ticks{now}, [&](TimerNode& node) {
      ++count;
      wheel.arm(node, Ticks{now});
    });
  }
  CHECK(count == 99);
}

TEST_CASE("timers that are always armed for now, or before, fire once a look, however late it is",
          "[base][timer]") {
  const std::uint64_t slots = GENERATE(1ULL, 2ULL, TimerWheel::kSlots - 1, std::uint64_t{TimerWheel::kSlots},
                                       TimerWheel::kSlots + 1, 3 * TimerWheel::kSlots + 7);
  const std::uint64_t before = GENERATE(0ULL, 1ULL, 5 * kSlot);
  TimerWheel wheel;
  Timer one(1), two(2), three(3);
  std::uint64_t now = 10 * kSlot;
  CHECK(fired(wheel, now).empty());
  for (Timer* timer : {&one, &two, &three}) wheel.arm(*timer, Ticks{now + 5});
  for (int look = 0; look < 3; ++look) {
    now += slots * kSlot;
    std::vector<int> counts(4);
    wheel.expire(Ticks{now}, [&](TimerNode& node) {
      const int number = static_cast<Timer&>(node).number;
      REQUIRE(++counts[static_cast<std::size_t>(number)] == 1);
      wheel.arm(node, Ticks{now - before});
    });
    CHECK(counts == std::vector{0, 1, 1, 1});
  }
}

TEST_CASE("many timers fire as a sorted list would tell", "[base][timer]") {
  const std::uint64_t seed = GENERATE(range(1U, 21U));
  Random random(seed);
  TimerWheel wheel;
  std::vector<Timer> timers;
  for (int i = 0; i < 200; ++i) timers.emplace_back(i);
  std::vector<std::uint64_t> due(timers.size(), 0);
  std::uint64_t now = 1'000'000'000;
  for (int step = 0; step < 5000; ++step) {
    const std::size_t i = random.below(timers.size());
    switch (random.below(3)) {
      case 0:
        due[i] = now + random.below(random.below(2) == 0 ? 100'000 : 4 * kTurn) + 1;
        wheel.arm(timers[i], Ticks{due[i]});
        break;
      case 1:
        due[i] = 0;
        wheel.cancel(timers[i]);
        break;
      default: {
        const std::uint64_t before = now;
        now += random.below(random.below(20) == 0 ? 2 * kTurn : 50'000);
        for (const int number : fired(wheel, now)) {
          auto& time = due[static_cast<std::size_t>(number)];
          REQUIRE(time != 0);
          REQUIRE(time <= now);
          REQUIRE(time + kSlot > before / kSlot * kSlot);  // not left over from an earlier look
          time = 0;
        }
        for (const std::uint64_t time : due) REQUIRE((time == 0 || time + kSlot > now));
      }
    }
  }
}
