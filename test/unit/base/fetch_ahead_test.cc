// Lines that are fetched a few at a time: how many are left, and never more than were set.
#include <catch2/catch.hpp>

#include <vector>

#include "base/fetch_ahead.h"

using uroce::FetchAhead;

TEST_CASE("lines ahead are fetched bit by bit until none is left", "[base][fetch-ahead]") {
  const std::vector<std::byte> bytes(1000);
  FetchAhead ahead;
  ahead.fetch(3);
  ahead.fetch_each<1>();
  CHECK(ahead.left() == 0);
  ahead.set(bytes.data(), 1000);
  CHECK(ahead.left() == 16);  // one begun
  ahead.fetch(5);
  CHECK(ahead.left() == 11);
  ahead.fetch_each<4>();
  ahead.fetch_each<4>();
  CHECK(ahead.left() == 3);
  ahead.fetch_each<4>();
  CHECK(ahead.left() == 3);  // not so many: none
  ahead.fetch(FetchAhead::kFew);
  CHECK(ahead.left() == 0);
}

TEST_CASE("what is set takes the place of what was left", "[base][fetch-ahead]") {
  const std::vector<std::byte> bytes(256);
  FetchAhead ahead;
  ahead.set(bytes.data(), 256);
  ahead.fetch(1);
  ahead.set(bytes.data(), 64);
  CHECK(ahead.left() == 1);
  ahead.fetch_rest();
  CHECK(ahead.left() == 0);
}
