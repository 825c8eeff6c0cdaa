#include "apps/perf/arrivals.h"

#include <catch2/catch.hpp>
#include <optional>

namespace uroce::apps::perf {
namespace {

TEST_CASE("messages are numbered as they were sent, whatever is lost", "[apps][perf]") {
  Arrivals arrivals(7);
  CHECK(arrivals.take(7) == 0U);
  CHECK(arrivals.take(8) == 1U);
  CHECK(arrivals.take(12) == 5U);
  CHECK(arrivals.take(7 + 100'000) == 100'000U);
  CHECK(arrivals.take(7 + 100'001) == 100'001U);
}

TEST_CASE("a message that comes again counts once", "[apps][perf]") {
  Arrivals arrivals(0);
  CHECK(arrivals.take(0) == 0U);
  CHECK(arrivals.take(0) == std::nullopt);
  CHECK(arrivals.take(3) == 3U);
  CHECK(arrivals.take(0) == std::nullopt);
  CHECK(arrivals.take(3) == std::nullopt);
}

TEST_CASE("a message that others have overtaken counts, as long as it can be told from those that came",
          "[apps][perf]") {
  Arrivals arrivals(0);
  CHECK(arrivals.take(2) == 2U);
  CHECK(arrivals.take(0) == 0U);
  CHECK(arrivals.take(1) == 1U);
  CHECK(arrivals.take(1) == std::nullopt);
  CHECK(arrivals.take(2000) == 2000U);
  CHECK(arrivals.take(1999) == 1999U);
  CHECK(arrivals.take(2000 - 1023) == 2000U - 1023);
  CHECK(arrivals.take(2000 - 1024) == std::nullopt);
  CHECK(arrivals.take(2) == std::nullopt);
}

TEST_CASE("messages of an earlier run are none of this one", "[apps][perf]") {
  Arrivals arrivals(1U << 30U);
  CHECK(arrivals.take(900) == std::nullopt);
  CHECK(arrivals.take((1U << 30U) - 1) == std::nullopt);
  CHECK(arrivals.take(1U << 30U) == 0U);
  CHECK(arrivals.take((1U << 30U) - 1) == std::nullopt);
}

TEST_CASE("numbers go on behind 32 bits", "[apps][perf]") {
  Arrivals arrivals(0xffff'fff0U);
  CHECK(arrivals.take(0xffff'ffffU) == 15U);
  CHECK(arrivals.take(0) == 16U);
  CHECK(arrivals.take(0xffff'fffeU) == 14U);
  for (std::uint64_t number = 1U << 20U; number < 1ULL << 33U; number += 1U << 20U)
    REQUIRE(arrivals.take(static_cast<std::uint32_t>(0xffff'fff0U + number)) == number);
}

}  // namespace
}  // namespace uroce::apps::perf
