// Pauses between attempts to connect, by a clock that is an argument.
#include "cm/redial.h"

#include <array>
#include <catch2/catch.hpp>
#include <vector>

namespace uroce {
namespace {

using namespace std::chrono_literals;

constexpr Ticks kNow{1'000'000'000};

std::uint64_t pause_after(Redial& redial, bool has_answered = false) {
  return redial.on_ended(kNow, has_answered).ns() - kNow.ns();
}

std::vector<std::uint64_t> pauses_of(std::uint64_t seed) {
  Redial redial(1ms, 1000ms, seed);
  std::vector<std::uint64_t> all;
  for (int i = 0; i < 8; ++i) all.push_back(pause_after(redial));
  return all;
}

}  // namespace

TEST_CASE("pauses become twice as long, up to the longest, each with a random part up to a half",
          "[cm][redial]") {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    CAPTURE(seed);
    Redial redial(3ms, 40ms, seed);
    for (const std::uint64_t ms : {3U, 6U, 12U, 24U, 40U, 40U}) {
      const std::uint64_t pause = pause_after(redial);
      CHECK((pause >= ms * 1'000'000 && pause <= ms * 1'500'000));
    }
  }
}

TEST_CASE("the random part of a pause is anything up to a half of it", "[cm][redial]") {
  std::array<int, 5> tenths{};  // of the pause
  for (std::uint64_t seed = 0; seed < 1000; ++seed) {
    Redial redial(10ms, 10ms, seed);
    ++tenths[std::min<std::size_t>((pause_after(redial) - 10'000'000) / 1'000'000, 4)];
  }
  for (const int count : tenths) CHECK((count > 100 && count < 300));
}

TEST_CASE("clients of different seeds dial at different times, and one of the same seed at the same",
          "[cm][redial]") {
  CHECK(pauses_of(1) == pauses_of(1));
  const auto one = pauses_of(1);
  const auto other = pauses_of(2);
  for (std::size_t i = 0; i < one.size(); ++i) CHECK(one[i] != other[i]);
}

TEST_CASE("a first pause of nothing is none, and the next ones are some", "[cm][redial]") {
  Redial redial(0ms, 1000ms, 1);
  CHECK(pause_after(redial) == 0);
  const std::uint64_t second = pause_after(redial);
  CHECK((second >= 1'000'000 && second <= 1'500'000));
  CHECK(pause_after(redial) >= 2'000'000);
  Redial never(0ms, 0ms, 1);
  for (int i = 0; i < 3; ++i) CHECK(pause_after(never) == 0);
}

TEST_CASE("pauses are the shortest again when a connection has answered, or has lived long enough",
          "[cm][redial]") {
  Redial redial(1ms, 100ms, 1);
  for (int i = 0; i < 5; ++i) (void)pause_after(redial);
  SECTION("it has answered") {
    redial.on_connected(kNow);
    CHECK(pause_after(redial, true) <= 1'500'000);
    CHECK(pause_after(redial) >= 2'000'000);
  }
  SECTION("it has lived as long as the longest pause") {
    redial.on_connected(Ticks(kNow.ns() - 100'000'000));
    CHECK(pause_after(redial) <= 1'500'000);
    CHECK(pause_after(redial) >= 2'000'000);
  }
  SECTION("it has lived for less") {
    redial.on_connected(Ticks(kNow.ns() - 99'999'999));
    CHECK(pause_after(redial) >= 32'000'000);
  }
  SECTION("an attempt that fails later has nothing of it") {
    redial.on_connected(Ticks(kNow.ns() - 1'000'000));
    CHECK(pause_after(redial) >= 32'000'000);
    CHECK(redial.on_ended(kNow + 1'000'000'000, false) >= kNow + 1'064'000'000);
  }
}

}  // namespace uroce
