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
  CHECK(spec->finish());
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
  CHECK(spec->finish().error().text ==
        "port \"shm:x,ring=big,side=7,more=1\": driver shm has no option \"more\"");
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

TEST_CASE("wrong fault rules are refused before the port is opened", "[drivers][registry]") {
  const auto ports = open_ports({.spec = "shm:never-opened", .fault = "loss=200%", .pcap = {}});
  REQUIRE_FALSE(ports);
  CHECK(ports.error().code == Errc::kConfig);
}
