#include <algorithm>
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

TEST_CASE("between two lengths of the queue more and more frames are marked, beyond all",
          "[loopback][switch]") {
  static constexpr std::uint32_t kLeast = 1000, kFull = 5000, kFrames = 6000;
  const auto marks = [](std::uint64_t seed) {
    LoopbackSwitch fabric({.bandwidth_bps = 1,
                           .queue_frames = kFrames,
                           .ce_threshold_frames = kLeast,
                           .ce_full_frames = kFull,
                           .ce_percent = 20,
                           .seed = seed,
                           .link_mtu = 256},
                          2);
    const auto a = fabric.open_port(0);
    const auto b = fabric.open_port(1);
    Bytes frame = roce_v4();
    const MacAddress to = LoopbackSwitch::mac(1);
    std::memcpy(frame.data(), to.raw.data(), 6);
    for (std::uint32_t i = 0; i < kFrames; ++i) REQUIRE(send(*a, frame));
    CHECK(fabric.queued(1) == kFrames);
    fabric.advance_to(~std::uint64_t{0} / 2000);
    std::vector<bool> marked;
    for (auto frames = receive(*b); !frames.empty(); frames = receive(*b)) {
      for (const Bytes& one : frames) marked.push_back((one[15] & std::byte{3}) == std::byte{3});
    }
    return marked;
  };
  const std::vector<bool> marked = marks(1);
  REQUIRE(marked.size() == kFrames);
  const auto between = [&](std::uint32_t from, std::uint32_t to) {
    return std::count(marked.begin() + from, marked.begin() + to, true);
  };
  CHECK(between(0, kLeast + 1) == 0);
  CHECK(between(kLeast, 2000) == Approx(25).margin(15));  // 0 to 5 % of 1000
  CHECK(between(4000, kFull) == Approx(175).margin(40));  // 15 to 20 %
  CHECK(between(kFull, kFrames) == kFrames - kFull);
  CHECK(marks(1) == marked);
  CHECK(marks(2) != marked);
}

TEST_CASE("the ways to a switch have their bandwidth, and refuse what they cannot hold",
          "[loopback][switch]") {
  LoopbackSwitch fabric(
      {.delay_ns = 100, .bandwidth_bps = 8'000'000'000, .queue_frames = 2, .input_bps = 8'000'000'000}, 3);
  const auto a = fabric.open_port(0);
  const auto b = fabric.open_port(1);
  const auto c = fabric.open_port(2);
  const auto frame_from = [](std::uint64_t seed) {
    Bytes frame = random_bytes(976, seed);  // 1000 ns
    const MacAddress to = LoopbackSwitch::mac(2);
    std::memcpy(frame.data(), to.raw.data(), 6);
    return frame;
  };
  REQUIRE(send(*a, frame_from(1)));
  REQUIRE(send(*a, frame_from(2)));
  CHECK_FALSE(send(*a, frame_from(3)));
  CHECK(a->counters().tx_no_room == 1);
  fabric.advance_to(500);
  REQUIRE(send(*b, frame_from(4)));
  CHECK(fabric.next_arrival_ns() == 1100);
  fabric.advance_to(1100);
  CHECK(fabric.queued(2) == 1);
  CHECK(send(*a, frame_from(5)));
  fabric.advance_to(2200);  // the first is there, the one from `b` came at 1600, the second at 2100
  CHECK(receive(*c) == std::vector<Bytes>{frame_from(1)});
  CHECK(fabric.queued(2) == 1);
  CHECK(c->counters().rx_missed == 1);  // two were held: one on its way, one waiting
  fabric.advance_to(10'000);
  CHECK(receive(*c) == std::vector<Bytes>{frame_from(4), frame_from(5)});
}
