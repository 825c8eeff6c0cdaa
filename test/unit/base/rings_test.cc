#include <catch2/catch.hpp>
#include <set>
#include <thread>
#include <vector>

#include "base/mpsc_list.h"
#include "base/random.h"
#include "base/spsc_ring.h"

using namespace uroce;

TEST_CASE("a single-producer ring holds as many as it says and gives them back in order", "[base][ring]") {
  const std::uint32_t capacity = GENERATE(1U, 2U, 3U, 8U, 100U);
  SpscRing<int> ring(capacity);
  std::uint32_t granted = 0;
  CHECK(ring.front() == nullptr);
  for (int round = 0; round < 3; ++round) {
    granted = 0;
    while (int* slot = ring.claim()) {
      *slot = static_cast<int>(granted++);
      ring.publish();
    }
    CHECK(granted >= capacity);
    CHECK(granted < 2 * std::max(capacity, 1U));
    for (std::uint32_t i = 0; i < granted; ++i) {
      REQUIRE(ring.front() != nullptr);
      CHECK(*ring.front() == static_cast<int>(i));
      ring.pop();
    }
    CHECK(ring.front() == nullptr);
  }
}

TEST_CASE("a claimed slot is not seen before it is published", "[base][ring]") {
  SpscRing<int> ring(4);
  *ring.claim() = 7;
  CHECK(ring.front() == nullptr);
  ring.publish();
  REQUIRE(ring.front() != nullptr);
  CHECK(*ring.front() == 7);
}

TEST_CASE("a single-producer ring carries every item once between two threads", "[base][ring][threads]") {
  constexpr std::uint64_t kItems = 200'000;
  SpscRing<std::uint64_t> ring(64);
  std::thread producer([&ring] {
    for (std::uint64_t i = 0; i < kItems;) {
      if (std::uint64_t* slot = ring.claim()) {
        *slot = i++ * 3;
        ring.publish();
      } else {
        std::this_thread::yield();
      }
    }
  });
  bool in_order = true;
  for (std::uint64_t i = 0; i < kItems;) {
    if (const std::uint64_t* item = ring.front()) {
      in_order = in_order && *item == 3 * i++;
      ring.pop();
    } else {
      std::this_thread::yield();
    }
  }
  producer.join();
  CHECK(in_order);
  CHECK(ring.front() == nullptr);
}

namespace {

struct Item : MpscNode {
  int producer = 0;
  int number = 0;
};

}  // namespace

TEST_CASE("a many-producer list gives nodes back in the order in which they came", "[base][list]") {
  MpscList list;
  CHECK(list.pop() == nullptr);
  CHECK(list.looks_empty());
  Item items[5];
  for (int round = 0; round < 3; ++round) {
    for (Item& item : items) list.push(&item);
    CHECK_FALSE(list.looks_empty());
    for (Item& item : items) CHECK(list.pop() == &item);
    CHECK(list.pop() == nullptr);
    CHECK(list.looks_empty());
  }
  list.push(&items[0]);
  CHECK(list.pop() == &items[0]);
  list.push(&items[0]);  // at once again
  list.push(&items[1]);
  CHECK(list.pop() == &items[0]);
  CHECK(list.pop() == &items[1]);
}

TEST_CASE("a many-producer list loses nothing between threads", "[base][list][threads]") {
  constexpr int kProducers = 3;
  constexpr int kItems = 30'000;
  MpscList list;
  std::vector<std::vector<Item>> items(kProducers);
  for (auto& own : items) own = std::vector<Item>(kItems);
  std::vector<std::thread> producers;
  for (int p = 0; p < kProducers; ++p) {
    producers.emplace_back([&, p] {
      for (int i = 0; i < kItems; ++i) {
        Item& item = items[static_cast<std::size_t>(p)][static_cast<std::size_t>(i)];
        item.producer = p;
        item.number = i;
        list.push(&item);
      }
    });
  }
  std::vector<int> next(kProducers, 0);
  bool in_order = true;
  for (int taken = 0; taken < kProducers * kItems;) {
    const auto* item = static_cast<Item*>(list.pop());
    if (item == nullptr) {
      std::this_thread::yield();
      continue;
    }
    in_order = in_order && item->number == next[static_cast<std::size_t>(item->producer)]++;
    ++taken;
  }
  for (std::thread& producer : producers) producer.join();
  CHECK(in_order);
  CHECK(list.pop() == nullptr);
}

TEST_CASE("randomness is the same for the same seed and within its bound", "[base][random]") {
  Random a(42), b(42), c(43);
  bool differs = false;
  for (int i = 0; i < 100; ++i) {
    const std::uint64_t value = a.next();
    CHECK(value == b.next());
    differs = differs || value != c.next();
  }
  CHECK(differs);
  std::set<std::uint64_t> seen;
  for (int i = 0; i < 1000; ++i) seen.insert(a.below(10));
  CHECK(seen.size() == 10);
  CHECK(*seen.rbegin() == 9);
}
