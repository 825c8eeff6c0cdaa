// The link of a port goes up and down, and its device away: events, once per change.
#include <catch2/catch.hpp>

#include "engine/loop_fixture.h"

using namespace uroce;
using namespace uroce::test;

namespace {

using port::LinkState;

std::vector<AsyncEventType> events(engine::PollLoop& loop) {
  std::vector<AsyncEventType> types;
  for (engine::LoopEvent event; loop.next_event(event);) {
    types.push_back(event.type);
    CHECK(raw(event.qpn) == 0);
  }
  return types;
}

constexpr std::uint64_t kMs = 1'000'000;

}  // namespace

TEST_CASE("a link that changes is reported within a tenth of a second, once", "[engine][link]") {
  // IBA 11.6.3.3 ?
  using enum AsyncEventType;
  LoopFixture f;
  f.run(300 * kMs);
  CHECK(events(f.loop).empty());  // it was up from the beginning
  f.link.set_link_state(LinkState::kDown);
  f.run(101 * kMs);
  CHECK(events(f.loop) == std::vector{kPortErr});
  f.run(300 * kMs);
  CHECK(events(f.loop).empty());
  f.link.set_link_state(LinkState::kUp);
  f.run(101 * kMs);
  CHECK(events(f.loop) == std::vector{kPortActive});
  f.link.set_link_state(LinkState::kGone);
  f.run(101 * kMs);
  CHECK(events(f.loop) == std::vector{kDeviceFatal});
}

TEST_CASE("a link is not looked at in each iteration", "[engine][link]") {
  LoopFixture f;
  f.run(kMs);
  f.link.set_link_state(LinkState::kDown);
  f.run(50 * kMs);
  CHECK(events(f.loop).empty());
  CHECK(f.loop.look_at_link(f.now()) == LinkState::kDown);  // but by whoever asks
  CHECK(events(f.loop) == std::vector{AsyncEventType::kPortErr});
  f.run(101 * kMs);
  CHECK(events(f.loop).empty());
}

TEST_CASE("of the loops of a device only the first looks", "[engine][link]") {
  drivers::LoopbackLink link({.delay_ns = 1});
  const auto port = link.open_end(0);
  const engine::Addresses addresses({{*Gid::parse("fe80::1"), 64}}, std::nullopt);
  engine::PollLoop second({1, 2}, *port, addresses, 1000);
  link.set_link_state(LinkState::kDown);
  for (std::uint64_t ms = 1; ms < 500; ++ms) second.run_once(Ticks{ms * kMs});
  CHECK(events(second).empty());
}
