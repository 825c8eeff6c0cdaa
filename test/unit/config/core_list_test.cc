#include <catch2/catch.hpp>

#include "uroce/config.h"

using uroce::Errc;
using uroce::parse_core_list;

TEST_CASE("a core list is cores and ranges, sorted", "[config][cores]") {
  CHECK(*parse_core_list("0") == std::vector<unsigned>{0});
  CHECK(*parse_core_list("2-5,8") == std::vector<unsigned>{2, 3, 4, 5, 8});
  CHECK(*parse_core_list("8,2-3") == std::vector<unsigned>{2, 3, 8});
  CHECK(*parse_core_list("7-7") == std::vector<unsigned>{7});
  CHECK(*parse_core_list("1023") == std::vector<unsigned>{1023});
}

TEST_CASE("a core list refuses masks, with the form that is allowed", "[config][cores]") {
  const auto text = GENERATE(as<std::string>{}, "0x3c", "0Xff");
  const auto cores = parse_core_list(text);
  REQUIRE_FALSE(cores);
  CHECK(cores.error().code == Errc::kConfig);
  CHECK_THAT(cores.error().text, Catch::Contains("is a mask") && Catch::Contains("2-5,8"));
}

TEST_CASE("a core list refuses anything else", "[config][cores]") {
  const auto text = GENERATE(as<std::string>{}, "", "a", "1,", ",1", "1,,2", "5-2", "1-", "-1", "1-2-3",
                             "1 ,2", "1024", "0-1024", "99999999999", "3,3", "1-4,2");
  CAPTURE(text);
  const auto cores = parse_core_list(text);
  REQUIRE_FALSE(cores);
  CHECK(cores.error().code == Errc::kConfig);
}
