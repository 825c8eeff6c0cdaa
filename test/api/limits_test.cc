// Limits of the public API: full CQs, a port without room, many QPs.
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <fstream>
#include <vector>

#include "api/ends.h"
#include "verbs/device_impl.h"
#include "verbs/gsi.h"

namespace uroce::api {
namespace {

std::vector<AsyncEvent> events_of(Device& device) {
  std::vector<AsyncEvent> events;
  for (AsyncEvent event; device.next_async_event(event);) events.push_back(event);
  return events;
}

std::size_t count_of(const std::vector<AsyncEvent>& events, AsyncEventType type) {
  std::size_t count = 0;
  for (const AsyncEvent& event : events) count += event.type == type ? 1 : 0;
  return count;
}

/// One SEND from `from` to `to` arrives and completes.
void check_ping(Joined& link, Qp& from, Cq& from_cq, Qp& to, Cq& to_cq) {
  REQUIRE(to.post_recv({.wr_id = 1}));
  REQUIRE(from.post_send({.wr_id = 2, .flags = send_flag::kSignaled}));
  Wc sent{.status = WcStatus::kGeneralErr};
  Wc received{.status = WcStatus::kGeneralErr};
  bool has_sent = false;
  bool has_received = false;
  REQUIRE(within(5s, [&] {
    has_sent = has_sent || from_cq.poll({&sent, 1}) == 1;
    has_received = has_received || to_cq.poll({&received, 1}) == 1;
    link.a.device.progress();
    link.b.device.progress();
    return has_sent && has_received;
  }));
  CHECK(sent.ok());
  CHECK(received.ok());
  CHECK(received.qpn == to.qpn());
}

/// Sends one after the other until `victim` is in Error.
void send_until_error(Joined& link, Qp& from, Qp& victim) {
  REQUIRE(within(5s, [&] {
    for (int i = 0; i < 4; ++i) (void)from.post_send({.wr_id = 3, .flags = send_flag::kSignaled});
    link.a.device.progress();
    link.b.device.progress();
    return victim.query().state == QpState::kError;
  }));
}

void check_overflow_report(Device& device, Qp& victim, const Cq& full) {
  const auto events = events_of(device);
  CHECK(count_of(events, AsyncEventType::kCqErr) == 1);
  for (const AsyncEvent& event : events) {
    INFO(event.text);
    if (event.type == AsyncEventType::kCqErr) {
      CHECK(event.qpn == victim.qpn());
      CHECK(event.cq == full.number());
      CHECK_FALSE(event.text.empty());
    }
  }
  const std::string text = victim.error_text();
  INFO(text);
  CHECK(text.find("completion queue") != std::string::npos);
  CHECK(text.find(std::to_string(full.entries()) + " entries") != std::string::npos);
}

}  // namespace

TEST_CASE("a send CQ that overflows is reported once and ends its QP only", "[limits][cq][R6]") {
  Joined link(Mode::kApp);
  constexpr std::uint32_t kEntries = 8;
  Cq small = must(Cq::create(link.a.device, kEntries));
  Cq cq_a = must(Cq::create(link.a.device, 64));
  Cq cq_b = must(Cq::create(link.b.device, 256));
  Qp victim = must(Qp::create(link.a.pd, small, cq_a, {}));
  Qp other_a = must(Qp::create(link.a.pd, cq_a, cq_a, {}));
  Qp peer = must(Qp::create(link.b.pd, cq_b, cq_b, {}));
  Qp other_b = must(Qp::create(link.b.pd, cq_b, cq_b, {}));
  REQUIRE(join(link.a, victim, link.b, peer).has_value());
  REQUIRE(join(link.a, other_a, link.b, other_b).has_value());
  for (std::uint64_t i = 0; i < 64; ++i) REQUIRE(peer.post_recv({.wr_id = i}));

  send_until_error(link, victim, victim);
  check_overflow_report(link.a.device, victim, small);
  // What had room is there and good.
  Wc wcs[64];
  const std::size_t count = small.poll(wcs);
  CHECK(count == kEntries);
  for (const Wc& wc : std::span(wcs).first(count)) CHECK(wc.ok());
  (void)cq_b.poll(wcs);
  while (cq_b.poll(wcs) != 0) {
  }
  check_ping(link, other_a, cq_a, other_b, cq_b);
  CHECK(count_of(events_of(link.a.device), AsyncEventType::kCqErr) == 0);
  // The QP serves again after a reset.
  REQUIRE(victim.modify({.state = QpState::kReset}, qp_attr::kState).has_value());
  REQUIRE(peer.modify({.state = QpState::kReset}, qp_attr::kState).has_value());
  CHECK(victim.error_text().empty());
  REQUIRE(join(link.a, victim, link.b, peer).has_value());
  check_ping(link, victim, small, peer, cq_b);
}

TEST_CASE("a receive CQ that overflows is reported once and ends its QP only", "[limits][cq][R6]") {
  Joined link(Mode::kApp);
  constexpr std::uint32_t kEntries = 4;
  Cq small = must(Cq::create(link.b.device, kEntries));
  Cq cq_a = must(Cq::create(link.a.device, 256));
  Cq cq_b = must(Cq::create(link.b.device, 64));
  Qp sender = must(Qp::create(link.a.pd, cq_a, cq_a, {}));
  Qp other_a = must(Qp::create(link.a.pd, cq_a, cq_a, {}));
  Qp victim = must(Qp::create(link.b.pd, cq_b, small, {}));
  Qp other_b = must(Qp::create(link.b.pd, cq_b, cq_b, {}));
  REQUIRE(join(link.a, sender, link.b, victim).has_value());
  REQUIRE(join(link.a, other_a, link.b, other_b).has_value());
  for (std::uint64_t i = 0; i < 64; ++i) REQUIRE(victim.post_recv({.wr_id = i}));

  send_until_error(link, sender, victim);
  check_overflow_report(link.b.device, victim, small);
  Wc wcs[64];
  const std::size_t count = small.poll(wcs);
  CHECK(count == kEntries);
  for (std::size_t i = 0; i < count; ++i) {
    CHECK(wcs[i].ok());
    CHECK(wcs[i].wr_id == i);
  }
  while (cq_a.poll(wcs) != 0) {
  }
  check_ping(link, other_a, cq_a, other_b, cq_b);
}

TEST_CASE("flushed work requests that a CQ has no room for are reported too", "[limits][cq][R6]") {
  Joined link(Mode::kApp);
  Cq small = must(Cq::create(link.a.device, 4));
  Qp qp = must(Qp::create(link.a.pd, small, small, {}));
  REQUIRE(qp.modify({.state = QpState::kInit}, qp_attr::kInitMask).has_value());
  for (std::uint64_t i = 0; i < 32; ++i) REQUIRE(qp.post_recv({.wr_id = i}));
  REQUIRE(qp.modify({.state = QpState::kError}, qp_attr::kState).has_value());
  check_overflow_report(link.a.device, qp, small);
}

TEST_CASE("nothing is lost at a port without room, and it goes on once there is some", "[limits][port][R7]") {
  constexpr std::uint32_t kMessage = 8192;
  constexpr std::uint32_t kMessages = 64;
  Joined link(Mode::kApp, ",ring=65536", 0);  // a probe would let it send less
  Cq cq_a = must(Cq::create(link.a.device, 2 * kMessages));
  Cq cq_b = must(Cq::create(link.b.device, 2 * kMessages));
  const QpInitAttr capacities{.max_send_wr = kMessages, .max_recv_wr = kMessages};
  Qp qp_a = must(Qp::create(link.a.pd, cq_a, cq_a, capacities));
  Qp qp_b = must(Qp::create(link.b.pd, cq_b, cq_b, capacities));
  Mr out_a = must(Mr::alloc(link.a.pd, kMessages * kMessage, access::kAll));
  Mr in_a = must(Mr::alloc(link.a.pd, kMessages * kMessage, access::kAll));
  Mr out_b = must(Mr::alloc(link.b.pd, kMessages * kMessage, access::kAll));
  Mr in_b = must(Mr::alloc(link.b.pd, kMessages * kMessage, access::kAll));
  REQUIRE(join(link.a, qp_a, link.b, qp_b).has_value());
  check_ping(link, qp_a, cq_a, qp_b, cq_b);  // the ends know each other
  for (std::uint32_t i = 0; i < kMessages; ++i) {
    std::memset(out_a.memory().data() + i * kMessage, static_cast<int>(i + 1), kMessage);
    std::memset(out_b.memory().data() + i * kMessage, static_cast<int>(i + 101), kMessage);
    const Sge to_a = in_a.sge(i * kMessage, kMessage);
    const Sge to_b = in_b.sge(i * kMessage, kMessage);
    REQUIRE(qp_a.post_recv({.wr_id = i, .sges = {&to_a, 1}}));
    REQUIRE(qp_b.post_recv({.wr_id = i, .sges = {&to_b, 1}}));
    const Sge from_a = out_a.sge(i * kMessage, kMessage);
    const Sge from_b = out_b.sge(i * kMessage, kMessage);
    REQUIRE(qp_a.post_send({.wr_id = 100 + i, .sges = {&from_a, 1}, .flags = send_flag::kSignaled}));
    REQUIRE(qp_b.post_send({.wr_id = 100 + i, .sges = {&from_b, 1}, .flags = send_flag::kSignaled}));
  }
  // For longer than an ack timeout only one side runs: its ring fills, and stays full.
  const auto no_room = [&](const Device& device) {
    for (const Counter& counter : device.counters()) {
      if (counter.name == "loop_tx_no_room") return counter.value;
    }
    return std::uint64_t{0};
  };
  const auto until = Clock::now() + 800ms;
  while (Clock::now() < until) link.a.device.progress();
  CHECK(no_room(link.a.device) > 0);

  // Then both run again, one far more often than the other.
  std::vector<Wc> got_a, got_b;
  const auto take = [](Cq& cq, std::vector<Wc>& got) {
    Wc wcs[16];
    const std::size_t count = cq.poll(wcs);
    got.insert(got.end(), wcs, wcs + count);
  };
  CHECK(within(5s, [&] {
    for (int i = 0; i < 50; ++i) take(cq_a, got_a);
    take(cq_b, got_b);
    return got_a.size() == 2 * kMessages && got_b.size() == 2 * kMessages;
  }));
  for (const auto& [got, in, out] : {std::tuple{&got_a, &in_a, &out_b}, {&got_b, &in_b, &out_a}}) {
    std::uint64_t received = 0;
    std::uint64_t sent = 0;
    for (const Wc& wc : *got) {
      REQUIRE(wc.ok());
      CHECK(wc.wr_id == (wc.opcode == WcOpcode::kRecv ? received++ : 100 + sent++));
    }
    CHECK(std::memcmp(in->memory().data(), out->memory().data(), in->memory().size()) == 0);
  }
}

TEST_CASE("10000 QPs are created in time and do not disturb the one that works", "[limits][qps][R9]") {
  constexpr std::size_t kQps = 10'000;
  Joined link(Mode::kApp);
  Cq cq_a = must(Cq::create(link.a.device, 256));
  Cq cq_b = must(Cq::create(link.b.device, 256));
  Qp peer = must(Qp::create(link.b.pd, cq_b, cq_b, {}));
  std::vector<Qp> qps;
  qps.reserve(kQps);
  const auto in_use = [] {
    std::size_t all = 0;
    std::size_t pages = 0;  // resident
    std::ifstream("/proc/self/statm") >> all >> pages;
    return pages * static_cast<std::size_t>(::getpagesize());
  };
  const std::size_t before = in_use();
  const auto start = Clock::now();
  for (std::size_t i = 0; i < kQps; ++i) {
    qps.push_back(must(Qp::create(link.a.pd, cq_a, cq_a, {.max_send_wr = 16, .max_recv_wr = 16})));
    REQUIRE(qps.back().connect(towards(link.b, peer)).has_value());
  }
  const auto created = Clock::now() - start;
  const auto ms = [](auto time) {
    return std::chrono::duration_cast<std::chrono::milliseconds>(time).count();
  };
  std::printf("%zu QPs with 16 + 16 work requests created and connected in %lld ms, %zu bytes each\n", kQps,
              static_cast<long long>(ms(created)), (in_use() - before) / kQps);
  CHECK(created < 10s);

  REQUIRE(peer.connect(towards(link.a, qps[kQps / 2])).has_value());
  const auto first = Clock::now();
  constexpr int kPings = 2000;
  for (int i = 0; i < kPings; ++i) check_ping(link, qps[kQps / 2], cq_a, peer, cq_b);
  const auto pinged = Clock::now() - first;
  std::printf("%d pings in %lld ms\n", kPings, static_cast<long long>(ms(pinged)));

  const auto end = Clock::now();
  qps.clear();
  std::printf("destroyed in %lld ms\n", static_cast<long long>(ms(Clock::now() - end)));
  CHECK(Clock::now() - end < 10s);
}

TEST_CASE("a loop that has no QP numbers left says so, and others still have theirs", "[limits][loops]") {
  Config config;
  config.port = "shm:numbers" + std::to_string(getpid());
  config.lcores = "0-63";
  config.max_qp = 300'000;  // more than the 2^18 numbers of one loop
  config.mode = Mode::kApp;
  End end = End::open(config);
  Device::Impl& device = end.device.impl();
  std::uint32_t taken = 0;
  bool is_of_loop = true;
  auto last = device.take_qpn(5);
  for (; last.has_value() && taken < config.max_qp; last = device.take_qpn(5)) {
    is_of_loop = is_of_loop && raw(*last) % 64 == 5;
    ++taken;
  }
  CHECK(is_of_loop);
  REQUIRE_FALSE(last.has_value());
  CHECK(last.error().code == Errc::kLimit);
  CHECK_THAT(last.error().text, Catch::Contains("loop"));
  CHECK(taken > 262'000);
  const auto other = device.take_qpn(6);
  REQUIRE(other.has_value());
  CHECK(raw(*other) % 64 == 6);
  device.release_qpn(Qpn{5 + 64 * 1000});
  CHECK(device.take_qpn(5).has_value());
  CHECK_FALSE(device.take_qpn(5).has_value());
}

TEST_CASE("the QP of connection management is none of the application's", "[limits][qps]") {
  End end = End::open("shm:one-qp" + std::to_string(getpid()), Mode::kApp, 2);
  Device::Impl& device = end.device.impl();
  REQUIRE(device.take_qpn(kGsiQpn).has_value());
  CHECK(device.take_qpn(0).has_value());
  CHECK(device.take_qpn(0).has_value());
  const auto third = device.take_qpn(0);
  REQUIRE_FALSE(third.has_value());
  CHECK(third.error().code == Errc::kLimit);
}

}  // namespace uroce::api
