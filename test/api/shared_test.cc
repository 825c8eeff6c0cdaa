// Shared receive queues through the public API: several QPs, their ends, and those who share a device.
#include <cstring>
#include <set>
#include <vector>

#include "api/side.h"
#include "uroce/ah.h"
#include "uroce/srq.h"
#include "uroce/xrcd.h"
#include "verbs/cq_impl.h"

namespace uroce::api {
namespace {

constexpr std::uint32_t kBytes = 64;
constexpr std::size_t kQps = 4;

/// Senders at one end, and at the other as many QPs that share their receives.
struct Crowd {
  explicit Crowd(Joined& joined)
      : link(joined),
        send_cq(must(Cq::create(link.a.device, 256))),
        recv_cq(must(Cq::create(link.b.device, 256))),
        srq(must(Srq::create(link.b.pd, {.max_wr = 64}))),
        memory(must(Mr::alloc(link.b.pd, 64 * kBytes, access::kLocalWrite))) {
    for (std::size_t i = 0; i < kQps; ++i) {
      senders.push_back(must(Qp::create(link.a.pd, send_cq, send_cq, {.max_inline_data = 16})));
      receivers.push_back(must(Qp::create(link.b.pd, recv_cq, recv_cq, srq, {})));
      REQUIRE(join(link.a, senders[i], link.b, receivers[i]));
    }
  }
  void receive(std::uint64_t wr_id) {
    const Sge sge = memory.sge(wr_id % 64 * kBytes, kBytes);
    REQUIRE(srq.post_recv({.wr_id = wr_id, .sges = {&sge, 1}}));
  }
  void send(std::size_t i) {
    const std::uint64_t text = 0x1000 + i;
    const Sge sge{std::bit_cast<std::uint64_t>(&text), sizeof text, Lkey{}};
    REQUIRE(senders[i].post_send({.wr_id = i, .sges = {&sge, 1}, .flags = send_flag::kInline}));
  }
  Wc next() {
    Wc wc{.status = WcStatus::kGeneralErr};
    REQUIRE(recv_cq.wait(5s));
    REQUIRE(recv_cq.poll({&wc, 1}) == 1);
    return wc;
  }

  Joined& link;
  Cq send_cq;
  Cq recv_cq;
  Srq srq;
  Mr memory;
  std::vector<Qp> senders;
  std::vector<Qp> receivers;
};

}  // namespace

TEST_CASE("QPs share receives: each is taken once, by whichever has a message", "[api][srq]") {
  Joined link(GENERATE(Mode::kAuto, Mode::kLcore));
  Crowd crowd(link);
  constexpr std::uint64_t kMessages = 40;
  for (std::uint64_t i = 0; i < kMessages; ++i) crowd.receive(i);
  for (std::uint64_t i = 0; i < kMessages; ++i) crowd.send(i % kQps);
  std::set<std::uint64_t> taken;
  std::size_t of_qp[kQps] = {};
  for (std::uint64_t i = 0; i < kMessages; ++i) {
    const Wc wc = crowd.next();
    REQUIRE(wc.ok());
    REQUIRE(taken.insert(wc.wr_id).second);
    std::uint64_t text = 0;
    std::memcpy(&text, crowd.memory.memory().data() + wc.wr_id * kBytes, sizeof text);
    const std::size_t from = text - 0x1000;
    REQUIRE(from < kQps);
    REQUIRE(wc.qpn == crowd.receivers[from].qpn());
    ++of_qp[from];
  }
  for (const std::size_t count : of_qp) CHECK(count == kMessages / kQps);
}

TEST_CASE("the limit of an SRQ and the end of its QPs are told", "[api][srq][events]") {
  Joined link(Mode::kAuto);
  Crowd crowd(link);
  for (std::uint64_t i = 0; i < 4; ++i) crowd.receive(i);
  CHECK_FALSE(crowd.srq.arm_limit(65).has_value());
  REQUIRE(crowd.srq.arm_limit(4));
  REQUIRE(crowd.senders[0].post_send({.wr_id = 1}));
  CHECK(crowd.next().wr_id == 0);
  AsyncEvent event;
  REQUIRE(within(5s, [&] { return link.b.device.next_async_event(event); }));
  CHECK(event.type == AsyncEventType::kSrqLimitReached);
  CHECK(event.srq == crowd.srq.number());
  CHECK(crowd.srq.limit() == 0);
  REQUIRE(crowd.receivers[1].modify({.state = QpState::kError}, qp_attr::kState));
  REQUIRE(within(5s, [&] { return link.b.device.next_async_event(event); }));
  CHECK(event.type == AsyncEventType::kQpLastWqeReached);
  CHECK(event.qpn == crowd.receivers[1].qpn());
  Wc none;
  CHECK(crowd.recv_cq.poll({&none, 1}) == 0);  // the receives are the others'
}

TEST_CASE("a shared receive that is too small for a datagram completes, and is in nobody's way",
          "[api][srq][ud]") {
  constexpr std::uint32_t kQkey = 77;
  Joined link(Mode::kAuto);
  Crowd crowd(link);
  Qp from = must(Qp::create(link.a.pd, crowd.send_cq, crowd.send_cq, {.type = QpType::kUd}));
  Qp to = must(Qp::create(link.b.pd, crowd.recv_cq, crowd.recv_cq, crowd.srq, {.type = QpType::kUd}));
  REQUIRE(from.connect({.qkey = kQkey}));
  REQUIRE(to.connect({.qkey = kQkey}));
  const Sge small = crowd.memory.sge(0, kGrhBytes - 1);
  REQUIRE(crowd.srq.post_recv({.wr_id = 1, .sges = {&small, 1}}));
  crowd.receive(2);
  const Ah there = must(Ah::create(link.a.pd, {.dgid = link.b.gid()}));
  const SendWr wr{.ah = there.id(), .remote_qpn = to.qpn(), .remote_qkey = kQkey};
  REQUIRE(from.post_send(wr));
  const Wc failed = crowd.next();
  CHECK(failed.wr_id == 1);
  CHECK(failed.status == WcStatus::kLocLenErr);
  CHECK(failed.qpn == to.qpn());
  REQUIRE(from.post_send(wr));
  const Wc received = crowd.next();
  CHECK(received.ok());
  CHECK(received.wr_id == 2);
  CHECK(to.query().state == QpState::kRts);
}

TEST_CASE("a limit above what is posted is told at once", "[api][srq][events]") {
  Joined link(GENERATE(Mode::kApp, Mode::kAuto, Mode::kLcore));
  Crowd crowd(link);
  crowd.receive(0);
  REQUIRE(crowd.srq.arm_limit(2));
  AsyncEvent event;
  REQUIRE(link.b.device.next_async_event(event));
  CHECK(event.type == AsyncEventType::kSrqLimitReached);
  CHECK(event.srq == crowd.srq.number());
  CHECK(crowd.srq.limit() == 0);
  REQUIRE(crowd.srq.arm_limit(1));
  CHECK_FALSE(link.b.device.next_async_event(event));
}

TEST_CASE("an SRQ takes on another capacity while its QPs are at work", "[api][srq][resize]") {
  Joined link(GENERATE(Mode::kAuto, Mode::kLcore));
  Crowd crowd(link);
  const auto give_and_take = [&crowd](std::uint64_t first, std::uint64_t count) {
    for (std::uint64_t i = 0; i < count; ++i) crowd.send(i % kQps);
    std::set<std::uint64_t> taken;
    for (std::uint64_t i = 0; i < count; ++i) {
      const Wc wc = crowd.next();
      CHECK(wc.ok());
      CHECK(wc.wr_id >= first);
      CHECK(wc.wr_id < first + count);
      CHECK(taken.insert(wc.wr_id).second);
    }
  };
  for (std::uint64_t i = 0; i < 64; ++i) crowd.receive(i);
  for (const std::uint32_t wrong : {0U, 32U, 1U << 20}) {
    const Status status = crowd.srq.resize(wrong);
    REQUIRE_FALSE(status.has_value());
    CHECK(status.error().code == Errc::kInvalid);
    CHECK(crowd.srq.attr().max_wr == 64);
  }
  give_and_take(0, 20);
  REQUIRE(crowd.srq.resize(100));
  CHECK(crowd.srq.attr().max_wr == 128);
  for (std::uint64_t i = 64; i < 148; ++i) crowd.receive(i);
  CHECK_FALSE(crowd.srq.post_recv({.wr_id = 999}));
  for (std::uint64_t at = 20; at < 140; at += 40) give_and_take(at, 40);
  REQUIRE(crowd.srq.arm_limit(4));
  CHECK_FALSE(crowd.srq.resize(2).has_value());
  REQUIRE(crowd.srq.resize(8));
  CHECK_FALSE(crowd.srq.post_recv({.wr_id = 999}));
  give_and_take(140, 8);
}

TEST_CASE("an SRQ has limits like a QP, and its QPs have no receives of their own", "[api][srq]") {
  Joined link(Mode::kApp);
  CHECK_FALSE(Srq::create(link.b.pd, {.max_wr = 0}).has_value());
  CHECK_FALSE(Srq::create(link.b.pd, {.max_wr = 1U << 20}).has_value());
  CHECK_FALSE(Srq::create(link.b.pd, {.max_sge = 1000}).has_value());
  Crowd crowd(link);
  CHECK_FALSE(crowd.receivers[0].post_recv({.wr_id = 1}));
  Srq foreign = must(Srq::create(link.a.pd, {}));
  const auto qp = Qp::create(link.b.pd, crowd.recv_cq, crowd.recv_cq, foreign, {});
  REQUIRE_FALSE(qp.has_value());
  CHECK(qp.error().code == Errc::kInvalid);
  // ibv_create_qp(3): what is said of them is ignored.
  QpInitAttr none{.max_recv_wr = UINT32_MAX, .max_recv_sge = UINT32_MAX};
  CHECK_FALSE(Qp::create(link.b.pd, crowd.recv_cq, crowd.recv_cq, none).has_value());
  CHECK(Qp::create(link.b.pd, crowd.recv_cq, crowd.recv_cq, crowd.srq, none).has_value());
  none.type = QpType::kXrcSend;
  CHECK(Qp::create(link.b.pd, crowd.recv_cq, crowd.recv_cq, none).has_value());
  std::uint64_t posted = 0;
  while (crowd.srq.post_recv({.wr_id = posted})) ++posted;
  CHECK(posted == 64);
}

TEST_CASE("an SRQ is on the loop of its QPs, and on another one once they are gone", "[api][srq][loops]") {
  End end = lone(Mode::kApp, "0,1");
  Srq srq = must(Srq::create(end.pd, {.max_wr = 8}));
  for (const unsigned loop : {1U, 0U}) {
    CAPTURE(loop);
    REQUIRE(srq.post_recv({.wr_id = loop}));
    REQUIRE(srq.arm_limit(1));
    Side from(end, QpInitAttr{}, 0);
    Cq cq = must(Cq::create(end.device, 8, loop));
    Qp to = must(Qp::create(end.pd, cq, cq, srq, {}));
    Cq elsewhere = must(Cq::create(end.device, 8, 1 - loop));
    const auto foreign = Qp::create(end.pd, elsewhere, elsewhere, srq, {});
    REQUIRE_FALSE(foreign.has_value());
    CHECK(foreign.error().code == Errc::kOtherLoop);
    REQUIRE(join(end, from.qp, end, to));
    REQUIRE(from.qp.post_send({.wr_id = 9}));
    Wc wc;
    REQUIRE(within(5s, [&] {
      end.device.progress();
      return cq.poll({&wc, 1}) == 1;
    }));
    CHECK(wc.ok());
    CHECK(wc.wr_id == loop);
    CHECK(srq.limit() == 0);  // none is left
  }
}

TEST_CASE("what a CQ may have to hold follows the size of the SRQs whose receives complete there",
          "[api][srq][cq][resize]") {
  End end = lone(Mode::kApp);
  Cq cq = must(Cq::create(end.device, 256));
  Cq other = must(Cq::create(end.device, 256));
  const auto demand_of = [](const Cq& of) { return of.impl().ring.size().demand; };
  {
    Srq srq = must(Srq::create(end.pd, {.max_wr = 64}));
    const QpInitAttr init{.max_send_wr = 16};
    Qp one = must(Qp::create(end.pd, cq, cq, srq, init));
    Qp two = must(Qp::create(end.pd, other, cq, srq, init));
    CHECK(demand_of(cq) == 16 + 64);
    REQUIRE(srq.resize(128));
    CHECK(demand_of(cq) == 16 + 128);
    CHECK(demand_of(other) == 16);
  }
  CHECK(demand_of(cq) == 0);

  Xrcd domain = must(Xrcd::create(end.device));
  {
    Srq srq = must(Srq::create(end.pd, domain, cq, {.max_wr = 32}));
    Srq second = must(Srq::create(end.pd, domain, cq, {.max_wr = 8}));
    CHECK(demand_of(cq) == 32 + 8);
    REQUIRE(srq.resize(16));
    CHECK(demand_of(cq) == 16 + 8);
  }
  CHECK(demand_of(cq) == 0);
}

}  // namespace uroce::api
