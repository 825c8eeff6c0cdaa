// VLANs and RoCE v1 through the public API, between two devices.
#include <cstring>
#include <vector>

#include "api/side.h"
#include "uroce/ah.h"

namespace uroce::api {
namespace {

constexpr std::uint32_t kQkey = 0x0123'4567;
constexpr std::uint32_t kBytes = 3000;

/// GIDs of each end: two VLANs with the same network, and all of it again as RoCE v1.
enum Index : std::uint32_t { kLinkLocal, kPlain, kIn5, kIn6, kV1LinkLocal, kV1, kV1In5, kV1In6, kCount };

End open(const std::string& port, Mode mode, const std::string& address) {
  Config config;
  config.port = port;
  config.no_huge = true;
  config.mode = mode;
  config.ip = {address, address + "@5", address + "@6"};
  config.roce_v1 = true;
  Device device = must(Device::open(config));
  Pd pd = must(Pd::create(device));
  return {std::move(device), std::move(pd)};
}

struct Vlans {
  explicit Vlans(Mode mode)
      : port("shm:under" + std::to_string(getpid())),
        a(open(port, mode, "10.9.0.1/24")),
        b(open(port, mode, "10.9.0.2/24")) {}
  std::string port;
  End a;
  End b;
};

Status join(Side& a, std::uint32_t index_a, Side& b, std::uint32_t index_b, std::uint8_t timeout = 16) {
  QpAttr attr = towards(b.end, b.qp);
  attr.timeout = timeout;
  attr.retry_cnt = timeout == 16 ? 7 : 1;
  attr.sgid_index = index_a;
  attr.dgid = b.end.device.gids().at(index_b).gid;
  if (Status status = a.qp.connect(attr); !status) return status;
  attr.dest_qpn = a.qp.qpn();
  attr.sgid_index = index_b;
  attr.dgid = a.end.device.gids().at(index_a).gid;
  return b.qp.connect(attr);
}

/// One message, between QPs that are connected.
void send_one(Side& from, Side& to) {
  to.receive(0, 0, kBytes);
  REQUIRE(from.qp.post_send({.wr_id = 1, .flags = send_flag::kSignaled}));
  REQUIRE(from.next().ok());
  CHECK(to.next().ok());
}

/// One message, by the addresses of this index. Each end has learned the other one's Ethernet address then,
/// as one in their VLAN.
void pass_one(Vlans& link, std::uint32_t index) {
  Side a(link.a, QpType::kRc);
  Side b(link.b, QpType::kRc);
  REQUIRE(join(a, index, b, index));
  send_one(a, b);
}

}  // namespace

TEST_CASE("the GID table tells type and VLAN, RoCE v2 first", "[api][gid]") {
  Vlans link(Mode::kApp);
  const auto gids = link.a.device.gids();
  REQUIRE(gids.size() == kCount);
  for (std::uint32_t i = 0; i < kCount; ++i) {
    CAPTURE(i);
    constexpr std::uint16_t kVlans[]{0, 0, 5, 6};
    CHECK(gids[i].vlan == kVlans[i % 4]);
    CHECK(gids[i].type == (i < kV1LinkLocal ? GidType::kRoceV2 : GidType::kRoceV1));
    CHECK(gids[i].gid == gids[i % 4].gid);
    CHECK(gids[i].gid.is_link_local() == (i % 4 == 0));
  }
  CHECK(to_string(gids[kV1].type) == "RoCE v1");
}

TEST_CASE("connections over GIDs of each VLAN and version carry data", "[api][vlan][v1]") {
  Vlans link(GENERATE(Mode::kAuto, Mode::kLcore));
  for (std::uint32_t index = 0; index < kCount; ++index) {
    CAPTURE(index);
    Side a(link.a, QpType::kRc);
    Side b(link.b, QpType::kRc);
    REQUIRE(join(a, index, b, index));
    std::memset(a.memory.memory().data(), static_cast<int>(0x30 + index), kBytes);
    b.receive(0, 0, kBytes);
    const Sge sge = a.memory.sge(0, kBytes);
    REQUIRE(a.qp.post_send({.wr_id = 1,
                            .sges = {&sge, 1},
                            .opcode = WrOpcode::kRdmaWrite,
                            .remote_addr = b.memory.addr() + 8192,
                            .rkey = b.memory.rkey()}));
    REQUIRE(a.qp.post_send({.wr_id = 2, .sges = {&sge, 1}, .flags = send_flag::kSignaled}));
    CHECK(b.next().byte_len == kBytes);
    CHECK(a.next().wr_id == 2);
    for (const std::size_t at : {std::size_t{0}, std::size_t{8192}}) {
      CHECK(std::memcmp(b.memory.memory().data() + at, a.memory.memory().data(), kBytes) == 0);
    }
  }
}

TEST_CASE("ends that disagree on VLAN or version do not hear each other, and count why", "[api][vlan][v1]") {
  Vlans link(Mode::kAuto);
  struct Row {
    std::uint32_t from, to;
    const char* counter;  // at the receiver; none if it does not even answer ARP there
  };
  for (const Row& row : {Row{kPlain, kV1, "drop_wrong_gid_type"}, Row{kV1, kPlain, "drop_wrong_gid_type"},
                         Row{kIn5, kIn6, "drop_wrong_vlan"}, Row{kPlain, kIn5, "drop_wrong_vlan"}}) {
    CAPTURE(row.from, row.to);
    pass_one(link, row.from);  // what is sent to an address that is not known yet may never leave
    Side a(link.a, QpType::kRc);
    Side b(link.b, QpType::kRc);
    REQUIRE(join(a, row.from, b, row.to, 12));
    const auto before = counter(b.end.device, row.counter);
    b.receive(0, 0, kBytes);
    REQUIRE(a.qp.post_send({.wr_id = 1}));
    CHECK(a.next().status == WcStatus::kRetryExcErr);
    CHECK(within(5s, [&] { return counter(b.end.device, row.counter) > before; }));
  }
}

TEST_CASE("a datagram tells its VLAN, and is answered there, by the same version", "[api][vlan][v1][ud]") {
  Vlans link(Mode::kAuto);
  Side a(link.a, QpType::kUd);
  Side b(link.b, QpType::kUd);
  REQUIRE(a.qp.connect({.sq_psn = Psn{9}, .qkey = kQkey}));
  REQUIRE(b.qp.connect({.sq_psn = Psn{9}, .qkey = kQkey}));
  for (std::uint32_t index = kPlain; index < kCount; ++index) {
    CAPTURE(index);
    const GidEntry from = link.a.device.gids().at(index);
    const GidEntry to = link.b.device.gids().at(index);
    b.receive(0, 0, kGrhBytes + 100);
    const Ah there =
        must(Ah::create(link.a.pd, {.dgid = to.gid, .sgid_index = index, .traffic_class = 0x68, .sl = 3}));
    a.send_datagram(3, 100, there, b.qp.qpn(), kQkey);
    const Wc received = b.next();
    REQUIRE(received.ok());
    CHECK(received.vlan == from.vlan);
    CHECK(received.sl == (from.vlan == 0 ? 0 : 3));
    CHECK(received.network == (from.type == GidType::kRoceV1 ? NetworkHeader::kGrh : NetworkHeader::kIpv4));
    CHECK(a.next().ok());
    const auto grh = b.memory.memory().first<kGrhBytes>();
    if (from.type == GidType::kRoceV1) {
      CHECK(grh[0] == std::byte{0x66});  // version 6, upper half of the traffic class
      CHECK(grh[6] == std::byte{0x1b});
      CHECK(std::memcmp(grh.data() + 8, from.gid.raw.data(), 16) == 0);
      CHECK(std::memcmp(grh.data() + 24, to.gid.raw.data(), 16) == 0);
    } else {
      CHECK(grh[20] == std::byte{0x45});
      CHECK(grh[21] == std::byte{0x68});
    }
    const Ah back = must(Ah::from_wc(link.b.pd, received, grh));
    CHECK(back.attr().dgid == from.gid);
    CHECK(back.attr().sgid_index == index);
    CHECK(back.attr().traffic_class == 0x68);
    CHECK(back.attr().sl == received.sl);
  }
}

TEST_CASE("addresses come and go while a port is open; indices and connections stay", "[api][gid]") {
  Vlans link(GENERATE(Mode::kAuto, Mode::kLcore));
  Side a(link.a, QpType::kRc);
  Side b(link.b, QpType::kRc);
  REQUIRE(join(a, kIn5, b, kIn5));
  send_one(a, b);  // each learns where the other one is, which nobody tells once the address is gone
  const auto count = [&] { return link.a.device.gids().size(); };

  REQUIRE(link.a.device.add_ip("10.9.1.1/24"));
  AsyncEvent event;
  REQUIRE(within(
      5s, [&] { return link.a.device.next_async_event(event) && event.type == AsyncEventType::kGidChange; }));
  REQUIRE(count() == kCount + 2);
  CHECK(link.a.device.gids()[kCount].gid == Gid::from_v4({10, 9, 1, 1}));
  CHECK(link.a.device.gids()[kCount + 1].type == GidType::kRoceV1);
  CHECK(link.a.device.add_ip("10.9.1.1/16").error().code == Errc::kInvalid);
  CHECK(link.a.device.add_ip("10.9.1.1").has_value() == false);
  CHECK(link.a.device.add_ip("10.9.1/24").error().code == Errc::kConfig);
  REQUIRE(link.b.device.add_ip("10.9.1.2/24"));
  pass_one(link, kCount);  // a new address is used like any other

  REQUIRE(link.a.device.remove_ip("10.9.0.1/24@5"));
  CHECK(link.a.device.remove_ip("10.9.0.1/24@5").error().code == Errc::kNotFound);
  const Gid link_local = link.a.device.gids()[kLinkLocal].gid;
  CHECK(link.a.device.remove_ip(to_string(link_local) + "/64").error().code == Errc::kNotFound);
  CHECK(count() == kCount + 2);
  CHECK(link.a.device.gids()[kIn5].gid.is_zero());
  CHECK(link.a.device.gids()[kV1In5].gid.is_zero());
  CHECK_FALSE(link.a.device.gids()[kIn6].gid.is_zero());
  const Gid there = link.b.device.gids()[kIn5].gid;
  CHECK_FALSE(Ah::create(link.a.pd, {.dgid = there, .sgid_index = kIn5}).has_value());
  Side refused(link.a, QpType::kRc);
  CHECK_FALSE(join(refused, kIn5, b, kIn5).has_value());
  send_one(a, b);  // what was connected before goes on

  REQUIRE(link.a.device.add_ip("10.9.0.1/24@5"));
  CHECK(count() == kCount + 2);
  CHECK(link.a.device.gids()[kIn5].vlan == 5);
  CHECK(Ah::create(link.a.pd, {.dgid = there, .sgid_index = kIn5}).has_value());
}

TEST_CASE("a device that takes a peer's address over keeps its connections to that peer", "[api][gid]") {
  Vlans link(Mode::kAuto);
  Side a(link.a, QpType::kRc);
  Side b(link.b, QpType::kRc);
  REQUIRE(join(a, kPlain, b, kPlain));
  send_one(a, b);
  REQUIRE(link.a.device.add_ip("10.9.0.2/24"));
  Side itself(link.a, QpType::kRc);
  QpAttr attr = towards(link.a, itself.qp);
  attr.sgid_index = kPlain;
  attr.dgid = link.b.device.gids().at(kPlain).gid;
  REQUIRE(itself.qp.connect(attr));
  send_one(a, b);
  REQUIRE(link.a.device.remove_ip("10.9.0.2/24"));
  Side other(link.a, QpType::kRc);
  attr.dest_qpn = b.qp.qpn();
  REQUIRE(other.qp.connect(attr));
  send_one(a, b);
}

TEST_CASE("an address that no host and no group has is no destination", "[api][ah]") {
  Vlans link(Mode::kApp);
  for (const char* nobodys : {"::", "0.0.0.0", "255.255.255.255"}) {
    CAPTURE(nobodys);
    const Gid dgid = *Gid::parse(nobodys);
    const auto made = Ah::create(link.a.pd, {.dgid = dgid, .sgid_index = dgid.is_v4() ? kIn5 : kLinkLocal});
    REQUIRE_FALSE(made.has_value());
    CHECK(made.error().code == Errc::kInvalid);
  }
}

TEST_CASE("service levels and VLANs out of range are refused", "[api][vlan]") {
  Vlans link(Mode::kApp);
  const Gid there = link.b.device.gids().at(kIn5).gid;
  CHECK(Ah::create(link.a.pd, {.dgid = there, .sgid_index = kIn5, .sl = 7}).has_value());
  CHECK_FALSE(Ah::create(link.a.pd, {.dgid = there, .sgid_index = kIn5, .sl = 8}).has_value());
  Side a(link.a, QpType::kRc);
  QpAttr attr = towards(link.b, a.qp);
  attr.sl = 8;
  CHECK_FALSE(a.qp.connect(attr).has_value());
  for (const char* ip : {"10.0.0.1/24@0", "10.0.0.1/24@4095", "10.0.0.1/24@x", "10.0.0.1/33@5", "@5"}) {
    Config config;
    config.port = "shm:under-bad" + std::to_string(getpid());
    config.no_huge = true;
    config.ip = {ip};
    const auto device = Device::open(config);
    CAPTURE(ip);
    REQUIRE_FALSE(device.has_value());
    CHECK(device.error().code == Errc::kConfig);
  }
}

}  // namespace uroce::api
