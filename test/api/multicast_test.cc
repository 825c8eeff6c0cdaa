// Multicast through the public API: attached QPs of two devices. IBA 10.5.
#include <cstring>
#include <memory>
#include <vector>

#include "api/side.h"
#include "uroce/ah.h"

namespace uroce::api {
namespace {

constexpr std::uint32_t kQkey = 0x0123'4567;
constexpr Qpn kGroupQpn{0xff'ffff};
constexpr std::uint32_t kBytes = 100;

const Gid kGroup4 = *Gid::parse("239.1.2.3");
const Gid kGroup6 = *Gid::parse("ff1e::1234:5678");

/// A UD QP that is ready, with some receives posted.
std::unique_ptr<Side> listener(End& end, std::uint32_t qkey = kQkey, unsigned loop = 0,
                               bool block_own = false) {
  auto side =
      std::make_unique<Side>(end, QpInitAttr{.type = QpType::kUd, .block_own_multicast = block_own}, loop);
  REQUIRE(side->qp.connect({.qkey = qkey}));
  for (std::uint32_t i = 0; i < 8; ++i) side->receive(i, i * 1024, kGrhBytes + kBytes);
  return side;
}

struct Sender {
  /// `other`, the far end, makes progress meanwhile.
  Sender(End& end, End& far, const Gid& group)
      : other(far),
        side(end, QpInitAttr{.type = QpType::kUd}),
        ah(must(Ah::create(end.pd, {.dgid = group, .sgid_index = group.is_v4() ? 1U : 0U}))) {
    REQUIRE(side.qp.connect({.qkey = kQkey}));
  }
  void send(std::uint8_t value, Qpn to = kGroupQpn) {
    std::memset(side.memory.memory().data(), value, kBytes);
    const Sge sge = side.memory.sge(0, kBytes);
    REQUIRE(side.qp.post_send({.sges = {&sge, 1},
                               .flags = send_flag::kSignaled,
                               .ah = ah.id(),
                               .remote_qpn = to,
                               .remote_qkey = kQkey}));
    Wc wc;
    REQUIRE(within(5s, [&] {
      other.device.progress();
      return side.cq.poll({&wc, 1}) == 1;
    }));
    REQUIRE(wc.ok());
  }
  End& other;
  Side side;
  Ah ah;
};

void check_received(Side& side, std::uint8_t value) {
  const Wc wc = side.next();
  REQUIRE(wc.ok());
  CHECK(wc.byte_len == kGrhBytes + kBytes);
  CHECK((wc.flags & wc_flag::kGrh) != 0);
  CHECK(wc.qpn == side.qp.qpn());
  const auto bytes = side.memory.memory().subspan(wc.wr_id * 1024 + kGrhBytes, kBytes);
  for (const std::byte byte : bytes) REQUIRE(byte == std::byte{value});
}

/// Nothing comes, although the loops have had time for it.
void check_quiet(Side& side) {
  for (int i = 0; i < 100; ++i) side.end.device.progress();
  Wc wc;
  CHECK(side.cq.poll({&wc, 1}) == 0);
}

/// Runs both devices until `name` at `device` is `value`.
void await(Joined& link, const Device& device, std::string_view name, std::uint64_t value) {
  REQUIRE(within(5s, [&] {
    link.a.device.progress();
    link.b.device.progress();
    return counter(device, name) >= value;
  }));
  CHECK(counter(device, name) == value);
}

}  // namespace

TEST_CASE("every attached QP of the other device receives a datagram to the group", "[api][multicast]") {
  const Mode mode = GENERATE(Mode::kApp, Mode::kAuto, Mode::kLcore);
  const bool v4 = GENERATE(true, false);
  const Gid group = v4 ? kGroup4 : kGroup6;
  Joined link(mode);
  auto first = listener(link.b);
  auto second = listener(link.b);
  auto third = listener(link.b, kQkey + 1);
  auto other = listener(link.b);
  for (auto* one : {&first, &second, &third}) REQUIRE((*one)->qp.attach_multicast(group));
  REQUIRE(other->qp.attach_multicast(v4 ? kGroup6 : kGroup4));
  Sender sender(link.a, link.b, group);
  sender.send(1);
  check_received(*first, 1);
  check_received(*second, 1);
  await(link, link.b.device, "drop_bad_qkey", 1);
  CHECK(counter(link.b.device, "multicast_copies") == 2);
  check_quiet(*third);
  check_quiet(*other);
}

TEST_CASE("attaching again changes nothing, detaching and destruction end it", "[api][multicast]") {
  Joined link(Mode::kApp);
  auto first = listener(link.b);
  auto second = listener(link.b);
  REQUIRE(first->qp.attach_multicast(kGroup4));
  REQUIRE(first->qp.attach_multicast(kGroup4));
  REQUIRE(second->qp.attach_multicast(kGroup4));
  Sender sender(link.a, link.b, kGroup4);
  sender.send(1);
  await(link, link.b.device, "multicast_copies", 2);
  check_received(*first, 1);
  check_received(*second, 1);
  REQUIRE(first->qp.detach_multicast(kGroup4));
  const Status again = first->qp.detach_multicast(kGroup4);
  REQUIRE_FALSE(again);
  CHECK(again.error().code == Errc::kInvalid);
  sender.send(2);
  check_received(*second, 2);
  check_quiet(*first);
  second.reset();
  sender.send(3);
  await(link, link.b.device, "drop_no_group_member", 1);
  CHECK(counter(link.b.device, "multicast_copies") == 3);
}

TEST_CASE("only UD QPs are attached, to groups only", "[api][multicast]") {
  Joined link(Mode::kApp);
  Side rc(link.a, QpType::kRc);
  Side ud(link.a, QpType::kUd);
  for (const Status& status :
       {rc.qp.attach_multicast(kGroup4), ud.qp.attach_multicast(link.b.gid()), ud.qp.attach_multicast(Gid{}),
        ud.qp.detach_multicast(kGroup4), rc.qp.detach_multicast(kGroup4)}) {
    REQUIRE_FALSE(status);
    CHECK(status.error().code == Errc::kInvalid);
  }
  const auto blocked = Qp::create(link.a.pd, rc.cq, rc.cq, {.block_own_multicast = true});
  REQUIRE_FALSE(blocked.has_value());
  QpAttr to_group = towards(link.b, rc.qp);
  to_group.dgid = kGroup4;
  CHECK_FALSE(rc.qp.connect(to_group));
}

TEST_CASE("a device is in no more groups than its limit says", "[api][multicast]") {
  Joined link(Mode::kApp);
  Side ud(link.a, QpType::kUd);
  Gid group = kGroup6;
  const std::uint32_t most = link.a.device.limits().max_mcast_grp;
  for (std::uint32_t i = 0; i < most; ++i) {
    group.raw[12] = static_cast<std::uint8_t>(i >> 8);
    group.raw[13] = static_cast<std::uint8_t>(i);
    REQUIRE(ud.qp.attach_multicast(group));
  }
  const Status more = ud.qp.attach_multicast(kGroup4);
  REQUIRE_FALSE(more);
  CHECK(more.error().code == Errc::kLimit);
  REQUIRE(ud.qp.detach_multicast(group));
  CHECK(ud.qp.attach_multicast(kGroup4));
}

TEST_CASE("QPNs and addresses of groups and of QPs do not mix", "[api][multicast][drop]") {
  Joined link(Mode::kApp);
  auto one = listener(link.b);
  REQUIRE(one->qp.attach_multicast(kGroup4));
  Sender to_group(link.a, link.b, kGroup4);
  to_group.send(1, one->qp.qpn());
  await(link, link.b.device, "drop_group_to_unicast_qpn", 1);
  Sender to_node(link.a, link.b, link.b.gid());
  to_node.send(1);
  await(link, link.b.device, "drop_unicast_to_group_qpn", 1);
  check_quiet(*one);
}

TEST_CASE("the sender's device gets copies too, the sending QP unless it blocks them",
          "[api][multicast][local]") {
  const Mode mode = GENERATE(Mode::kApp, Mode::kAuto);
  const bool block = GENERATE(false, true);
  Joined link(mode);
  auto sending = listener(link.a, kQkey, 0, block);
  auto neighbour = listener(link.a, kQkey, 0, true);  // blocks its own only
  auto far = listener(link.b);
  for (auto* one : {&sending, &neighbour, &far}) REQUIRE((*one)->qp.attach_multicast(kGroup4));
  const Ah ah = must(Ah::create(link.a.pd, {.dgid = kGroup4}));
  for (End* end : {&link.b, &link.a, &link.b, &link.a}) end->device.progress();  // the link comes up
  std::memset(&sending->memory.memory()[20'000], 9, kBytes);
  const Sge sge = sending->memory.sge(20'000, kBytes);
  REQUIRE(sending->qp.post_send(
      {.sges = {&sge, 1}, .ah = ah.id(), .remote_qpn = kGroupQpn, .remote_qkey = kQkey}));
  check_received(*neighbour, 9);
  check_received(*far, 9);
  if (block) {
    await(link, link.a.device, "drop_own_multicast", 1);
    check_quiet(*sending);
  } else {
    check_received(*sending, 9);
  }
  CHECK(counter(link.a.device, "local_frames") == 1);
}

TEST_CASE("members on several loops each get one copy", "[api][multicast][loops]") {
  const Mode mode = GENERATE(Mode::kApp, Mode::kAuto);
  Config config;
  config.port = "shm:mcloops" + std::to_string(getpid());
  config.no_huge = true;
  config.mode = mode;
  config.lcores = "0,1";
  const auto open = [&] {
    Device device = must(Device::open(config));
    Pd pd = must(Pd::create(device));
    return End{std::move(device), std::move(pd)};
  };
  End a = open();
  End b = open();
  std::vector<std::unique_ptr<Side>> all;
  for (End* end : {&a, &b}) {
    for (const unsigned loop : {0U, 1U, 1U}) all.push_back(listener(*end, kQkey, loop));
  }
  for (auto& one : all) REQUIRE(one->qp.attach_multicast(kGroup4));
  Sender sender(a, b, kGroup4);
  for (std::uint8_t i = 1; i <= 3; ++i) {
    sender.send(i);
    for (auto& one : all) {
      Wc wc;
      REQUIRE(within(5s, [&] {
        a.device.progress();
        b.device.progress();
        return one->cq.poll({&wc, 1}) == 1;
      }));
      CHECK(wc.ok());
    }
  }
  for (auto& one : all) check_quiet(*one);
  CHECK(counter(a.device, "multicast_copies") == 9);
  CHECK(counter(b.device, "multicast_copies") == 9);
}

TEST_CASE("a member without a receive loses its copy alone", "[api][multicast][drop]") {
  Joined link(Mode::kApp);
  auto with = listener(link.b);
  Side without(link.b, QpType::kUd);
  REQUIRE(without.qp.connect({.qkey = kQkey}));
  REQUIRE(without.qp.attach_multicast(kGroup4));
  REQUIRE(with->qp.attach_multicast(kGroup4));
  Sender sender(link.a, link.b, kGroup4);
  sender.send(5);
  check_received(*with, 5);
  CHECK(counter(link.b.device, "drop_no_receive") == 1);
}

}  // namespace uroce::api
