#include <catch2/catch.hpp>

#include "drivers/loopback/loopback.h"
#include "port_helpers.h"

using namespace uroce;
using namespace uroce::drivers;
using namespace uroce::test;

TEST_CASE("a frame arrives after its time on the wire and the delay, and not before", "[loopback]") {
  // (100 + 24) bytes at 1 Gb/s: 992 ns.
  LoopbackLink link({.delay_ns = 5000, .bandwidth_bps = 1'000'000'000});
  const auto a = link.open_end(0);
  const auto b = link.open_end(1);
  link.advance_to(100);
  const Bytes frame = random_bytes(100, 1);
  REQUIRE(send(*a, frame));
  REQUIRE(link.next_arrival_ns() == 100 + 992 + 5000);
  link.advance_to(6091);
  CHECK(receive(*b).empty());
  link.advance_to(6092);
  CHECK(receive(*b) == std::vector<Bytes>{frame});
  CHECK(link.next_arrival_ns() == std::nullopt);
  CHECK(receive(*a).empty());
}

TEST_CASE("frames queue behind one another at the link's bandwidth", "[loopback]") {
  LoopbackLink link({.delay_ns = 0, .bandwidth_bps = 8'000'000'000});  // a byte per ns
  const auto a = link.open_end(0);
  const auto b = link.open_end(1);
  for (std::uint64_t i = 0; i < 3; ++i) REQUIRE(send(*a, random_bytes(976, i)));
  std::vector<std::uint64_t> arrivals;
  while (const auto next = link.next_arrival_ns()) {
    link.advance_to(*next);
    REQUIRE(receive(*b).size() == 1);
    arrivals.push_back(link.now_ns());
  }
  CHECK(arrivals == std::vector<std::uint64_t>{1000, 2000, 3000});
}

TEST_CASE("a full direction refuses frames and loses none", "[loopback]") {
  LoopbackLink link({.delay_ns = 10, .queue_frames = 4});
  const auto a = link.open_end(0);
  const auto b = link.open_end(1);
  for (std::uint64_t i = 0; i < 4; ++i) REQUIRE(send(*a, random_bytes(60, i)));
  CHECK_FALSE(send(*a, random_bytes(60, 9)));
  CHECK(a->counters().tx_no_room == 1);
  CHECK(send(*b, random_bytes(60, 10)));  // the other direction is its own
  link.advance_to(10);
  std::array<port::RxFrame, 2> two;
  REQUIRE(b->rx_burst(two) == 2);
  CHECK_FALSE(send(*a, random_bytes(60, 9)));  // shown, but not released
  b->rx_release();
  CHECK(send(*a, random_bytes(60, 9)));
  CHECK(receive(*b).size() == 2);
  link.advance_to(20);
  CHECK(receive(*b) == std::vector<Bytes>{random_bytes(60, 9)});
}

TEST_CASE("an end may sleep only while nothing has arrived", "[loopback]") {
  LoopbackLink link({.delay_ns = 10});
  const auto a = link.open_end(0);
  const auto b = link.open_end(1);
  REQUIRE(send(*a, random_bytes(60, 1)));
  CHECK(b->arm_rx());
  link.advance_to(10);
  CHECK_FALSE(b->arm_rx());
}

TEST_CASE("the clock of a link does not go back", "[loopback]") {
  LoopbackLink link({});
  link.advance_to(100);
  link.advance_to(50);
  CHECK(link.now_ns() == 100);
}

TEST_CASE("a switch forwards by destination MAC and floods group and unknown addresses",
          "[loopback][switch]") {
  LoopbackSwitch fabric({.delay_ns = 1}, 3);
  std::vector<std::unique_ptr<port::Port>> ports;
  for (unsigned i = 0; i < 3; ++i) ports.push_back(fabric.open_port(i));
  const auto frame_to = [](const MacAddress& to) {
    Bytes frame = random_bytes(60, 1);
    std::memcpy(frame.data(), to.raw.data(), 6);
    return frame;
  };
  const auto deliver = [&](const MacAddress& to) {
    REQUIRE(send(*ports[0], frame_to(to)));
    fabric.advance_to(fabric.next_arrival_ns().value());
    return std::vector<std::size_t>{receive(*ports[0]).size(), receive(*ports[1]).size(),
                                    receive(*ports[2]).size()};
  };
  CHECK(ports[2]->info().mac == LoopbackSwitch::mac(2));
  CHECK(deliver(LoopbackSwitch::mac(2)) == std::vector<std::size_t>{0, 0, 1});
  CHECK(deliver(LoopbackSwitch::mac(1)) == std::vector<std::size_t>{0, 1, 0});
  CHECK(deliver(MacAddress{{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}}) == std::vector<std::size_t>{0, 1, 1});
  CHECK(deliver(MacAddress{{0x02, 0, 0, 0, 0, 9}}) == std::vector<std::size_t>{0, 1, 1});
}

TEST_CASE("an output of a switch that is full drops and counts", "[loopback][switch]") {
  LoopbackSwitch fabric({.queue_frames = 2}, 3);
  const auto a = fabric.open_port(0);
  const auto b = fabric.open_port(1);
  const auto c = fabric.open_port(2);
  Bytes frame = random_bytes(60, 1);
  const MacAddress to = LoopbackSwitch::mac(2);
  std::memcpy(frame.data(), to.raw.data(), 6);
  REQUIRE(send(*a, frame));
  REQUIRE(send(*b, frame));
  REQUIRE(send(*a, frame));
  CHECK(c->counters().rx_missed == 1);
  fabric.advance_to(1'000'000);
  CHECK(receive(*c).size() == 2);
}

TEST_CASE("a switch marks ECN-capable frames once its queue is crowded", "[loopback][switch]") {
  LoopbackSwitch fabric({.delay_ns = 0, .bandwidth_bps = 1'000'000, .ce_threshold_frames = 2}, 2);
  const auto a = fabric.open_port(0);
  const auto b = fabric.open_port(1);
  Bytes frame = roce_v4();
  const MacAddress to = LoopbackSwitch::mac(1);
  std::memcpy(frame.data(), to.raw.data(), 6);
  for (int i = 0; i < 3; ++i) REQUIRE(send(*a, frame));
  fabric.advance_to(1'000'000'000);
  const auto frames = receive(*b);
  REQUIRE(frames.size() == 3);
  CHECK(frames[0] == frame);
  CHECK(frames[1] == frame);
  CHECK(frames[2][15] == std::byte{0x03});
  CHECK(to_hex(std::span(frames[2]).subspan(24, 2)) == "1480");  // the checksum that goes with it
}
