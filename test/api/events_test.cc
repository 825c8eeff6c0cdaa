// Asynchronous events: none is lost, and the descriptor tells of each.
#include <catch2/catch.hpp>

#include <sys/syscall.h>
#include <unistd.h>

#include <functional>
#include <set>
#include <vector>

#include "api/side.h"
#include "uroce/srq.h"
#include "uroce/xrcd.h"

namespace {

std::function<void()> before_read;  // once

}  // namespace

/// In the place of libc's: what happens between two looks of next_async_event() happens here.
extern "C" ssize_t read(int fd, void* into, std::size_t bytes) {
  if (const auto happens = std::exchange(before_read, nullptr)) happens();
  return ::syscall(SYS_read, fd, into, bytes);
}

namespace uroce::api {
// IBA 11.6.3.2: a consumer waits for the event of each QP before it destroys it.
TEST_CASE("each of thousands of QPs tells that it takes no more from its SRQ, however late it is asked",
          "[api][events][srq]") {
  constexpr unsigned kQps = 2600;
  End end = lone(GENERATE(Mode::kApp, Mode::kAuto, Mode::kLcore));
  Cq cq = must(Cq::create(end.device, 16));
  Srq srq = must(Srq::create(end.pd, {.max_wr = 16}));
  std::vector<Qp> qps;
  std::set<std::uint32_t> wanted;
  for (unsigned i = 0; i < kQps; ++i) {
    qps.push_back(must(Qp::create(end.pd, cq, cq, srq, QpInitAttr{.max_send_wr = 1})));
    wanted.insert(raw(qps.back().qpn()));
    QpAttr attr = towards(end, qps.back());
    attr.dest_qpn = Qpn{0x77};
    REQUIRE(qps.back().connect(attr));
    REQUIRE(qps.back().modify({.state = QpState::kError}, qp_attr::kState));
  }
  unsigned count = 0;
  AsyncEvent event;
  while (is_readable(end.device.async_fd()) && end.device.next_async_event(event)) {
    if (event.type == AsyncEventType::kQpLastWqeReached) wanted.erase(raw(event.qpn));
    ++count;
  }
  CHECK(wanted.empty());
  CHECK(count == kQps);
  CHECK(counter(end.device, "async_events_lost") == 0);
}

TEST_CASE("the descriptor of events is readable while there is one, whenever it comes", "[api][events]") {
  End end = lone(Mode::kApp);
  Srq srq = must(Srq::create(end.pd, {.max_wr = 16}));
  const auto reach_limit = [&srq] { REQUIRE(srq.arm_limit(5)); };  // there are fewer receives
  reach_limit();
  AsyncEvent event;
  REQUIRE(end.device.next_async_event(event));
  REQUIRE(is_readable(end.device.async_fd()));
  before_read = [&] {
    reach_limit();
    reach_limit();
  };
  REQUIRE(end.device.next_async_event(event));
  REQUIRE(is_readable(end.device.async_fd()));
  CHECK(end.device.next_async_event(event));
}

TEST_CASE("the limit event of an SRQ names that SRQ, however late it is told", "[api][events][srq][xrc]") {
  Joined link(Mode::kApp);
  Xrcd domain = must(Xrcd::create(link.b.device));
  Cq cq_a = must(Cq::create(link.a.device, 64));
  Cq cq_b = must(Cq::create(link.b.device, 64));
  Srq one = must(Srq::create(link.b.pd, domain, cq_b, {.max_wr = 16}));
  Srq two = must(Srq::create(link.b.pd, domain, cq_b, {.max_wr = 16}));
  Srq other = must(Srq::create(link.b.pd, {.max_wr = 16}));
  Qp initiator = must(Qp::create(link.a.pd, cq_a, cq_a, {.type = QpType::kXrcSend, .sq_sig_all = true}));
  Qp target = must(Qp::create(domain, {.type = QpType::kXrcRecv}));
  REQUIRE(join(link.a, initiator, link.b, target));
  const auto send_to = [&](Srq& srq) {
    REQUIRE(initiator.post_send({.remote_srq = srq.number()}));
    Wc wc{.status = WcStatus::kGeneralErr};
    REQUIRE(within(5s, [&] {
      link.b.device.progress();
      return cq_a.poll({&wc, 1}) == 1;
    }));
    REQUIRE(wc.ok());
  };
  for (Srq* srq : {&one, &one, &two}) REQUIRE(srq->post_recv(RecvWr{}));
  const unsigned sends = GENERATE(1U, 2U);  // to that queue, before one to the other
  REQUIRE(one.arm_limit(2));
  for (int i = 0; i < 2000; ++i) REQUIRE(other.arm_limit(5));  // reached at once: no more room for events
  for (unsigned i = 0; i < sends; ++i) send_to(one);
  send_to(two);
  std::set<std::uint32_t> named;
  AsyncEvent event;
  while (link.b.device.next_async_event(event)) {
    if (event.type == AsyncEventType::kSrqLimitReached) named.insert(event.srq);
  }
  CHECK(named == std::set{one.number(), other.number()});
}

}  // namespace uroce::api
