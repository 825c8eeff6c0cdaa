// Keys cannot be guessed from one another.
#include <catch2/catch.hpp>
#include <set>
#include <unordered_map>

#include "mem/key_table.h"
#include "unit/mem/randomness.h"

using namespace uroce;
using namespace uroce::mem;

namespace {

constexpr std::size_t kKeys = 100'000;
constexpr double kFar = 5;  // standard deviations: once in two million tests by chance

/// Keys of regions that come and go, `live` of them at a time.
std::vector<std::uint32_t> draw_keys(std::uint64_t seed, std::size_t live) {
  KeyTable table(seed, [] {});
  std::vector<std::uint32_t> keys;
  for (std::size_t i = 0; i < kKeys; ++i) {
    keys.push_back(table.insert({.addr = 4096, .length = 64, .pd = 1, .access = access::kAll}).value());
    if (i >= live) table.remove(keys[i - live]);
  }
  return keys;
}

}  // namespace

TEST_CASE("100000 keys have as many ones as zeros, in all and at each bit", "[mem][key][S6]") {
  const std::uint64_t seed = GENERATE(1U, 2U, 0xffff'ffffU);
  const auto keys = draw_keys(seed, GENERATE(0U, 1000U));
  CAPTURE(seed);
  CHECK(test::monobit_deviation(keys, 32) < kFar);
  CHECK(test::worst_bit_deviation(keys, 32) < kFar);
}

TEST_CASE("neighbouring keys and neighbouring bits of 100000 keys do not tell of one another",
          "[mem][key][S6]") {
  const std::uint64_t seed = GENERATE(1U, 2U, 0xffff'ffffU);
  const auto keys = draw_keys(seed, 0);
  CAPTURE(seed);
  for (unsigned shift = 0; shift <= 25; ++shift) CHECK(test::pair_deviation(keys, shift) < kFar);
  CHECK(test::bit_pair_deviation(keys, 32) < kFar);
}

TEST_CASE("the keys of devices with neighbouring seeds have nothing in common", "[mem][key][S6]") {
  auto one = draw_keys(1000, 0);
  const auto two = draw_keys(1001, 0);
  for (std::size_t i = 0; i < one.size(); ++i) one[i] ^= two[i];
  CHECK(test::monobit_deviation(one, 32) < kFar);
  CHECK(test::worst_bit_deviation(one, 32) < kFar);
}

// Peers may go on using a key for a while.
TEST_CASE("a key does not come back within 65536 allocations after its region went", "[mem][key][S6]") {
  constexpr std::size_t kWindow = 1 << 16;
  std::size_t reused = 0;
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    KeyTable table(seed, [] {});
    std::unordered_map<std::uint32_t, std::size_t> last;
    for (std::size_t i = 0; i < 100'000; ++i) {
      const std::uint32_t key =
          table.insert({.addr = 4096, .length = 64, .pd = 1, .access = access::kAll}).value();
      const auto [at, is_new] = last.try_emplace(key, i);
      if (!is_new && i - at->second <= kWindow) {
        ++reused;
        UNSCOPED_INFO("seed " << seed << ": key " << key << " of allocation " << at->second << " again at "
                              << i);
      }
      at->second = i;
      table.remove(key);
    }
  }
  CHECK(reused == 0);
}
