// What a lost last packet costs between two devices.
#include "api/side.h"

namespace uroce::api {

TEST_CASE("a lost last packet does not cost the ack timeout", "[probe]") {
  const Mode mode = GENERATE(Mode::kApp, Mode::kAuto);
  constexpr int kMessages = 40;
  const std::string port = "shm:api" + std::to_string(getpid()) + "-tail";
  End a = End::open(port, mode, 64, "drop aeth=ack nth=30");
  End b = End::open(port, mode, 64, "drop opcode=RC_SEND_ONLY nth=20");
  Cq cq_a = must(Cq::create(a.device, 64));
  Cq cq_b = must(Cq::create(b.device, 64));
  Qp qp_a = must(Qp::create(a.pd, cq_a, cq_a, {}));
  Qp qp_b = must(Qp::create(b.pd, cq_b, cq_b, {.max_recv_wr = kMessages}));
  QpAttr attr = towards(b, qp_b);
  attr.timeout = 19;  // 2.15 s, the default of RDMA-CM
  REQUIRE(qp_a.connect(attr));
  REQUIRE(qp_b.connect(towards(a, qp_a)));

  for (int i = 0; i < kMessages; ++i) REQUIRE(qp_b.post_recv({.wr_id = 1}));
  for (int i = 0; i < kMessages; ++i) {
    REQUIRE(qp_a.post_send({.wr_id = 2, .flags = send_flag::kSignaled}));
    Wc wc;
    REQUIRE(within(5s, [&] {
      b.device.progress();
      return cq_a.poll({&wc, 1}) == 1;
    }));
    REQUIRE(wc.ok());
  }
  CHECK(counter(a.device, "requester_probes") >= 2);
  CHECK(counter(a.device, "requester_timeouts") == 0);
}

}  // namespace uroce::api
