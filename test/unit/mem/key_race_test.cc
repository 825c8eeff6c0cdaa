// Keys that are entered, invalidated and removed while a loop looks them up.
#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <thread>
#include <vector>

#include "mem/key_table.h"

using namespace uroce;
using namespace uroce::mem;

namespace {

constexpr std::uint32_t kOwnPd = 4;
constexpr int kRaces = 1000;
/// For those: where both threads have but one core, each costs time slices.
constexpr std::chrono::seconds kTime{8};
constexpr std::chrono::seconds kPatience{20};

using Clock = std::chrono::steady_clock;

/// A thread that runs iterations, as a loop does, and a table that waits for them.
class Loop {
 public:
  KeyTable keys{1, [this] { quiesce(); }};

  template <typename F>
  explicit Loop(F iteration)
      : thread_([this, iteration]() mutable {
          while (!stop_.load(std::memory_order_relaxed)) {
            rounds_.fetch_add(1);
            iteration(keys);
          }
        }) {}
  ~Loop() { end(); }

  void end() {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
  }
  /// Until an iteration has begun that saw nothing of what was before.
  void quiesce() {
    const std::uint64_t seen = rounds_.load();
    while (!stop_ && rounds_.load() < seen + 2) std::this_thread::yield();
  }

 private:
  std::atomic<std::uint64_t> rounds_{0};
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

bool resolves(const KeyTable& keys, std::uint32_t key, std::uint32_t pd = kOwnPd) {
  KeyFault fault{};
  return keys.resolve(key, pd, access::kRemoteWrite, 4096, 8, fault) != nullptr;
}

Region region(std::uint32_t pd = kOwnPd) {
  return {.addr = 4096, .length = 64, .pd = pd, .access = access::kAll | access::kInvalidatable};
}

}  // namespace

TEST_CASE("a key never resolves for another protection domain, however often keys come and go",
          "[mem][key][threads][S7]") {
  std::atomic<std::uint32_t> shown{0};
  std::atomic<std::uint64_t> wrong{0};
  std::atomic<std::uint64_t> right{0};
  Loop loop([&](KeyTable& keys) {
    const std::uint32_t key = shown.load();
    if (key == 0) return;
    for (const std::uint32_t other : {0U, kOwnPd - 1, kOwnPd + 1, ~kOwnPd})
      wrong += resolves(keys, key, other) ? 1 : 0;
    wrong += keys.invalidate(key, {.pd = kOwnPd + 1}) ? 1 : 0;
    right += resolves(keys, key) ? 1 : 0;
  });
  const auto end = Clock::now() + kTime;
  for (int race = 0; race < kRaces && Clock::now() < end; ++race) {
    const std::uint32_t key = loop.keys.insert(region()).value();
    shown = key;
    const std::uint32_t foreign = loop.keys.insert(region(kOwnPd + 1)).value();  // may make the table grow
    if (race % 2 == 0) loop.quiesce();
    loop.keys.remove(key);
    if (race % 3 == 0) loop.keys.remove(foreign);
  }
  loop.end();
  CHECK(wrong == 0);
  CHECK(right > 0);
}

TEST_CASE("a removed key never resolves again once remove() has returned", "[mem][key][threads][S7]") {
  std::atomic<std::uint32_t> live{0};
  std::atomic<std::uint32_t> removed{0};
  std::atomic<std::uint64_t> zombies{0};
  std::atomic<std::uint64_t> found{0};
  Loop loop([&](KeyTable& keys) {
    const std::uint32_t gone = removed.load();  // its remove() had returned before
    zombies += gone != 0 && resolves(keys, gone) ? 1 : 0;
    found += resolves(keys, live.load()) ? 1 : 0;
  });
  const auto end = Clock::now() + kTime;
  for (int race = 0; race < kRaces && Clock::now() < end; ++race) {
    const std::uint32_t key = loop.keys.insert(region()).value();
    live = key;
    if (race % 2 == 0) loop.quiesce();  // it has been found, or may be at this moment
    loop.keys.remove(key);
    removed = key;
    if (race % 4 == 0) REQUIRE(loop.keys.insert(region()).has_value());  // stays: the table grows
  }
  loop.quiesce();
  loop.end();
  CHECK(zombies == 0);
  CHECK(found > 0);
}

TEST_CASE("a key that the loop has invalidated never resolves again while others come and go",
          "[mem][key][threads][S7]") {
  std::atomic<std::uint32_t> offered{0};
  std::atomic<std::uint32_t> taken{0};
  std::atomic<std::uint64_t> zombies{0};
  std::atomic<std::uint64_t> refused{0};
  Loop loop([&, last = std::uint32_t{0}](KeyTable& keys) mutable {
    const std::uint32_t key = offered.load();
    if (key != last) {
      refused += keys.invalidate(key, {.pd = kOwnPd}) ? 0 : 1;
      last = key;
      taken = key;
    }
    zombies += last != 0 && resolves(keys, last) ? 1 : 0;
  });
  const auto end = Clock::now() + kTime;
  for (int race = 0; race < kRaces && Clock::now() < end; ++race) {
    const std::uint32_t key = loop.keys.insert(region()).value();
    offered = key;
    const auto give_up = Clock::now() + kPatience;
    while (taken.load() != key) {
      if (Clock::now() > give_up) FAIL("the loop does not take key " << key);
      std::this_thread::yield();
    }
    if (race % 2 == 0) loop.keys.remove(key);
  }
  loop.end();
  CHECK(zombies == 0);
  CHECK(refused == 0);
}

TEST_CASE("a key that is invalidated while the table grows stays invalid", "[mem][key][threads][S7]") {
  constexpr std::size_t kKeys = 30'000;
  std::vector<std::uint32_t> victims;
  std::atomic<bool> start{false};
  std::atomic<std::uint64_t> zombies{0};
  std::atomic<std::size_t> done{0};
  Loop loop([&, next = std::size_t{0}](KeyTable& keys) mutable {
    if (!start.load()) return;
    const std::size_t end = std::min(next + 16, kKeys);
    for (; next < end; ++next) static_cast<void>(keys.invalidate(victims[next], {.pd = kOwnPd}));
    done = next;
    for (std::size_t i = next > 2000 ? next - 2000 : 0; i < next; ++i)
      zombies += resolves(keys, victims[i]) ? 1 : 0;
  });
  for (std::size_t i = 0; i < kKeys; ++i) victims.push_back(loop.keys.insert(region()).value());
  start = true;
  while (done < kKeys) REQUIRE(loop.keys.insert(region()).has_value());
  loop.end();
  CHECK(zombies == 0);
}
