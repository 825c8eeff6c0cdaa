// What remains of objects that are gone: nothing.
#include <vector>

#include "api/ends.h"

namespace uroce::api {

TEST_CASE("completions behind those of a destroyed QP are found by one poll", "[lifetimes][cq]") {
  Joined link(Mode::kApp);
  Cq cq = must(Cq::create(link.a.device, 64));
  Qp stays = must(Qp::create(link.a.pd, cq, cq, {}));
  auto gone = std::make_unique<Qp>(must(Qp::create(link.a.pd, cq, cq, {})));
  const auto complete = [](Qp& qp, std::uint64_t wr_ids, std::uint64_t from) {
    REQUIRE(qp.modify({.state = QpState::kInit}, qp_attr::kInitMask).has_value());
    for (std::uint64_t i = 0; i < wr_ids; ++i) REQUIRE(qp.post_recv({.wr_id = from + i}));
    REQUIRE(qp.modify({.state = QpState::kError}, qp_attr::kState).has_value());
  };
  complete(*gone, 20, 100);
  complete(stays, 3, 200);
  gone.reset();

  SECTION("with room for few") {
    for (std::uint64_t i = 0; i < 3; ++i) {
      Wc wc;
      REQUIRE(cq.poll({&wc, 1}) == 1);
      CHECK(wc.wr_id == 200 + i);
      CHECK(wc.qpn == stays.qpn());
    }
  }
  SECTION("with room for many") {
    Wc wcs[8];
    REQUIRE(cq.poll(wcs) == 3);
    CHECK(wcs[2].wr_id == 202);
  }
  Wc none;
  CHECK(cq.poll({&none, 1}) == 0);
  CHECK_FALSE(cq.wait(0ns));
}

TEST_CASE("a QP takes no CQ of another device", "[lifetimes][qp]") {
  Joined link(Mode::kApp);
  Cq own = must(Cq::create(link.a.device, 4));
  Cq foreign = must(Cq::create(link.b.device, 4));
  for (const auto& [send, recv] : {std::pair{&own, &foreign}, {&foreign, &own}, {&foreign, &foreign}}) {
    const auto qp = Qp::create(link.a.pd, *send, *recv, {});
    REQUIRE_FALSE(qp.has_value());
    CHECK(qp.error().code == Errc::kInvalid);
  }
}

TEST_CASE("a QP that is moved to Error or Reset has acknowledged what it took", "[lifetimes][qp]") {
  const QpState last = GENERATE(QpState::kError, QpState::kReset);
  Joined link(Mode::kApp);
  Cq cq_a = must(Cq::create(link.a.device, 4));
  Cq cq_b = must(Cq::create(link.b.device, 4));
  Qp a = must(Qp::create(link.a.pd, cq_a, cq_a, {}));
  Qp b = must(Qp::create(link.b.pd, cq_b, cq_b, {}));
  REQUIRE(join(link.a, a, link.b, b));
  REQUIRE(b.post_recv({.wr_id = 1}));
  REQUIRE(a.post_send({.wr_id = 2, .flags = send_flag::kSignaled}));
  Wc wc;
  REQUIRE(within(5s, [&] {
    link.a.device.progress();
    return cq_b.poll({&wc, 1}) == 1;
  }));
  CHECK(wc.ok());
  REQUIRE(b.modify({.state = last}, qp_attr::kState));  // from here on nothing makes b's device go on
  REQUIRE(within(5s, [&] { return cq_a.poll({&wc, 1}) == 1; }));
  CHECK(wc.wr_id == 2);
  CHECK(wc.ok());
}

TEST_CASE("waiting for ever is a wait like any other", "[lifetimes][cq]") {
  for (const Mode mode : {Mode::kApp, Mode::kAuto, Mode::kLcore}) {
    Joined link(mode);
    Cq cq = must(Cq::create(link.a.device, 4));
    Qp qp = must(Qp::create(link.a.pd, cq, cq, {}));
    REQUIRE(qp.modify({.state = QpState::kInit}, qp_attr::kInitMask).has_value());
    REQUIRE(qp.post_recv({.wr_id = 1}));
    REQUIRE(qp.modify({.state = QpState::kError}, qp_attr::kState).has_value());
    CHECK(cq.wait(std::chrono::nanoseconds::max()));
    Wc wc;
    CHECK(cq.poll({&wc, 1}) == 1);
    CHECK_FALSE(cq.wait(-1ns));
  }
}

TEST_CASE("no option of another vendor is granted, and none can be asked for too late", "[qp][ece]") {
  Joined link(Mode::kApp);
  Cq cq = must(Cq::create(link.a.device, 4));
  Cq peer_cq = must(Cq::create(link.b.device, 4));
  Qp qp = must(Qp::create(link.a.pd, cq, cq, {}));
  Qp peer = must(Qp::create(link.b.pd, peer_cq, peer_cq, {}));
  CHECK(qp.query_ece().vendor_id == 0);
  REQUIRE(qp.set_ece({.vendor_id = 0x15b3, .options = 0xffff'ffff}));
  CHECK(qp.query_ece().vendor_id == 0x15b3);
  CHECK(qp.query_ece().options == 0);
  REQUIRE(join(link.a, qp, link.b, peer));
  const Status late = qp.set_ece({.vendor_id = 1, .options = 0});
  REQUIRE_FALSE(late.has_value());
  CHECK(late.error().code == Errc::kBadState);
}

}  // namespace uroce::api
