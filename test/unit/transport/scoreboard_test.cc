#include <catch2/catch.hpp>
#include <set>

#include "base/random.h"
#include "transport/held_frames.h"
#include "transport/scoreboard.h"

using namespace uroce;
using namespace uroce::transport;

TEST_CASE("a bitmap of PSNs is a set near its base, over the wrap", "[transport][selective]") {
  const std::uint32_t start = GENERATE(0U, 77U, 0xff'ff00U, 0xff'ffffU, 0x7f'ffc0U);
  PsnBitmap bits;
  std::set<std::uint32_t> model;  // offsets from `start`
  std::uint32_t base = 0;
  bits.restart(Psn{start});
  Random random(start + 1);
  for (int round = 0; round < 3000; ++round) {
    const auto offset = base + static_cast<std::uint32_t>(random.below(PsnBitmap::kSpan + 10));
    const bool is_in = offset < base + PsnBitmap::kSpan;
    switch (random.below(3)) {
      case 0:
        bits.set(Psn{start + offset});
        if (is_in) model.insert(offset);
        break;
      case 1:
        bits.set(Psn{start + offset}, false);
        model.erase(offset);
        break;
      default:
        if (random.below(8) != 0) break;
        base += static_cast<std::uint32_t>(random.below(random.below(20) == 0 ? 1000 : 100));
        bits.advance(Psn{start + base});
        model.erase(model.begin(), model.lower_bound(base));
    }
    REQUIRE(bits.is_empty() == model.empty());
    if (!model.empty()) REQUIRE(bits.first() == Psn{start + *model.begin()});
    for (std::uint32_t i = 0; i < PsnBitmap::kSpan; i += 7) {
      REQUIRE(bits.has(Psn{start + base + i}) == model.contains(base + i));
    }
    REQUIRE_FALSE(bits.has(Psn{start + base - 1}));
  }
}

TEST_CASE("a bitmap's words up to an end", "[transport][selective]") {
  PsnBitmap bits;
  bits.restart(Psn{0xff'fff0});
  CHECK(bits.word_before(0, Psn{0xff'fff0}) == 0);
  CHECK(bits.word_before(0, Psn{0xff'ffef}) == 0);
  CHECK(bits.word_before(0, Psn{0xff'fff1}) == 1);
  CHECK(bits.word_before(0, Psn{0}) == 0xffff);
  CHECK(bits.word_before(0, Psn{48}) == ~std::uint64_t{0});
  CHECK(bits.word_before(1, Psn{48}) == 0);
  CHECK(bits.word_before(1, Psn{50}) == 3);
}

TEST_CASE("a scoreboard calls lost what something sent later has overtaken", "[transport][selective]") {
  const std::uint32_t start = GENERATE(0U, 0xff'fffdU);
  const auto psn = [start](std::uint32_t at) { return Psn{start + at}; };
  Scoreboard board;
  board.restart(psn(0));
  CHECK(board.is_blank());
  CHECK_FALSE(board.want_lost());
  board.settle(psn(2));
  board.settle(psn(4));
  REQUIRE(board.want_lost());
  CHECK(board.first_wanted() == psn(0));
  for (const std::uint32_t at : {0U, 1U, 3U}) CHECK(board.wants(psn(at)));
  for (const std::uint32_t at : {2U, 4U, 5U}) CHECK_FALSE(board.wants(psn(at)));
  board.on_repeated(psn(0), 1, psn(10));
  board.on_repeated(psn(1), 1, psn(10));
  board.on_repeated(psn(3), 1, psn(10));
  CHECK_FALSE(board.first_wanted());
  CHECK_FALSE(board.want_lost());

  SECTION("a repeat, by what was sent first after it") {
    board.settle(psn(9));
    REQUIRE(board.want_lost());  // 5 to 8, and none of the repeats
    CHECK(board.first_wanted() == psn(5));
    board.settle(psn(10));
    REQUIRE(board.want_lost());
    CHECK(board.first_wanted() == psn(0));
    CHECK(board.wants(psn(3)));
  }
  SECTION("a repeat, by a later repeat") {
    board.settle(psn(1));
    REQUIRE(board.want_lost());
    CHECK(board.wants(psn(0)));
    CHECK_FALSE(board.wants(psn(3)));
  }
  SECTION("a repeat, by the acknowledgement of a later one") {
    board.on_repeated(psn(0), 1, psn(10));  // now the latest
    board.advance(psn(1));
    REQUIRE(board.want_lost());
    CHECK(board.wants(psn(1)));
    CHECK(board.wants(psn(3)));
  }
  SECTION("nothing once all is acknowledged") {
    board.advance(psn(10));
    CHECK(board.is_blank());
    CHECK_FALSE(board.want_lost());
  }
}

TEST_CASE("a scoreboard wants all that is not settled when it is told to", "[transport][selective]") {
  Scoreboard board;
  board.restart(Psn{0xff'ffff});
  board.settle(Psn{1});
  board.want_unsettled(Psn{4});
  for (const std::uint32_t at : {0xff'ffffU, 0U, 2U, 3U}) CHECK(board.wants(Psn{at}));
  for (const std::uint32_t at : {1U, 4U}) CHECK_FALSE(board.wants(Psn{at}));
}

TEST_CASE("a scoreboard that nothing happens to keeps up with all PSNs", "[transport][selective]") {
  Scoreboard board;
  board.restart(Psn{5});
  for (std::uint32_t at = 5; at < 3 * (Psn::kMask + 1); at += 100'000) board.advance(Psn{at});
  CHECK(board.is_blank());
}
