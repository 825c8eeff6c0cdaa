// When a reader of an shm link looks for more, and what becomes of the lines of a stream.
#include <catch2/catch.hpp>

#include "drivers/shm/layout.h"
#include "drivers/shm/open.h"
#include "drivers/shm/pace.h"
#include "port_helpers.h"
#include "shared_bytes.h"

using namespace uroce;
using namespace uroce::drivers;
using namespace uroce::test;

namespace {

constexpr std::uint64_t kForever = std::uint64_t{1} << 62;
constexpr unsigned kEnough = 32;  // records that make a stream

void see_stream(shm::Pace& pace) {
  for (unsigned i = 0; i < kEnough; ++i) pace.saw(1, 0);
}

/// Both ends of a link in which `a` has told `b` whether it wants lines.
struct Pair {
  explicit Pair(bool wants_lines) : name(unique_name("pace")), a(open()), b(open()), shared(name) {
    settle(*a, *b);
    shared.store32(kGeometry.control_at(0, 0) + offsetof(shm::ProducerLine, wants_lines), wants_lines);
  }
  std::unique_ptr<port::Port> open() const {
    PortOptions options;
    options.spec = "shm:" + name + ",ring=64K";
    auto ports = open_shm(options);
    if (!ports) FAIL(ports.error().text);
    return std::move(ports->front());
  }
  static constexpr shm::Geometry kGeometry{.queues = 1, .ring_bytes = 1U << 16, .link_mtu = 4200};
  std::string name;
  std::unique_ptr<port::Port> a;
  std::unique_ptr<port::Port> b;
  SharedBytes shared;
};

}  // namespace

TEST_CASE("records that come one after another are a stream, questions and answers are not", "[shm][pace]") {
  shm::Pace pace;
  for (unsigned i = 0; i < kEnough - 1; ++i) pace.saw(1, 0);
  REQUIRE_FALSE(pace.is_stream());
  for (unsigned i = 0; i < 1000; ++i) pace.saw(1, i / 16);
  REQUIRE(pace.is_stream());

  shm::Pace questions;
  for (unsigned i = 0; i < 1000; ++i) questions.saw(1, i);
  REQUIRE_FALSE(questions.is_stream());
  for (unsigned i = 0; i < 1000; ++i) pace.saw(1, 1000 + i);  // and it ends when answers begin
  REQUIRE_FALSE(pace.is_stream());
}

TEST_CASE("a stream ends with a gap or a long record", "[shm][pace]") {
  shm::Pace pace;
  see_stream(pace);
  for (unsigned i = 0; i < 32; ++i) pace.saw(0, 0);
  REQUIRE(pace.is_stream());
  pace.saw(0, 0);
  REQUIRE_FALSE(pace.is_stream());
  see_stream(pace);
  REQUIRE(pace.is_stream());
  pace.saw_long();
  REQUIRE_FALSE(pace.is_stream());
}

TEST_CASE("a wait lasts as long as it should, unless something else is there", "[shm][pace]") {
  shm::Pace pace(kForever);
  REQUIRE_FALSE(pace.waits());
  see_stream(pace);
  pace.wait();
  for (unsigned i = 0; i < 1000; ++i) REQUIRE(pace.waits());
  pace.hurry();
  REQUIRE_FALSE(pace.waits());

  shm::Pace brief(0);
  brief.wait();
  REQUIRE_FALSE(brief.waits());
}

TEST_CASE("after a wait in vain there is none for 64 records", "[shm][pace]") {
  shm::Pace pace(500'000'000);  // a fraction of a second
  see_stream(pace);
  pace.wait();
  REQUIRE(pace.waits());
  while (pace.waits()) {
  }
  pace.saw(0, 0);
  pace.wait();
  REQUIRE_FALSE(pace.waits());
  for (unsigned i = 0; i < 63; ++i) pace.saw(1, 0);
  pace.wait();
  REQUIRE_FALSE(pace.waits());
  pace.saw(1, 0);
  pace.wait();
  REQUIRE(pace.waits());
}

TEST_CASE("a reader hands over the lines of a stream of short records if the writer's core is not near",
          "[shm][pace]") {
  const bool is_far = GENERATE(true, false);
  const Pair link(is_far);
  const Bytes frame(120, std::byte{0x5a});
  constexpr std::size_t kLines = 2;
  static_assert(shm::record_bytes(120) == kLines * shm::kCacheLine);
  for (unsigned i = 0; i < 2 * kEnough; ++i) {
    REQUIRE(send(*link.a, frame));
    REQUIRE(receive_soon(*link.b) == std::vector<Bytes>{frame});
  }
  const std::size_t ring = Pair::kGeometry.ring_at(0, 0);
  unsigned handed_over = 0;
  for (unsigned record = 0; record < 2 * kEnough; ++record) {
    const std::uint32_t last_byte = link.shared.load32(ring + record * kLines * shm::kCacheLine + 60) >> 24;
    handed_over += last_byte == 0x5a ? 0 : 1;
  }
  // The first ones are no stream yet; and the last one may not have been given back.
  CHECK(handed_over <= (is_far ? kEnough + 1 : 0));
  CHECK(handed_over >= (is_far ? kEnough - 1 : 0));
  CHECK(link.b->counters().rx_malformed == 0);
}

TEST_CASE("bulk does not overtake records of a stream that wait for the next look", "[shm][pace]") {
  const Pair link(true);
  for (unsigned i = 0; i < 1000; ++i) {
    const Bytes frame = random_bytes(100, i);
    const Bytes bulk = random_bytes(3000, i);
    for (unsigned k = 0; k < kEnough; ++k) {
      REQUIRE(send(*link.a, frame));
      REQUIRE(receive_soon(*link.b) == std::vector<Bytes>{frame});
    }
    REQUIRE(send(*link.a, frame));
    REQUIRE(send_bulk(*link.a, bulk));
    std::vector<Bytes> shown = receive_soon(*link.b);
    if (shown.size() == 1) shown.push_back(receive_soon(*link.b).at(0));
    REQUIRE(shown == std::vector<Bytes>{frame, bulk});
  }
}
