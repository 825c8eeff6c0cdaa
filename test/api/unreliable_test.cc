// UC and UD through the public API, between two devices.
#include <cstring>
#include <optional>
#include <vector>

#include "api/side.h"
#include "uroce/ah.h"
#include "verbs/device_impl.h"

namespace uroce::api {
namespace {

constexpr std::uint32_t kQkey = 0x0123'4567;
constexpr std::uint32_t kBytes = 4096;

QpAttr datagrams() {
  return {.sq_psn = Psn{9}, .qkey = kQkey};
}

}  // namespace

TEST_CASE("a datagram is answered to where it came from", "[api][ud]") {
  const Mode mode = GENERATE(Mode::kAuto, Mode::kLcore);
  Joined link(mode);
  Side a(link.a, QpType::kUd);
  Side b(link.b, QpType::kUd);
  REQUIRE(a.qp.connect(datagrams()));
  REQUIRE(b.qp.connect(datagrams()));
  std::memset(a.memory.memory().data(), 0x5a, 100);
  b.receive(1, 0, kGrhBytes + 100);
  a.receive(2, 1000, kGrhBytes + 100);

  const Ah there = must(Ah::create(link.a.pd, {.dgid = link.b.gid()}));
  a.send_datagram(3, 100, there, b.qp.qpn(), kQkey);
  const Wc received = b.next();
  REQUIRE(received.ok());
  CHECK(received.byte_len == kGrhBytes + 100);
  CHECK(received.src_qpn == a.qp.qpn());
  CHECK(std::memcmp(b.memory.memory().data() + kGrhBytes, a.memory.memory().data(), 100) == 0);
  CHECK(a.next().wr_id == 3);

  const Ah back = must(Ah::from_wc(link.b.pd, received, b.memory.memory().first<kGrhBytes>()));
  CHECK(back.attr().dgid == link.a.gid());
  const Sge same = b.memory.sge(kGrhBytes, 100);
  REQUIRE(b.qp.post_send({.wr_id = 4,
                          .sges = {&same, 1},
                          .flags = send_flag::kSignaled,
                          .ah = back.id(),
                          .remote_qpn = received.src_qpn,
                          .remote_qkey = kQkey}));
  const Wc answer = a.next();
  REQUIRE(answer.ok());
  CHECK(answer.wr_id == 2);
  CHECK(std::memcmp(a.memory.memory().data() + 1000 + kGrhBytes, a.memory.memory().data(), 100) == 0);
}

TEST_CASE("work requests to a handle that is gone fail, also when another has its place", "[api][ud][ah]") {
  Joined link(Mode::kAuto);
  Side a(link.a, QpType::kUd);
  REQUIRE(a.qp.connect(datagrams()));
  AhId gone{};
  {
    const Ah ah = must(Ah::create(link.a.pd, {.dgid = link.b.gid()}));
    gone = ah.id();
  }
  const Ah other = must(Ah::create(link.a.pd, {.dgid = link.b.gid()}));
  CHECK(other.id() != gone);
  REQUIRE(a.qp.post_send({.wr_id = 1, .flags = send_flag::kSignaled, .ah = gone}));
  CHECK(a.next().status == WcStatus::kLocQpOpErr);
  CHECK(a.qp.query().state == QpState::kSqe);
}

TEST_CASE("what was posted to a handle that goes is still sent", "[api][ud][ah]") {
  Joined link(Mode::kApp);
  Side a(link.a, QpType::kUd);
  Side b(link.b, QpType::kUd);
  REQUIRE(a.qp.connect(datagrams()));
  REQUIRE(b.qp.connect(datagrams()));
  constexpr std::uint64_t kMany = 3;
  for (std::uint64_t i = 0; i < kMany; ++i) {
    b.receive(i, 0, kGrhBytes);
    const Ah there = must(Ah::create(link.a.pd, {.dgid = link.b.gid()}));  // nobody has answered yet
    REQUIRE(a.qp.post_send({.wr_id = i,
                            .flags = send_flag::kSignaled,
                            .ah = there.id(),
                            .remote_qpn = b.qp.qpn(),
                            .remote_qkey = kQkey}));
  }
  for (std::uint64_t i = 0; i < kMany; ++i) {
    Wc wc;
    REQUIRE(within(5s, [&] {
      link.a.device.progress();
      return b.cq.poll({&wc, 1}) == 1;
    }));
    CHECK(wc.ok());
    CHECK(wc.wr_id == i);
    REQUIRE(within(5s, [&] { return a.cq.poll({&wc, 1}) == 1; }));
    CHECK(wc.ok());
  }
}

TEST_CASE("a handle that goes before its datagrams have been sent is kept until they are, or their QP goes",
          "[api][ud][ah]") {
  Joined link(Mode::kApp);
  const auto kept = [&] { return link.a.device.impl().leaving_ahs.size(); };
  Cq cq = must(Cq::create(link.a.device, 16));
  std::optional<Qp> qp(must(Qp::create(link.a.pd, cq, cq, {.type = QpType::kUd})));
  REQUIRE(qp->connect(datagrams()));
  const auto send_and_let_go = [&] {
    const Ah there = must(Ah::create(link.a.pd, {.dgid = link.b.gid()}));  // nobody has answered yet
    REQUIRE(qp->post_send(
        {.flags = send_flag::kSignaled, .ah = there.id(), .remote_qpn = Qpn{5}, .remote_qkey = kQkey}));
  };
  send_and_let_go();
  REQUIRE(kept() == 1);
  SECTION("they are sent, and another handle comes") {
    REQUIRE(within(5s, [&] {
      Wc wc;
      link.b.device.progress();
      return cq.poll({&wc, 1}) == 1;
    }));
    const Ah next = must(Ah::create(link.a.pd, {.dgid = link.b.gid()}));
    CHECK(kept() == 0);
  }
  SECTION("the QP goes") {
    qp.reset();
    CHECK(kept() == 0);
  }
}

TEST_CASE("an address handle is to an address that can be reached", "[api][ah]") {
  Joined link(Mode::kApp);
  for (const AhAttr& wrong : {AhAttr{}, AhAttr{.dgid = link.b.gid(), .sgid_index = 99},
                              AhAttr{.dgid = link.b.gid(), .sgid_index = 0}}) {
    const auto ah = Ah::create(link.a.pd, wrong);
    REQUIRE_FALSE(ah.has_value());
    CHECK(ah.error().code == Errc::kInvalid);
  }
  const std::array<std::byte, kGrhBytes> nothing{};
  CHECK_FALSE(Ah::from_wc(link.a.pd, Wc{}, nothing).has_value());
}

TEST_CASE("a UC connection carries messages and writes memory", "[api][uc]") {
  Joined link(Mode::kAuto);
  Side a(link.a, QpType::kUc);
  Side b(link.b, QpType::kUc);
  REQUIRE(join(link.a, a.qp, link.b, b.qp));
  for (std::uint32_t i = 0; i < kBytes; ++i) a.memory.memory()[i] = static_cast<std::byte>(i * 7);
  b.receive(1, 0, kBytes);
  const Sge sge = a.memory.sge(0, kBytes);
  REQUIRE(a.qp.post_send({.wr_id = 2,
                          .sges = {&sge, 1},
                          .opcode = WrOpcode::kRdmaWrite,
                          .remote_addr = b.memory.addr() + 8192,
                          .rkey = b.memory.rkey()}));
  REQUIRE(a.qp.post_send({.wr_id = 3, .sges = {&sge, 1}, .flags = send_flag::kSignaled}));
  const Wc received = b.next();
  REQUIRE(received.ok());
  CHECK(received.byte_len == kBytes);
  for (const std::size_t at : {std::size_t{0}, std::size_t{8192}}) {
    CHECK(std::memcmp(b.memory.memory().data() + at, a.memory.memory().data(), kBytes) == 0);
  }
  CHECK(a.next().wr_id == 3);
  REQUIRE(a.qp.post_send({.wr_id = 4, .sges = {&sge, 1}, .opcode = WrOpcode::kRdmaRead}));
  CHECK(a.next().status == WcStatus::kLocQpOpErr);
}

}  // namespace uroce::api
