// Blocks of memory that lie side by side.
#include "mem/blocks.h"

#include <catch2/catch.hpp>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <random>
#include <thread>
#include <vector>

using namespace uroce;

namespace {

struct Block {
  std::byte* memory;
  std::size_t bytes;
  std::byte sign;
};

Block take(std::size_t bytes, std::byte sign) {
  auto* const memory = static_cast<std::byte*>(mem::take_block(bytes));
  std::memset(memory, std::to_integer<int>(sign), bytes);
  return {memory, bytes, sign};
}

bool is_whole(const Block& block) {
  for (std::size_t i = 0; i < block.bytes; ++i) {
    if (block.memory[i] != block.sign) return false;
  }
  return true;
}

/// Takes and gives back blocks of all sizes, at random. @return whether none was changed by another one's
/// owner
bool exercise(unsigned seed) {
  std::minstd_rand random(seed);
  std::vector<Block> held;
  bool all_whole = true;
  for (int i = 0; i < 4000; ++i) {
    if (held.size() < 40 || random() % 2 == 0) {
      const std::size_t longest = random() % 16 == 0 ? 60'000 : 2000;
      held.push_back(take(1 + random() % longest, static_cast<std::byte>(random())));
      continue;
    }
    const std::size_t which = random() % held.size();
    all_whole = all_whole && is_whole(held[which]);
    mem::give_block(held[which].memory, held[which].bytes);
    held[which] = held.back();
    held.pop_back();
  }
  for (const Block& block : held) {
    all_whole = all_whole && is_whole(block);
    mem::give_block(block.memory, block.bytes);
  }
  return all_whole;
}

struct alignas(64) Counted : mem::InBlocks {
  virtual ~Counted() = default;
  std::byte room[100];
};
struct Larger final : Counted {
  std::byte more[300];
};
/// Its constructor fails, and has told where.
struct Failing final : Counted {
  explicit Failing(void*& where) {
    where = this;
    throw std::bad_alloc();
  }
};

}  // namespace

TEST_CASE("blocks are aligned to cache lines and belong to one owner", "[mem][blocks]") {
  for (const std::size_t bytes : {1U, 63U, 64U, 65U, 4096U, 16'384U, 16'385U, 1U << 20U}) {
    const Block block = take(bytes, std::byte{0x5a});
    CHECK(reinterpret_cast<std::uintptr_t>(block.memory) % 64 == 0);
    mem::give_block(block.memory, block.bytes);
  }
  const unsigned seed = std::random_device{}();
  INFO("seed " << seed);
  CHECK(exercise(seed));
}

TEST_CASE("threads take and give blocks at the same time", "[mem][blocks]") {
  std::vector<std::thread> threads;
  bool whole[4] = {};
  for (unsigned i = 0; i < 4; ++i) threads.emplace_back([i, &whole] { whole[i] = exercise(i); });
  for (std::thread& thread : threads) thread.join();
  for (const bool is_so : whole) CHECK(is_so);
}

TEST_CASE("objects of classes that are derived from one in blocks have room for all of them",
          "[mem][blocks]") {
  std::vector<std::unique_ptr<Counted>> objects;
  for (int i = 0; i < 100; ++i) {
    auto larger = std::make_unique<Larger>();
    CHECK(reinterpret_cast<std::uintptr_t>(larger.get()) % 64 == 0);
    std::memset(larger->more, i, sizeof larger->more);
    objects.push_back(std::move(larger));
  }
  for (int i = 0; i < 100; ++i) {
    const auto& larger = static_cast<const Larger&>(*objects[static_cast<std::size_t>(i)]);
    CHECK(larger.more[0] == static_cast<std::byte>(i));
    CHECK(larger.more[299] == static_cast<std::byte>(i));
  }
}

TEST_CASE("the block of an object that could not be made is given back", "[mem][blocks]") {
  const auto next = [] {
    void* const block = mem::take_block(sizeof(Failing));
    mem::give_block(block, sizeof(Failing));
    return block;
  };
  const bool is_used_again = next() == next();  // not with the address sanitizer, which sees for itself
  void* first = nullptr;
  CHECK_THROWS_AS(std::make_unique<Failing>(first), std::bad_alloc);
  CHECK((next() == first || !is_used_again));
}
