// Ports and addresses: who has which, and how they are written.
#include <set>

#include "station.h"

namespace uroce::test {
namespace {

using cm::Bindings;

const Gid kAny4 = Gid::from_v4({0, 0, 0, 0});

struct Ports {
  bool take(std::uint32_t id, const Gid& ip, std::uint16_t port, PortSpace space = PortSpace::kTcp) {
    return bindings.take(space, {ip, port}, CmId{id}, random).has_value();
  }
  Bindings bindings;
  Random random{1};
};

}  // namespace

TEST_CASE("a port is shared by different addresses only", "[cm][bindings]") {
  Ports ports;
  CHECK(ports.take(1, kHere, 5));
  CHECK_FALSE(ports.take(2, kHere, 5));
  CHECK_FALSE(ports.take(2, {}, 5));
  CHECK_FALSE(ports.take(2, kAny4, 5));
  CHECK(ports.take(2, kThere, 5));
  CHECK(ports.take(3, kHere, 6));
  CHECK(ports.take(4, kHere, 5, PortSpace::kUdp));
  CHECK(ports.take(5, {}, 7));
  CHECK_FALSE(ports.take(6, kHere, 7));
  CHECK_FALSE(ports.take(6, {}, 7));
  CHECK(ports.bindings.take(PortSpace::kTcp, {kHere, 5}, CmId{9}, ports.random).error().code ==
        Errc::kNameInUse);
  ports.bindings.release(PortSpace::kTcp, 5, CmId{1});
  CHECK(ports.take(7, kHere, 5));
  CHECK_FALSE(ports.take(8, kThere, 5));  // still of 2
  for (const std::uint32_t id : {2U, 7U}) ports.bindings.release(PortSpace::kTcp, 5, CmId{id});
  CHECK(ports.take(8, {}, 5));
  ports.bindings.release(PortSpace::kTcp, 1234, CmId{8});  // nobody's
}

TEST_CASE("who is for IPv6 only leaves IPv4 to another one", "[cm][bindings]") {
  // RFC 3493 5.3
  const Gid six = *Gid::parse("fd00::1");
  Station a;
  const auto listener = [&](const Gid& ip, bool is_v6_only) {
    const CmId id = a.make();
    CHECK(a.agent.set_v6_only(id, is_v6_only));
    const Status bound = a.agent.bind(id, {ip, kPort});
    if (!bound) CHECK(bound.error().code == Errc::kNameInUse);
    return bound && a.agent.listen(id, 1) ? id : CmId{};
  };
  const CmId any4 = listener(kAny4, false);
  REQUIRE(any4 != CmId{});
  CHECK(listener({}, false) == CmId{});
  const CmId any6 = listener({}, true);
  REQUIRE(any6 != CmId{});
  CHECK(listener(kAny4, true) == CmId{});
  CHECK(listener({}, true) == CmId{});
  CHECK(a.agent.set_v6_only(any6, false).error().code == Errc::kBadState);
  a.in(peer_req());
  CHECK(a.event(CmEventType::kConnectRequest).listener == any4);
  auto req = peer_req(2, Qpn{2});
  req.private_data = with_ip<92>("", six, six);
  a.in(req);
  CHECK(a.event(CmEventType::kConnectRequest).listener == any6);
  a.agent.close(any4, a.now);
  auto late = peer_req(3, Qpn{3});
  a.sent.clear();
  a.in(late);
  CHECK(a.out<wire::CmRej>().reason == static_cast<std::uint16_t>(CmReject::kInvalidServiceId));
}

TEST_CASE("a port is shared by those who all want that, until one of them listens alone", "[cm][bindings]") {
  Station a;
  const auto bound = [&](bool shares) {
    const CmId id = a.make();
    CHECK(a.agent.share_port(id, shares));
    const Status status = a.agent.bind(id, {kHere, kPort});
    if (!status) CHECK(status.error().code == Errc::kNameInUse);
    return status ? id : CmId{};
  };
  const CmId first = bound(true);
  const CmId second = bound(true);
  REQUIRE(first != CmId{});
  REQUIRE(second != CmId{});
  CHECK(bound(false) == CmId{});
  CHECK(a.agent.share_port(first, false).error().code == Errc::kBadState);
  CHECK(a.agent.listen(first, 1).error().code == Errc::kNameInUse);
  a.agent.close(second, a.now);
  REQUIRE(a.agent.listen(first, 1));
  CHECK(bound(true) == CmId{});
  CHECK(a.agent.share_port(first, true).error().code == Errc::kBadState);
}

TEST_CASE("whoever is bound already can begin to share its port", "[cm][bindings]") {
  Station a;
  const CmId first = a.make();
  REQUIRE(a.agent.bind(first, {{}, kPort}));
  const CmId second = a.make();
  REQUIRE(a.agent.share_port(second, true));
  CHECK_FALSE(a.agent.bind(second, {kHere, kPort}));
  REQUIRE(a.agent.share_port(first, true));
  CHECK(a.agent.bind(second, {kHere, kPort}));
}

TEST_CASE("port 0 asks for a free one, until there is none", "[cm][bindings]") {
  Ports ports;
  std::set<std::uint16_t> seen;
  for (std::uint32_t i = 0; i < 28232; ++i) {
    const auto port = ports.bindings.take(PortSpace::kTcp, {kHere, 0}, CmId{i + 1}, ports.random);
    if (!port || *port < 32768 || *port > 60999 || !seen.insert(*port).second) FAIL("number " << i);
  }
  CHECK(ports.bindings.take(PortSpace::kTcp, {kHere, 0}, CmId{1}, ports.random).error().code == Errc::kLimit);
  CHECK(ports.take(1, kHere, 0, PortSpace::kUdp));
  ports.bindings.release(PortSpace::kTcp, 40000, CmId{1});  // not its holder
  CHECK_FALSE(ports.take(1, kHere, 0));
}

TEST_CASE("ids are bound once, to an address that is here", "[cm][bindings]") {
  Station a;
  const CmId id = a.make();
  CHECK(a.agent.bind(id, {kThere, 1}).error().code == Errc::kNotFound);
  CHECK(a.agent.bind(id, {kHere, kPort}));
  CHECK(a.agent.bind(id, {kHere, 1}).error().code == Errc::kBadState);
  CHECK(a.agent.bind(a.make(), {{}, kPort}).error().code == Errc::kNameInUse);
  CHECK(a.agent.bind(CmId{7}, {}).error().code == Errc::kInvalid);
  REQUIRE(a.agent.listen(id, 0));  // a backlog of 0 means 1
  a.asked();
  const CmId other = a.make();
  REQUIRE(a.agent.listen(other, 1));  // bound to a free port by that
  CHECK(a.agent.find(other)->local.port >= 32768);
}

TEST_CASE("who listens to any address hears all, to any IPv4 address those of IPv4", "[cm][bindings]") {
  const Gid v6 = *Gid::parse("fd99::1");
  const auto is_served = [](const Gid& bound, const Gid& asked) {
    Station a;
    const CmId id = a.make();
    if (!a.agent.bind(id, {bound, kPort}) || !a.agent.listen(id, 1)) FAIL("cannot listen");
    auto req = peer_req();
    req.private_data = with_ip<92>("", kThere, asked);
    a.in(req);
    return a.sent.empty();
  };
  CHECK(is_served({}, kHere));
  CHECK(is_served({}, v6));
  CHECK(is_served(kAny4, kHere));
  CHECK_FALSE(is_served(kAny4, v6));
  CHECK(is_served(kHere, kHere));
  CHECK_FALSE(is_served(kHere, kElsewhere));
  CHECK_FALSE(is_served(kHere, v6));
}

TEST_CASE("addresses with ports are read and written", "[cm][bindings]") {
  const auto is = [](std::string_view text, const char* ip, std::uint16_t port) {
    const auto address = CmAddress::parse(text);
    return address.has_value() && address->ip == (*ip == 0 ? Gid{} : *Gid::parse(ip)) &&
           address->port == port;
  };
  CHECK(is("10.0.0.1:7471", "10.0.0.1", 7471));
  CHECK(is("[fd00::1]:7471", "fd00::1", 7471));
  CHECK(is("10.0.0.1", "10.0.0.1", 0));
  CHECK(is("fd00::1", "fd00::1", 0));
  CHECK(is("[fd00::1]", "fd00::1", 0));
  CHECK(is(":7471", "", 7471));
  CHECK(is("10.0.0.1:65535", "10.0.0.1", 65535));
  for (const auto* text : {"", ":", "10.0.0.1:", "10.0.0.1:65536", "10.0.0.1:-1", "10.0.0.1:7x", "10.0.0:1",
                           "host:1", "[fd00::1", "[fd00::1]7", "[]:1", "[10.0.0.1", "fd00::1::2"}) {
    CAPTURE(text);
    CHECK_FALSE(CmAddress::parse(text).has_value());
  }
  CHECK(to_string(CmAddress{Gid::from_v4({10, 0, 0, 1}), 7471}) == "10.0.0.1:7471");
  CHECK(to_string(CmAddress{*Gid::parse("fd00::1"), 7471}) == "[fd00::1]:7471");
}

TEST_CASE("reasons and events have words", "[cm]") {
  std::set<std::string_view> words;
  for (std::uint8_t i = 0; i < 9; ++i) words.insert(to_string(CmEventType{i}));
  CHECK(words.size() == 9);
  CHECK(to_string(CmEventType{9}) == "?");
  CHECK(to_string(CmReject::kConsumer) == "the application there refused");
  CHECK(to_string(CmReject{99}) == "refused for another reason");
}

}  // namespace uroce::test
