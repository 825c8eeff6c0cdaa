// What a device tells of its link, and of paths that do not carry what they should.
#include <thread>
#include <vector>

#include "api/ends.h"

namespace uroce::api {
namespace {

std::string link_name() {
  static int count = 0;
  return "shm:link" + std::to_string(getpid()) + "-" + std::to_string(count++);
}

std::vector<AsyncEventType> events_of(Device& device) {
  std::vector<AsyncEventType> types;
  for (AsyncEvent event; device.next_async_event(event);) {
    CHECK_FALSE(event.text.empty());
    types.push_back(event.type);
  }
  return types;
}

std::string error_after(const std::string& fault, std::initializer_list<std::uint32_t> sizes, PathMtu mtu) {
  const std::string port = link_name();
  Config config;
  config.port = port;
  config.no_huge = true;
  config.fault = fault;
  config.mode = Mode::kAuto;
  Device device = must(Device::open(config));
  Pd pd = must(Pd::create(device));
  End peer = End::open(port, Mode::kAuto);
  Cq cq = must(Cq::create(device, 16));
  Cq peer_cq = must(Cq::create(peer.device, 16));
  Qp qp = must(Qp::create(pd, cq, cq, {}));
  Qp peer_qp = must(Qp::create(peer.pd, peer_cq, peer_cq, {}));
  Mr memory = must(Mr::alloc(pd, 16384, access::kAll));
  Mr target = must(Mr::alloc(peer.pd, 16384, access::kAll));
  QpAttr attr = towards(peer, peer_qp);
  attr.path_mtu = mtu;
  attr.timeout = 16;  // 0.27 s, thrice: more than a helper may have to wait for a core
  attr.retry_cnt = 2;
  REQUIRE(qp.connect(attr));
  attr.dest_qpn = qp.qpn();
  attr.dgid = device.gids().at(1).gid;
  REQUIRE(peer_qp.connect(attr));
  for (const std::uint32_t size : sizes) {
    const Sge sge = memory.sge(0, size);
    REQUIRE(qp.post_send({.sges = {&sge, 1},
                          .opcode = WrOpcode::kRdmaWrite,
                          .flags = send_flag::kSignaled,
                          .remote_addr = target.addr(),
                          .rkey = target.rkey()}));
    Wc wc;
    REQUIRE(cq.wait(10s));
    REQUIRE(cq.poll({&wc, 1}) == 1);
    if (!wc.ok()) return qp.error_text();
  }
  return "";
}

}  // namespace

TEST_CASE("a port is active while somebody is at the other end, and tells", "[api][link]") {
  using enum AsyncEventType;
  const Mode mode = GENERATE(Mode::kApp, Mode::kAuto, Mode::kLcore);
  CAPTURE(static_cast<int>(mode));
  const std::string port = link_name();
  End a = End::open(port, mode);
  CHECK(a.device.port_state() == PortState::kDown);
  CHECK(events_of(a.device).empty());
  const auto comes = [&](AsyncEventType type) {
    std::vector<AsyncEventType> seen;
    const bool came = within(5s, [&] {
      a.device.progress();
      seen = events_of(a.device);
      return !seen.empty();
    });
    CHECK(came);
    CHECK(seen == std::vector{type});
  };
  for (int life = 0; life < 2; ++life) {
    {
      End b = End::open(port, mode);
      CHECK(b.device.port_state() == PortState::kActive);
      comes(kPortActive);
      CHECK(a.device.port_state() == PortState::kActive);
      CHECK(events_of(b.device).empty());
    }
    comes(kPortErr);
    CHECK(a.device.port_state() == PortState::kDown);
  }
}

TEST_CASE("who sleeps on the event descriptor is woken when the link changes", "[api][link]") {
  const std::string port = link_name();
  End a = End::open(port, Mode::kAuto);
  std::this_thread::sleep_for(20ms);  // its helper has gone to sleep
  CHECK_FALSE(is_readable(a.device.async_fd()));
  const End b = End::open(port, Mode::kAuto);
  CHECK(is_readable(a.device.async_fd(), 5000));
}

TEST_CASE("a path that drops large packets only is suspected of a smaller MTU", "[api][mtu]") {
  const std::string hint = "only packets above 1000 bytes time out: the path MTU may be smaller than 4096";
  CHECK(error_after("tx.drop larger=1500", {1000, 64, 4096}, PathMtu::k4096).find(hint) != std::string::npos);
  CHECK(error_after("tx.drop larger=1500", {1000, 16384}, PathMtu::k4096).find(hint) != std::string::npos);
  const auto says_nothing = [](const std::string& text) {
    CAPTURE(text);
    CHECK(text.find("retry counter exceeded") != std::string::npos);
    CHECK(text.find("MTU") == std::string::npos);
  };
  // Nothing was ever acknowledged; as much was; a packet that fits any path.
  says_nothing(error_after("tx.drop larger=1500", {4096}, PathMtu::k4096));
  says_nothing(error_after("tx.drop opcode=RC_WRITE_ONLY every=2;tx.drop opcode=RC_WRITE_ONLY psn=8",
                           {4096, 4096}, PathMtu::k4096));
  says_nothing(error_after("tx.drop larger=100", {8, 200}, PathMtu::k1024));
  CHECK(error_after("tx.drop larger=1500", {1000, 4096}, PathMtu::k1024).empty());
}

TEST_CASE("a peer whose Ethernet address nobody tells is named, with what may be wrong",
          "[api][neighbours]") {
  Config config;
  config.port = link_name();
  config.mode = Mode::kAuto;
  config.ip = {"10.7.0.1/24"};
  config.arp_timeout_ms = 1;
  std::string wanted = "nobody answers for the Ethernet address of 10.7.0.9: is it up, on this link";
  std::string peer = "10.7.0.9";
  bool has_route = true;
  SECTION("on the link") {}
  SECTION("elsewhere, without a gateway") {
    peer = "10.8.0.9";
    has_route = false;
    wanted = "10.8.0.9 is in no prefix of this port (--ip) and there is no gateway to it: use --gateway";
  }
  SECTION("elsewhere, behind a gateway that does not answer") {
    peer = "10.8.0.9";
    config.gateway = "10.7.0.254";
    wanted = "nobody answers for the Ethernet address of the gateway to 10.8.0.9";
  }
  End end = End::open(config);
  Cq cq = must(Cq::create(end.device, 16));
  Qp qp = must(Qp::create(end.pd, cq, cq, {}));
  QpAttr attr = towards(end, qp);
  attr.dgid = *Gid::parse(peer);
  attr.timeout = 8;  // 1 ms
  attr.retry_cnt = 1;
  CHECK(qp.route_trouble().empty());  // it has no peer
  REQUIRE(qp.connect(attr));
  CHECK(qp.route_trouble() == (has_route ? "" : wanted));
  REQUIRE(qp.post_send({.opcode = WrOpcode::kRdmaWrite, .flags = send_flag::kSignaled}));
  Wc wc;
  REQUIRE(cq.wait(10s));
  REQUIRE(cq.poll({&wc, 1}) == 1);
  CHECK(wc.status == WcStatus::kRetryExcErr);
  CHECK_THAT(qp.error_text(), Catch::Contains(wanted));
}

}  // namespace uroce::api
