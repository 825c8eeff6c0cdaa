#include <algorithm>
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "apps/bench/link_goals.h"

namespace uroce::apps {
namespace {

Row row_of(const std::string& link, const std::string& test, double uroce, double spread) {
  return {.link = link,
          .test = test,
          .bytes = 64,
          .unit = test == "send_rate" ? "M/s" : "us",
          .value = {{"uroce", uroce}},
          .spread = {{"uroce", spread}}};
}

std::vector<Judged> beside(const std::vector<Judged>& all, const std::string& yardstick) {
  std::vector<Judged> some;
  std::ranges::copy_if(all, std::back_inserter(some), [&](const Judged& one) {
    return one.what.find("beside " + yardstick) != std::string::npos;
  });
  return some;
}

bool holds(const Judged& one) {
  return one.goal->is_met_by(*one.figure, one.goal->must);
}

TEST_CASE("a round trip over memif stands beside eRPC's part of the bare link's", "[apps][goals]") {
  for (const auto& [us, is_met] : {std::pair{1.64, true}, std::pair{1.66, false}}) {
    Row row = row_of("memif", "rtt_p50", us, 0.1);
    CHECK(beside(judge_rows({row}), "eRPC").empty());  // the bare link was not measured
    row.value["raw"] = 1.25;
    const auto judged = beside(judge_rows({row}), "eRPC");
    REQUIRE(judged.size() == 1);
    CHECK(judged[0].goal->name == "3");
    CHECK(judged[0].value == us);
    CHECK(*judged[0].base == Approx(1.25 * 1.30 / 0.985));
    CHECK(holds(judged[0]) == is_met);
  }
  Row shm = row_of("shm", "rtt_p50", 1, 0);
  shm.value["raw"] = 1;
  CHECK(beside(judge_rows({shm}), "eRPC").empty());
}

TEST_CASE("a rate over shm is three times eRPC's", "[apps][goals]") {
  for (const auto& [rate, is_met] : {std::pair{7.9, true}, std::pair{7.7, false}}) {
    const auto judged = beside(judge_rows({row_of("shm", "send_rate", rate, 0)}), "eRPC");
    REQUIRE(judged.size() == 1);
    CHECK(judged[0].goal->name == "5");
    CHECK(judged[0].base == 2.6);
    CHECK(holds(judged[0]) == is_met);
  }
  CHECK(beside(judge_rows({row_of("memif", "send_rate", 9, 0)}), "eRPC").empty());
}

TEST_CASE("UCX over shared memory is a goal where it was measured", "[apps][goals]") {
  Row row = row_of("shm", "rtt_p50", 0.6, 0);
  CHECK(beside(judge_rows({row}), "ucx").empty());
  for (const auto& [us, is_met] : {std::pair{0.7, true}, std::pair{0.5, false}}) {
    row.value["ucx"] = us;
    const auto judged = beside(judge_rows({row}), "ucx");
    REQUIRE(judged.size() == 1);
    CHECK(judged[0].goal->name == "1");
    CHECK(holds(judged[0]) == is_met);
  }
}

TEST_CASE("a goal tells the spread of what it judges", "[apps][goals]") {
  const auto judged = judge_rows({row_of("shm", "send_rate", 10, 0.25)});
  REQUIRE_FALSE(judged.empty());
  for (const Judged& one : judged) CHECK(one.spread == 0.25);
  Row unknown = row_of("shm", "send_rate", 10, 0);
  unknown.spread.clear();
  for (const Judged& one : judge_rows({unknown})) CHECK_FALSE(one.spread.has_value());
}

}  // namespace
}  // namespace uroce::apps
