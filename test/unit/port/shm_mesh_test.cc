// Links of more than two ends.
#include <catch2/catch.hpp>

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <set>
#include <thread>

#include "drivers/fault/fault_port.h"
#include "drivers/shm/file_lock.h"
#include "drivers/shm/link.h"
#include "drivers/shm/open.h"
#include "port_helpers.h"

using namespace uroce;
using namespace uroce::drivers;
using namespace uroce::test;

namespace {

using PortPtr = std::unique_ptr<port::Port>;
using Frames = std::vector<Bytes>;

Result<std::vector<PortPtr>> open_at(const std::string& name, const std::string& more,
                                     std::uint32_t link_mtu = 0) {
  PortOptions options;
  options.spec = "shm:" + name + more;
  options.link_mtu = link_mtu;
  return open_shm(options);
}

PortPtr open_one(const std::string& name, const std::string& more) {
  auto ports = open_at(name, more);
  if (!ports) FAIL(ports.error().text);
  REQUIRE(ports->size() == 1);
  return std::move(ports->front());
}

/// All ends of a fresh mesh, in this process.
struct Ends {
  explicit Ends(const std::string& what, unsigned count = 3)
      : name(unique_name(what)), options(",ring=256K,ends=" + std::to_string(count)) {
    for (unsigned i = 0; i < count; ++i) ports.push_back(open_one(name, options));
    meet();
  }
  /// Polls until each has seen the others.
  void meet() {
    for (int i = 0; i < 32; ++i) {
      for (const PortPtr& from : ports) {
        if (from == nullptr) continue;
        for (const PortPtr& to : ports) {
          if (to == nullptr || to == from) continue;
          port::Port& way = from->way_to(to->info().mac);
          static_cast<void>(way.tx_claim(64));  // never committed
          static_cast<void>(way.bulk_sink().tx_claim(64));
        }
        receive(*from);
      }
    }
  }
  port::Port& operator[](std::size_t end) const { return *ports[end]; }
  [[nodiscard]] port::Port& way(std::size_t from, std::size_t to) const {
    return ports[from]->way_to(ports[to]->info().mac);
  }
  std::string name;
  std::string options;
  std::vector<PortPtr> ports;
};

Bytes frame_to(const MacAddress& mac, std::size_t len, std::uint64_t seed) {
  Bytes frame = random_bytes(len, seed);
  std::memcpy(frame.data(), mac.raw.data(), mac.raw.size());
  return frame;
}

constexpr MacAddress kGroup{{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}};

/// Until the other end has no room. @return how many
unsigned fill(port::Port& way) {
  unsigned count = 0;
  for (const Bytes frame = random_bytes(1000, 1); send(way, frame); ++count) REQUIRE(count < 10'000);
  return count;
}

void receive_all(port::Port& port, unsigned count) {
  for (std::size_t read = 0; read < count;) {
    const std::size_t some = receive_soon(port).size();
    REQUIRE(some > 0);
    read += some;
  }
}

/// A frame finds no room, and is dropped when it has waited for long enough.
void wait_in_vain(port::Port& port, const Bytes& frame) {
  const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  const std::uint64_t before = port.counters().tx_dropped;
  REQUIRE(send(port, frame));
  while (port.counters().tx_dropped == before) {
    REQUIRE(std::chrono::steady_clock::now() < give_up);
    port.tx_flush();
  }
}

/// How many are dropped of a frame that finds no room, at once; none if this thread was stopped for so long
/// that it may have waited long enough.
std::uint64_t dropped_at_once(port::Port& port, const Bytes& frame) {
  const std::uint64_t before = port.counters().tx_dropped;
  const auto start = std::chrono::steady_clock::now();
  REQUIRE(send(port, frame));
  const std::uint64_t dropped = port.counters().tx_dropped - before;
  return std::chrono::steady_clock::now() - start < std::chrono::milliseconds(1) ? dropped : 0;
}

bool is_readable(int fd, int timeout_ms) {
  pollfd waiting{.fd = fd, .events = POLLIN, .revents = 0};
  return ::poll(&waiting, 1, timeout_ms) == 1;
}

}  // namespace

TEST_CASE("the ends of a mesh are numbered as they come, and have addresses of their own", "[shm][mesh]") {
  const Ends ends("numbers", 4);
  std::set<std::array<std::uint8_t, 6>> macs;
  for (unsigned i = 0; i < 4; ++i) {
    CHECK(ends[i].info().side == i);
    CHECK(ends[i].info().ends == 4);
    CHECK(ends[i].info().name == "shm:" + ends.name + ends.options);
    macs.insert(ends[i].info().mac.raw);
  }
  CHECK(macs.size() == 4);
}

TEST_CASE("an end can be asked for, and its number is free again when it has left", "[shm][mesh]") {
  Ends ends("asked");
  ends.ports[1].reset();
  const auto held = open_at(ends.name, ends.options + ",side=2");
  REQUIRE_FALSE(held);
  CHECK(held.error().code == Errc::kNameInUse);
  CHECK(held.error().text.find("end 2 of") != std::string::npos);
  CHECK(open_one(ends.name, ends.options + ",side=1")->info().side == 1);
  CHECK(open_one(ends.name, ends.options)->info().side == 1);
}

TEST_CASE("whoever comes while an end is leaving has its number once it has left", "[shm][mesh]") {
  const std::string name = unique_name("leaving");
  const std::string first = shm::link_path(name);
  const std::string rest = shm::link_path(name, {.low = 0, .high = 2});
  const int leaving = ::open(rest.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  REQUIRE(shm::try_lock(leaving, shm::kSideLock));
  std::atomic<bool> has_ended{false};
  std::vector<PortPtr> ends;
  std::thread comer([&] {
    if (auto ports = open_at(name, ",ring=256K,ends=3")) ends = std::move(*ports);
    has_ended = true;
  });
  while (!has_ended && !shm::Link::holder(first, 0)) std::this_thread::yield();
  ::close(leaving);
  comer.join();
  REQUIRE(ends.size() == 1);
  CHECK(ends.front()->info().side == 0);
}

TEST_CASE("one end too many is refused, with the holders and what to do", "[shm][mesh]") {
  const Ends ends("full");
  const auto fourth = open_at(ends.name, ends.options);
  REQUIRE_FALSE(fourth);
  CHECK(fourth.error().code == Errc::kNameInUse);
  CHECK(fourth.error().text.find("each of the 3 ends") != std::string::npos);
  CHECK(fourth.error().text.find("PID " + std::to_string(::getpid())) != std::string::npos);
  CHECK(fourth.error().text.find("kill PID") != std::string::npos);
}

TEST_CASE("whoever counts other ends than those who are there is told", "[shm][mesh]") {
  const Ends mesh("counts");
  const Ends pair("counts2", 2);
  for (const auto& [name, more] :
       {std::pair{mesh.name, ",ends=4"}, {mesh.name, ""}, {pair.name, ",ends=3"}}) {
    const auto other = open_at(name, more);
    REQUIRE_FALSE(other);
    CHECK(other.error().code == Errc::kConfig);
    CHECK(other.error().text.find("ends") != std::string::npos);
  }
  for (const char* more : {",ends=1", ",ends=65", ",ends=3,side=3", ",ends=x"}) {
    const auto wrong = open_at(unique_name("wrong"), more);
    REQUIRE_FALSE(wrong);
    CHECK(wrong.error().code == Errc::kConfig);
  }
}

TEST_CASE("link MTU and rings of a mesh are those of who was there first", "[shm][mesh]") {
  const std::string name = unique_name("agree");
  const auto one = open_at(name, ",ends=3,ring=512K", 9000);
  REQUIRE(one);
  const PortPtr two = open_one(name, ",ends=3");
  const PortPtr three = open_one(name, ",ends=3");
  CHECK(two->info().link_mtu == 9000);
  CHECK(three->info().link_mtu == 9000);
  const MacAddress to = three->info().mac;
  CHECK(two->way_to(to).tx_claim(9014) == nullptr);  // offers a stream
  receive(*three);
  receive(*three);
  CHECK(two->way_to(to).tx_claim(9014) != nullptr);
}

TEST_CASE("what an end leaves open it takes from any that is there", "[shm][mesh]") {
  const std::string name = unique_name("last");
  const auto end = open_at(name, ",ends=4,ring=512K,side=3", 9000);
  REQUIRE(end);
  const PortPtr first = open_one(name, ",ends=4");
  CHECK(first->info().side == 0);
  CHECK(first->info().link_mtu == 9000);
  for (const std::uint32_t link_mtu : {4200U, 9600U}) {
    const auto refused = open_at(name, ",ends=4,side=1", link_mtu);
    REQUIRE_FALSE(refused);
    CHECK(refused.error().code == Errc::kConfig);
    CHECK(refused.error().text.find("link MTU " + std::to_string(link_mtu) + " differs") !=
          std::string::npos);
  }
}

TEST_CASE("rings of many ends hold the largest frames, too", "[shm][mesh]") {
  const auto end = open_at(unique_name("many"), ",ends=64", 9600);
  if (!end) FAIL(end.error().text);
  CHECK(end->front()->info().link_mtu == 9600);
}

TEST_CASE("each queue of an end leads to the same queue of the others", "[shm][mesh]") {
  PortOptions options;
  options.spec = "shm:" + unique_name("queues") + ",ring=256K,ends=3";
  options.queues = 2;
  std::vector<std::vector<PortPtr>> ends;
  for (int i = 0; i < 3; ++i) {
    auto ports = open_shm(options);
    REQUIRE(ports);
    REQUIRE(ports->size() == 2);
    ends.push_back(std::move(*ports));
  }
  const MacAddress to = ends[2][0]->info().mac;
  CHECK(ends[2][1]->info().mac.raw == to.raw);
  for (int i = 0; i < 16; ++i) {  // until they have seen each other
    for (const unsigned queue : {0U, 1U}) {
      static_cast<void>(ends[0][queue]->way_to(to).tx_claim(64));
      receive(*ends[2][queue]);
    }
  }
  for (const unsigned queue : {1U, 0U}) {
    const Bytes frame = frame_to(to, 300, queue);
    REQUIRE(send(ends[0][queue]->way_to(to), frame));
    CHECK(receive(*ends[2][1 - queue]).empty());
    CHECK(receive_soon(*ends[2][queue]) == Frames{frame});
  }
}

TEST_CASE("the last of a mesh removes all files", "[shm][mesh]") {
  std::vector<std::string> paths;
  {
    const Ends ends("files");
    for (const shm::Pair pair : {shm::Pair{0, 1}, shm::Pair{0, 2}, shm::Pair{1, 2}})
      paths.push_back(shm::link_path(ends.name, pair));
    for (const std::string& path : paths) CHECK(::access(path.c_str(), F_OK) == 0);
  }
  for (const std::string& path : paths) {
    for (const char* suffix : {"", "~0.0", "~1.0"}) CHECK(::access((path + suffix).c_str(), F_OK) != 0);
  }
}

TEST_CASE("a frame goes to the end whose address it has, written to the port or to the way there",
          "[shm][mesh]") {
  const Ends ends("unicast");
  for (std::size_t from = 0; from < 3; ++from) {
    for (std::size_t to = 0; to < 3; ++to) {
      if (from == to) continue;
      const std::size_t other = 3 - from - to;
      const Bytes direct = frame_to(ends[to].info().mac, 200, from * 10 + to);
      const Bytes copied = frame_to(ends[to].info().mac, 3000, from * 20 + to);
      REQUIRE(&ends.way(from, to) != &ends[from]);
      REQUIRE(send(ends.way(from, to), direct));
      CHECK(receive_soon(ends[to]) == Frames{direct});
      REQUIRE(send_bulk(ends.way(from, to), copied));
      CHECK(receive_soon(ends[to]) == Frames{copied});
      REQUIRE(send(ends[from], copied));
      CHECK(receive_soon(ends[to]) == Frames{copied});
      CHECK(receive(ends[other]).empty());
      CHECK(receive(ends[from]).empty());
    }
  }
  CHECK(ends[0].counters().tx_frames == 6);
  CHECK(ends[0].counters().rx_frames == 6);
}

TEST_CASE("a frame for a group goes to all other ends", "[shm][mesh]") {
  const Ends ends("group", 4);
  const Bytes frame = frame_to(kGroup, 60, 3);
  REQUIRE(send(ends[2], frame));
  for (const unsigned to : {0U, 1U, 3U}) CHECK(receive_soon(ends[to]) == Frames{frame});
  CHECK(receive(ends[2]).empty());
}

TEST_CASE("a frame for nobody is dropped and counted", "[shm][mesh]") {
  const Ends ends("nobody");
  const std::uint64_t before = ends[0].counters().tx_dropped;
  MacAddress beyond = ends[0].info().mac;
  beyond.raw.back() = 4;
  MacAddress foreign = ends[1].info().mac;
  foreign.raw[1] ^= 1;
  for (const MacAddress& mac : {beyond, foreign, ends[0].info().mac, MacAddress{}}) {
    CHECK(&ends[0].way_to(mac) == &ends[0]);
    REQUIRE(send(ends[0], frame_to(mac, 64, 1)));
  }
  CHECK(ends[0].counters().tx_dropped == before + 4);
  CHECK(receive(ends[1]).empty());
  CHECK(receive(ends[2]).empty());
}

TEST_CASE("a frame longer than the link's is refused", "[shm][mesh]") {
  const Ends ends("long");
  CHECK(ends[0].tx_claim(4218) != nullptr);
  CHECK(ends[0].tx_claim(4219) == nullptr);
}

TEST_CASE("frames of several ends come in one burst, and their room is given back", "[shm][mesh]") {
  const Ends ends("several", 4);
  for (int round = 0; round < 2000; ++round) {  // some times the ring
    for (const unsigned from : {1U, 2U, 3U}) {
      REQUIRE(send(ends.way(from, 0), random_bytes(700, from)));
    }
    std::vector<Bytes> all;
    while (all.size() < 3) {
      std::vector<Bytes> some = receive_soon(ends[0]);
      REQUIRE_FALSE(some.empty());
      all.insert(all.end(), some.begin(), some.end());
    }
  }
  CHECK(ends[0].counters().rx_frames == 6000);
}

TEST_CASE("a burst shows no more than it is asked for, and the next one the rest", "[shm][mesh]") {
  const Ends ends("asked-for", 4);
  std::multiset<std::size_t> sizes;
  for (const unsigned from : {1U, 2U, 3U}) REQUIRE(send(ends.way(from, 0), random_bytes(100 + from, 1)));
  while (sizes.size() < 3) {
    std::array<port::RxFrame, 1> one;
    REQUIRE(ends[0].rx_burst(one) <= 1);
    if (one[0].data == nullptr) continue;
    sizes.insert(one[0].len);
    ends[0].rx_release();
  }
  CHECK(sizes == std::multiset<std::size_t>{101, 102, 103});
}

TEST_CASE("all ends that have talked lately are looked at in each burst", "[shm][mesh]") {
  const Ends ends("talking", 4);
  for (int round = 0; round < 2; ++round) {
    for (const unsigned from : {1U, 2U, 3U}) REQUIRE(send(ends.way(from, 0), random_bytes(100, from)));
    if (round == 1) CHECK(receive(ends[0]).size() == 3);
    for (std::size_t seen = 0; round == 0 && seen < 3;) {
      const std::size_t some = receive_soon(ends[0]).size();
      REQUIRE(some > 0);
      seen += some;
    }
  }
}

TEST_CASE("of ends that have much to say none is heard first each time", "[shm][mesh]") {
  const Ends ends("fair", 4);
  constexpr unsigned kEach = 60;
  for (unsigned i = 0; i < kEach; ++i) {
    for (const unsigned from : {1U, 2U, 3U}) REQUIRE(send(ends.way(from, 0), random_bytes(100 + from, 1)));
  }
  std::array<unsigned, 4> shown{};
  for (unsigned seen = 0; seen < kEach;) {
    for (const Bytes& frame : receive(ends[0], 1)) {
      ++shown[frame.size() - 100];
      ++seen;
    }
  }
  for (const unsigned from : {1U, 2U, 3U}) CHECK(shown[from] >= kEach / 10);
}

TEST_CASE("bulk waits where others are to be spared, and is announced meanwhile", "[shm][mesh]") {
  const Ends ends("spared");
  REQUIRE(send(ends.way(2, 0), random_bytes(100, 1)));
  REQUIRE(receive_soon(ends[0]).size() == 1);  // looked at in each burst from now on
  ends[0].spare_others(true);
  const Bytes bulk = random_bytes(4000, 2);
  REQUIRE(send_bulk(ends.way(2, 0), bulk));
  CHECK(receive(ends[0]).empty());
  CHECK(ends[0].shows_more());
  CHECK(receive_soon(ends[0]) == Frames{bulk});
  CHECK_FALSE(ends[0].shows_more());
  ends[0].spare_others(false);
  REQUIRE(send_bulk(ends.way(2, 0), bulk));
  CHECK(receive(ends[0]) == Frames{bulk});
}

TEST_CASE("behind a long frame the next one of the same end is known", "[shm][mesh]") {
  const Ends ends("next");
  std::array<port::RxFrame, port::kBurst> shown;
  const Bytes frame = random_bytes(4000, 1);
  const auto burst = [&] {  // not every end is looked at in each
    unsigned count = 0;
    for (int i = 0; i < 3 && count == 0; ++i) count = ends[0].rx_burst(shown);
    return count;
  };
  for (const std::size_t from : {1U, 2U}) {
    for (int i = 0; i < 2; ++i) REQUIRE(send_bulk(ends.way(from, 0), frame));
    REQUIRE(burst() == 1);
    const auto next = ends[0].next_frame();
    CHECK(Bytes(next.begin(), next.end()) == frame);
    ends[0].rx_release();
    REQUIRE(burst() == 1);
    CHECK(ends[0].next_frame().empty());
    ends[0].rx_release();
  }
}

TEST_CASE("so many bursts as a port says look at all ends, whoever talks, behind faults, too",
          "[shm][mesh]") {
  Ends ends("all", 4);
  CHECK(ends[1].bursts_to_see_all() == 3);
  ends.ports[0] =
      std::make_unique<FaultPort>(std::move(ends.ports[0]), std::vector<fault::Rule>{}, 1, [] { return 0; });
  const auto looks = [&](unsigned from) {  // until it is heard
    REQUIRE(send(ends.way(from, 0), random_bytes(100, from)));
    unsigned bursts = 1;
    while (receive(ends[0]).empty()) REQUIRE(++bursts < 10);
    return bursts;
  };
  for (const unsigned from : {1U, 2U, 3U}) {
    const unsigned all = ends[0].bursts_to_see_all();
    CHECK(all == 3);
    CHECK(looks(from) <= all);
  }
  CHECK(ends[0].bursts_to_see_all() == 1);
  for (const unsigned from : {1U, 2U, 3U}) CHECK(looks(from) == 1);
}

TEST_CASE("an end that has been silent for long is still heard", "[shm][mesh]") {
  const Ends ends("silent", 5);
  for (int looks = 0; looks < 400'000; ++looks) {
    std::array<port::RxFrame, port::kBurst> frames;
    REQUIRE(ends[0].rx_burst(frames) == 0);
  }
  for (const unsigned from : {1U, 2U, 3U, 4U}) {
    const Bytes frame = random_bytes(64, from);
    REQUIRE(send(ends.way(from, 0), frame));
    CHECK(receive_soon(ends[0]) == Frames{frame});
  }
}

TEST_CASE("an end that does not read holds up neither those who have a way to others nor for long the rest",
          "[shm][mesh]") {
  const Ends ends("stuck");
  const unsigned unread = fill(ends.way(0, 1));
  const Bytes to_stuck = frame_to(ends[1].info().mac, 1000, 1);
  const Bytes to_other = frame_to(ends[2].info().mac, 1000, 2);
  REQUIRE(send(ends.way(0, 2), to_other));
  CHECK(receive_soon(ends[2]) == Frames{to_other});

  const std::uint64_t before = ends[0].counters().tx_dropped;
  const auto start = std::chrono::steady_clock::now();
  REQUIRE(send(ends[0], to_stuck));  // waits
  const std::uint64_t at_once = ends[0].counters().tx_dropped - before;
  const bool sleeps = ends[0].arm_rx();  // nobody would wake it when there is room
  ends[0].disarm_rx();
  if (std::chrono::steady_clock::now() - start < std::chrono::milliseconds(1)) {
    CHECK(at_once == 0);
    CHECK_FALSE(sleeps);
  }
  const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (!send(ends[0], to_other)) REQUIRE(std::chrono::steady_clock::now() < give_up);
  CHECK(ends[0].counters().tx_dropped == before + 1);
  CHECK(ends[0].counters().tx_no_room > 0);
  CHECK(receive_soon(ends[2]) == Frames{to_other});

  const Bytes to_all = frame_to(kGroup, 1000, 3);
  REQUIRE(send(ends[0], to_all));
  CHECK(ends[0].counters().tx_dropped == before + 2);  // at once, now that it is known
  CHECK(receive_soon(ends[2]) == Frames{to_all});
  REQUIRE(send(ends[0], to_other));
  CHECK(receive_soon(ends[2]) == Frames{to_other});

  receive_all(ends[1], unread);
  REQUIRE(send(ends[0], to_all));
  CHECK(ends[0].counters().tx_dropped == before + 2);
  CHECK(receive_soon(ends[1]) == Frames{to_all});
}

TEST_CASE("each frame that finds no room waits anew", "[shm][mesh]") {
  const Ends ends("anew");
  fill(ends.way(0, 1));
  fill(ends.way(0, 2));
  wait_in_vain(ends[0], frame_to(ends[1].info().mac, 1000, 1));
  CHECK(dropped_at_once(ends[0], frame_to(ends[2].info().mac, 1000, 2)) == 0);
}

TEST_CASE("for an end that reads again frames wait as before", "[shm][mesh]") {
  const Ends ends("reads-again");
  const unsigned unread = fill(ends.way(0, 1));
  const Bytes frame = frame_to(ends[1].info().mac, 1000, 1);
  wait_in_vain(ends[0], frame);
  receive_all(ends[1], unread);
  REQUIRE(send(ends[0], frame));
  CHECK(receive_soon(ends[1]).size() > 0);
  fill(ends.way(0, 1));
  CHECK(dropped_at_once(ends[0], frame) == 0);
}

TEST_CASE("a frame that waits goes on as soon as there is room, before what comes after it", "[shm][mesh]") {
  const Ends ends("waits");
  const unsigned before = fill(ends.way(0, 1));
  const Bytes first = frame_to(ends[1].info().mac, 1000, 5);
  REQUIRE(send(ends[0], first));
  std::size_t seen = 0;
  std::vector<Bytes> last;
  while (seen < before + 1) {
    last = receive_soon(ends[1]);
    REQUIRE_FALSE(last.empty());
    seen += last.size();
    ends[0].tx_flush();
    if (ends[0].counters().tx_dropped > 0) return;  // this thread was stopped for longer than it waits
  }
  CHECK(last.back() == first);
}

TEST_CASE("an end sleeps until any of the others sends", "[shm][mesh]") {
  const Ends ends("sleep", 4);
  for (const unsigned from : {1U, 2U, 3U}) {
    REQUIRE(ends[0].arm_rx());
    CHECK_FALSE(is_readable(ends[0].rx_fd(), 0));
    const Bytes frame = random_bytes(100, from);
    REQUIRE(send(ends.way(from, 0), frame));
    CHECK(is_readable(ends[0].rx_fd(), 10'000));
    ends[0].disarm_rx();
    CHECK_FALSE(is_readable(ends[0].rx_fd(), 0));
    CHECK(receive_soon(ends[0]) == Frames{frame});
  }
  REQUIRE(send(ends.way(3, 0), random_bytes(100, 1)));
  CHECK_FALSE(ends[0].arm_rx());
  CHECK(receive_soon(ends[0]).size() == 1);
  REQUIRE(send(ends.way(2, 0), random_bytes(100, 1)));
  CHECK_FALSE(is_readable(ends[0].rx_fd(), 0));  // nobody rings for who is awake
  REQUIRE(ends[0].arm_rx_beside());
  REQUIRE(send(ends.way(3, 0), random_bytes(100, 1)));
  CHECK(is_readable(ends[0].rx_fd(), 10'000));
}

TEST_CASE("who leaves ringing to its caller rings for all but the last one that sleeps", "[shm][mesh]") {
  const Ends ends("due", 3);
  DueBell due;
  ends[0].leave_ringing_to(&due);
  for (const unsigned to : {1U, 2U}) {
    REQUIRE(ends[to].arm_rx());
    REQUIRE(send(ends.way(0, to), random_bytes(100, to)));
  }
  CHECK(is_readable(ends[1].rx_fd(), 10'000));
  CHECK_FALSE(is_readable(ends[2].rx_fd(), 0));
  DueBell::ring(due.take());
  CHECK(is_readable(ends[2].rx_fd(), 10'000));
}

TEST_CASE("an end that is closed leaves no descriptor open", "[shm][mesh]") {
  const auto count = [] { return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {}); };
  const auto before = count();
  { const Ends ends("descriptors"); }
  CHECK(count() == before);
}

TEST_CASE("an end that leaves and comes again is heard by the others, which go on meanwhile", "[shm][mesh]") {
  Ends ends("again");
  ends.ports[1].reset();
  const Bytes frame = random_bytes(300, 1);
  REQUIRE(send(ends.way(0, 2), frame));
  CHECK(receive_soon(ends[2]) == Frames{frame});
  ends.ports[1] = open_one(ends.name, ends.options);
  CHECK(ends[1].info().side == 1);
  ends.meet();
  for (const unsigned other : {0U, 2U}) {
    REQUIRE(send(ends.way(1, other), frame));
    CHECK(receive_soon(ends[other]) == Frames{frame});
    REQUIRE(send(ends.way(other, 1), frame));
    CHECK(receive_soon(ends[1]) == Frames{frame});
    CHECK(ends[other].counters().peer_restarts >= 1);
  }
}

TEST_CASE("a mesh is up as long as another end is there", "[shm][mesh]") {
  Ends ends("state");
  CHECK(ends[0].link_state() == port::LinkState::kUp);
  ends.ports[1].reset();
  CHECK(ends[0].link_state() == port::LinkState::kUp);
  ends.ports[2].reset();
  CHECK(ends[0].link_state() == port::LinkState::kDown);
}
