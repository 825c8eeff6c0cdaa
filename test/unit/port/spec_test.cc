#include <array>
#include <catch2/catch.hpp>

#include "drivers/registry.h"
#include "drivers/spec.h"

using namespace uroce;
using namespace uroce::drivers;

TEST_CASE("a port specification is taken apart into driver, argument and options", "[drivers][spec]") {
  auto spec = parse_spec("memif:/run/x.sock,role=server,zero-copy");
  REQUIRE(spec);
  CHECK(spec->driver == "memif");
  CHECK(spec->argument == "/run/x.sock");
  CHECK(spec->take("role").value() == "server");
  CHECK(spec->take_bool("zero-copy", false).value());
}

TEST_CASE("an option that a driver does not have is told with those that it has", "[drivers][spec]") {
  const auto spec = parse_spec("shm:x,ring=1M,more=1");
  REQUIRE(spec);
  CHECK(spec->check_options(std::array<std::string_view, 2>{"more", "ring"}));
  const Status status = spec->check_options(std::array<std::string_view, 2>{"ring", "side"});
  REQUIRE_FALSE(status);
  CHECK(status.error().code == Errc::kConfig);
  CHECK(status.error().text ==
        "port \"shm:x,ring=1M,more=1\": driver shm has no option \"more\"; known: ring=, side=");
}

TEST_CASE("a PCI address keeps its colons", "[drivers][spec]") {
  auto spec = parse_spec("pci:0000:01:00.0");
  REQUIRE(spec);
  CHECK(spec->driver == "pci");
  CHECK(spec->argument == "0000:01:00.0");
}

TEST_CASE("sizes are read with and without a unit", "[drivers][spec]") {
  auto spec = parse_spec("shm:x,a=4096,b=256K,c=1M,d=2G,e=0x100");
  REQUIRE(spec);
  CHECK(spec->take_size("a", 0).value() == 4096);
  CHECK(spec->take_size("b", 0).value() == 262144);
  CHECK(spec->take_size("c", 0).value() == 1048576);
  CHECK(spec->take_size("d", 0).value() == 2147483648U);
  CHECK(spec->take_size("e", 0).value() == 256);
  CHECK(spec->take_size("f", 7).value() == 7);
}

TEST_CASE("a wrong specification is refused with its reason", "[drivers][spec]") {
  CHECK(parse_spec("").error().code == Errc::kConfig);
  CHECK(parse_spec(":x").error().code == Errc::kConfig);
  CHECK(parse_spec("shm:x,=1").error().code == Errc::kConfig);
  CHECK(parse_spec("shm:x,a=1,a=2").error().text == "port \"shm:x,a=1,a=2\": option a is given twice");
  auto spec = parse_spec("shm:x,ring=big,side=7,more=1");
  REQUIRE(spec);
  CHECK(spec->take_size("ring", 0).error().text ==
        "port \"shm:x,ring=big,side=7,more=1\": option ring: \"big\" is not a number");
  CHECK(spec->take_number("side", 0, 0, 1).error().code == Errc::kConfig);
  CHECK(spec->take("role").error().code == Errc::kConfig);
}

TEST_CASE("numbers are read whole or not at all", "[drivers][spec]") {
  CHECK(parse_number("n", "18446744073709551615").value() == UINT64_MAX);
  CHECK(parse_number("n", "0xff").value() == 255);
  for (const char* text : {"", "0x", "-1", "1 ", " 1", "1.5", "18446744073709551616", "ten"}) {
    INFO(text);
    CHECK_FALSE(parse_number("n", text));
  }
}

TEST_CASE("an unknown driver is refused with a list of those there are", "[drivers][registry]") {
  const auto ports = open_ports({.spec = "carrier-pigeon:1", .fault = {}, .pcap = {}});
  REQUIRE_FALSE(ports);
  CHECK(ports.error().code == Errc::kConfig);
  CHECK(ports.error().text.find("known: shm, memif") != std::string::npos);
}

TEST_CASE("what no machine can open is told without opening anything", "[drivers][registry]") {
  const auto refusal = [](const char* spec, std::uint32_t link_mtu = 0) {
    const Status status = check_ports({.spec = spec, .link_mtu = link_mtu, .fault = {}, .pcap = {}});
    if (!status) CHECK(status.error().code == Errc::kConfig);
    return status ? "" : status.error().text;
  };
  for (const char* good : {"shm:x", "shm:x,ring=1M,side=0", "memif:/no/such/folder/x,role=server,mtu=1500",
                           "af_packet:nosuchport0,framecnt=4096", "pci:0000:01:00.0", "ring"}) {
    CHECK(refusal(good).empty());
  }
  CHECK_THAT(refusal("warp:9"), Catch::Contains("no driver \"warp\""));
  CHECK_THAT(refusal("shm:"), Catch::Contains("is not a link name"));
  CHECK_THAT(refusal("shm:x,ring=5"), Catch::Contains("it must be a power of two"));
  CHECK_THAT(refusal("shm:x,side=2"), Catch::Contains("allowed: 0 to 1"));
  CHECK_THAT(refusal("shm:x", 400), Catch::Contains("link MTU 400 is out of range"));
  CHECK_THAT(refusal("shm:x,rign=1M"), Catch::Contains("no option \"rign\"; known: ring=, ends=, side="));
  const std::string typo = refusal("af_packet:nosuchport0,framsz=4096");
  if (!typo.empty()) CHECK_THAT(typo, Catch::Contains("no option \"framsz\"; known: mtu=, framesz="));
  const Status rules = check_ports({.spec = "shm:x", .fault = "lose=1%", .pcap = {}});
  REQUIRE_FALSE(rules);
  CHECK_THAT(rules.error().text, Catch::Contains("known: loss, dup"));
}

TEST_CASE("wrong fault rules are refused before the port is opened", "[drivers][registry]") {
  const auto ports = open_ports({.spec = "shm:never-opened", .fault = "loss=200%", .pcap = {}});
  REQUIRE_FALSE(ports);
  CHECK(ports.error().code == Errc::kConfig);
}
