#include <catch2/catch.hpp>

#include "drivers/shm/layout.h"
#include "drivers/shm/open.h"
#include "port_helpers.h"
#include "shared_bytes.h"

using namespace uroce;
using namespace uroce::drivers;
using namespace uroce::test;

namespace {

std::unique_ptr<port::Port> open_end(const std::string& name) {
  PortOptions options;
  options.spec = "shm:" + name + ",ring=64K";
  auto ports = open_shm(options);
  if (!ports) FAIL(ports.error().text);
  return std::move(ports->front());
}

/// Two ends that have met, and the memory that they share.
struct Overlooked {
  explicit Overlooked(const std::string& what)
      : name(unique_name(what)), a(open_end(name)), b(open_end(name)), shared(name) {
    settle(*a, *b);
  }
  std::string name;
  std::unique_ptr<port::Port> a;
  std::unique_ptr<port::Port> b;
  SharedBytes shared;
};

const shm::Geometry kGeometry{.queues = 1, .ring_bytes = 1U << 16, .link_mtu = 4200};

/// Both directions work.
void check_exchange(port::Port& a, port::Port& b) {
  settle(a, b);
  while (!receive(a).empty()) {
  }
  while (!receive(b).empty()) {
  }
  const Bytes there = random_bytes(500, 1);
  const Bytes back = random_bytes(600, 2);
  REQUIRE(send(a, there));
  REQUIRE(send(b, back));
  CHECK(receive(b) == std::vector<Bytes>{there});
  CHECK(receive(a) == std::vector<Bytes>{back});
}

/// Every byte of what one burst shows, read where it is.
unsigned read_all(port::Port& port, const std::byte* ring, std::size_t ring_bytes) {
  std::array<port::RxFrame, port::kBurst> shown;
  const unsigned count = port.rx_burst(shown);
  for (unsigned i = 0; i < count; ++i) {
    if (shown[i].data < ring || shown[i].data + shown[i].len > ring + ring_bytes) FAIL("outside the ring");
    if (shown[i].len > port.info().link_mtu + 18) FAIL("longer than the link allows");
  }
  if (count > 0) port.rx_release();
  return count;
}

}  // namespace

TEST_CASE("a record header that cannot be true is counted, and the link starts a new stream",
          "[shm][hostile]") {
  // Lengths 0, 13, over the link MTU, the largest; skip with a length; skip at the start, which would never
  // end.
  for (const std::uint32_t low : {0x0U, 0xdU, 0x107bU, 0x3fffU, 0x4001U, 0x7fffU, 0x4000U}) {
    INFO("header " << std::hex << low);
    Overlooked link("headers");
    auto& [name, a, b, shared] = link;
    const std::size_t ring = kGeometry.ring_at(0, 0);
    REQUIRE(send(*a, random_bytes(100, 1)));
    shared.store32(ring, (shared.load32(ring) & shm::kTagMask) | low);
    CHECK(receive(*b).empty());
    CHECK(b->counters().rx_malformed == 1);
    check_exchange(*a, *b);
    CHECK(a->counters().tx_dropped == 1);
    CHECK(a->counters().peer_restarts == 0);
  }
}

TEST_CASE("a record header of the bulk lane that cannot be true is counted, and the other lane goes on",
          "[shm][hostile][lanes]") {
  Overlooked link("bulk");
  auto& [name, a, b, shared] = link;
  static_cast<void>(a->bulk_sink().tx_claim(64));
  receive(*b);
  const std::size_t ring = kGeometry.ring_at(0, 0, shm::Lane::kBulk);
  REQUIRE(a->bulk_sink().tx_claim(100) != nullptr);
  a->bulk_sink().tx_commit();
  shared.store32(ring, (shared.load32(ring) & shm::kTagMask) | 0x3fffU);
  CHECK(receive(*b).empty());
  CHECK(b->counters().rx_malformed == 1);
  check_exchange(*a, *b);
  REQUIRE(receive(*b).empty());                     // b begins a new epoch,
  static_cast<void>(a->bulk_sink().tx_claim(100));  // a offers a stream,
  REQUIRE(receive(*b).empty());                     // and b takes it
  REQUIRE(a->bulk_sink().tx_claim(100) != nullptr);
  a->bulk_sink().tx_commit();
  CHECK(receive(*b).size() == 1);
}

TEST_CASE("a header behind a long record that cannot be true shows no next frame", "[shm][hostile]") {
  for (const std::uint32_t low : {0x0U, 0xdU, 0x107bU, 0x3fffU, 0x4001U, 0x7fffU, 0x4000U}) {
    INFO("header " << std::hex << low);
    Overlooked link("next");
    auto& [name, a, b, shared] = link;
    std::array<port::RxFrame, port::kBurst> shown;
    REQUIRE(send(*a, random_bytes(4000, 1)));
    const std::size_t behind = kGeometry.ring_at(0, 0) + shm::record_bytes(4000);
    REQUIRE(send(*a, random_bytes(4000, 2)));
    REQUIRE(b->rx_burst(shown) == 1);
    CHECK(b->next_frame().size() == 4000);
    const std::uint32_t tag = shared.load32(behind) & shm::kTagMask;
    shared.store32(behind, tag | low);
    CHECK(b->next_frame().empty());
    shared.store32(behind, ~tag);
    CHECK(b->next_frame().empty());
    b->rx_release();
  }
}

TEST_CASE("a record that would reach over the end of the ring is malformed", "[shm][hostile]") {
  Overlooked link("straddle");
  auto& [name, a, b, shared] = link;
  const std::size_t ring = kGeometry.ring_at(0, 0);
  for (std::uint32_t used = 0; used + 4096 < kGeometry.ring_bytes; used += 4096) {
    REQUIRE(send(*a, random_bytes(4092, 1)));
    REQUIRE(receive(*b).size() == 1);
  }
  REQUIRE(send(*a, random_bytes(4092, 1)));  // the last 4096 bytes
  const std::size_t last = ring + kGeometry.ring_bytes - 4096;
  shared.store32(last, (shared.load32(last) & shm::kTagMask) | 4093);
  CHECK(receive(*b).empty());
  CHECK(b->counters().rx_malformed == 1);
  check_exchange(*a, *b);
}

TEST_CASE("a reader that gives back what it never got, or has given back before, is not believed",
          "[shm][hostile]") {
  Overlooked link("released");
  auto& a = link.a;
  auto& b = link.b;
  auto& shared = link.shared;
  const std::size_t released = kGeometry.control_at(0, 0) + offsetof(shm::RingControl, release);
  const Bytes frame = random_bytes(4000, 1);
  std::size_t under_way = 0;
  const auto fill = [&] {
    while (send(*a, frame)) ++under_way;
  };
  const auto receive_all = [&] {
    for (int burst = 0; burst < 8; ++burst) under_way -= receive(*b).size();
    CHECK(under_way == 0);
  };
  fill();
  receive_all();
  fill();  // what b has given back by now is known
  for (const std::uint64_t lie : {std::uint64_t{0}, std::uint64_t{1} << 40, ~std::uint64_t{0}}) {
    const std::uint64_t before = a->counters().rx_malformed;
    shared.store64(released, lie);
    CHECK_FALSE(send(*a, frame));
    CHECK(a->counters().rx_malformed == before + 1);
  }
  receive_all();
  CHECK(send(*a, frame));
  CHECK(a->counters().tx_dropped == 0);
}

TEST_CASE("what a peer has written over of an end's own words is written again, and the stream goes on",
          "[shm][hostile]") {
  Overlooked link("words");
  auto& [name, a, b, shared] = link;
  const std::size_t consumer = kGeometry.control_at(0, 0) + offsetof(shm::RingControl, consumer);
  const std::size_t ack = consumer + offsetof(shm::ConsumerLine, ack);
  const std::size_t presence = consumer + offsetof(shm::ConsumerLine, presence);
  const std::uint32_t known = shared.load32(presence);
  const Bytes frame = random_bytes(100, 1);
  REQUIRE(send(*a, frame));
  REQUIRE(receive(*b).size() == 1);
  shared.store64(ack, 77);
  CHECK_FALSE(send(*a, frame));
  shared.store64(presence, 77);
  CHECK(receive(*b).empty());
  CHECK(shared.load32(presence) == known);
  REQUIRE(send(*a, frame));
  CHECK(receive(*b) == std::vector<Bytes>{frame});
  CHECK(a->counters().tx_dropped == 0);
}

TEST_CASE("an offer of a stream that was written over is made again", "[shm][hostile]") {
  const std::string name = unique_name("offer");
  const auto a = open_end(name);
  const auto b = open_end(name);
  SharedBytes shared(name);
  CHECK(a->tx_claim(64) == nullptr);  // offers
  shared.store64(kGeometry.control_at(0, 0) + offsetof(shm::RingControl, producer), 0);
  const Bytes frame = random_bytes(100, 1);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (!send(*a, frame) && std::chrono::steady_clock::now() < deadline) receive(*b);
  CHECK(receive(*b) == std::vector<Bytes>{frame});
}

TEST_CASE("a peer that writes garbage everywhere harms nobody but itself", "[shm][hostile]") {
  Overlooked link("garbage");
  auto& [name, a, b, shared] = link;
  const std::size_t ring = kGeometry.ring_at(0, 1);  // a reads here
  REQUIRE(send(*b, random_bytes(100, 1)));
  std::array<port::RxFrame, 1> first;
  REQUIRE(a->rx_burst(first) == 1);
  const std::byte* mapped = first[0].data - shm::kHeaderBytes;  // the stream's first record
  a->rx_release();

  const std::uint64_t seed = Catch::rngSeed() + 1;
  INFO("seed " << seed);
  Random random(seed);
  const Bytes small = random_bytes(64, 1);
  for (std::uint64_t i = 0; i < 200'000; ++i) {
    const std::size_t controls = kGeometry.ring_at(0, 0) - shm::kPage;
    switch (random.below(4)) {
      case 0:  // anywhere behind the header
        shared.store32(shm::kPage + random.below((shared.size() - shm::kPage) / 4) * 4, random.next32());
        break;
      case 1:  // control words
        shared.store64(shm::kPage + random.below(controls / 8) * 8, random.next() >> random.below(64));
        break;
      case 2: {  // a record header with the right tag, of this lap or the other one
        const std::uint32_t lap = random.below(2) == 0 ? shm::kLapBit : 0;
        const std::uint32_t tag = (shared.load32(ring) & shm::kTagMask) ^ lap;
        shared.store32(ring + random.below(kGeometry.ring_bytes / 64) * 64, tag | (random.next32() & 0x7fff));
        break;
      }
      default:
        static_cast<void>(send(*b, random_bytes(14 + random.below(1000), i)));
        break;
    }
    static_cast<void>(send(*a, small));
    read_all(*a, mapped, kGeometry.ring_bytes);
  }
  CHECK(a->counters().rx_malformed > 0);
  b.reset();
  const auto successor = open_end(name);
  check_exchange(*a, *successor);
}
