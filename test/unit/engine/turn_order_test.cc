// In which order QPs have their turns, and that nothing leads to one that has gone.
#include "engine/turn_order.h"

#include <catch2/catch.hpp>
#include <memory>
#include <vector>

#include "transport/rc_qp.h"

using namespace uroce;
using engine::TurnOrder;

namespace {

/// QPs, and the order in which they have their turns.
struct Crowd {
  explicit Crowd(std::uint32_t count) {
    for (std::uint32_t i = 0; i < count; ++i) {
      qps.push_back(std::make_unique<transport::RcQp>(
          Qpn{i + 16}, 1, QpInitAttr{.max_send_wr = 1, .max_recv_wr = 1}, keys, counters, cq, cq));
    }
  }
  void learn(std::size_t first, std::size_t second) { order.learn(*qps[first], *qps[second]); }
  [[nodiscard]] const transport::QueuePair* behind(std::size_t i) const { return order.behind(*qps[i]); }

  mem::KeyTable keys{1, [] {}};
  Counters counters;
  transport::CqRing cq{2};
  std::vector<std::unique_ptr<transport::RcQp>> qps;
  TurnOrder order;
};

}  // namespace

TEST_CASE("the QP behind another one is known once it was there", "[engine][turn-order]") {
  Crowd crowd(3);
  CHECK(crowd.behind(0) == nullptr);
  crowd.learn(0, 1);
  CHECK(crowd.behind(0) == crowd.qps[1].get());
  CHECK(crowd.behind(1) == nullptr);
  crowd.learn(1, 0);
  CHECK(crowd.behind(1) == crowd.qps[0].get());
}

TEST_CASE("a new order of turns replaces the old one", "[engine][turn-order]") {
  Crowd crowd(3);
  crowd.learn(0, 1);
  crowd.learn(0, 2);
  CHECK(crowd.behind(0) == crowd.qps[2].get());
}

TEST_CASE("nothing is known of turns once a QP has gone, until it is learnt anew", "[engine][turn-order]") {
  Crowd crowd(3);
  crowd.learn(0, 1);
  crowd.learn(1, 2);
  crowd.order.forget();
  CHECK(crowd.behind(0) == nullptr);
  CHECK(crowd.behind(1) == nullptr);
  crowd.learn(1, 0);
  CHECK(crowd.behind(1) == crowd.qps[0].get());
  CHECK(crowd.behind(0) == nullptr);
}
