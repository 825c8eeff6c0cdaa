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
struct Crowd {
  explicit Crowd(std::uint32_t count) {
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
  Crowd crowd(2 * kPosts);
  for (std::size_t i = 0; i < kPosts; ++i) crowd.post(i);
  CHECK(crowd.looks == 3);
  crowd.iterate();
  for (std::size_t i = kPosts; i < 2 * kPosts; ++i) crowd.post(i);
  CHECK(crowd.looks == 6);
  CHECK(crowd.timeouts() == 0);
}

TEST_CASE("a post that left long after the last look is waited for as long as the others",
          "[engine][undated-posts]") {
  Crowd crowd(2);
  crowd.post(0);
  crowd.post(1, 2 * kTimeoutNs);
  CHECK(crowd.looks == 1);
  crowd.iterate();
  CHECK(crowd.timeouts() == 1);  // of the first one
  crowd.iterate(kTimeoutNs - 2 * kSoonNs);
  CHECK(crowd.timeouts() == 1);
  crowd.iterate(kTimeoutNs / 4);  // the first one is asked about again earlier, by its own timer
  crowd.iterate(kTimeoutNs / 4);
  CHECK(crowd.timeouts() >= 2);
}

TEST_CASE("who posts rarely has each post look at the clock, for a while", "[engine][undated-posts]") {
  const bool is_shown_by_post = GENERATE(false, true);  // or by an iteration
  constexpr std::uint32_t kMore = 20;
  Crowd crowd(UndatedPosts::kMost + 2 + kMore);
  std::size_t next = 0;
  const std::size_t first = is_shown_by_post ? UndatedPosts::kMost + 2 : 3;
  while (next < first) crowd.post(next++, UndatedPosts::kApartNs);
  if (!is_shown_by_post) crowd.iterate();
  const unsigned before = crowd.looks;
  CHECK(before == (is_shown_by_post ? 2 : 1));
  for (std::uint32_t i = 0; i < kMore; ++i) crowd.post(next++);
  CHECK(crowd.looks == before + kMore);
}

TEST_CASE("a QP that goes with an undated post is not looked at again", "[engine][undated-posts]") {
  Crowd crowd(2);
  crowd.post(0);
  crowd.post(1);
  crowd.f.loop.remove(*crowd.qps[1], crowd.f.now());
  crowd.qps[1].reset();
  crowd.iterate(2 * UndatedPosts::kApartNs);
  CHECK(crowd.timeouts() == 0);
}
