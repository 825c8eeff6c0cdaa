// Completion queues through the public API: another size, moderated events, timestamps, what overflows say.
#include <array>
#include <atomic>
#include <optional>
#include <thread>
#include <vector>

#include "api/side.h"

namespace uroce::api {
namespace {

/// A QP at each end of a link, joined; SENDs go from `a` to `b`.
struct Line {
  explicit Line(Joined& joined, const CqAttr& attr = {.entries = 64})
      : link(joined),
        send_cq(must(Cq::create(link.a.device, 64))),
        recv_cq(must(Cq::create(link.b.device, attr))),
        sender(must(Qp::create(link.a.pd, send_cq, send_cq, {}))),
        receiver(must(Qp::create(link.b.pd, recv_cq, recv_cq, {}))) {
    REQUIRE(join(link.a, sender, link.b, receiver));
  }
  void send(std::uint64_t wr_id, std::uint8_t flags = 0) {
    REQUIRE(receiver.post_recv({.wr_id = wr_id}));
    REQUIRE(sender.post_send({.wr_id = wr_id, .flags = flags}));
  }
  /// Takes `count` completions, which must be those of wr_ids from `first` on.
  void take(std::uint64_t first, std::uint64_t count) {
    for (std::uint64_t i = 0; i < count; ++i) {
      Wc wc{.status = WcStatus::kGeneralErr};
      REQUIRE(within(5s, [&] { return recv_cq.poll({&wc, 1}) == 1; }));
      CHECK(wc.ok());
      CHECK(wc.wr_id == first + i);
    }
  }
  [[nodiscard]] std::uint64_t completed() const {
    for (const Counter& counter : link.b.device.counters()) {
      if (counter.name == "completions") return counter.value;
    }
    return 0;
  }

  Joined& link;
  Cq send_cq;
  Cq recv_cq;
  Qp sender;
  Qp receiver;
};

/// Ends a QP that is in Reset, and `count` receives of it.
void flush(Qp& qp, std::uint64_t first, std::uint64_t count) {
  if (!qp.modify({.state = QpState::kInit}, qp_attr::kInitMask)) FAIL("not in Reset");
  for (std::uint64_t i = 0; i < count; ++i) {
    if (!qp.post_recv({.wr_id = first + i})) FAIL("no room for a receive");
  }
  if (!qp.modify({.state = QpState::kError}, qp_attr::kState)) FAIL("not in Error");
}

}  // namespace

TEST_CASE("a CQ takes on another size while its QPs are at work", "[api][cq][resize]") {
  Joined link(GENERATE(Mode::kAuto, Mode::kLcore));
  Line line(link, {.entries = 4});
  CHECK(line.recv_cq.entries() == 4);
  for (std::uint64_t i = 0; i < 4; ++i) line.send(i);
  REQUIRE(within(5s, [&] { return line.completed() == 4; }));
  for (const std::uint32_t wrong : {0U, 2U, line.link.b.device.limits().max_cqe + 1}) {
    const Status status = line.recv_cq.resize(wrong);
    REQUIRE_FALSE(status.has_value());
    CHECK(status.error().code == Errc::kInvalid);
  }
  REQUIRE(line.recv_cq.resize(60));
  CHECK(line.recv_cq.entries() == 64);
  for (std::uint64_t i = 4; i < 60; ++i) line.send(i);
  REQUIRE(within(5s, [&] { return line.completed() == 60; }));
  line.take(0, 60);
  REQUIRE(line.recv_cq.resize(2));
  line.send(100);
  line.take(100, 1);
}

TEST_CASE("an event that comes before its descriptor is asked for is told by that", "[api][cq][events]") {
  Joined link(GENERATE(Mode::kAuto, Mode::kLcore));
  Line line(link);
  line.recv_cq.arm();
  CHECK_FALSE(line.recv_cq.clear_event());
  line.send(1);
  REQUIRE(within(5s, [&] { return line.completed() == 1; }));
  line.take(1, 1);
  CHECK(is_readable(line.recv_cq.fd(), 5000));
  CHECK(line.recv_cq.clear_event());
  CHECK_FALSE(is_readable(line.recv_cq.fd()));
}

TEST_CASE("who asks for solicited events only still gets the one of any kind that was asked for before",
          "[api][cq][events]") {
  Joined link(GENERATE(Mode::kAuto, Mode::kLcore));
  Line line(link);
  line.recv_cq.arm();
  line.recv_cq.arm(true);
  line.send(1);
  CHECK(is_readable(line.recv_cq.fd(), 5000));
  REQUIRE(line.recv_cq.clear_event());
  line.take(1, 1);
  line.recv_cq.arm(true);
  line.send(2);
  line.take(2, 1);
  CHECK_FALSE(is_readable(line.recv_cq.fd(), 20));
}

TEST_CASE("events can be taken one by one", "[api][cq][events]") {
  Joined link(Mode::kAuto);
  Line line(link);
  CHECK_FALSE(is_readable(line.recv_cq.fd()));
  for (std::uint64_t i = 0; i < 2; ++i) {
    line.recv_cq.arm();
    line.send(i);
    line.take(i, 1);
    REQUIRE(is_readable(line.recv_cq.fd(), 5000));  // else the one that comes would be of both requests
  }
  for (int i = 0; i < 2; ++i) {
    REQUIRE(is_readable(line.recv_cq.fd(), 5000));
    CHECK(line.recv_cq.take_event());
  }
  CHECK_FALSE(line.recv_cq.take_event());
}

TEST_CASE("a QP that goes takes its completions along, also after a resize", "[api][cq][resize]") {
  Joined link(Mode::kAuto);
  Line line(link, {.entries = 8});
  Qp sender = must(Qp::create(link.a.pd, line.send_cq, line.send_cq, {}));
  Qp receiver = must(Qp::create(link.b.pd, line.recv_cq, line.recv_cq, {}));
  REQUIRE(join(link.a, sender, link.b, receiver));
  line.send(1);
  REQUIRE(receiver.post_recv({.wr_id = 2}));
  REQUIRE(sender.post_send({.wr_id = 2}));
  REQUIRE(within(5s, [&] { return line.completed() == 2; }));
  receiver = must(Qp::create(link.b.pd, line.recv_cq, line.recv_cq, {}));
  REQUIRE(line.recv_cq.resize(4));
  line.send(3);
  line.take(1, 1);
  line.take(3, 1);
}

TEST_CASE("completions of a QP that is gone, or was reset, take up no room", "[api][cq][overflow]") {
  Joined link(GENERATE(Mode::kAuto, Mode::kApp));
  Cq cq = must(Cq::create(link.b.device, 8));
  Qp other = must(Qp::create(link.b.pd, cq, cq, {}));
  Qp ends = must(Qp::create(link.b.pd, cq, cq, {}));
  flush(other, 0, 4);
  flush(ends, 10, 4);
  SECTION("it is gone") {
    ends = must(Qp::create(link.b.pd, cq, cq, {}));
  }
  SECTION("it was reset") {
    REQUIRE(ends.modify({.state = QpState::kReset}, qp_attr::kState));
  }
  CHECK_FALSE(cq.resize(2));
  REQUIRE(cq.resize(4));
  REQUIRE(cq.resize(8));
  flush(ends, 20, 4);
  std::array<Wc, 16> wcs;
  REQUIRE(cq.poll(wcs) == 8);
  for (std::uint64_t i = 0; i < 8; ++i) {
    CHECK(wcs.at(i).wr_id == (i < 4 ? i : 16 + i));
    CHECK(wcs.at(i).qpn == (i < 4 ? other : ends).qpn());
  }
  AsyncEvent event;
  CHECK_FALSE(link.b.device.next_async_event(event));
}

TEST_CASE("what is polled while other QPs of the CQ end is all that is left", "[api][cq][threads]") {
  constexpr std::uint64_t kRounds = 2000;
  Joined link(Mode::kAuto);
  Cq cq = must(Cq::create(link.b.device, 64));
  Qp stays = must(Qp::create(link.b.pd, cq, cq, {}));
  flush(stays, 0, 0);
  std::atomic<std::uint64_t> taken{0};
  std::uint64_t wrong = 0;
  std::thread poller([&] {
    std::array<Wc, 3> wcs;
    const auto look = [&] {
      const std::size_t count = cq.poll(wcs);
      for (std::size_t i = 0; i < count; ++i) {
        if (wcs.at(i).qpn == stays.qpn()) wrong += wcs.at(i).wr_id == taken++ ? 0U : 1U;
      }
      return taken == kRounds;
    };
    (void)within(60s, look);
  });
  bool keeps_up = true;
  for (std::uint64_t i = 0; i < kRounds && keeps_up; ++i) {
    Qp ends = must(Qp::create(link.b.pd, cq, cq, {}));
    flush(ends, kRounds, 4);
    (void)stays.post_recv({.wr_id = i});
    keeps_up = within(5s, [&] { return taken + 8 > i; });
  }
  poller.join();
  CHECK(keeps_up);
  CHECK(wrong == 0);
  CHECK(taken == kRounds);
}

TEST_CASE("a moderated CQ has its event after so many completions", "[api][cq][moderation]") {
  Joined link(GENERATE(Mode::kAuto, Mode::kLcore));
  Line line(link);
  CHECK_FALSE(line.recv_cq.moderate(1, -1us).has_value());
  REQUIRE(line.recv_cq.moderate(3, 0us));
  line.recv_cq.arm();
  for (std::uint64_t i = 0; i < 2; ++i) line.send(i);
  REQUIRE(within(5s, [&] { return line.completed() == 2; }));
  CHECK_FALSE(is_readable(line.recv_cq.fd(), 20));
  line.send(2);
  CHECK(is_readable(line.recv_cq.fd(), 5000));
  line.recv_cq.clear_event();
  line.take(0, 3);
}

TEST_CASE("a moderated CQ has its event after so much time", "[api][cq][moderation]") {
  Joined link(GENERATE(Mode::kAuto, Mode::kLcore));
  Line line(link, {.entries = 64, .timestamps = true});
  constexpr auto kPeriod = 30ms;
  REQUIRE(line.recv_cq.moderate(100, kPeriod));
  line.recv_cq.arm();
  line.send(1);
  REQUIRE(is_readable(line.recv_cq.fd(), 5000));
  const std::uint64_t told = link.b.device.now_ns();
  line.recv_cq.clear_event();
  Wc wc{.status = WcStatus::kGeneralErr};
  REQUIRE(line.recv_cq.poll({&wc, 1}) == 1);
  CHECK(wc.ok());
  CHECK(std::chrono::nanoseconds(told - wc.timestamp_ns) >= kPeriod);
  REQUIRE(line.recv_cq.moderate(0, 0us));
  line.recv_cq.arm();
  line.send(2);
  CHECK(is_readable(line.recv_cq.fd(), 5000));
  line.take(2, 1);
}

TEST_CASE("a wait of less than nothing is over at once", "[api][cq][limits]") {
  Joined link(GENERATE(Mode::kAuto, Mode::kLcore));
  Line line(link);
  CHECK_FALSE(line.recv_cq.wait(std::chrono::nanoseconds::min()));
  line.send(1);
  REQUIRE(line.recv_cq.wait(std::chrono::nanoseconds::max()));
  CHECK(line.recv_cq.wait(std::chrono::nanoseconds::min()));
}

TEST_CASE("an event that nobody took is not one of the next wait", "[api][cq][wait]") {
  Joined link(Mode::kAuto);
  Line line(link);
  line.recv_cq.arm();
  line.send(1);
  REQUIRE(is_readable(line.recv_cq.fd(), 5000));
  line.take(1, 1);
  CHECK_FALSE(line.recv_cq.wait(5ms));
  CHECK_FALSE(is_readable(line.recv_cq.fd(), 0));
}

TEST_CASE("an error does not wait for other completions", "[api][cq][moderation]") {
  Joined link(Mode::kAuto);
  Line line(link);
  REQUIRE(line.recv_cq.moderate(100, 0us));
  line.recv_cq.arm();
  REQUIRE(line.receiver.post_recv({.wr_id = 1}));
  REQUIRE(line.receiver.modify({.state = QpState::kError}, qp_attr::kState));
  CHECK(is_readable(line.recv_cq.fd(), 5000));
}

TEST_CASE("completions say when they were made, where that was asked for", "[api][cq][timestamp]") {
  Joined link(GENERATE(Mode::kApp, Mode::kAuto, Mode::kLcore));
  Line line(link, {.entries = 16, .timestamps = true});
  std::uint64_t last = 1;  // the first may be of an iteration that began long ago
  for (std::uint64_t i = 0; i < 10; ++i) {
    line.send(i, send_flag::kSignaled);
    Wc sent{.status = WcStatus::kGeneralErr};
    Wc received{.status = WcStatus::kGeneralErr};
    bool has_sent = false;
    bool has_received = false;
    REQUIRE(within(5s, [&] {
      has_sent = has_sent || line.send_cq.poll({&sent, 1}) == 1;
      has_received = has_received || line.recv_cq.poll({&received, 1}) == 1;
      link.b.device.progress();
      return has_sent && has_received;
    }));
    CHECK(sent.timestamp_ns == 0);
    CHECK(received.timestamp_ns >= last);
    last = received.timestamp_ns;
    CHECK(link.b.device.now_ns() >= last);
  }
}

TEST_CASE("a CQ that overflows is told with the size that its QPs need", "[api][cq][overflow]") {
  Joined link(Mode::kApp);
  Line line(link, {.entries = 4});
  // Two queues of 64 each; a QP that is gone counts no more.
  { const Qp gone = must(Qp::create(link.b.pd, line.recv_cq, line.recv_cq, {.max_recv_wr = 1024})); }
  for (std::uint64_t i = 0; i < 5; ++i) line.send(i);
  AsyncEvent event;
  REQUIRE(within(5s, [&] {
    link.a.device.progress();
    link.b.device.progress();
    return link.b.device.next_async_event(event) && event.type == AsyncEventType::kCqErr;
  }));
  INFO(event.text);
  CHECK(event.text.find("4 entries") != std::string::npos);
  CHECK(event.text.find("128") != std::string::npos);
  CHECK(line.receiver.error_text() == event.text);
}

namespace {

/// A QP whose CQ is just as large as it needs, and a program that polls it only when no more can be posted.
struct Greedy {
  static constexpr QpInitAttr kQueues{.max_send_wr = 16, .max_recv_wr = 16};

  explicit Greedy(Joined& joined, std::uint32_t entries = 32, const QpInitAttr& queues = kQueues)
      : link(joined),
        attr(queues),
        cq(must(Cq::create(link.a.device, entries))),
        peer_cq(must(Cq::create(link.b.device, 128))),
        peer(must(Qp::create(link.b.pd, peer_cq, peer_cq, {}))) {
    begin();
  }
  /// With a new QP.
  void begin() {
    qp.reset();
    qp.emplace(must(Qp::create(link.a.pd, cq, cq, attr)));
    REQUIRE(peer.modify({.state = QpState::kReset}, qp_attr::kState));
    REQUIRE(join(link.a, *qp, link.b, peer));
  }
  [[nodiscard]] bool has_completed(std::uint64_t completions) {
    return within(5s, [&] {
      link.a.device.progress();
      link.b.device.progress();
      return counter(link.a.device, "completions") >= completions;
    });
  }
  /// WRITEs of nothing until the queue is full; each completes before the next one.
  /// @param each  so many are one that is signaled
  void post_all(std::uint64_t each) {
    const std::uint64_t first = posted;
    while (posted - first < 1000) {
      const bool is_signaled = posted % each == each - 1;
      const SendWr wr{.wr_id = posted,
                      .opcode = WrOpcode::kRdmaWrite,
                      .flags = is_signaled ? send_flag::kSignaled : std::uint8_t{0}};
      const std::uint64_t completions = counter(link.a.device, "completions");
      if (!qp->post_send(wr)) return;
      ++posted;
      if (is_signaled) REQUIRE(has_completed(completions + 1));
    }
    FAIL("it takes what cannot have room");
  }
  /// All that was posted completes in order.
  void poll_all(std::uint64_t each) {
    for (; taken + each <= posted; taken += each) {
      Wc wc{.status = WcStatus::kGeneralErr};
      REQUIRE(within(5s, [&] {
        link.b.device.progress();
        return cq.poll({&wc, 1}) == 1;
      }));
      REQUIRE(wc.ok());
      REQUIRE(wc.wr_id == taken + each - 1);
    }
  }

  Joined& link;
  QpInitAttr attr;
  Cq cq;
  Cq peer_cq;
  Qp peer;
  std::optional<Qp> qp{};
  std::uint64_t posted = 0;
  std::uint64_t taken = 0;
};

}  // namespace

TEST_CASE("what posts until its queue is full, and polls only then, loses nothing", "[api][cq][overflow]") {
  Joined link(GENERATE(Mode::kApp, Mode::kLcore));
  Greedy greedy(link);
  const std::uint64_t each = GENERATE(1U, 3U);
  for (int round = 0; round < 20; ++round) {
    const std::uint64_t before = greedy.posted;
    greedy.post_all(each);
    CHECK(greedy.posted - before >= 16);
    greedy.poll_all(each);
  }
  for (AsyncEvent event; link.a.device.next_async_event(event);) {
    INFO(event.text);
    CHECK(event.type == AsyncEventType::kPortActive);
  }
  CHECK(counter(link.a.device, "cq_overflows") == 0);
}

TEST_CASE("sends need as many completions as were asked for, whatever else the CQ is for",
          "[api][cq][overflow]") {
  Joined link(Mode::kApp);
  const auto [entries, attr] = GENERATE(std::pair{16U, QpInitAttr{.max_send_wr = 16, .max_recv_wr = 0}},
                                        std::pair{32U, QpInitAttr{.max_send_wr = 17, .max_recv_wr = 9}},
                                        std::pair{16U, QpInitAttr{.max_send_wr = 16, .max_recv_wr = 1}});
  Greedy greedy(link, entries, attr);
  for (int round = 0; round < 3; ++round) {
    const std::uint64_t before = greedy.posted;
    greedy.post_all(1);
    CHECK(greedy.posted - before >= entries + attr.max_send_wr);
    greedy.poll_all(1);
  }
  CHECK(counter(link.a.device, "cq_overflows") == 0);
}

TEST_CASE("late completions of several queues may be more than their CQ has entries", "[api][cq][overflow]") {
  constexpr QpInitAttr kOdd{.max_send_wr = 33, .max_recv_wr = 0};  // they have 64
  Joined link(Mode::kApp);
  Greedy first(link, 128, kOdd);
  std::vector<Qp> others;
  std::vector<Qp> peers;
  for (int i = 0; i < 2; ++i) {
    others.push_back(must(Qp::create(link.a.pd, first.cq, first.cq, kOdd)));
    peers.push_back(must(Qp::create(link.b.pd, first.peer_cq, first.peer_cq, {})));
    REQUIRE(join(link.a, others.back(), link.b, peers.back()));
  }
  first.post_all(1);  // fills the CQ, and its queue
  std::uint64_t posted = first.posted;
  for (Qp& other : others) {
    for (; other.post_send({.opcode = WrOpcode::kRdmaWrite, .flags = send_flag::kSignaled}); ++posted)
      REQUIRE(first.has_completed(posted));
  }
  CHECK(first.has_completed(posted));
  CHECK(posted == 128 + 3 * 64);
  std::vector<Wc> wcs(posted + 1);
  CHECK(first.cq.poll(wcs) == posted);
}

/// ibv_poll_cq(3).
TEST_CASE("a poll that takes fewer completions than it could has left none", "[api][cq][overflow]") {
  Joined link(GENERATE(Mode::kApp, Mode::kLcore, Mode::kAuto));
  Greedy greedy(link);
  std::array<Wc, 256> wcs;
  for (int round = 0; round < 20; ++round) {
    const std::uint64_t before = greedy.posted;
    greedy.post_all(1);
    REQUIRE(greedy.posted - before == 32 + 16);
    REQUIRE(greedy.cq.poll(wcs) == greedy.posted - before);
    REQUIRE(greedy.cq.poll(wcs) == 0);
  }
}

TEST_CASE("a QP that goes takes along what its CQ had no room for", "[api][cq][overflow]") {
  Joined link(Mode::kApp);
  Greedy greedy(link);
  greedy.post_all(1);
  SECTION("it is gone") {
    greedy.begin();
  }
  SECTION("it was reset") {
    REQUIRE(greedy.qp->modify({.state = QpState::kReset}, qp_attr::kState));
    REQUIRE(greedy.peer.modify({.state = QpState::kReset}, qp_attr::kState));
    REQUIRE(join(link.a, *greedy.qp, link.b, greedy.peer));
  }
  std::array<Wc, 64> wcs;
  CHECK(greedy.cq.poll(wcs) <= 32);
  CHECK(greedy.cq.poll(wcs) == 0);
  greedy.taken = greedy.posted;
  greedy.post_all(1);
  greedy.poll_all(1);
}

}  // namespace uroce::api
