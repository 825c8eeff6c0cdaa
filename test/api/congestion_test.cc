// Marks on the way between two devices slow the sender down, and it recovers.
#include "api/side.h"

namespace uroce::api {

namespace {

End open_end(const std::string& fault, CongestionControl control) {
  Config config;
  config.port = "shm:api" + std::to_string(getpid()) + "-dcqcn";
  config.fault = fault;
  config.congestion = control;
  config.line_mbps = 1000;
  return End::open(std::move(config));
}

/// A connection whose packets from `a` are marked on the way.
struct Marked {
  explicit Marked(CongestionControl at_b)
      : a(open_end("tx.mark-ce opcode=RC_SEND_LAST", CongestionControl::kDcqcn)),
        b(open_end("", at_b)),
        from(a, QpType::kRc),
        to(b, QpType::kRc) {
    REQUIRE(join(a, from.qp, b, to.qp));
  }

  End a;
  End b;
  Side from;
  Side to;
};

/// Sends so many messages of 4 KiB, one after another. @return what that took
std::chrono::nanoseconds send(Side& from, Side& to, int messages) {
  const auto start = Clock::now();
  for (int i = 0; i < messages; ++i) {
    to.receive(1, 0, 4096);
    const Sge sge = from.memory.sge(0, 4096);
    REQUIRE(from.qp.post_send({.wr_id = 2, .sges = {&sge, 1}, .flags = send_flag::kSignaled}));
    Wc wc;
    REQUIRE(within(5s, [&] {
      to.end.device.progress();
      return from.cq.poll({&wc, 1}) == 1;
    }));
    REQUIRE(wc.ok());
    REQUIRE(to.next().ok());
  }
  return Clock::now() - start;
}

}  // namespace

TEST_CASE("marked packets bring CNPs, which slow their sender down", "[dcqcn]") {
  Marked it(CongestionControl::kDcqcn);
  auto& [a, b, from, to] = it;
  const auto took = send(from, to, 200);
  CHECK(counter(b.device, "np_ecn_marked_roce_packets") >= 200);  // more if the machine was slow
  const std::uint64_t cnps = counter(b.device, "np_cnp_sent");
  CHECK(cnps > 10);
  CHECK(cnps <= static_cast<std::uint64_t>(took / 50us) + 1);
  CHECK(counter(a.device, "rp_cnp_handled") >= cnps - 1);  // the last may be on its way
  CHECK(counter(a.device, "requester_gate_paced") > 0);
  CHECK(took > 200 * 20us);  // 4 KiB take 33 us at a gigabit per second, and less is granted
}

TEST_CASE("an end without congestion control neither tells of marks nor slows down", "[dcqcn]") {
  Marked it(CongestionControl::kNone);
  auto& [a, b, from, to] = it;
  send(from, to, 50);
  CHECK(counter(b.device, "np_cnp_sent") == 0);
  CHECK(counter(a.device, "requester_gate_paced") == 0);

  Side back(b, QpType::kRc);
  Side answer(a, QpType::kRc);
  QpAttr marked = towards(a, answer.qp);
  marked.traffic_class = 3;  // marked from the start, by an end that heeds no CNP
  REQUIRE(back.qp.connect(marked));
  REQUIRE(answer.qp.connect(towards(b, back.qp)));
  send(back, answer, 50);
  CHECK(counter(a.device, "np_cnp_sent") > 0);
  CHECK(counter(b.device, "rp_cnp_ignored") > 0);
}

}  // namespace uroce::api
