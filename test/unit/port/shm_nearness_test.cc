// What an shm link makes of how long the other core's cache lines take.
#include <catch2/catch.hpp>

#include "drivers/shm/layout.h"
#include "drivers/shm/nearness.h"
#include "drivers/shm/open.h"
#include "port_helpers.h"
#include "shared_bytes.h"

using namespace uroce;
using namespace uroce::drivers;
using namespace uroce::test;

namespace {

constexpr std::uint64_t kNear = 40, kFar = 150;  // ns, as measured on AMD
constexpr std::uint64_t kMost = 90;

void see(shm::Nearness& nearness, std::uint64_t ns, unsigned times) {
  for (unsigned i = 0; i < times; ++i) nearness.saw(ns);
}

}  // namespace

TEST_CASE("a core is far until most lines came fast, and again once most came slowly", "[shm]") {
  shm::Nearness nearness{kMost};
  REQUIRE_FALSE(nearness.is_near());
  see(nearness, kNear, 20);
  REQUIRE(nearness.is_near());
  see(nearness, 34'000, 2);  // somebody else had the processor
  REQUIRE(nearness.is_near());
  see(nearness, kFar, 8);
  REQUIRE_FALSE(nearness.is_near());
  see(nearness, kNear, 2);  // lines that were in the cache already
  REQUIRE_FALSE(nearness.is_near());
  see(nearness, kNear, 8);
  REQUIRE(nearness.is_near());
}

TEST_CASE("a reader hands over the lines of long records as long as the writer's core is not near", "[shm]") {
  const std::string name = unique_name("nearness");
  PortOptions options;
  options.spec = "shm:" + name + ",ring=64K";
  auto a = open_shm(options);
  auto b = open_shm(options);
  REQUIRE((a && b));
  settle(*a->front(), *b->front());
  while (!receive(*b->front()).empty()) {
  }
  const shm::Geometry geometry{.queues = 1, .ring_bytes = 1U << 16, .link_mtu = 4200};
  SharedBytes shared(name);
  const std::size_t wants_lines = geometry.control_at(0, 0) + offsetof(shm::ProducerLine, wants_lines);
  REQUIRE(shared.load32(wants_lines) == 1);  // nothing is known yet

  const auto [bytes, is_wanted] =
      GENERATE(std::pair{4000U, true}, std::pair{4000U, false}, std::pair{200U, true});
  shared.store32(wants_lines, is_wanted ? 1 : 0);
  std::size_t at = geometry.ring_at(0, 0);
  const std::size_t end = at + geometry.ring_bytes;
  const Bytes frame(bytes, std::byte{0x5a});
  REQUIRE(send(*a->front(), frame));
  REQUIRE(receive(*b->front()) == std::vector<Bytes>{frame});
  const auto is_frame = [&shared](std::size_t line) { return shared.load32(line + 56) == 0x5a5a'5a5a; };
  while (at < end && !is_frame(at)) at += shm::kCacheLine;
  REQUIRE(at < end);
  for (unsigned line = 0; line < shm::record_bytes(bytes) / shm::kCacheLine - 1;
       ++line, at += shm::kCacheLine) {
    REQUIRE(shared.load32(at + 60) == (bytes > 1024 && is_wanted ? 0x005a'5a5a : 0x5a5a'5a5a));
  }
  REQUIRE(send(*a->front(), frame));  // and nothing of it is taken for a record
  REQUIRE(receive(*b->front()) == std::vector<Bytes>{frame});
  REQUIRE(receive(*b->front()).empty());
}
