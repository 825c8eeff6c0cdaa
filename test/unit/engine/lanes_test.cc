// Bulk and the rest on a port that keeps them apart. Simulated clock; path MTU 1024.
#include <catch2/catch.hpp>

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <functional>
#include <limits>
#include <memory>
#include <vector>

#include "engine/poll_loop.h"
#include "support/given_frames.h"
#include "support/script_memory.h"
#include "support/script_packet.h"
#include "transport/rc_qp.h"
#include "wire/arp.h"

using namespace uroce;
using namespace uroce::test;
using wire::Opcode;

namespace {

constexpr MacAddress kOwnMac{{2, 0, 0, 0, 0, 1}};
constexpr MacAddress kPeerMac{{2, 0, 0, 0, 0, 2}};
constexpr std::uint32_t kPd = 7;
constexpr std::uint32_t kMtu = 1024;
constexpr Qpn kPeer{0x22};
constexpr unsigned kTurn = 16;
constexpr unsigned kCrowdedTurn = 4096 / kMtu;
constexpr std::uint64_t kCrowdNs = 1'000'000;

/// Keeps what is written to it, as long as it has room.
struct Sink : port::FrameSink {
  std::byte* tx_claim(std::uint32_t len) noexcept override {
    if (room == 0) return nullptr;
    claimed.assign(len, std::byte{0});
    return claimed.data();
  }
  void tx_commit() noexcept override {
    --room;
    wire::PacketView view;
    if (wire::parse_packet(claimed, view) == wire::ParseResult::kRoce) opcodes.push_back(view.bth.opcode);
    if (on_commit) on_commit();
  }
  bool is_drained() const noexcept override { return drained; }
  bool prepare(std::uint32_t len) noexcept override {
    prepared_len = len;
    return to_prepare == 0 || --to_prepare == 0;
  }

  /// How many packets since the last call.
  std::size_t count() { return std::exchange(opcodes, {}).size(); }

  std::function<void()> on_commit;
  Bytes claimed;
  std::vector<Opcode> opcodes;
  std::size_t room = std::numeric_limits<std::size_t>::max();  ///< packets
  bool drained = true;
  unsigned to_prepare = 0;  ///< calls of prepare() until it has nothing left
  std::uint32_t prepared_len = 0;
};

class LanePort final : public port::Port {
 public:
  LanePort(bool has_lanes, unsigned ends) : has_lanes_(has_lanes) { info_.ends = ends; }
  const port::PortInfo& info() const noexcept override { return info_; }
  unsigned rx_burst(std::span<port::RxFrame> frames) noexcept override {
    is_preparing = spares_others && to_prepare > 0;
    if (!is_preparing) return given.show(frames);
    --to_prepare;
    return 0;
  }
  bool shows_more() const noexcept override { return is_preparing; }
  void rx_release() noexcept override {}
  std::byte* tx_claim(std::uint32_t len) noexcept override { return prompt.tx_claim(len); }
  void tx_commit() noexcept override { prompt.tx_commit(); }
  void tx_flush() noexcept override {}
  bool has_taken(std::uint64_t place) const noexcept override { return prompt.drained || place == 0; }
  std::uint64_t place() const noexcept override { return 1; }
  port::FrameSink& bulk_sink() noexcept override {
    if (has_lanes_) return bulk;
    return *this;
  }
  bool has_lanes() const noexcept override { return has_lanes_; }
  port::PortCounters counters() const noexcept override { return {}; }
  void spare_others(bool yes) noexcept override { spares_others = yes; }

  GivenFrames given;
  bool spares_others = false;
  unsigned to_prepare = 0;  ///< bursts that show nothing while others are spared
  bool is_preparing = false;
  Sink prompt;
  Sink bulk;

 private:
  bool has_lanes_;
  port::PortInfo info_{.name = "lanes", .mac = kOwnMac, .link_mtu = 4200};
};

class Lanes {
 public:
  /// @param completions  that the CQ has room for
  /// @param ends  of a link between processes; 0: of a network
  explicit Lanes(bool has_lanes = true, std::uint32_t completions = 256, int event_fd = -1, unsigned ends = 0)
      : cq(completions, event_fd),
        port(has_lanes, ends),
        loop({}, port, addresses, 100'000'000),
        memory(keys, kPd, 256 * 1024UL, access::kAll, 0x10) {}
  ~Lanes() {
    for (auto& qp : qps_) loop.remove(*qp, now());
  }
  Lanes(const Lanes&) = delete;
  Lanes& operator=(const Lanes&) = delete;

  transport::RcQp& qp(std::uint32_t qpn) {
    qps_.push_back(std::make_unique<transport::RcQp>(Qpn{qpn}, kPd, QpInitAttr{.max_send_wr = 64}, keys,
                                                     loop.counters(), cq, cq));
    transport::RcQp& qp = *qps_.back();
    loop.add(qp);
    connect(qp);
    tell_neighbour();
    REQUIRE(qp.context().resolved);
    return qp;
  }
  void connect_again(transport::RcQp& qp) {
    REQUIRE(loop.modify(qp, {.state = QpState::kReset}, qp_attr::kState, {}, now()));
    connect(qp);
  }
  void post_write(transport::RcQp& qp, std::uint32_t bytes) {
    put_write(qp, bytes);
    loop.ring(qp);
  }
  /// By the thread that owns the loop.
  void post_write_here(transport::RcQp& qp, std::uint32_t bytes) {
    struct Clock {
      [[nodiscard]] Ticks now() const { return time; }
      Ticks time;
    };
    put_write(qp, bytes);
    loop.post(qp, Clock{now()});
  }
  void post_read(transport::RcQp& qp, std::uint32_t bytes) {
    const Sge sge = memory.sge(0, bytes);
    REQUIRE(qp.context().sq.put({.sges = {&sge, 1}, .opcode = WrOpcode::kRdmaRead}, 0));
    qp.context().sq.publish(1);
    loop.ring(qp);
  }
  /// `other` has sent something, and `bulk` is in the midst of a long WRITE.
  void start_beside(transport::RcQp& bulk, transport::RcQp& other) {
    post_write(other, 8);
    turn();
    post_write(bulk, 200 * kMtu);
    turn();
    turn();
    port.bulk.count();
  }
  void give(transport::RcQp& qp, const Packet& packet) {
    port.given.give(frame_of(packet,
                             {.src_mac = kPeerMac,
                              .dst_mac = kOwnMac,
                              .sgid = Gid::from_v4({10, 0, 0, 2}),
                              .dgid = Gid::from_v4({10, 0, 0, 1})},
                             qp.context().qpn));
  }
  void give_read(transport::RcQp& qp, std::uint32_t psn, std::uint32_t bytes) {
    give(qp, {.opcode = Opcode::kRcReadRequest,
              .psn = psn,
              .ack_req = true,
              .reth = wire::Reth{.va = memory.addr(), .rkey = memory.rkey(), .length = bytes}});
  }
  /// A message of two packets, the first one of path MTU and headers that no short frame has.
  void give_long_write(transport::RcQp& qp, std::uint32_t psn) {
    const wire::Reth reth{.va = memory.addr(), .rkey = memory.rkey(), .length = kMtu + 8};
    give(qp, {.opcode = Opcode::kRcWriteFirst, .psn = psn, .payload = kMtu, .reth = reth});
    give(qp, {.opcode = Opcode::kRcWriteLast, .psn = psn + 1, .payload = 8, .ack_req = true});
  }
  void give_write(transport::RcQp& qp, std::uint32_t psn) {
    give(qp, {.opcode = Opcode::kRcWriteOnly,
              .psn = psn,
              .payload = 8,
              .ack_req = true,
              .reth = wire::Reth{.va = memory.addr(), .rkey = memory.rkey(), .length = 8}});
  }
  unsigned turn(std::uint64_t ns = 1000) {
    now_ns_ += ns;
    return loop.run_once(now());
  }
  /// Twelve iterations that have short packets. @return the packets of bulk that left
  std::size_t busy_turns(transport::RcQp& other) {
    std::size_t sent = 0;
    for (std::uint32_t psn = 0; psn < 12; ++psn) {
      give_write(other, psn);
      turn();
      const std::size_t now = port.bulk.count();
      CHECK(now <= kCrowdedTurn);
      sent += now;
    }
    return sent;
  }
  [[nodiscard]] Ticks now() const { return Ticks{now_ns_}; }

  transport::CqRing cq;
  mem::KeyTable keys{1, [] {}};
  engine::Addresses addresses{{{Gid::from_v4({10, 0, 0, 1}), 24}}, std::nullopt};
  LanePort port;
  engine::PollLoop loop;
  Area memory;

 private:
  void put_write(transport::RcQp& qp, std::uint32_t bytes) {
    const Sge sge = memory.sge(0, bytes);
    REQUIRE(qp.context().sq.put({.sges = {&sge, 1}, .opcode = WrOpcode::kRdmaWrite}, 0));
    qp.context().sq.publish(1);
  }
  void connect(transport::RcQp& qp) {
    QpAttr attr{.path_mtu = PathMtu::k1024,
                .dest_qpn = kPeer,
                .access_flags = access::kAll,
                .dgid = Gid::from_v4({10, 0, 0, 2}),
                .sgid_index = 0};
    for (const auto& [state, mask] : {std::pair{QpState::kInit, qp_attr::kInitMask},
                                      {QpState::kRtr, qp_attr::kRtrMask},
                                      {QpState::kRts, qp_attr::kRtsMask}}) {
      attr.state = state;
      const Status moved = loop.modify(qp, attr, mask, {.active_mtu = PathMtu::k4096, .gid_count = 1}, now());
      INFO((moved ? "" : moved.error().text));
      REQUIRE(moved);
    }
  }
  void tell_neighbour() {
    const wire::LinkAddress link{.src = kPeerMac, .dst = kOwnMac};
    Bytes frame(wire::arp_frame_len(link));
    wire::emit_arp_frame(frame.data(), link,
                         {.operation = wire::Arp::Operation::kReply,
                          .sender_mac = kPeerMac,
                          .sender_ip = wire::v4_part(Gid::from_v4({10, 0, 0, 2}))});
    port.given.give(frame);
    turn();
  }

  std::uint64_t now_ns_ = 1'000'000'000;
  std::vector<std::unique_ptr<transport::RcQp>> qps_;
};

}  // namespace

TEST_CASE("messages of more than 1 KiB go to the bulk lane, others and ACKs do not", "[loop][lanes]") {
  Lanes lanes;
  auto& qp = lanes.qp(0x10);
  lanes.post_write(qp, kMtu);
  lanes.turn();
  CHECK(lanes.port.prompt.count() == 1);
  lanes.give(qp, Ack{.psn = 0});
  lanes.turn();
  lanes.post_write(qp, kMtu + 1);
  lanes.turn();
  CHECK(lanes.port.bulk.count() == 2);
  lanes.give_write(qp, 0);
  lanes.turn();
  lanes.turn();
  CHECK(lanes.port.prompt.opcodes == std::vector{Opcode::kRcAck});
  CHECK(lanes.port.bulk.count() == 0);
}

TEST_CASE("a QP changes the lane of its requests only with nothing in flight", "[loop][lanes]") {
  Lanes lanes;
  auto& qp = lanes.qp(0x10);
  lanes.post_write(qp, 2 * kMtu);
  lanes.turn();
  lanes.post_write(qp, 8);
  lanes.turn();
  CHECK(lanes.port.bulk.count() == 3);
  CHECK(lanes.port.prompt.count() == 0);
  lanes.give(qp, Ack{.psn = 1});  // of the first message
  lanes.turn();
  lanes.post_write(qp, 8);
  lanes.turn();
  CHECK(lanes.port.bulk.count() == 1);
  lanes.give(qp, Ack{.psn = 3});
  lanes.turn();
  lanes.post_write(qp, 8);
  lanes.turn();
  CHECK(lanes.port.prompt.count() == 1);
  lanes.post_write(qp, 2 * kMtu);  // may not overtake the short one, either
  lanes.turn();
  CHECK(lanes.port.prompt.count() == 2);
  CHECK(lanes.port.bulk.count() == 0);
}

TEST_CASE("bulk has whole turns while it is alone, and 4 KiB at a time beside others", "[loop][lanes]") {
  const bool has_lanes = GENERATE(true, false);
  INFO("lanes " << has_lanes);
  Lanes lanes(has_lanes);
  Sink& sink = has_lanes ? lanes.port.bulk : lanes.port.prompt;
  auto& bulk = lanes.qp(0x10);
  auto& other = lanes.qp(0x11);
  lanes.post_write(bulk, 200 * kMtu);
  lanes.turn();
  sink.count();
  lanes.turn();
  CHECK(sink.count() == kTurn);

  lanes.post_write(other, 8);
  lanes.turn();  // what was in the list before it
  sink.count();
  lanes.port.prompt.count();
  lanes.turn();
  CHECK(sink.count() == kCrowdedTurn);
  lanes.turn();
  CHECK(sink.count() == kCrowdedTurn);
  lanes.turn(kCrowdNs + 1);
  CHECK(sink.count() == kTurn);
}

TEST_CASE("beside others bulk has 16 KiB in flight where they stand behind it in one queue",
          "[loop][lanes]") {
  constexpr std::uint32_t kOfBulk = 200;
  constexpr std::uint32_t kBound = 16 * 1024 / kMtu;
  const auto [has_lanes, ends, is_bounded] =
      GENERATE(table<bool, unsigned, bool>({{false, 2, true}, {false, 0, false}, {true, 2, false}}));
  CAPTURE(has_lanes, ends);
  Lanes lanes(has_lanes, 256, -1, ends);
  auto& bulk = lanes.qp(0x10);
  auto& other = lanes.qp(0x11);
  const auto run = [&] {
    lanes.post_write(other, 8);
    for (unsigned i = 0; i < kOfBulk; ++i) lanes.turn();
  };
  lanes.post_write(bulk, kOfBulk * kMtu);
  for (int i = 0; i < 2; ++i) lanes.turn();  // alone
  const std::uint32_t before = bulk.in_flight();
  CHECK(before == 3 * kTurn);  // none asks for an ACK, as each 64th does
  run();
  if (!is_bounded) {
    CHECK(bulk.in_flight() == kOfBulk);
    return;
  }
  CHECK(bulk.in_flight() == before + 1);  // which asks for one
  for (std::uint32_t sent = before + 1; sent < kOfBulk; sent += bulk.in_flight()) {
    lanes.give(bulk, Ack{.psn = sent - 1});
    run();
    REQUIRE(bulk.in_flight() > 0);
    REQUIRE(bulk.in_flight() <= kBound);
  }
}

TEST_CASE("a post of bulk leaves at once while it is alone, and in turns beside others", "[loop][lanes]") {
  Lanes lanes;
  auto& bulk = lanes.qp(0x10);
  auto& other = lanes.qp(0x11);
  for (std::uint32_t psn = 1; psn <= 3; psn += 2) {  // the first one is not known as bulk before it starts
    lanes.post_write_here(bulk, 2 * kMtu);
    CHECK(lanes.port.bulk.count() == 2);
    lanes.give(bulk, Ack{.psn = psn});
    lanes.turn();
  }
  lanes.post_write_here(other, 8);
  CHECK(lanes.port.prompt.count() == 1);
  lanes.post_write_here(bulk, 2 * kMtu);
  CHECK(lanes.port.bulk.count() == 0);
  lanes.port.bulk.to_prepare = 3;
  lanes.turn();
  lanes.turn();
  CHECK(lanes.port.bulk.count() == 0);
  lanes.turn();
  CHECK(lanes.port.bulk.count() == 2);
}

TEST_CASE("what a post to a failed QP of bulk flushes is told at once, beside others, too", "[loop][lanes]") {
  // IBA 10.3.1.7 ?: a work request that is posted in Error is flushed
  Lanes lanes(true, 1);
  auto& bulk = lanes.qp(0x10);
  auto& other = lanes.qp(0x11);
  lanes.post_write_here(bulk, 2 * kMtu);
  lanes.give(bulk, Ack{.psn = 1});
  lanes.turn();
  REQUIRE(lanes.loop.modify(bulk, {.state = QpState::kError}, qp_attr::kState, {}, lanes.now()));
  lanes.post_write_here(other, 8);
  engine::LoopEvent event;
  for (std::uint32_t i = 0; i < lanes.cq.entries(); ++i) lanes.post_write_here(bulk, 2 * kMtu);
  CHECK_FALSE(lanes.loop.next_event(event));
  lanes.post_write_here(bulk, 2 * kMtu);  // there is no room for its completion
  REQUIRE(lanes.loop.next_event(event));
  CHECK(event.type == AsyncEventType::kCqErr);
  CHECK(event.full_cq.entries == lanes.cq.entries());
  lanes.connect_again(bulk);
  CHECK_FALSE(lanes.loop.next_event(event));
}

TEST_CASE("what has happened to a QP that is reset is told as of before", "[loop][lanes]") {
  Lanes lanes(true, 1);
  auto& qp = lanes.qp(0x10);
  REQUIRE(lanes.loop.modify(qp, {.state = QpState::kError}, qp_attr::kState, {}, lanes.now()));
  for (std::uint32_t i = 0; i <= lanes.cq.entries(); ++i) lanes.post_write(qp, 8);
  lanes.port.prompt.room = 0;
  static_cast<void>(qp.on_doorbell());  // as an iteration does that then finds no room to send
  lanes.connect_again(qp);
  engine::LoopEvent event;
  REQUIRE(lanes.loop.next_event(event));
  CHECK(event.type == AsyncEventType::kCqErr);
  CHECK(event.full_cq.entries == lanes.cq.entries());
}

TEST_CASE("who is woken for a completion is woken behind the ACK", "[loop][events]") {
  const int fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  REQUIRE(fd >= 0);
  Lanes lanes(true, 256, fd);
  auto& qp = lanes.qp(0x10);
  const auto is_woken = [fd] {
    pollfd wanted{.fd = fd, .events = POLLIN, .revents = 0};
    return ::poll(&wanted, 1, 0) == 1;
  };
  std::vector<bool> woken_before_ack;
  lanes.port.prompt.on_commit = [&] { woken_before_ack.push_back(is_woken()); };
  for (std::uint32_t psn = 0; psn < 2; ++psn) {
    const bool is_armed = psn == 0;
    if (is_armed) lanes.cq.arm(false);
    const Sge sge = lanes.memory.sge(0, 64);
    REQUIRE(qp.context().receives.own.put({.sges = {&sge, 1}}, 0));
    qp.context().receives.own.publish(1);
    lanes.give(qp, {.opcode = Opcode::kRcSendOnly, .psn = psn, .payload = 8, .ack_req = true});
    lanes.turn();
    CHECK(lanes.port.prompt.count() == (is_armed ? 1 : 0));
    CHECK(is_woken() == is_armed);
    std::uint64_t events = 0;
    CHECK((::read(fd, &events, sizeof events) > 0) == is_armed);
    lanes.turn();
    CHECK(lanes.port.prompt.count() == (is_armed ? 0 : 1));
  }
  CHECK(woken_before_ack == std::vector<bool>(2, false));
  ::close(fd);
}

TEST_CASE("bulk is alone on a port without lanes while others only answer, or ask for bulk",
          "[loop][lanes]") {
  Lanes lanes(false);
  auto& bulk = lanes.qp(0x10);
  auto& other = lanes.qp(0x11);
  lanes.post_write(bulk, 200 * kMtu);
  lanes.give_write(other, 0);
  lanes.turn();
  lanes.turn();
  lanes.port.prompt.count();
  lanes.turn();
  CHECK(lanes.port.prompt.count() == kTurn);
  lanes.post_read(other, 16 * kMtu);
  lanes.turn();
  lanes.port.prompt.count();
  lanes.turn();
  CHECK(lanes.port.prompt.count() == kTurn);
}

TEST_CASE("beside others bulk waits for iterations without short packets, but not for ever",
          "[loop][lanes]") {
  Lanes lanes;
  auto& bulk = lanes.qp(0x10);
  auto& other = lanes.qp(0x11);
  lanes.start_beside(bulk, other);
  CHECK(lanes.busy_turns(other) == 4 * kCrowdedTurn);  // every third
  lanes.turn();
  CHECK(lanes.port.bulk.count() == kCrowdedTurn);
}

TEST_CASE("beside requests of this end bulk is prepared in iterations that have nothing better to do",
          "[loop][lanes]") {
  Lanes lanes;
  auto& bulk = lanes.qp(0x10);
  auto& other = lanes.qp(0x11);
  lanes.start_beside(bulk, other);
  lanes.port.bulk.to_prepare = 4;
  for (int i = 0; i < 3; ++i) {
    lanes.turn();
    CHECK(lanes.port.bulk.count() == 0);
  }
  lanes.turn();
  CHECK(lanes.port.bulk.count() == kCrowdedTurn);
  CHECK(lanes.port.bulk.prepared_len > kCrowdedTurn * kMtu);

  lanes.port.bulk.to_prepare = 1000;
  CHECK(lanes.busy_turns(other) == 4 * kCrowdedTurn);  // as it is, and not for ever
  lanes.turn();
  lanes.port.bulk.count();
  lanes.turn(kCrowdNs + 1);
  CHECK(lanes.port.bulk.count() == kTurn);
}

TEST_CASE("the port spares others as long as short messages have gone both ways lately", "[loop][lanes]") {
  Lanes lanes;
  auto& bulk = lanes.qp(0x10);
  auto& other = lanes.qp(0x11);
  lanes.port.bulk.to_prepare = 1000;
  lanes.post_write(bulk, 200 * kMtu);
  lanes.give_write(other, 0);
  for (int i = 0; i < 3; ++i) lanes.turn();
  CHECK(lanes.port.bulk.to_prepare == 1000);  // nor prepared for
  CHECK(lanes.port.prompt.opcodes == std::vector{Opcode::kRcAck});
  CHECK_FALSE(lanes.port.spares_others);  // answers only
  lanes.post_write(other, 8);
  lanes.turn();
  CHECK_FALSE(lanes.port.spares_others);
  lanes.give_write(other, 1);
  lanes.turn();
  CHECK(lanes.port.spares_others);
  lanes.turn(kCrowdNs - 3000);
  lanes.give_write(other, 2);
  lanes.turn(500);
  CHECK(lanes.port.spares_others);
  lanes.turn(3000);  // since the request; not since what came
  CHECK_FALSE(lanes.port.spares_others);
  lanes.turn(kCrowdNs);
  lanes.give(other, Ack{.psn = 0});
  lanes.post_write(other, 8);
  lanes.turn();
  lanes.turn();
  CHECK_FALSE(lanes.port.spares_others);  // an ACK is no message
  lanes.give_write(other, 3);
  lanes.turn();
  CHECK(lanes.port.spares_others);
  lanes.turn(kCrowdNs - 3000);
  lanes.post_write(other, 8);
  lanes.turn(500);
  CHECK(lanes.port.spares_others);
  lanes.turn(3000);  // since what came; not since the request
  CHECK_FALSE(lanes.port.spares_others);
}

TEST_CASE("a QP that has long and short messages is no other to itself", "[loop][lanes]") {
  Lanes lanes;
  auto& qp = lanes.qp(0x10);
  const bool is_mixed = GENERATE(true, false);
  lanes.post_write(qp, 8);
  lanes.turn();
  if (is_mixed) lanes.give_long_write(qp, 0);
  lanes.turn();
  lanes.give_write(qp, is_mixed ? 2 : 0);
  lanes.turn();
  CHECK(lanes.port.spares_others != is_mixed);
}

TEST_CASE("bursts that only prepare for bulk are work", "[loop][lanes]") {
  Lanes lanes;
  auto& qp = lanes.qp(0x10);
  lanes.post_write(qp, 8);
  lanes.turn();
  lanes.give_write(qp, 0);
  lanes.turn();
  lanes.turn();
  REQUIRE(lanes.port.spares_others);
  CHECK(lanes.turn() == 0);
  lanes.port.to_prepare = 1;
  CHECK(lanes.turn() == 1);
  CHECK(lanes.turn() == 0);
}

TEST_CASE("who asks for bulk by a READ is no other that must be spared", "[loop][lanes]") {
  Lanes lanes;
  auto& qp = lanes.qp(0x10);
  auto& other = lanes.qp(0x11);
  const std::uint32_t bytes = GENERATE(8U, 16 * kMtu);
  lanes.post_read(qp, bytes);
  lanes.turn();
  CHECK(lanes.port.prompt.count() == 1);
  lanes.give_write(other, 0);
  lanes.turn();
  CHECK(lanes.port.spares_others == (bytes == 8));
}

TEST_CASE("a bulk lane without room holds nobody else up", "[loop][lanes]") {
  Lanes lanes;
  auto& bulk = lanes.qp(0x10);
  auto& other = lanes.qp(0x11);
  lanes.port.bulk.room = 0;
  lanes.post_write(bulk, 2 * kMtu);
  lanes.post_write(other, 8);
  for (int i = 0; i < 3; ++i) lanes.turn();
  CHECK(lanes.port.prompt.count() == 1);
  lanes.port.bulk.room = 1000;
  for (int i = 0; i < 3; ++i) lanes.turn();
  CHECK(lanes.port.bulk.count() == 2);
}

TEST_CASE("where there is room for one QP at a time each has its turn", "[loop][lanes]") {
  Lanes lanes(GENERATE(false, true));
  const std::uint32_t bytes = GENERATE(8U, 2 * kMtu);
  constexpr std::size_t kQps = 8;
  std::vector<transport::RcQp*> qps;
  for (std::uint32_t i = 0; i < kQps; ++i) qps.push_back(&lanes.qp(0x10 + i));
  lanes.port.prompt.room = lanes.port.bulk.room = 0;
  for (transport::RcQp* qp : qps) {
    for (unsigned i = 0; i < 2 * kTurn; ++i) lanes.post_write(*qp, bytes);
  }
  for (std::size_t turn = 0; turn < kQps; ++turn) {
    lanes.port.prompt.room = lanes.port.bulk.room = kTurn;
    lanes.turn(1);
  }
  for (transport::RcQp* qp : qps) CHECK(qp->in_flight() == kTurn);
}

TEST_CASE("READ responses are bulk, and what is answered after them as long as they are on their way",
          "[loop][lanes]") {
  Lanes lanes;
  auto& qp = lanes.qp(0x10);
  lanes.give_read(qp, 0, 8);
  lanes.turn();
  lanes.turn();
  CHECK(lanes.port.prompt.opcodes == std::vector{Opcode::kRcReadResponseOnly});
  lanes.port.prompt.count();
  lanes.port.bulk.drained = false;
  lanes.give_read(qp, 1, 3 * kMtu);
  for (int i = 0; i < 4; ++i) lanes.turn();
  CHECK(lanes.port.bulk.count() == 3);
  lanes.give_write(qp, 4);
  for (int i = 0; i < 4; ++i) lanes.turn();
  CHECK(lanes.port.bulk.opcodes == std::vector{Opcode::kRcAck});
  lanes.port.bulk.count();
  lanes.port.bulk.drained = true;
  lanes.give_write(qp, 5);
  for (int i = 0; i < 4; ++i) lanes.turn();
  CHECK(lanes.port.prompt.opcodes == std::vector{Opcode::kRcAck});
  CHECK(lanes.port.bulk.count() == 0);
}

// IBA 9.7.5.1.4 ?: the peer takes a response that comes ahead of another one for the loss of that.
TEST_CASE("a long READ response is bulk if short ones are taken, but not for ever", "[loop][lanes]") {
  const bool are_taken = GENERATE(true, false);
  const bool ends = GENERATE(false, true);
  Lanes lanes;
  auto& qp = lanes.qp(0x10);
  lanes.port.prompt.drained = false;
  lanes.give_read(qp, 0, 8);
  lanes.give_read(qp, 1, 2 * kMtu);
  lanes.give_write(qp, 3);
  for (int i = 0; i < 4; ++i) lanes.turn();
  CHECK(lanes.port.prompt.count() == 1);
  CHECK(lanes.port.bulk.count() == 0);
  if (ends) lanes.connect_again(qp);
  lanes.port.prompt.drained = are_taken;
  for (int i = 0; i < 70; ++i) lanes.turn();
  CHECK(lanes.port.bulk.count() == (are_taken && !ends ? 3 : 0));
  CHECK(lanes.port.prompt.count() == (are_taken && !ends ? 0 : 3));
}

TEST_CASE("a QP with requests and responses to send gets to both, a packet at a time", "[loop][lanes]") {
  Lanes lanes;
  auto& bulk = lanes.qp(0x10);
  auto& other = lanes.qp(0x11);
  lanes.start_beside(bulk, other);
  lanes.give_write(bulk, 0);
  for (int i = 0; i < 4; ++i) lanes.turn();
  CHECK(lanes.port.bulk.count() >= 3);
  CHECK(std::count(lanes.port.prompt.opcodes.begin(), lanes.port.prompt.opcodes.end(), Opcode::kRcAck) == 1);
}

TEST_CASE("what waited in the port for a former connection of a QP does not reach the next",
          "[loop][lanes]") {
  Lanes lanes;
  auto& qp = lanes.qp(0x10);
  const bool spares_others = GENERATE(false, true);
  if (spares_others) {
    auto& other = lanes.qp(0x11);
    lanes.post_write(other, 8);
    lanes.turn();
    lanes.give_write(other, 0);
    lanes.turn();
    lanes.turn();
    REQUIRE(lanes.port.spares_others);
    lanes.port.prompt.count();
    lanes.port.to_prepare = 1;
  }
  lanes.give_write(qp, 0);
  lanes.give_write(qp, 1);
  lanes.connect_again(qp);
  lanes.turn();
  lanes.turn();
  CHECK(lanes.loop.counters().get(Count::kDropQpState) == 2);
  CHECK(lanes.port.prompt.count() == 0);
  lanes.give_write(qp, 0);
  lanes.turn();
  lanes.turn();
  CHECK(lanes.port.prompt.opcodes == std::vector{Opcode::kRcAck});
}

TEST_CASE("a QP that is removed while its bulk waits is forgotten", "[loop][lanes]") {
  Lanes lanes;
  auto& other = lanes.qp(0x11);
  lanes.post_write(other, 8);
  lanes.turn();
  auto& bulk = lanes.qp(0x10);
  lanes.post_write(bulk, 200 * kMtu);
  lanes.turn();
  CHECK(lanes.loop.has_work());
  lanes.loop.remove(bulk, lanes.now());
  CHECK_FALSE(lanes.loop.has_work());
  lanes.port.bulk.count();
  lanes.turn();
  CHECK(lanes.port.bulk.count() == 0);
}
