#include "engine/addresses.h"

#include <catch2/catch.hpp>
#include <memory>
#include <set>

#include "base/random.h"
#include "engine/qp_table.h"
#include "transport/rc_qp.h"

using namespace uroce;
using namespace uroce::engine;

namespace {

Gid gid(const char* text) {
  return *Gid::parse(text);
}

}  // namespace

TEST_CASE("a destination on the link is asked for itself, any other behind the gateway",
          "[engine][addresses]") {
  const Addresses addresses({{gid("fe80::1"), 64}, {gid("10.1.2.3"), 20}, {gid("2001:db8:1::5"), 57}},
                            gid("10.1.0.1"));
  for (const char* near :
       {"10.1.0.0", "10.1.15.255", "10.1.2.4", "fe80::77", "2001:db8:1:7f::9", "2001:db8:1::"}) {
    CHECK(addresses.next_hop(gid(near), 1) == NextHop{gid(near)});
    CHECK(addresses.has_route(gid(near), 1));
  }
  for (const char* far : {"10.1.16.0", "10.0.255.255", "192.168.1.1", "8.8.8.8"}) {
    CHECK(addresses.next_hop(gid(far), 1) == NextHop{gid("10.1.0.1")});
    CHECK(addresses.has_route(gid(far), 1));
  }
  CHECK(addresses.next_hop(gid("2001:db8:1:80::1"), 2) ==
        NextHop{gid("2001:db8:1:80::1")});  // no IPv6 gateway
  CHECK_FALSE(addresses.has_route(gid("2001:db8:1:80::1"), 2));
}

TEST_CASE("without a gateway every destination is asked for itself", "[engine][addresses]") {
  const Addresses addresses({{gid("fe80::1"), 64}, {gid("10.1.2.3"), 24}}, std::nullopt);
  CHECK(addresses.next_hop(gid("8.8.8.8"), 1) == NextHop{gid("8.8.8.8")});
  CHECK_FALSE(addresses.has_route(gid("8.8.8.8"), 1));
}

TEST_CASE("prefixes of all lengths are compared to the bit", "[engine][addresses]") {
  for (unsigned length = 0; length <= 32; ++length) {
    const Address address{gid("255.255.255.255"), length};
    for (unsigned bit = 0; bit < 32; ++bit) {
      Gid other = address.gid;
      other.raw[12 + bit / 8] ^= static_cast<std::uint8_t>(0x80 >> bit % 8);
      CHECK(address.is_on_link(other) == (bit >= length));
    }
    CHECK_FALSE(address.is_on_link(gid("fd99::1")));
  }
}

TEST_CASE("questions come from an address in the target's network", "[engine][addresses]") {
  const Addresses addresses(
      {{gid("fe80::1"), 64}, {gid("10.0.0.1"), 24}, {gid("10.0.1.1"), 24}, {gid("fd99::1"), 64}},
      std::nullopt);
  CHECK(addresses.source_for({gid("10.0.0.9")}) == gid("10.0.0.1"));
  CHECK(addresses.source_for({gid("10.0.1.9")}) == gid("10.0.1.1"));
  CHECK(addresses.source_for({gid("fd99::9")}) == gid("fd99::1"));
  CHECK(addresses.source_for({gid("fe80::9")}) == gid("fe80::1"));
  CHECK(addresses.source_for({gid("172.16.0.1")}).is_v4());
  CHECK_FALSE(addresses.source_for({gid("2001::1")}).is_v4());
}

TEST_CASE("VLANs with the same network are kept apart", "[engine][addresses][vlan]") {
  const Addresses addresses({{gid("fe80::1"), 64},
                             {gid("10.0.0.1"), 24},
                             {gid("10.0.0.2"), 24, 5},
                             {gid("10.0.0.1"), 24, 6},
                             {gid("10.9.0.1"), 16, 6}},
                            gid("10.0.0.254"));
  CHECK(addresses.is_own(gid("10.0.0.1"), 0));
  CHECK(addresses.is_own(gid("10.0.0.1"), 6));
  CHECK_FALSE(addresses.is_own(gid("10.0.0.1"), 5));
  CHECK_FALSE(addresses.is_own(gid("10.0.0.2"), 0));
  CHECK(addresses.is_in_vlan(5));
  CHECK_FALSE(addresses.is_in_vlan(7));
  CHECK(addresses.source_for({gid("10.0.0.9"), 5}) == gid("10.0.0.2"));
  CHECK(addresses.source_for({gid("10.0.0.9"), 6}) == gid("10.0.0.1"));
  CHECK(addresses.source_for({gid("10.9.0.9"), 6}) == gid("10.9.0.1"));
  CHECK(addresses.source_for({gid("10.9.0.9"), 5}) == gid("10.0.0.2"));
  CHECK(addresses.next_hop(gid("10.0.0.9"), 2) == NextHop{gid("10.0.0.9"), 5});
  // What is on the link of one VLAN is behind the gateway in another.
  CHECK(addresses.next_hop(gid("10.9.0.9"), 3) == NextHop{gid("10.9.0.9"), 6});
  CHECK(addresses.next_hop(gid("10.9.0.9"), 2) == NextHop{gid("10.0.0.254"), 5});
}

TEST_CASE("no question comes from an address that was removed", "[engine][addresses]") {
  Addresses addresses({{gid("fe80::1"), 64},
                       {gid("10.0.0.1"), 24},
                       {gid("10.0.0.2"), 24},
                       {gid("fd99::1"), 64},
                       {gid("10.5.0.1"), 24, 5}},
                      std::nullopt);
  CHECK(addresses.source_for({gid("10.0.0.9")}) == gid("10.0.0.1"));
  REQUIRE(addresses.remove(gid("10.0.0.1"), 0));
  CHECK(addresses.source_for({gid("10.0.0.9")}) == gid("10.0.0.2"));
  CHECK(addresses.source_for({gid("172.16.0.1")}) == gid("10.0.0.2"));
  REQUIRE(addresses.remove(gid("fd99::1"), 0));
  CHECK(addresses.source_for({gid("fd99::9")}) == gid("fe80::1"));
  // Nothing is left: from nobody, which RFC 5227 2.1.1 has answered, rather than from what may be another's.
  REQUIRE(addresses.remove(gid("10.0.0.2"), 0));
  REQUIRE(addresses.remove(gid("10.5.0.1"), 5));
  CHECK(addresses.source_for({gid("10.0.0.9")}) == gid("0.0.0.0"));
  CHECK(addresses.source_for({gid("10.5.0.9"), 5}) == gid("0.0.0.0"));
  CHECK(addresses.source_for({gid("fd99::9"), 5}) == gid("fe80::1"));
  REQUIRE(addresses.add({gid("10.0.0.2"), 24}));
  CHECK(addresses.source_for({gid("10.0.0.9")}) == gid("10.0.0.2"));
}

TEST_CASE("RoCE v1 goes through no gateway, and to any group", "[engine][addresses][v1]") {
  const Addresses addresses(
      {{gid("fe80::1"), 64}, {gid("10.0.0.1"), 24}, {gid("10.0.0.1"), 24, 0, GidType::kRoceV1}},
      gid("10.0.0.254"));
  CHECK(addresses.next_hop(gid("8.8.8.8"), 1) == NextHop{gid("10.0.0.254")});
  CHECK(addresses.next_hop(gid("8.8.8.8"), 2) == NextHop{gid("8.8.8.8")});
  CHECK_FALSE(addresses.has_route(gid("8.8.8.8"), 2));
  const auto& own = addresses.own();
  CHECK(can_reach(own[2], gid("ff0e::ffff:e000:1")));
  CHECK_FALSE(can_reach(own[1], gid("ff0e::ffff:e000:1")));
  CHECK_FALSE(can_reach(own[2], gid("fd00::1")));
}

TEST_CASE("a MAC address gives its link-local address, and is found in it", "[engine][addresses]") {
  // RFC 4291 appendix A, and its example
  CHECK(link_local_mac(gid("fe80::3656:78ff:fe9a:bcde")) == MacAddress{{0x34, 0x56, 0x78, 0x9a, 0xbc, 0xde}});
  CHECK(link_local_mac(gid("fe80::1")) == std::nullopt);
  CHECK(link_local_mac(gid("fd80::3656:78ff:fe9a:bcde")) == std::nullopt);
  CHECK(link_local_gid({{0x34, 0x56, 0x78, 0x9a, 0xbc, 0xde}}) == gid("fe80::3656:78ff:fe9a:bcde"));
}

TEST_CASE("the prefix of an address that was removed is behind the gateway", "[engine][addresses]") {
  Addresses own({{*Gid::parse("fe80::1"), 64}, {gid("10.0.0.1"), 24}, {gid("192.168.1.1"), 24}},
                gid("192.168.1.254"));
  const Gid destination = gid("10.0.0.5");
  CHECK(own.next_hop(destination, 2).gid == destination);
  REQUIRE(own.remove(gid("10.0.0.1"), 0));
  CHECK(own.next_hop(destination, 2).gid == gid("192.168.1.254"));
}

TEST_CASE("QPs are found by number while thousands come and go", "[engine][qp-table]") {
  mem::KeyTable keys(1, [] {});
  Counters counters;
  transport::CqRing cq(2);
  const auto make = [&](std::uint32_t qpn) {
    return std::make_unique<transport::RcQp>(Qpn{qpn}, 1, QpInitAttr{.max_send_wr = 1, .max_recv_wr = 1},
                                             keys, counters, cq, cq);
  };
  const bool dense = GENERATE(true, false);
  Random random(5);
  QpTable table;
  std::vector<std::unique_ptr<transport::RcQp>> live;
  std::set<std::uint32_t> used;
  for (std::uint32_t step = 0; step < 6000; ++step) {
    if (live.size() < 200 || random.below(2) == 0) {
      const auto qpn = static_cast<std::uint32_t>(dense ? 16 + step : random.below(1 << 24));
      if (!used.insert(qpn).second) continue;
      live.push_back(make(qpn));
      table.insert(*live.back());
    } else {
      const std::size_t i = random.below(live.size());
      const Qpn qpn = live[i]->context().qpn;
      table.erase(qpn);
      REQUIRE(table.find(qpn) == nullptr);
      used.erase(raw(qpn));
      live[i] = std::move(live.back());
      live.pop_back();
    }
    REQUIRE(table.size() == live.size());
    transport::RcQp& any = *live[random.below(live.size())];
    REQUIRE(table.find(any.context().qpn) == &any);
    REQUIRE(table.find(Qpn{static_cast<std::uint32_t>(random.below(1 << 24)) | 1U << 24}) == nullptr);
  }
  std::size_t seen = 0;
  table.for_each([&seen](transport::QueuePair&) { ++seen; });
  CHECK(seen == live.size());
  table.erase(Qpn{0xff'ffff});  // unknown: nothing happens
}
