// The two lanes of an shm link: what is bulk holds nothing else up.
#include <catch2/catch.hpp>

#include <poll.h>

#include "base/cpu.h"
#include "drivers/fault/fault_port.h"
#include "drivers/pcap/pcap_port.h"
#include "drivers/shm/layout.h"
#include "drivers/shm/open.h"
#include "port_helpers.h"

using namespace uroce;
using namespace uroce::drivers;
using namespace uroce::test;

namespace {

struct Pair {
  explicit Pair(const std::string& what, bool with_bulk = true)
      : name(unique_name(what)), a(open()), b(open()) {
    settle(*a, *b, with_bulk);
  }
  std::unique_ptr<port::Port> open() const {
    PortOptions options;
    options.spec = "shm:" + name;
    auto ports = open_shm(options);
    if (!ports) FAIL(ports.error().text);
    return std::move(ports->front());
  }
  std::string name;
  std::unique_ptr<port::Port> a;
  std::unique_ptr<port::Port> b;
};

constexpr unsigned kRounds = 2000;  // of 4000 bytes: some times around the ring

}  // namespace

TEST_CASE("who fetches lines ahead is told which: the next long record, but for its first", "[shm][lanes]") {
  FetchAhead ahead;
  Pair link("ahead");
  link.b->leave_fetching_to(&ahead);
  REQUIRE(send(*link.a, random_bytes(64, 1)));
  receive(*link.b);
  CHECK(ahead.left() == 0);
  for (unsigned i = 0; i < 3; ++i) REQUIRE(send_bulk(*link.a, random_bytes(4000, i)));
  // 4000 bytes and the header in whole lines, and the line behind them. Other CPUs leave none to fetch, but
  // those whose CRC takes long do for a producer that is far away, which this one may have been taken for.
  constexpr std::uint32_t kLines = 63 + 1 - FetchAhead::kFew;
  receive(*link.b);
  const std::uint32_t left = ahead.left();
  CHECK((left == kLines || (left == 0 && !cpu::is_intel)));
  CHECK((left == 0 || cpu::is_intel || cpu::sums_slowly));
  ahead.fetch_rest();
  link.b->leave_fetching_to(nullptr);
  receive(*link.b);
  CHECK(ahead.left() == 0);
  receive(*link.b);
  CHECK(link.b->counters().rx_frames == 4);
}

TEST_CASE("the frame behind a long one is known if it is there, and not while others are spared",
          "[shm][lanes]") {
  const Pair link("next");
  std::array<port::RxFrame, port::kBurst> shown;
  const auto next_of = [&] { return Bytes(link.b->next_frame().begin(), link.b->next_frame().end()); };
  const std::vector<Bytes> frames = {random_bytes(4000, 1), random_bytes(2000, 2), random_bytes(64, 3)};
  REQUIRE(send_bulk(*link.a, frames[0]));
  REQUIRE(link.b->rx_burst(shown) == 1);
  CHECK(next_of().empty());
  link.b->rx_release();
  for (const Bytes& frame : frames) REQUIRE(send_bulk(*link.a, frame));
  REQUIRE(link.b->rx_burst(shown) == 1);
  CHECK(next_of() == frames[1]);
  const std::byte* const where = link.b->next_frame().data();
  link.b->spare_others(true);
  CHECK(next_of().empty());
  link.b->spare_others(false);
  link.b->rx_release();
  REQUIRE(link.b->rx_burst(shown) == 1);
  CHECK(shown[0].data == where);
  CHECK(next_of() == frames[2]);
  link.b->rx_release();
  REQUIRE(link.b->rx_burst(shown) == 1);
  link.b->rx_release();
  // Of the other lane, of which a burst ends with a long one.
  REQUIRE(send(*link.a, frames[0]));
  REQUIRE(send(*link.a, frames[1]));
  REQUIRE(link.b->rx_burst(shown) == 1);
  CHECK(next_of() == frames[1]);
  link.b->rx_release();
}

TEST_CASE("short frames overtake bulk that waits, which is shown a frame at a time", "[shm][lanes]") {
  const Pair link("overtake");
  CHECK_FALSE(link.b->shows_more());
  std::vector<Bytes> bulk;
  for (unsigned i = 0; i < 3; ++i) {
    bulk.push_back(random_bytes(4000, i));
    REQUIRE(send_bulk(*link.a, bulk.back()));
  }
  const Bytes prompt = random_bytes(64, 9);
  REQUIRE(send(*link.a, prompt));
  CHECK(receive(*link.b) == std::vector<Bytes>{prompt});
  for (const Bytes& frame : bulk) {
    CHECK(receive(*link.b) == std::vector<Bytes>{frame});
    CHECK(link.b->shows_more() == (&frame != &bulk.back()));
  }
  CHECK(receive(*link.b).empty());
  CHECK(link.b->counters().rx_frames == 4);
}

TEST_CASE("a short frame that is shown alone tells of the bulk behind it", "[shm][lanes]") {
  const Pair link("tells");
  CHECK(receive(*link.b).empty());
  REQUIRE(send(*link.a, random_bytes(64, 1)));
  CHECK(receive(*link.b).size() == 1);
  CHECK_FALSE(link.b->shows_more());
  CHECK(receive(*link.b).empty());
  REQUIRE(send(*link.a, random_bytes(64, 2)));
  for (unsigned i = 0; i < 2; ++i) REQUIRE(send_bulk(*link.a, random_bytes(4000, i)));
  CHECK(receive(*link.b) == std::vector<Bytes>{random_bytes(64, 2)});
  CHECK(link.b->shows_more());
  CHECK(receive(*link.b).size() == 1);
  CHECK(link.b->shows_more());
  CHECK(receive(*link.b).size() == 1);
  CHECK_FALSE(link.b->shows_more());
}

TEST_CASE("bulk is shown behind what was sent before it", "[shm][lanes]") {
  const Pair link("behind");
  for (unsigned i = 0; i < 40; ++i) REQUIRE(send(*link.a, random_bytes(64, i)));
  const Bytes bulk = random_bytes(4000, 99);
  REQUIRE(send_bulk(*link.a, bulk));
  std::vector<Bytes> all;
  for (int i = 0; i < 4; ++i) {
    for (Bytes& frame : receive(*link.b)) all.push_back(std::move(frame));
  }
  REQUIRE(all.size() == 41);
  CHECK(all.back() == bulk);
}

TEST_CASE("bulk does not come first because short frames came before there was any", "[shm][lanes]") {
  const Pair link("earlier");
  for (unsigned i = 0; i < 4; ++i) {
    REQUIRE(send(*link.a, random_bytes(64, i)));
    CHECK(receive(*link.b).size() == 1);
  }
  CHECK(receive(*link.b).empty());
  const std::vector<Bytes> sent{random_bytes(64, 10), random_bytes(64, 11), random_bytes(4000, 12)};
  for (unsigned i = 0; i < 2; ++i) REQUIRE(send(*link.a, sent[i]));
  REQUIRE(send_bulk(*link.a, sent[2]));
  std::vector<Bytes> shown;
  for (int i = 0; i < 4; ++i) {
    for (Bytes& frame : receive(*link.b)) shown.push_back(std::move(frame));
  }
  CHECK(shown == sent);
}

TEST_CASE("what of the short lane was taken is known, whatever is behind it", "[shm][lanes]") {
  const Pair link("taken");
  REQUIRE(send(*link.a, random_bytes(64, 1)));
  const std::uint64_t place = link.a->place();
  CHECK_FALSE(link.a->has_taken(place));
  CHECK(receive(*link.b).size() == 1);
  REQUIRE(send(*link.a, random_bytes(64, 2)));
  CHECK(link.a->has_taken(place));
  CHECK_FALSE(link.a->has_taken(link.a->place()));
}

TEST_CASE("bulk gets its turn however many short frames come", "[shm][lanes]") {
  const Pair link("turn");
  for (unsigned i = 0; i < 4; ++i) REQUIRE(send_bulk(*link.a, random_bytes(4000, i)));
  std::size_t bulk = 0;
  for (unsigned burst = 0; burst < 12; ++burst) {
    for (unsigned i = 0; i < 40; ++i) REQUIRE(send(*link.a, random_bytes(64, i)));
    const auto shown = receive(*link.b);
    CHECK(shown.size() == (burst == 0 ? 1 : port::kBurst));
    for (const Bytes& frame : shown) bulk += frame.size() == 4000 ? 1 : 0;
  }
  CHECK(bulk == 4);
}

TEST_CASE("bulk begins however many short frames come", "[shm][lanes]") {
  const Pair link("begin", false);
  bool has_come = false;
  for (unsigned burst = 0; burst < 1000 && !has_come; ++burst) {
    REQUIRE(send(*link.a, random_bytes(64, burst)));
    (void)send_bulk(*link.a, random_bytes(4000, burst));
    for (const Bytes& frame : receive(*link.b)) has_come = has_come || frame.size() == 4000;
    receive(*link.a);
  }
  CHECK(has_come);
}

TEST_CASE("bulk that spares others is shown once its lines are under way, and short frames meanwhile",
          "[shm][lanes]") {
  const Pair link("spare");
  const Bytes bulk = random_bytes(4000, 1);
  constexpr unsigned kLines = 63;  // 4000 bytes and the header
  constexpr unsigned kBursts = (kLines + shm::kLinesBetweenLooks - 1) / shm::kLinesBetweenLooks;
  link.b->spare_others(true);
  unsigned at_once = 0;
  for (unsigned round = 0; round < kRounds; ++round) {
    REQUIRE(send_bulk(*link.a, bulk));
    std::vector<Bytes> shown;
    for (unsigned burst = 0; burst < kBursts && shown.empty(); ++burst) shown = receive(*link.b);
    at_once += shown.empty() ? 0 : 1;
    const Bytes prompt = random_bytes(64, round);
    REQUIRE(send(*link.a, prompt));
    REQUIRE(receive_soon(*link.b) == std::vector<Bytes>{prompt});
    if (shown.empty()) shown = receive(*link.b);
    REQUIRE(shown == std::vector<Bytes>{bulk});
  }
  CHECK(at_once <= kRounds / 100);  // where the ring begins again
  REQUIRE(send_bulk(*link.a, bulk));
  REQUIRE(receive(*link.b).empty());
  link.b->spare_others(false);
  CHECK(receive(*link.b) == std::vector<Bytes>{bulk});
}

TEST_CASE("bulk that spares others gets its turn however many short frames come", "[shm][lanes]") {
  const Pair link("spare-turn");
  link.b->spare_others(true);
  REQUIRE(send_bulk(*link.a, random_bytes(4000, 1)));
  std::size_t bulk = 0;
  for (unsigned burst = 0; burst < 3; ++burst) {
    REQUIRE(send(*link.a, random_bytes(64, burst)));
    for (const Bytes& frame : receive(*link.b)) bulk += frame.size() == 4000 ? 1 : 0;
  }
  CHECK(bulk == 1);
}

TEST_CASE("bulk spares others behind faults and captures, too", "[shm][lanes]") {
  Pair link("spare-through");
  const auto capture = pcap::CaptureFile::create("/dev/null");
  REQUIRE(capture);
  link.b = std::make_unique<FaultPort>(std::move(link.b), std::vector<fault::Rule>{}, 1, [] { return 0; });
  link.b = std::make_unique<PcapPort>(std::move(link.b), *capture);
  link.b->spare_others(true);
  const Bytes bulk = random_bytes(4000, 1);
  REQUIRE(send_bulk(*link.a, bulk));
  CHECK(receive(*link.b).empty());
  CHECK(link.b->shows_more());
  link.b->spare_others(false);
  CHECK(receive(*link.b) == std::vector<Bytes>{bulk});
}

TEST_CASE("bulk that is there is no idle time: a peer's next stream is taken behind it", "[shm][lanes]") {
  Pair link("spare-restart");
  link.b->spare_others(true);
  for (unsigned i = 0; i < 2; ++i) REQUIRE(send_bulk(*link.a, random_bytes(4000, i)));
  link.a.reset();
  link.a = link.open();
  static_cast<void>(link.a->bulk_sink().tx_claim(64));  // offers a stream
  CHECK(receive(*link.b).empty());
  CHECK(link.b->shows_more());
  std::vector<Bytes> shown;
  for (unsigned burst = 0; burst < 20; ++burst) {
    for (Bytes& frame : receive(*link.b)) shown.push_back(std::move(frame));
  }
  CHECK(shown == std::vector<Bytes>{random_bytes(4000, 0), random_bytes(4000, 1)});
  CHECK_FALSE(link.b->shows_more());
  const Bytes next = random_bytes(4000, 3);
  REQUIRE(send_bulk(*link.a, next));
  CHECK(receive(*link.b).empty());  // prepared anew
  for (unsigned burst = 0; burst < 20 && shown.size() < 3; ++burst) {
    for (Bytes& frame : receive(*link.b)) shown.push_back(std::move(frame));
  }
  CHECK(shown.back() == next);
}

TEST_CASE("room for bulk is prepared in parts, and again behind each frame", "[shm][lanes]") {
  const Pair link("prepare");
  const Bytes frame = random_bytes(4000, 1);
  constexpr unsigned kParts = (63 + shm::kLinesBetweenLooks - 1) / shm::kLinesBetweenLooks;
  auto& bulk = link.a->bulk_sink();
  unsigned unprepared = 0;
  for (unsigned round = 0; round < kRounds; ++round) {
    unsigned parts = 0;
    while (!bulk.prepare(4000) && parts < 100) ++parts;
    unprepared += parts == 0 ? 1 : 0;
    REQUIRE((parts == 0 || parts == kParts));
    REQUIRE(bulk.prepare(4000));
    REQUIRE(send_bulk(*link.a, frame));
    REQUIRE(receive(*link.b) == std::vector<Bytes>{frame});
  }
  CHECK(unprepared == 0);
  while (send_bulk(*link.a, frame)) {
  }
  CHECK(bulk.prepare(4000));  // no room, nothing to fetch: lines that the peer has yet to read are left alone
}

TEST_CASE("a full bulk lane leaves the other one free", "[shm][lanes]") {
  const Pair link("full");
  unsigned filled = 0;
  while (send_bulk(*link.a, random_bytes(4000, filled))) ++filled;
  CHECK(filled > 200);
  const Bytes prompt = random_bytes(64, 9);
  REQUIRE(send(*link.a, prompt));
  CHECK(receive(*link.b) == std::vector<Bytes>{prompt});
  CHECK(link.a->counters().tx_dropped == 0);
  for (unsigned i = 0; i < filled; ++i)
    REQUIRE(receive(*link.b) == std::vector<Bytes>{random_bytes(4000, i)});
}

TEST_CASE("the bulk lane is drained once the peer has given all back", "[shm][lanes]") {
  const Pair link("drained");
  auto& bulk = link.a->bulk_sink();
  CHECK(bulk.is_drained());
  REQUIRE(send_bulk(*link.a, random_bytes(4000, 1)));
  CHECK_FALSE(bulk.is_drained());
  std::array<port::RxFrame, 2> shown;
  REQUIRE(link.b->rx_burst(shown) == 1);
  CHECK_FALSE(bulk.is_drained());
  link.b->rx_release();
  CHECK(bulk.is_drained());
}

TEST_CASE("without a peer bulk is dropped, and nothing is on its way", "[shm][lanes]") {
  Pair link("alone");
  REQUIRE(send_bulk(*link.a, random_bytes(4000, 1)));
  link.b.reset();
  REQUIRE(send_bulk(*link.a, random_bytes(4000, 2)));
  CHECK(link.a->bulk_sink().is_drained());
  CHECK(link.a->counters().tx_dropped == 2);
}

TEST_CASE("a sleeping end is woken by bulk, and does not fall asleep over it", "[shm][lanes][sleep]") {
  const Pair link("sleep");
  REQUIRE(link.b->arm_rx());
  REQUIRE(send_bulk(*link.a, random_bytes(4000, 1)));
  pollfd waiting{.fd = link.b->rx_fd(), .events = POLLIN, .revents = 0};
  CHECK(::poll(&waiting, 1, 1000) == 1);
  link.b->disarm_rx();
  CHECK_FALSE(link.b->arm_rx());
  link.b->disarm_rx();
  CHECK(receive(*link.b).size() == 1);
  CHECK(link.b->arm_rx());
  link.b->disarm_rx();
  REQUIRE(send_bulk(*link.a, random_bytes(4000, 2)));
  CHECK(::poll(&waiting, 1, 0) == 0);  // it is awake
}
