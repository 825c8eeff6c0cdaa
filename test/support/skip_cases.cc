// What test/skip_test.py looks at.
#include <catch2/catch.hpp>

#include "support/skip.h"

TEST_CASE("passes", "[passes]") {
  CHECK(true);
}

TEST_CASE("fails", "[fails]") {
  CHECK(false);
}

TEST_CASE("is skipped", "[skips]") {
  uroce::test::skip("there is no moon");
}

TEST_CASE("is skipped with each value", "[skips]") {
  GENERATE(1, 2);
  uroce::test::skip("there is no sun");
}
