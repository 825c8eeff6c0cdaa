// QPs of one device that talk to each other: no switch sends their frames back.
#include <algorithm>
#include <cstring>
#include <vector>

#include "api/side.h"
#include "uroce/ah.h"

namespace uroce::api {
namespace {

constexpr std::uint32_t kQkey = 0x0123'4567;
constexpr std::uint32_t kLarge = 1U << 20;

struct Large {
  explicit Large(End& end) : memory(must(Mr::alloc(end.pd, kLarge, access::kAll))) {}
  void fill(unsigned factor) {
    for (std::size_t i = 0; i < kLarge; ++i)
      memory.memory()[i] = static_cast<std::byte>(i * factor + i / 997);
  }
  [[nodiscard]] bool equals(const Large& other) const {
    return std::equal(memory.memory().begin(), memory.memory().end(), other.memory.memory().begin());
  }
  Mr memory;
};

/// Posts one large transfer from `a` to `b` and waits for its completions.
void transfer(Side& a, Side& b, WrOpcode opcode, const Large& local, const Large& remote) {
  const bool is_send = opcode == WrOpcode::kSend;
  const Sge there = remote.memory.sge(0, kLarge);
  if (is_send) REQUIRE(b.qp.post_recv({.wr_id = 1, .sges = {&there, 1}}));
  const Sge here = local.memory.sge(0, kLarge);
  REQUIRE(a.qp.post_send({.wr_id = 2,
                          .sges = {&here, 1},
                          .opcode = opcode,
                          .flags = send_flag::kSignaled,
                          .remote_addr = remote.memory.addr(),
                          .rkey = remote.memory.rkey()}));
  const auto next = [&](Side& side) {
    Wc wc{.status = WcStatus::kGeneralErr};
    const bool came = within(20s, [&] {
      a.end.device.progress();
      return side.cq.poll({&wc, 1}) == 1;
    });
    REQUIRE(came);
    REQUIRE(wc.ok());
    return wc;
  };
  CHECK(next(a).wr_id == 2);
  if (is_send) CHECK(next(b).byte_len == kLarge);
}

QpAttr to_own(const End& end, const Qp& peer, std::uint32_t gid_index) {
  QpAttr attr = towards(end, peer);
  attr.dgid = end.device.gids().at(gid_index).gid;
  attr.sgid_index = gid_index;
  return attr;
}

}  // namespace

TEST_CASE("two RC QPs of one device reach each other, whoever runs the loop", "[api][rc][local]") {
  const Mode mode = GENERATE(Mode::kApp, Mode::kAuto, Mode::kLcore);
  const std::uint32_t gid_index = GENERATE(0U, 1U);  // IPv6 link-local, IPv4
  End end = lone(mode);
  Side a(end, QpType::kRc);
  Side b(end, QpType::kRc);
  for (Side* side : {&a, &b}) {
    QpAttr attr = to_own(end, side == &a ? b.qp : a.qp, gid_index);
    attr.timeout = 20;  // 4 s: nothing is lost, and a loop that stands still is no reason for one
    REQUIRE(side->qp.connect(attr));
  }
  Large source(end);
  Large sink(end);
  for (const WrOpcode opcode : {WrOpcode::kSend, WrOpcode::kRdmaWrite}) {
    source.fill(3 + raw(opcode));
    transfer(a, b, opcode, source, sink);
    CHECK(sink.equals(source));
  }
  sink.fill(11);
  transfer(b, a, WrOpcode::kRdmaRead, source, sink);
  CHECK(sink.equals(source));
  CHECK(counter(end.device, "local_frames") > 3 * kLarge / 1024);
  CHECK(counter(end.device, "drop_bad_icrc") == 0);
  CHECK(counter(end.device, "requester_timeouts") == 0);
  CHECK(counter(end.device, "tx_arp") == 0);
  CHECK(counter(end.device, "port_tx_frames") == 0);
}

TEST_CASE("an RC QP may be connected to itself", "[api][rc][local]") {
  End end = lone(Mode::kAuto);
  Side a(end, QpType::kRc);
  REQUIRE(a.qp.connect(to_own(end, a.qp, 1)));
  std::memset(a.memory.memory().data(), 0x5a, 100);
  a.receive(1, 1000, 100);
  const Sge sge = a.memory.sge(0, 100);
  REQUIRE(a.qp.post_send({.wr_id = 2, .sges = {&sge, 1}, .flags = send_flag::kSignaled}));
  std::vector<std::uint64_t> done{a.next().wr_id};
  done.push_back(a.next().wr_id);
  std::sort(done.begin(), done.end());
  CHECK(done == std::vector<std::uint64_t>{1, 2});
  CHECK(std::memcmp(a.memory.memory().data() + 1000, a.memory.memory().data(), 100) == 0);
}

TEST_CASE("QPs of different loops of one device reach each other", "[api][rc][local][loops]") {
  const Mode mode = GENERATE(Mode::kApp, Mode::kAuto, Mode::kLcore);
  End end = lone(mode, "0,1");
  Side a(end, QpInitAttr{}, 0);
  Side b(end, QpInitAttr{}, 1);
  REQUIRE(a.qp.connect(to_own(end, b.qp, 1)));
  REQUIRE(b.qp.connect(to_own(end, a.qp, 1)));
  Large source(end);
  Large sink(end);
  source.fill(7);
  transfer(a, b, WrOpcode::kSend, source, sink);
  CHECK(sink.equals(source));
  sink.fill(5);
  transfer(b, a, WrOpcode::kRdmaRead, source, sink);
  CHECK(sink.equals(source));
  CHECK(counter(end.device, "handed_over") > 0);
}

TEST_CASE("what is on its way from QP to QP of a device belongs to the connection that it was sent on",
          "[api][rc][local][loops]") {
  const unsigned loop_of_b = GENERATE(0U, 1U);
  const bool has_left_its_loop = GENERATE(false, true);
  End end = lone(Mode::kApp, "0,1");
  Side a(end, QpInitAttr{}, 0);
  Side b(end, QpInitAttr{}, loop_of_b);
  const auto send = [&](std::uint32_t value) {
    REQUIRE(b.qp.connect(to_own(end, a.qp, 1)));
    REQUIRE(a.qp.connect(to_own(end, b.qp, 1)));
    std::memcpy(a.memory.memory().data(), &value, sizeof value);
    b.receive(value, 1000, sizeof value);
    const Sge sge = a.memory.sge(0, sizeof value);
    REQUIRE(a.qp.post_send({.wr_id = value, .sges = {&sge, 1}, .flags = send_flag::kSignaled}));
  };
  send(1);
  Wc none;
  if (has_left_its_loop) REQUIRE(a.cq.poll({&none, 1}) == 0);  // runs loop 0
  for (Qp* qp : {&a.qp, &b.qp}) REQUIRE(qp->modify({.state = QpState::kReset}, qp_attr::kState));
  send(2);
  for (Side* side : {&b, &a}) {
    Wc wc;
    REQUIRE(within(5s, [&] {
      end.device.progress();
      return side->cq.poll({&wc, 1}) == 1;
    }));
    CHECK(wc.ok());
    CHECK(wc.wr_id == 2);
  }
  std::uint32_t received = 0;
  std::memcpy(&received, b.memory.memory().data() + 1000, sizeof received);
  CHECK(received == 2);
}

TEST_CASE("a loop that sleeps wakes up for what another one hands over", "[api][local][loops]") {
  End end = lone(Mode::kAuto, "0,1");
  const End far = lone(Mode::kAuto, "0,1");  // a link with one end only never sleeps
  Side a(end, QpInitAttr{.type = QpType::kUd}, 0);
  Side b(end, QpInitAttr{.type = QpType::kUd}, 1);
  REQUIRE(a.qp.connect({.qkey = kQkey}));
  REQUIRE(b.qp.connect({.qkey = kQkey}));
  const Ah own = must(Ah::create(end.pd, {.dgid = end.gid()}));
  for (std::uint32_t i = 0; i < 5; ++i) {
    b.receive(i, 0, kGrhBytes + 8);
    usleep(30'000);  // longer than any helper stays awake
    b.cq.arm();
    const Sge sge = a.memory.sge(0, 8);
    REQUIRE(
        a.qp.post_send({.sges = {&sge, 1}, .ah = own.id(), .remote_qpn = b.qp.qpn(), .remote_qkey = kQkey}));
    REQUIRE(is_readable(b.cq.fd(), 5000));  // nobody polls: the helper alone can have done it
    b.cq.clear_event();
    CHECK(b.next().wr_id == i);
  }
}

TEST_CASE("UC messages and datagrams reach QPs of the same device", "[api][uc][ud][local]") {
  const Mode mode = GENERATE(Mode::kApp, Mode::kAuto);
  End end = lone(mode);
  Side a(end, QpType::kUc);
  Side b(end, QpType::kUc);
  REQUIRE(a.qp.connect(to_own(end, b.qp, 1)));
  REQUIRE(b.qp.connect(to_own(end, a.qp, 1)));
  for (std::size_t i = 0; i < 60'000; ++i) a.memory.memory()[i] = static_cast<std::byte>(i * 7);
  b.receive(1, 0, 60'000);
  const Sge sge = a.memory.sge(0, 60'000);
  REQUIRE(a.qp.post_send({.wr_id = 3, .sges = {&sge, 1}}));
  CHECK(b.next().byte_len == 60'000);
  CHECK(std::memcmp(b.memory.memory().data(), a.memory.memory().data(), 60'000) == 0);

  Side c(end, QpType::kUd);
  Side d(end, QpType::kUd);
  REQUIRE(c.qp.connect({.qkey = kQkey}));
  REQUIRE(d.qp.connect({.qkey = kQkey}));
  d.receive(1, 0, kGrhBytes + 100);
  c.receive(2, 0, kGrhBytes + 100);
  const Ah own = must(Ah::create(end.pd, {.dgid = end.gid()}));
  const Sge some = c.memory.sge(5000, 100);
  REQUIRE(
      c.qp.post_send({.sges = {&some, 1}, .ah = own.id(), .remote_qpn = d.qp.qpn(), .remote_qkey = kQkey}));
  const Wc received = d.next();
  REQUIRE(received.ok());
  const Ah back = must(Ah::from_wc(end.pd, received, d.memory.memory().first<kGrhBytes>()));
  REQUIRE(d.qp.post_send(
      {.sges = {&some, 0}, .ah = back.id(), .remote_qpn = received.src_qpn, .remote_qkey = kQkey}));
  CHECK(c.next().byte_len == kGrhBytes);
}

TEST_CASE("what goes to the device itself does not hold up what goes to the link", "[api][local]") {
  Joined link(Mode::kApp);
  Side a(link.a, QpType::kRc);
  Side b(link.a, QpType::kRc);
  REQUIRE(a.qp.connect(to_own(link.a, b.qp, 1)));
  REQUIRE(b.qp.connect(to_own(link.a, a.qp, 1)));
  Side here(link.a, QpType::kRc);
  Side there(link.b, QpType::kRc);
  REQUIRE(join(link.a, here.qp, link.b, there.qp));
  const auto exchange = [&](auto&& until) {
    there.receive(2, 0, 64);
    const Sge few = here.memory.sge(0, 64);
    REQUIRE(here.qp.post_send({.wr_id = 3, .sges = {&few, 1}, .flags = send_flag::kSignaled}));
    REQUIRE(within(20s, [&] {
      link.a.device.progress();
      link.b.device.progress();
      return until();
    }));
  };
  Wc wc;
  exchange([&] { return here.cq.poll({&wc, 1}) == 1; });  // now the neighbour is known
  Large source(link.a);
  Large sink(link.a);
  source.fill(13);
  const Sge all = source.memory.sge(0, kLarge);
  REQUIRE(a.qp.post_send({.wr_id = 1,
                          .sges = {&all, 1},
                          .opcode = WrOpcode::kRdmaWrite,
                          .flags = send_flag::kSignaled,
                          .remote_addr = sink.memory.addr(),
                          .rkey = sink.memory.rkey()}));
  bool was_first = false;
  exchange([&] {
    if (here.cq.poll({&wc, 1}) == 1) was_first = true;
    return a.cq.poll({&wc, 1}) == 1;
  });
  CHECK(wc.ok());
  CHECK(was_first);
  CHECK(sink.equals(source));
}

}  // namespace uroce::api
