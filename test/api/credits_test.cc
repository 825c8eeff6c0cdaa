// End-to-end credits between two devices.
#include "api/side.h"

namespace uroce::api {

namespace {

constexpr int kMessages = 200;

/// A link whose first and second end count receives, or do not.
struct Link {
  Link(Mode mode, bool first, bool second)
      : port("shm:api" + std::to_string(getpid()) + "-credits"),
        a(End::open(port, mode, 64, "", 100, first)),
        b(End::open(port, mode, 64, "", 100, second)) {}
  std::string port;
  End a;
  End b;
};

/// SENDs from `a`, all at once; `b` posts its next receive a while after the last one was used.
void send_slowly(Link& link, std::uint32_t depth) {
  Side a(link.a, {.max_send_wr = kMessages});
  Side b(link.b, {.max_recv_wr = depth});
  QpAttr attr = towards(link.b, b.qp);
  attr.timeout = 22;  // 17 s: no message goes without credit for want of time
  REQUIRE(a.qp.connect(attr));
  REQUIRE(b.qp.connect(towards(link.a, a.qp)));
  b.receive(1, 0, 8);
  const Sge sge = a.memory.sge(0, 8);
  for (int i = 0; i < kMessages; ++i) REQUIRE(a.qp.post_send({.wr_id = 7, .sges = {&sge, 1}}));
  Clock::time_point next{};
  for (int received = 0; received < kMessages;) {
    Wc wc;
    REQUIRE(within(10s, [&] {
      link.a.device.progress();
      return b.cq.poll({&wc, 1}) == 1;
    }));
    REQUIRE(wc.ok());
    ++received;
    next = Clock::now() + 200us;  // longer than the probes' margin
    (void)within(5s, [&] {
      link.a.device.progress();
      link.b.device.progress();
      return Clock::now() > next;
    });
    if (received < kMessages) b.receive(1, 0, 8);
  }
  REQUIRE(within(5s, [&] {
    link.a.device.progress();
    link.b.device.progress();
    return counter(link.a.device, "requester_messages") == kMessages;
  }));
}

}  // namespace

TEST_CASE("a receiver that posts slowly sends no RNR NAK if both ends use credits", "[credits]") {
  Link link(GENERATE(Mode::kApp, Mode::kAuto), true, true);
  send_slowly(link, 4);
  CHECK(counter(link.a.device, "requester_rnr_naks") == 0);
  CHECK(counter(link.b.device, "responder_rnr_naks") == 0);
  CHECK(counter(link.b.device, "responder_credit_updates") >= kMessages / 2);
  CHECK(counter(link.a.device, "requester_limited_messages") == 1);
  // None but those of an end that the system has kept waiting.
  CHECK(counter(link.a.device, "requester_go_backs") == counter(link.a.device, "requester_probes"));
}

TEST_CASE("an end without credits gets on with one that has them", "[credits]") {
  const bool first = GENERATE(true, false);
  Link link(Mode::kApp, first, !first);
  send_slowly(link, 4);
  CHECK(counter(link.b.device, "responder_rnr_naks") > 0);
}

TEST_CASE("credits are not told of shared receives", "[credits][srq]") {
  Link link(Mode::kApp, true, true);
  Side a(link.a, {.max_send_wr = 64});
  Cq cq = must(Cq::create(link.b.device, 64));
  Srq srq = must(Srq::create(link.b.pd, {.max_wr = 64}));
  Qp qp = must(Qp::create(link.b.pd, cq, cq, srq, {}));
  REQUIRE(join(link.a, a.qp, link.b, qp));
  for (int i = 0; i < 32; ++i) REQUIRE(srq.post_recv({.wr_id = 1}));
  for (int i = 0; i < 32; ++i) REQUIRE(a.qp.post_send({.wr_id = 7, .flags = send_flag::kSignaled}));
  for (int i = 0; i < 32; ++i) {
    Wc wc;
    REQUIRE(within(5s, [&] {
      link.b.device.progress();
      return a.cq.poll({&wc, 1}) == 1;
    }));
    REQUIRE(wc.ok());
  }
  CHECK(counter(link.a.device, "requester_limited_messages") == 1);  // the first message asks
}

}  // namespace uroce::api
