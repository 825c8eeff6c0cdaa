// A loop that has not run for a while: what came meanwhile is seen before a timer takes it for lost, and
// before a new connection takes it for its own.
#include <algorithm>
#include <catch2/catch.hpp>

#include "drivers/shm/open.h"
#include "engine/loop_fixture.h"
#include "port/port_helpers.h"
#include "support/script_memory.h"

using namespace uroce;
using namespace uroce::test;
using wire::Opcode;

namespace {

constexpr std::uint64_t kPauseNs = 1'000'000'000;
constexpr std::uint8_t kShortest = 1;  // timeout code: 8 us

Gid gid_of_end(std::size_t end) {
  return Gid::from_v4({10, 77, 0, static_cast<std::uint8_t>(end + 1)});
}

/// A loop at the first end of a link; the test holds the others.
class LoopOnShm {
 public:
  /// @param ends  2: a link of its own; more: a mesh
  LoopOnShm(const std::string& what, unsigned ends) {
    drivers::PortOptions options;
    options.spec = "shm:" + unique_name(what) + (ends > 2 ? ",ring=256K,ends=" + std::to_string(ends) : "");
    for (unsigned i = 0; i < ends; ++i) {
      auto opened = drivers::open_shm(options);
      if (!opened) FAIL(opened.error().text);
      ports.push_back(std::move(opened->front()));
    }
    meet();
    loop = std::make_unique<engine::PollLoop>(engine::LoopPlace{}, *ports[0], addresses, 100'000'000);
  }
  ~LoopOnShm() {
    for (auto& qp : qps) loop->remove(*qp, now());
  }
  LoopOnShm(const LoopOnShm&) = delete;
  LoopOnShm& operator=(const LoopOnShm&) = delete;

  transport::RcQp& make_qp(std::uint32_t qpn) {
    qps.push_back(std::make_unique<transport::RcQp>(Qpn{qpn}, 1, QpInitAttr{.sq_sig_all = true}, keys,
                                                    loop->counters(), cq, cq));
    loop->add(*qps.back());
    return *qps.back();
  }
  void connect(transport::RcQp& qp, std::size_t end) {
    const QpAttr attr{.path_mtu = PathMtu::k1024,
                      .dest_qpn = Qpn{0x77},
                      .access_flags = access::kAll,
                      .dgid = gid_of_end(end),
                      .sgid_index = 0,
                      .timeout = kShortest,
                      .retry_cnt = 0};
    REQUIRE(to_rts(*loop, qp, attr, {.active_mtu = PathMtu::k4096, .gid_count = 1}, now()));
  }
  /// Tells the loop where that end is, which a QP wants to know.
  void introduce(std::size_t end) {
    const wire::LinkAddress link{.src = ports[end]->info().mac, .dst = ports[0]->info().mac};
    Bytes frame(wire::arp_frame_len(link));
    wire::emit_arp_frame(frame.data(), link,
                         wire::make_arp_request(link.src, gid_of_end(end), gid_of_end(0)));
    REQUIRE(send(way_from(end), frame));
    iterate(8);
  }
  void post(transport::RcQp& qp, WrOpcode opcode, std::uint32_t bytes) {
    const Sge sge = memory.sge(0, bytes);
    REQUIRE(qp.context().sq.put({.sges = {&sge, 1}, .opcode = opcode}, 0));
    qp.context().sq.publish(1);
    loop->ring(qp);
    iterate(1);
    REQUIRE(qp.in_flight() > 0);
  }
  void iterate(unsigned times) {
    for (; times > 0; --times) loop->run_once(Ticks{now_ns += 100});
  }

  [[nodiscard]] Bytes frame_from(std::size_t end, const Packet& packet, Qpn qpn) const {
    return frame_of(packet,
                    {.src_mac = ports[end]->info().mac,
                     .dst_mac = ports[0]->info().mac,
                     .sgid = gid_of_end(end),
                     .dgid = gid_of_end(0)},
                    qpn);
  }
  void give(std::size_t end, const Packet& packet, Qpn qpn) const {
    REQUIRE(send(way_from(end), frame_from(end, packet, qpn)));
  }
  void give_bulk(std::size_t end, const Packet& packet, Qpn qpn) const {
    REQUIRE(send_bulk(way_from(end), frame_from(end, packet, qpn)));
  }
  void give_write(std::size_t end, Qpn qpn) {
    give(end,
         {.opcode = Opcode::kRcWriteOnly,
          .payload = 8,
          .ack_req = true,
          .reth = wire::Reth{.va = memory.addr(), .rkey = memory.rkey(), .length = 8}},
         qpn);
  }
  /// One that no QP takes.
  void give_stray(std::size_t end) const { give(end, {.opcode = Opcode::kRcSendOnly}, Qpn{0x99}); }
  /// Looks in vain, past the loop.
  void look(unsigned times) const {
    std::array<port::RxFrame, port::kBurst> frames;
    for (; times > 0; --times) REQUIRE(ports[0]->rx_burst(frames) == 0);
  }

  [[nodiscard]] port::Port& way_from(std::size_t end) const {
    return ports[end]->way_to(ports[0]->info().mac);
  }
  [[nodiscard]] Ticks now() const { return Ticks{now_ns}; }
  [[nodiscard]] std::uint64_t count(Count counter) const { return loop->counters().get(counter); }

  std::vector<std::unique_ptr<port::Port>> ports;
  mem::KeyTable keys{1, [] {}};
  transport::CqRing cq{256};
  Area memory{keys, 1, 4096, access::kAll, 0x10};
  engine::Addresses addresses{{{gid_of_end(0), 24}}, std::nullopt};
  std::unique_ptr<engine::PollLoop> loop;
  std::vector<std::unique_ptr<transport::RcQp>> qps;
  std::uint64_t now_ns = 1'000'000'000;

 private:
  /// Polls until each end has seen the first one, and that has seen them.
  void meet() const {
    for (std::size_t end = 1; end < ports.size(); ++end) {
      for (unsigned i = 0; i < 4 * ports.size(); ++i) {
        for (port::Port* way : {&way_from(end), &ports[0]->way_to(ports[end]->info().mac)}) {
          static_cast<void>(way->tx_claim(64));  // never committed
          static_cast<void>(way->bulk_sink().tx_claim(64));
        }
        for (const std::size_t one : {std::size_t{0}, end}) receive(*ports[one]);
      }
    }
  }
};

constexpr unsigned kUntilSilent = 70'000;  // looks that show nothing

}  // namespace

TEST_CASE("a timer waits for bulk that is behind a short message", "[engine][loop][timer][shm]") {
  const bool is_answered = GENERATE(true, false);
  CAPTURE(is_answered);
  LoopOnShm f("unseen-bulk", 2);
  auto& qp = f.make_qp(0x10);
  f.connect(qp, 1);
  f.introduce(1);
  f.post(qp, WrOpcode::kRdmaRead, 2048);
  f.iterate(4);
  f.give_stray(1);
  const wire::Aeth aeth{.syndrome = 0x1f, .msn = 1};
  if (is_answered) {
    f.give_bulk(1, {.opcode = Opcode::kRcReadResponseFirst, .psn = 0, .payload = 1024, .aeth = aeth},
                Qpn{0x10});
    f.give_bulk(1, {.opcode = Opcode::kRcReadResponseLast, .psn = 1, .payload = 1024, .aeth = aeth},
                Qpn{0x10});
  }
  f.now_ns += kPauseNs;
  f.iterate(1);
  CHECK(f.count(Count::kRequesterTimeouts) == (is_answered ? 0 : 1));
  f.iterate(4);
  Wc wc;
  REQUIRE(f.cq.poll({&wc, 1}) == 1);
  CHECK(wc.status == (is_answered ? WcStatus::kSuccess : WcStatus::kRetryExcErr));
}

TEST_CASE("timers wait for what has come from any of many ends", "[engine][loop][timer][shm][mesh]") {
  constexpr std::size_t kEnds = 4;
  const unsigned phase = GENERATE(0U, 1U, 2U);  // of whose turn it is
  const std::size_t talks = GENERATE(0U, 2U);   // 0: nobody
  const std::size_t fails = GENERATE(0U, 3U);   // likewise
  CAPTURE(phase, talks, fails);
  LoopOnShm f("unseen-ends", kEnds);
  for (std::size_t end = 1; end < kEnds; ++end) f.connect(f.make_qp(static_cast<std::uint32_t>(end)), end);
  for (std::size_t end = 1; end < kEnds; ++end) f.introduce(end);
  for (const auto& qp : f.qps) f.post(*qp, WrOpcode::kRdmaWrite, 8);
  f.look(kUntilSilent);
  if (talks != 0) {
    f.give_stray(talks);
    REQUIRE(receive_soon(*f.ports[0]).size() == 1);
  }
  f.look(phase);
  for (std::size_t end = 1; end < kEnds; ++end) {
    if (end != fails) f.give(end, Ack{.psn = 0, .msn = 1}, f.qps[end - 1]->context().qpn);
  }
  f.now_ns += kPauseNs;
  f.iterate(6);
  CHECK(f.count(Count::kRequesterTimeouts) == (fails != 0 ? 1 : 0));
  std::array<Wc, kEnds> wcs;
  const std::size_t count = f.cq.poll(wcs);
  REQUIRE(count == kEnds - 1);
  for (const Wc& wc : std::span(wcs).first(count)) CHECK(wc.ok() == (raw(wc.qpn) != fails));
}

TEST_CASE("what any of many ends has sent to a former connection is not taken by the next one",
          "[engine][loop][shm][mesh]") {
  constexpr std::size_t kEnds = 4;
  const unsigned phase = GENERATE(0U, 1U, 2U);
  const std::size_t end = GENERATE(1U, 2U, 3U);
  CAPTURE(phase, end);
  LoopOnShm f("unseen-former", kEnds);
  auto& qp = f.make_qp(0x10);
  f.look(phase);
  f.give_write(end, Qpn{0x10});
  f.connect(qp, end);
  f.iterate(8);
  CHECK(f.count(Count::kResponderMessages) == 0);
  CHECK(f.memory.is_untouched());
  f.give_write(end, Qpn{0x10});
  f.iterate(8);
  CHECK(f.count(Count::kResponderMessages) == 1);
}

/// A QP whose peer is in the same loop.
void connect_within(LoopFixture& f, transport::RcQp& qp, const transport::RcQp& peer) {
  QpAttr attr;
  attr.dest_qpn = peer.context().qpn;
  attr.dgid = LoopFixture::local_v4();
  attr.sgid_index = 1;
  attr.timeout = kShortest;
  attr.retry_cnt = 0;
  attr.path_mtu = PathMtu::k1024;
  REQUIRE(to_rts(f.loop, qp, attr, {.gid_count = 2}, f.now()));
}

/// So many pairs of QPs of one loop, one behind the other.
std::vector<std::unique_ptr<transport::RcQp>> pairs_within(LoopFixture& f, std::size_t pairs,
                                                           bool sq_sig_all) {
  std::vector<std::unique_ptr<transport::RcQp>> qps;
  for (std::size_t i = 0; i < 2 * pairs; ++i) {
    qps.push_back(f.make_qp(0x10 + static_cast<std::uint32_t>(i), sq_sig_all));
  }
  for (std::size_t i = 0; i < 2 * pairs; ++i) connect_within(f, *qps[i], *qps[i ^ 1]);
  return qps;
}

void post_within(transport::RcQp& from, transport::RcQp& to) {
  REQUIRE(to.context().receives.own.put({.wr_id = 1}, 0));
  to.context().receives.own.publish(1);
  REQUIRE(from.context().sq.put({.wr_id = 2}, 0));
  from.context().sq.publish(1);
}

/// So many from the first one of each pair to the other one.
void post_each(LoopFixture& f, const std::vector<std::unique_ptr<transport::RcQp>>& qps,
               std::uint64_t count) {
  for (std::size_t i = 0; i < qps.size(); i += 2) {
    for (std::uint64_t n = 0; n < count; ++n) post_within(*qps[i], *qps[i + 1]);
    f.loop.ring(*qps[i]);
  }
}

TEST_CASE("timers wait for what QPs of one loop have for each other", "[engine][loop][timer][local]") {
  LoopFixture f;
  constexpr std::size_t kPairs = 8;
  constexpr std::uint64_t kEach = 16;  // packets: of all pairs as many as there is room for
  const auto qps = pairs_within(f, kPairs, true);
  std::size_t expected = 0;
  SECTION("a request that left before the pause") {
    struct Clock {
      [[nodiscard]] Ticks now() const { return time; }
      Ticks time;
    };
    post_within(*qps[0], *qps[1]);
    f.loop.post(*qps[0], Clock{f.now()});
    REQUIRE(qps[0]->in_flight() == 1);
    expected = 2;
  }
  SECTION("more requests than an iteration takes") {
    post_each(f, qps, kEach);
    f.loop.run_once(f.now());
    expected = 2 * kPairs * kEach;
  }
  f.now_ns += kPauseNs;
  for (unsigned i = 0; i < 16; ++i) f.loop.run_once(f.now());
  CHECK(f.loop.counters().get(Count::kRequesterTimeouts) == 0);
  std::array<Wc, 2 * kPairs * kEach> wcs;
  const std::size_t count = f.cq.poll(wcs);
  CHECK(count == expected);
  for (const Wc& wc : std::span(wcs).first(count)) CHECK(wc.ok());
  for (const auto& qp : qps) f.loop.remove(*qp, f.now());
}

TEST_CASE("timers wait for answers that come behind all that QPs of one loop have posted",
          "[engine][loop][timer][local]") {
  LoopFixture f;
  constexpr std::size_t kPairs = 64;
  constexpr std::uint64_t kEach = 60;
  const auto qps = pairs_within(f, kPairs, false);
  post_each(f, qps, kEach);
  f.loop.run_once(f.now());
  f.now_ns += kPauseNs;
  std::array<Wc, 256> wcs;
  std::size_t completed = 0;
  unsigned turns = 0;
  for (; turns < 10'000 && completed < kPairs * kEach; ++turns) {
    f.now_ns += 1000;
    f.loop.run_once(f.now());
    const std::size_t count = f.cq.poll(wcs);
    CHECK(std::all_of(wcs.begin(), wcs.begin() + static_cast<std::ptrdiff_t>(count),
                      [](const Wc& wc) { return wc.ok(); }));
    completed += count;
  }
  CAPTURE(turns);
  CHECK(completed == kPairs * kEach);
  CHECK(f.loop.counters().get(Count::kRequesterTimeouts) == 0);
  for (const auto& qp : qps) f.loop.remove(*qp, f.now());
}

TEST_CASE("timers do not wait for ever for QPs of one loop that always have something for each other",
          "[engine][loop][timer][local][T27]") {
  LoopFixture f;
  const auto from = f.make_qp(0x10);
  const auto to = f.make_qp(0x11);
  const auto other = f.make_qp(0x12);
  connect_within(f, *from, *to);
  connect_within(f, *to, *from);
  REQUIRE(f.connect(*other));  // timeout code 8: 1.048576 ms
  introduce(f);
  f.post_send(*other);
  f.run(1000);
  REQUIRE(f.taken().size() == 1);
  const std::uint64_t sent = f.now_ns;
  std::array<Wc, 64> wcs;
  std::uint64_t under_way = 0;
  while (f.taken().empty() && f.now_ns < sent + 10'000'000) {
    for (; under_way < 48; under_way += 2) post_within(*from, *to);
    f.loop.ring(*from);
    f.now_ns += 2000;
    f.loop.run_once(f.now());
    under_way -= f.cq.poll(wcs);
  }
  CHECK(f.now_ns - sent >= 1'048'576 - 2000);
  CHECK(f.now_ns - sent <= 1'048'576 + 600'000);
  for (transport::RcQp* const qp : {&*from, &*to, &*other}) f.loop.remove(*qp, f.now());
}
