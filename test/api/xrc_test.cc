// Extended reliable connections between two devices.
#include <array>
#include <cstring>
#include <optional>
#include <vector>

#include "api/ends.h"
#include "uroce/ece.h"
#include "uroce/srq.h"
#include "uroce/xrcd.h"

namespace uroce::api {
namespace {

constexpr std::size_t kSlot = 8192;  // bytes of one receive

/// One of the threads that a process with XRC has: its queue, its CQ, its memory.
struct Worker {
  Worker(End& end, Xrcd& domain, std::uint8_t tag)
      : pd(must(Pd::create(end.device))),
        cq(must(Cq::create(end.device, 64))),
        srq(must(Srq::create(pd, domain, cq, {.max_wr = 16}))),
        memory(must(Mr::alloc(pd, 16 * kSlot, access::kAll))) {
    std::memset(memory.memory().data(), tag, memory.memory().size());
  }
  void post(std::uint64_t wr_id) {
    const Sge sge = memory.sge(wr_id * kSlot, kSlot);
    REQUIRE(srq.post_recv({.wr_id = wr_id, .sges = {&sge, 1}}));
  }
  Pd pd;
  Cq cq;
  Srq srq;
  Mr memory;
};

struct Connection {
  Connection(Joined& link, Xrcd& domain, const Ece& options = {})
      : cq(must(Cq::create(link.a.device, 64))),
        initiator(must(Qp::create(link.a.pd, cq, cq, {.type = QpType::kXrcSend, .sq_sig_all = true}))),
        target(must(Qp::create(domain, {.type = QpType::kXrcRecv}))) {
    for (Qp* qp : {&initiator, &target}) REQUIRE(qp->set_ece(options));
    const Status joined = join(link.a, initiator, link.b, target);
    INFO((joined ? "" : joined.error().text));
    REQUIRE(joined);
  }
  Cq cq;
  Qp initiator;
  Qp target;
};

Wc next(Cq& cq, Joined& link) {
  Wc wc{.status = WcStatus::kGeneralErr};
  REQUIRE(within(5s, [&] {
    link.a.device.progress();
    link.b.device.progress();
    return cq.poll({&wc, 1}) == 1;
  }));
  return wc;
}

}  // namespace

TEST_CASE("one connection reaches the queues of all threads of a process", "[xrc]") {
  Joined link(GENERATE(Mode::kApp, Mode::kAuto, Mode::kLcore));
  Xrcd domain = must(Xrcd::create(link.b.device));
  Worker one(link.b, domain, 0x11);
  Worker two(link.b, domain, 0x22);
  Connection connection(link, domain);
  Mr source = must(Mr::alloc(link.a.pd, kSlot, access::kAll));
  for (std::size_t i = 0; i < source.memory().size(); ++i) source.memory()[i] = static_cast<std::byte>(i * 7);

  for (std::uint32_t round = 0; round < 20; ++round) {
    Worker& to = round % 3 == 0 ? one : two;
    const std::uint32_t bytes = 1 + round * 400;
    to.post(round % 16);
    const Sge sge = source.sge(0, bytes);
    REQUIRE(connection.initiator.post_send(
        {.wr_id = round, .sges = {&sge, 1}, .opcode = WrOpcode::kSend, .remote_srq = to.srq.number()}));
    const Wc received = next(to.cq, link);
    CHECK(received.ok());
    CHECK(received.wr_id == round % 16);
    CHECK(received.byte_len == bytes);
    CHECK(received.qpn == connection.target.qpn());
    CHECK(std::memcmp(to.memory.memory().data() + (round % 16) * kSlot, source.memory().data(), bytes) == 0);
    CHECK(next(connection.cq, link).ok());
  }
}

TEST_CASE("each thread is woken for what was held for it, whichever queue comes last",
          "[xrc][selective][cq]") {
  Joined link(Mode::kApp, "", 100, "drop opcode=XRC_SEND_ONLY nth=1");
  Xrcd domain = must(Xrcd::create(link.b.device));
  Worker one(link.b, domain, 0x11);
  Worker two(link.b, domain, 0x22);
  Connection connection(link, domain, {.vendor_id = ece::kVendor, .options = ece::kSelectiveRepeat});
  for (std::uint64_t i = 0; i < 2; ++i) {
    one.post(i);
    two.post(i);
  }
  REQUIRE(one.srq.arm_limit(1));
  one.cq.arm();
  two.cq.arm();
  for (const Worker* to : {&two, &one, &one, &two}) {  // the first is lost; all are taken in one step
    REQUIRE(connection.initiator.post_send({.remote_srq = to->srq.number()}));
  }
  for (int i = 0; i < 4; ++i) CHECK(next(connection.cq, link).ok());
  CHECK(is_readable(one.cq.fd()));
  CHECK(is_readable(two.cq.fd()));
  AsyncEvent event;
  bool has_limit_event = false;
  while (link.b.device.next_async_event(event)) {
    has_limit_event = has_limit_event || event.type == AsyncEventType::kSrqLimitReached;
  }
  CHECK(has_limit_event);
}

TEST_CASE("an XRC request has the rights of the queue that it names", "[xrc]") {
  Joined link(Mode::kApp);
  Xrcd domain = must(Xrcd::create(link.b.device));
  Worker one(link.b, domain, 0x11);
  Worker two(link.b, domain, 0x22);
  Connection connection(link, domain);
  Mr sink = must(Mr::alloc(link.a.pd, kSlot, access::kAll));
  const Sge sge = sink.sge(0, kSlot);
  const auto read = [&](const Worker& of, const Worker& as) {
    REQUIRE(connection.initiator.post_send({.sges = {&sge, 1},
                                            .opcode = WrOpcode::kRdmaRead,
                                            .remote_addr = of.memory.addr(),
                                            .rkey = of.memory.rkey(),
                                            .remote_srq = as.srq.number()}));
    return next(connection.cq, link);
  };
  CHECK(read(one, one).ok());
  CHECK(sink.memory()[kSlot - 1] == std::byte{0x11});
  CHECK(read(two, two).ok());
  CHECK(sink.memory()[0] == std::byte{0x22});
  CHECK(read(one, two).status == WcStatus::kRemAccessErr);
  CHECK(connection.target.query().state == QpState::kError);
  CHECK_FALSE(connection.target.error_text().empty());
}

TEST_CASE("a queue leaves its XRC domain while connections live", "[xrc]") {
  Joined link(Mode::kApp);
  Xrcd domain = must(Xrcd::create(link.b.device));
  Worker stays(link.b, domain, 0x11);
  auto goes = std::make_unique<Worker>(link.b, domain, 0x22);
  const std::uint32_t gone = goes->srq.number();
  Connection first(link, domain);
  Connection second(link, domain);
  stays.post(0);
  goes->post(0);
  REQUIRE(first.initiator.post_send({.remote_srq = gone}));
  CHECK(next(goes->cq, link).ok());
  CHECK(next(first.cq, link).ok());
  goes.reset();
  REQUIRE(first.initiator.post_send({.remote_srq = gone}));
  CHECK(next(first.cq, link).status == WcStatus::kRemInvReqErr);
  REQUIRE(second.initiator.post_send({.remote_srq = stays.srq.number()}));
  CHECK(next(stays.cq, link).ok());
  CHECK(next(second.cq, link).ok());
}

TEST_CASE("a connection tells which CQ overflowed also when that has gone, with its queue",
          "[xrc][overflow][lifetimes]") {
  Joined link(Mode::kApp);
  Xrcd domain = must(Xrcd::create(link.b.device));
  Connection connection(link, domain);
  Mr memory = must(Mr::alloc(link.b.pd, kSlot, access::kAll));
  std::uint32_t entries = 0;
  {
    Cq cq = must(Cq::create(link.b.device, 1));
    entries = cq.entries();
    Srq srq = must(Srq::create(link.b.pd, domain, cq, {.max_wr = 16}));
    for (std::uint32_t i = 0; i <= entries; ++i) {
      const Sge sge = memory.sge(0, 8);
      REQUIRE(srq.post_recv({.wr_id = i, .sges = {&sge, 1}}));
      REQUIRE(connection.initiator.post_send({.wr_id = i, .remote_srq = srq.number()}));
    }
    REQUIRE(within(5s, [&] {
      link.a.device.progress();
      link.b.device.progress();
      return connection.target.query().state == QpState::kError;
    }));
  }
  CHECK_THAT(connection.target.error_text(), Catch::Contains("of " + std::to_string(entries) + " entries"));
}

TEST_CASE("completions of XRC receives wait for room in a CQ that is as large as its queue",
          "[xrc][overflow][lifetimes]") {
  constexpr std::uint32_t kQueue = 16;
  Joined link(GENERATE(Mode::kApp, Mode::kLcore));
  Xrcd domain = must(Xrcd::create(link.b.device));
  std::optional<Connection> connection(std::in_place, link, domain);
  Mr memory = must(Mr::alloc(link.b.pd, kSlot, access::kAll));
  Cq cq = must(Cq::create(link.b.device, kQueue));
  std::optional<Srq> srq(must(Srq::create(link.b.pd, domain, cq, {.max_wr = kQueue})));
  for (std::uint64_t i = 0; i < 2 * kQueue; ++i) {
    const Sge sge = memory.sge(0, 8);
    REQUIRE(srq->post_recv({.wr_id = i, .sges = {&sge, 1}}));
    REQUIRE(connection->initiator.post_send({.wr_id = i, .remote_srq = srq->number()}));
    REQUIRE(next(connection->cq, link).ok());
  }
  CHECK(connection->target.query().state == QpState::kRts);
  SECTION("all come") {
    SECTION("also if their connection has gone") {
      connection.reset();
    }
    SECTION("also if their queue has gone") {
      srq.reset();
    }
    std::array<Wc, 64> wcs;
    REQUIRE(cq.poll(wcs) == 2 * kQueue);
    for (std::uint64_t i = 0; i < 2 * kQueue; ++i) CHECK(wcs[i].wr_id == i);
  }
  SECTION("the CQ goes first") {
    connection.reset();
    srq.reset();
    { const Cq gone = std::move(cq); }
    link.b.device.progress();
  }
}

TEST_CASE("an XRC domain is on the loop of its first CQ, for as long as something is in it", "[xrc][loops]") {
  End end = lone(Mode::kApp, "0,1");
  Xrcd domain = must(Xrcd::create(end.device));
  for (const unsigned loop : {1U, 0U}) {
    CAPTURE(loop);
    Cq cq = must(Cq::create(end.device, 4, loop));
    Cq elsewhere = must(Cq::create(end.device, 4, 1 - loop));
    std::optional<Srq> srq = must(Srq::create(end.pd, domain, cq, {}));
    const auto foreign = Srq::create(end.pd, domain, elsewhere, {});
    REQUIRE_FALSE(foreign.has_value());
    CHECK(foreign.error().code == Errc::kOtherLoop);
    const Qp target = must(Qp::create(domain, {.type = QpType::kXrcRecv}));
    CHECK((raw(target.qpn()) & 1) == loop);  // which names it
    srq.reset();
    CHECK_FALSE(Srq::create(end.pd, domain, elsewhere, {}).has_value());  // the target is there
  }
}

TEST_CASE("the ends of an XRC connection post only what they have a queue for", "[xrc][limits]") {
  Joined link(Mode::kApp);
  Xrcd domain = must(Xrcd::create(link.b.device));
  Connection connection(link, domain);
  CHECK_FALSE(connection.initiator.post_recv({.wr_id = 1}));
  CHECK_FALSE(connection.target.post_recv({.wr_id = 1}));
  CHECK_FALSE(connection.target.post_send({.wr_id = 1}));
  Cq cq = must(Cq::create(link.b.device, 4));
  const auto code = [](const auto& result) { return result ? Errc{} : result.error().code; };
  CHECK(code(Qp::create(link.b.pd, cq, cq, {.type = QpType::kXrcRecv})) == Errc::kInvalid);
  CHECK(code(Qp::create(domain, {.type = QpType::kRc})) == Errc::kInvalid);
  CHECK(code(Srq::create(link.a.pd, domain, cq, {})) == Errc::kInvalid);
}

}  // namespace uroce::api
