// In which order QPs are posted to, and that nothing of a QP is left when it goes.
#include "engine/posting_order.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <memory>
#include <vector>

#include "base/random.h"
#include "transport/rc_qp.h"

using namespace uroce;
using engine::PostingOrder;

namespace {

/// QPs, and the order in which they are posted to.
struct Crowd {
  explicit Crowd(std::uint32_t count) {
    for (std::uint32_t i = 0; i < count; ++i) qps.push_back(make(i));
  }
  std::unique_ptr<transport::RcQp> make(std::uint32_t number) {
    return std::make_unique<transport::RcQp>(
        Qpn{number + 16}, 1, QpInitAttr{.max_send_wr = 1, .max_recv_wr = 1}, keys, counters, cq, cq);
  }
  PostingOrder::Next post(std::size_t i) {
    return order.is_newest(*qps[i]) ? PostingOrder::Next{} : order.on_post(*qps[i]);
  }
  void remove(std::size_t i) {
    order.forget(*qps[i]);
    qps[i].reset();
  }

  mem::KeyTable keys{1, [] {}};
  Counters counters;
  transport::CqRing cq{2};
  std::vector<std::unique_ptr<transport::RcQp>> qps;
  PostingOrder order;
};

}  // namespace

TEST_CASE("the QPs that come next are known once they have taken turns", "[engine][posting-order]") {
  Crowd crowd(4);
  for (std::size_t i = 0; i < 4; ++i) CHECK(crowd.post(i).first == nullptr);
  CHECK(crowd.post(0).first == crowd.qps[1].get());
  for (std::size_t i = 1; i < 12; ++i) {
    const PostingOrder::Next next = crowd.post(i % 4);
    CHECK(next.first == crowd.qps[(i + 1) % 4].get());
    CHECK(next.second == crowd.qps[(i + 2) % 4].get());
  }
}

TEST_CASE("several posts to one QP are one turn", "[engine][posting-order]") {
  Crowd crowd(2);
  for (int i = 0; i < 3; ++i) {
    for (const std::size_t qp : {0U, 0U, 1U, 1U}) crowd.post(qp);
  }
  CHECK(crowd.post(0).first == crowd.qps[1].get());
  CHECK(crowd.post(0).first == nullptr);
}

TEST_CASE("a new order replaces the old one", "[engine][posting-order]") {
  Crowd crowd(3);
  for (const std::size_t qp : {0U, 1U, 2U, 0U, 1U, 2U}) crowd.post(qp);
  for (const std::size_t qp : {1U, 0U, 2U, 1U}) crowd.post(qp);
  CHECK(crowd.post(0).first == crowd.qps[2].get());
}

TEST_CASE("nothing leads to a QP that has gone", "[engine][posting-order]") {
  const std::uint64_t seed = GENERATE(1U, 2U, 3U);
  CAPTURE(seed);
  Random random(seed);
  Crowd crowd(20);
  const auto is_alive = [&crowd](const transport::QueuePair* qp) {
    return qp == nullptr ||
           std::any_of(crowd.qps.begin(), crowd.qps.end(), [qp](const auto& one) { return one.get() == qp; });
  };
  for (std::uint32_t step = 0; step < 5000; ++step) {
    const std::size_t i = random.below(20);
    if (crowd.qps[i] == nullptr) {
      crowd.qps[i] = crowd.make(step);
    } else if (random.below(8) == 0) {
      crowd.remove(i);
    } else {
      const PostingOrder::Next next = crowd.post(i);
      REQUIRE(is_alive(next.first));
      REQUIRE(is_alive(next.second));
    }
  }
}
