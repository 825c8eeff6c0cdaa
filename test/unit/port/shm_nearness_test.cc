// What an shm link makes of how long the other core's cache lines take.
#include <catch2/catch.hpp>

#include "drivers/shm/nearness.h"
#include "drivers/shm/shm_port.h"
#include "port_helpers.h"

using namespace uroce;
using namespace uroce::drivers;
using namespace uroce::test;

namespace {

constexpr std::uint64_t kNear = 40, kFar = 150;  // ns, as measured

void see(shm::Nearness& nearness, std::uint64_t ns, unsigned times) {
  for (unsigned i = 0; i < times; ++i) nearness.saw(ns);
}

}  // namespace

TEST_CASE("a core is far until most lines came fast, and again once most came slowly", "[shm]") {
  shm::Nearness nearness;
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

TEST_CASE("an shm link's peer is far away as long as nothing was sent", "[shm]") {
  PortOptions options;
  options.spec = "shm:" + unique_name("nearness") + ",ring=64K";
  auto a = open_shm(options);
  auto b = open_shm(options);
  REQUIRE((a && b));
  settle(*a->front(), *b->front());
  REQUIRE_FALSE(a->front()->is_near());
  REQUIRE_FALSE(a->front()->bulk_sink().is_near());
}
