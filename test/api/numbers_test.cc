// Numbers that the library gives out, as many programs in a row would see them.
#include <deque>
#include <unordered_set>

#include "api/ends.h"
#include "unit/mem/randomness.h"
#include "verbs/numbers.h"

namespace uroce::api {
namespace {

constexpr std::size_t kNumbers = 100'000;
constexpr double kFar = 5;  // standard deviations

Config seeded(std::uint64_t seed) {
  Config config;
  config.port = "shm:numbers" + std::to_string(getpid());
  config.no_huge = true;
  config.mode = Mode::kApp;
  config.seed = seed;
  return config;
}

}  // namespace

TEST_CASE("the numbers of 100000 QPs look random, and no two that live have the same", "[numbers][qps][S6]") {
  constexpr std::size_t kLive = 500;
  const std::uint64_t seed = GENERATE(1U, 77U);
  CAPTURE(seed);
  Device device = must(Device::open(seeded(seed)));
  Pd pd = must(Pd::create(device));
  Cq cq = must(Cq::create(device, 16));
  std::deque<Qp> live;
  std::unordered_set<std::uint32_t> in_use;
  std::vector<std::uint32_t> numbers;
  for (std::size_t i = 0; i < kNumbers; ++i) {
    live.push_back(must(Qp::create(pd, cq, cq, {.max_send_wr = 1, .max_recv_wr = 1})));
    const std::uint32_t number = raw(live.back().qpn());
    if (number < 2 || number >= 0xff'ffff) FAIL("a QPN that has a meaning of its own: " << number);
    if (!in_use.insert(number).second) FAIL("a QPN that another QP has: " << number);
    numbers.push_back(number);
    if (live.size() < kLive) continue;
    in_use.erase(raw(live.front().qpn()));
    live.pop_front();
  }
  CHECK(test::monobit_deviation(numbers, 24) < kFar);
  CHECK(test::worst_bit_deviation(numbers, 24) < kFar);
  CHECK(test::bit_pair_deviation(numbers, 24) < kFar);
  for (unsigned shift = 0; shift <= 17; ++shift) CHECK(test::pair_deviation(numbers, shift) < kFar);
}

TEST_CASE("a number comes again once it was given back and all others have come", "[numbers]") {
  Numbers numbers(4);
  for (std::uint32_t i = 1; i <= 3; ++i) CHECK(numbers.take() == i);
  numbers.give_back(2);
  CHECK(numbers.take() == 4);
  CHECK(numbers.take() == 2);
  CHECK(numbers.take() == 0);  // all are in use
  numbers.give_back(0);
  CHECK(numbers.take() == 0);
  numbers.give_back(3);
  numbers.give_back(1);
  CHECK(numbers.take() == 3);
  CHECK(numbers.take() == 1);
}

TEST_CASE("two devices without a seed give different numbers and keys", "[numbers][S6]") {
  std::unordered_set<std::uint32_t> numbers;
  std::unordered_set<std::uint32_t> keys;
  for (int i = 0; i < 8; ++i) {
    Device device = must(Device::open(seeded(0)));
    Pd pd = must(Pd::create(device));
    Cq cq = must(Cq::create(device, 16));
    const Qp qp = must(Qp::create(pd, cq, cq, {}));
    const Mr mr = must(Mr::alloc(pd, 64, access::kAll));
    numbers.insert(raw(qp.qpn()));
    keys.insert(raw(mr.rkey()));
  }
  CHECK(numbers.size() == 8);
  CHECK(keys.size() == 8);
}

}  // namespace uroce::api
