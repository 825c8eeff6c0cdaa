#include "uroce/types.h"

#include <catch2/catch.hpp>

using uroce::Gid;
using uroce::MacAddress;

TEST_CASE("a GID is read from IPv4, mapped IPv4 and IPv6 text", "[base][gid]") {
  const Gid v4 = Gid::from_v4({10, 0, 0, 1});
  CHECK(Gid::parse("10.0.0.1") == v4);
  CHECK(Gid::parse("::ffff:10.0.0.1") == v4);
  CHECK(Gid::parse("::") == Gid{});

  const Gid v6{{0xfd, 0x99, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2}};
  CHECK(Gid::parse("fd99::2") == v6);
  CHECK(Gid::parse("fd99:0:0:0:0:0:0:2") == v6);
}

TEST_CASE("text that is no address gives no GID", "[base][gid]") {
  using namespace std::string_view_literals;
  for (const auto text : {""sv, "10.0.0"sv, "10.0.0.256"sv, "10.0.0.1 "sv, " 10.0.0.1"sv, "10.0.0.1/24"sv,
                          "fd99::2::1"sv, "fd99::g"sv, "fe80::1%eth0"sv, "10.0.0.1\0x"sv, "localhost"sv,
                          "0000:0000:0000:0000:0000:ffff:255.255.255.2555555555"sv}) {
    CAPTURE(text);
    CHECK_FALSE(Gid::parse(text).has_value());
  }
}

TEST_CASE("a GID is written in IPv6 notation, IPv4 as mapped address", "[base][gid]") {
  CHECK(to_string(Gid::from_v4({10, 0, 0, 1})) == "::ffff:10.0.0.1");
  CHECK(to_string(Gid{{0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}}) == "fe80::1");
  CHECK(to_string(Gid{}) == "::");
}

TEST_CASE("a GID knows whether it is nobody's, one host's or a group's", "[base][gid]") {
  for (const auto* nobodys : {"::", "0.0.0.0"}) {
    CAPTURE(nobodys);
    CHECK(Gid::parse(nobodys)->is_unspecified());
    CHECK_FALSE(Gid::parse(nobodys)->is_unicast());
  }
  for (const auto* hosts : {"10.0.0.1", "127.0.0.1", "223.255.255.255", "255.255.255.254", "0.0.0.1",
                            "fe80::1", "fd00::e000:1", "::1", "::fffe:0:0"}) {
    CAPTURE(hosts);
    CHECK(Gid::parse(hosts)->is_unicast());
    CHECK_FALSE(Gid::parse(hosts)->is_unspecified());
  }
  for (const auto* groups : {"224.0.0.0", "239.255.255.255", "ff00::", "ff02::1"}) {
    CAPTURE(groups);
    CHECK(Gid::parse(groups)->is_multicast());
    CHECK_FALSE(Gid::parse(groups)->is_unicast());
    CHECK_FALSE(Gid::parse(groups)->is_unspecified());
  }
  const Gid everybody = Gid::from_v4({255, 255, 255, 255});
  CHECK_FALSE(everybody.is_unicast());
  CHECK_FALSE(everybody.is_multicast());
  CHECK_FALSE(everybody.is_unspecified());
}

TEST_CASE("a MAC address is read and written as six pairs of digits", "[base][mac]") {
  const MacAddress mac{{0x02, 0x99, 0x00, 0xab, 0xCD, 0xef}};
  CHECK(MacAddress::parse("02:99:00:ab:cd:ef") == mac);
  CHECK(MacAddress::parse("02:99:00:AB:CD:EF") == mac);
  CHECK(to_string(mac) == "02:99:00:ab:cd:ef");
}

TEST_CASE("text that is no MAC address gives none", "[base][mac]") {
  for (const auto* text :
       {"", "02:99:00:ab:cd", "02:99:00:ab:cd:e", "02:99:00:ab:cd:ef:01", "02-99-00-ab-cd-ef",
        "02:99:00:ab:cd:eg", "0x:99:00:ab:cd:ef", "-2:99:00:ab:cd:ef", "02:99:00:ab:cd: f", "029900abcdef"}) {
    CAPTURE(text);
    CHECK_FALSE(MacAddress::parse(text).has_value());
  }
}
