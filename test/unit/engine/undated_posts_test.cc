// Which posts look at the clock, and that the others are not held to times at which they had not left.
#include "engine/undated_posts.h"

#include <catch2/catch.hpp>
#include <memory>
#include <vector>

#include "unit/engine/loop_fixture.h"

using namespace uroce;
using engine::UndatedPosts;
using test::introduce;
using test::LoopFixture;

namespace {

constexpr std::uint64_t kSoonNs = 100;
constexpr std::uint64_t kTimeoutNs = 1'048'576;  // of the fixture's QPs

/// QPs of one loop, to which its owner posts.
struct Posters {
  explicit Posters(std::uint32_t count) {
    for (std::uint32_t i = 0; i < count; ++i) {
      qps.push_back(f.make_qp(0x10 + i));
      REQUIRE(f.connect(*qps.back()));
    }
    introduce(f);
  }
  /// Some time after the last one.
  void post(std::size_t i, std::uint64_t later_ns = kSoonNs) {
    f.now_ns += later_ns;
    REQUIRE(qps[i]->context().sq.put({.wr_id = 1}, 0));
    qps[i]->context().sq.publish(1);
    f.loop.post(*qps[i], *this);
    REQUIRE(qps[i]->in_flight() == 1);
  }
  void iterate(std::uint64_t later_ns = kSoonNs) {
    f.now_ns += later_ns;
    f.loop.run_once(f.now());
  }
  /// The loop's clock.
  [[nodiscard]] Ticks now() const {
    ++looks;
    return f.now();
  }
  [[nodiscard]] std::uint64_t timeouts() { return f.loop.counters().get(Count::kRequesterTimeouts); }

  LoopFixture f;
  std::vector<std::unique_ptr<transport::RcQp>> qps;
  mutable unsigned looks = 0;
};

}  // namespace

TEST_CASE("the first post behind an iteration looks at the clock, and then one of some",
          "[engine][undated-posts]") {
  constexpr std::uint32_t kPosts = 2 * UndatedPosts::kMost + 3;
  Posters posters(2 * kPosts);
  for (std::size_t i = 0; i < kPosts; ++i) posters.post(i);
  CHECK(posters.looks == 3);
  posters.iterate();
  for (std::size_t i = kPosts; i < 2 * kPosts; ++i) posters.post(i);
  CHECK(posters.looks == 6);
  CHECK(posters.timeouts() == 0);
}

TEST_CASE("a post that left long after the last look is waited for as long as the others",
          "[engine][undated-posts]") {
  Posters posters(2);
  posters.post(0);
  posters.post(1, 2 * kTimeoutNs);
  CHECK(posters.looks == 1);
  posters.iterate();
  CHECK(posters.timeouts() == 1);  // of the first one
  posters.iterate(kTimeoutNs - 2 * kSoonNs);
  CHECK(posters.timeouts() == 1);
  posters.iterate(kTimeoutNs / 4);  // the first one is asked about again earlier, by its own timer
  posters.iterate(kTimeoutNs / 4);
  CHECK(posters.timeouts() >= 2);
}

TEST_CASE("who posts rarely has each post look at the clock, for a while", "[engine][undated-posts]") {
  const bool is_shown_by_post = GENERATE(false, true);  // or by an iteration
  constexpr std::uint32_t kMore = 20;
  Posters posters(UndatedPosts::kMost + 2 + kMore);
  std::size_t next = 0;
  const std::size_t first = is_shown_by_post ? UndatedPosts::kMost + 2 : 3;
  while (next < first) posters.post(next++, UndatedPosts::kApartNs);
  if (!is_shown_by_post) posters.iterate();
  const unsigned before = posters.looks;
  CHECK(before == (is_shown_by_post ? 2 : 1));
  for (std::uint32_t i = 0; i < kMore; ++i) posters.post(next++);
  CHECK(posters.looks == before + kMore);
}

TEST_CASE("a QP that goes with an undated post is not looked at again", "[engine][undated-posts]") {
  Posters posters(2);
  posters.post(0);
  posters.post(1);
  posters.f.loop.remove(*posters.qps[1], posters.f.now());
  posters.qps[1].reset();
  posters.iterate(2 * UndatedPosts::kApartNs);
  CHECK(posters.timeouts() == 0);
}
