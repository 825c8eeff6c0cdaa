// Asynchronous events for which there is no room: the descriptor is written once, not with each packet.
#include <catch2/catch.hpp>

#include <sys/eventfd.h>
#include <unistd.h>

#include "base/eventfd.h"
#include "engine/loop_fixture.h"

using namespace uroce;
using namespace uroce::test;

namespace {

constexpr Qpn kTaker{0x10};
constexpr std::uint32_t kReceives = 16;

/// A loop whose ring of events is full, and one QP that takes its receives from a shared queue.
struct Full {
  Full() {
    loop().set_event_fd(fd);
    loop().add(qp);
    REQUIRE(f.connect(qp));
    introduce(f);
    while (!loop().has_untold_events()) loop().arm_limit(other, 1);  // at once
    loop().report_untold();                                          // there is no QP of that one
    for (std::uint32_t i = 0; i < kReceives; ++i) REQUIRE(shared.ring.put({.wr_id = i}, i));
    shared.ring.publish(kReceives);
    REQUIRE(drain_eventfd(fd) > 0);
  }
  ~Full() {
    loop().remove(qp, f.now());
    close(fd);
  }
  engine::PollLoop& loop() { return f.loop; }
  /// SENDs to the QP, each seen in an iteration of its own.
  void give_sends(std::uint32_t count) {
    for (; count > 0; --count) {
      f.give(frame_of({.opcode = wire::Opcode::kRcSendOnly, .psn = next_psn++}, f.from_peer(), kTaker));
      f.run(1000);
    }
  }
  /// The SRQs whose limit events can be taken now.
  std::vector<std::uint32_t> told() {
    std::vector<std::uint32_t> srqs;
    for (engine::LoopEvent event; loop().next_event(event);) {
      if (event.type == AsyncEventType::kSrqLimitReached) srqs.push_back(event.srq);
    }
    return srqs;
  }

  LoopFixture f;
  int fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  transport::SharedReceives other{1, 1, 4, 1};
  transport::SharedReceives shared{2, 1, kReceives, 1};
  transport::RcQp qp{kTaker, 1, QpInitAttr{}, f.keys, f.loop.counters(), f.cq, f.cq, &shared};
  std::uint32_t next_psn = 0;
};

/// Packets come for a QP that has something to tell.
void check_wakes_once(Full& t) {
  t.give_sends(1);
  CHECK(drain_eventfd(t.fd) == 1);
  t.give_sends(8);
  CHECK(drain_eventfd(t.fd) == 0);
}

}  // namespace

TEST_CASE("the limit event of an SRQ that there is no room for wakes once, and is told once",
          "[engine][loop][events][srq]") {
  Full t;
  t.loop().arm_limit(t.shared, kReceives);
  check_wakes_once(t);
  CHECK(t.loop().has_untold_events());
  CHECK(std::ranges::count(t.told(), t.shared.number) == 0);
  t.loop().report_untold();
  CHECK(t.told() == std::vector{t.shared.number});
  CHECK(drain_eventfd(t.fd) == 1);
  t.give_sends(1);
  CHECK(t.told().empty());
}

TEST_CASE("events that there is no room for wake again once they have been asked for in vain",
          "[engine][loop][events][srq]") {
  Full t;
  t.loop().arm_limit(t.shared, kReceives);
  t.give_sends(1);
  CHECK(drain_eventfd(t.fd) == 1);
  t.loop().report_untold();  // there is no room yet
  CHECK(drain_eventfd(t.fd) == 1);
  CHECK(t.loop().has_untold_events());
}

TEST_CASE("a limit that is reached at once is told as soon as there is room", "[engine][loop][events][srq]") {
  Full t;
  t.loop().arm_limit(t.shared, kReceives + 1);
  CHECK(std::ranges::count(t.told(), t.shared.number) == 0);
  t.loop().report_untold();
  CHECK(t.told() == std::vector{t.shared.number});
}

TEST_CASE("an event of a QP that there is no room for wakes once", "[engine][loop][events]") {
  Full t;
  t.qp.put_back_event(AsyncEventType::kCommEst);
  check_wakes_once(t);
}
