// Two processes on one shared-memory link: much traffic, sudden death, stopping.
#include <catch2/catch.hpp>

#include <sched.h>

#include <atomic>
#include <cstring>
#include <memory>

#include "base/random.h"
#include "drivers/shm/open.h"
#include "processes.h"

using namespace uroce;
using namespace uroce::drivers;
using namespace uroce::test;

namespace {

using PortPtr = std::unique_ptr<port::Port>;

constexpr std::uint32_t kEnough = 64;  // bytes that hold a Stamp

PortPtr open_end(const std::string& name, const std::string& more = "") {
  PortOptions options;
  options.spec = "shm:" + name + more;
  auto ports = open_shm(options);
  return ports ? std::move(ports->front()) : nullptr;
}

/// What each frame starts with; the rest follows from it.
struct Stamp {
  std::uint64_t incarnation = 0;  // of the sender
  std::uint64_t number = 0;       // from 0, without gaps
};

/// The frame that `stamp` stands for: its length and all bytes.
std::uint32_t frame_length(const Stamp& stamp, std::uint32_t largest) {
  Random random(stamp.incarnation << 40 ^ stamp.number);
  return kEnough + static_cast<std::uint32_t>(random.below(largest - kEnough + 1));
}

void fill(std::byte* room, std::uint32_t len, const Stamp& stamp) {
  std::memcpy(room, &stamp, sizeof(stamp));
  std::uint64_t word = stamp.number * 0x9e3779b97f4a7c15ULL + stamp.incarnation;
  std::uint32_t at = sizeof(stamp);
  for (; at + sizeof(word) <= len; at += sizeof(word), word += 0x1234567)
    std::memcpy(room + at, &word, sizeof(word));
  std::memset(room + at, static_cast<int>(stamp.number & 0xff), len - at);
}

bool is_intact(const port::RxFrame& frame, const Stamp& stamp, std::uint32_t largest) {
  thread_local std::byte expected[16384];
  if (frame.len != frame_length(stamp, largest)) return false;
  fill(expected, frame.len, stamp);
  return std::memcmp(frame.data, expected, frame.len) == 0;
}

/// What an end reports about itself.
struct Report {
  std::atomic<std::uint64_t> sent{0};
  std::atomic<std::uint64_t> received{0};          // since the peer's present incarnation began
  std::atomic<std::uint64_t> peer_incarnation{0};  // newest seen
  std::atomic<std::uint64_t> corrupt{0};
  std::atomic<std::uint64_t> disorder{0};  // a frame of an older incarnation, or one that came before
  std::atomic<std::uint64_t> gaps{0};      // in what one incarnation sent, behind the first frame that came
  std::atomic<std::uint64_t> malformed{0};
  std::atomic<std::uint64_t> restarts{0};
};

struct Reports {
  Report end[2];
};

/// One end that sends and checks without pause.
class Talker {
 public:
  Talker(port::Port& port, std::uint64_t incarnation, Report& report)
      : port_(port),
        report_(report),
        largest_(port.info().link_mtu + 18),
        next_{.incarnation = incarnation, .number = 0} {}

  /// @return whether anything moved.
  bool turn(std::uint64_t send_limit) {
    bool moved = false;
    for (int burst = 0; burst < 16 && next_.number < send_limit; ++burst) {
      const std::uint32_t len = frame_length(next_, largest_);
      std::byte* room = port_.tx_claim(len);
      if (room == nullptr) break;
      fill(room, len, next_);
      port_.tx_commit();
      ++next_.number;
      moved = true;
    }
    port_.tx_flush();
    report_.sent = next_.number;
    port::RxFrame frames[port::kBurst];
    const unsigned count = port_.rx_burst(frames);
    for (unsigned i = 0; i < count; ++i) check(frames[i]);
    if (count > 0) port_.rx_release();
    report_.malformed = port_.counters().rx_malformed;
    report_.restarts = port_.counters().peer_restarts;
    return moved || count > 0;
  }

 private:
  void check(const port::RxFrame& frame) {
    Stamp stamp;
    if (frame.len < kEnough) {
      ++report_.corrupt;
      return;
    }
    std::memcpy(&stamp, frame.data, sizeof(stamp));
    if (!is_intact(frame, stamp, largest_)) {
      ++report_.corrupt;
      return;
    }
    const std::uint64_t known = report_.peer_incarnation;
    if (stamp.incarnation > known) {
      report_.peer_incarnation = stamp.incarnation;
      report_.received = 0;
    } else if (stamp.incarnation < known || stamp.number < expected_) {
      ++report_.disorder;
    } else if (stamp.number > expected_) {
      ++report_.gaps;
    }
    expected_ = stamp.number + 1;
    ++report_.received;
  }

  port::Port& port_;
  Report& report_;
  std::uint32_t largest_;
  Stamp next_;
  std::uint64_t expected_ = 0;
};

/// An end that talks until it is killed.
int talk_for_ever(const std::string& name, const std::string& options, std::uint64_t incarnation,
                  Report& report) {
  const PortPtr port = open_end(name, options);
  if (port == nullptr) return 1;
  Talker talker(*port, incarnation, report);
  for (;;) {
    if (!talker.turn(UINT64_MAX)) ::sched_yield();
  }
}

}  // namespace

TEST_CASE("a million frames of random size cross between two processes each way, whole and in order",
          "[shm][process]") {
  constexpr std::uint64_t kFrames = 1'000'000;
  const RuntimeDir dir;
  const std::string name = "million";
  const Shared<Reports> reports;
  const auto run = [&](unsigned side) {
    const PortPtr port = open_end(name, ",side=" + std::to_string(side));
    if (port == nullptr) return 1;
    Report& own = reports->end[side];
    // Without a peer frames are dropped: the first may have no number yet.
    Talker warm_up(*port, 1, own);
    Talker talker(*port, 2, own);
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(150);
    while (own.received < 1 || reports->end[1 - side].received < 1) {
      if (!warm_up.turn(UINT64_MAX)) ::sched_yield();
      if (std::chrono::steady_clock::now() > deadline) return 2;
    }
    for (unsigned turns = 0; own.sent < kFrames || own.peer_incarnation < 2 || own.received < kFrames;
         ++turns) {
      if (!talker.turn(kFrames)) ::sched_yield();
      if (turns % 1024 == 0 && std::chrono::steady_clock::now() > deadline) return 3;
    }
    const auto counters = port->counters();
    if (counters.rx_malformed != 0) return 4;
    // The other end may still need what this one has sent last.
    while (reports->end[1 - side].received < kFrames && std::chrono::steady_clock::now() < deadline)
      ::sched_yield();
    return 0;
  };
  Child first([&] { return run(0); });
  Child second([&] { return run(1); });
  CHECK(first.wait(160) == 0);
  CHECK(second.wait(160) == 0);
  for (const Report& report : reports->end) {
    CHECK(report.received == kFrames);
    CHECK(report.corrupt == 0);
    CHECK(report.disorder == 0);
  }
}

TEST_CASE("an end survives thirty times that the other is killed at any moment and started again",
          "[shm][process][kill]") {
  const std::uint64_t seed = Catch::rngSeed() + 1;
  INFO("seed " << seed);
  Random random(seed);
  for (const char* ring : {",ring=64K", ",ring=1M"}) {
    INFO(ring);
    const RuntimeDir dir;
    const std::string name = "kill";
    const Shared<Report> survivor_report;
    const Shared<Report> victim_report;
    const Child survivor(
        [&] { return talk_for_ever(name, ring + std::string(",side=0"), 1, *survivor_report); });
    for (std::uint64_t round = 1; round <= 15; ++round) {
      victim_report->received = 0;
      victim_report->peer_incarnation = 0;
      Child victim([&] { return talk_for_ever(name, ring + std::string(",side=1"), round, *victim_report); });
      REQUIRE(await(
          [&] { return survivor_report->peer_incarnation == round && survivor_report->received > 100; }, 20));
      REQUIRE(await([&] { return victim_report->received > 100; }, 20));
      ::usleep(static_cast<useconds_t>(random.below(15'000)));
      victim.kill();
      if (round % 3 == 0) {  // alone for a while: nothing blocks, frames are dropped
        const std::uint64_t sent = survivor_report->sent;
        REQUIRE(await([&] { return survivor_report->sent > sent + 10'000; }, 20));
      }
    }
    CHECK(survivor_report->corrupt == 0);
    CHECK(survivor_report->disorder == 0);
    CHECK(survivor_report->malformed == 0);
    CHECK(survivor_report->restarts == 14);
    CHECK(victim_report->corrupt == 0);
    CHECK(victim_report->malformed == 0);
  }
}

TEST_CASE("a stopped peer causes back-pressure without loss and goes on where it was", "[shm][process]") {
  const RuntimeDir dir;
  const std::string name = "stop";
  const Shared<Report> here;
  const Shared<Report> there;
  const Child speaker([&] { return talk_for_ever(name, ",ring=64K,side=0", 1, *here); });
  const Child peer([&] { return talk_for_ever(name, ",ring=64K,side=1", 1, *there); });
  REQUIRE(await([&] { return there->received > 100 && here->received > 100; }, 20));
  CHECK(there->gaps == 0);
  peer.stop();
  std::uint64_t sent = here->sent;
  auto since = std::chrono::steady_clock::now();
  const bool stands_still = await(
      [&] {
        const auto now = std::chrono::steady_clock::now();
        if (const std::uint64_t seen = here->sent; seen != sent) {
          sent = seen;
          since = now;
        }
        return now - since > std::chrono::milliseconds(50);
      },
      20);
  CHECK(stands_still);  // the ring is full, and the kernel says that the peer lives
  peer.resume();
  const std::uint64_t received = there->received;
  CHECK(await([&] { return there->received > received + 1000; }, 20));
  CHECK(there->gaps == 0);
  CHECK(there->disorder == 0);
  CHECK(there->corrupt == 0);
}

TEST_CASE("a third process is refused while two hold the link, and may come in when one is killed",
          "[shm][process]") {
  const RuntimeDir dir;
  const std::string name = "third";
  const Shared<Report> reports[2];
  const Child first([&] { return talk_for_ever(name, "", 1, *reports[0]); });
  REQUIRE(await([&] { return reports[0]->sent > 0; }, 20));
  Child second([&] { return talk_for_ever(name, "", 1, *reports[1]); });
  REQUIRE(await([&] { return reports[1]->received > 0; }, 20));
  {
    PortOptions options;
    options.spec = "shm:" + name;
    const auto refused = open_shm(options);
    REQUIRE_FALSE(refused);
    CHECK(refused.error().code == Errc::kNameInUse);
    for (const pid_t pid : {first.pid(), second.pid()}) {
      CHECK(refused.error().text.find("PID " + std::to_string(pid)) != std::string::npos);
    }
  }
  second.kill();
  const PortPtr replacement = open_end(name);
  REQUIRE(replacement != nullptr);
  CHECK(replacement->info().side == 1);
}

TEST_CASE("a link whose ends were both killed starts afresh, whatever its size was", "[shm][process][kill]") {
  const RuntimeDir dir;
  const std::string name = "stale";
  {
    const Shared<Report> reports[2];
    const Child first([&] { return talk_for_ever(name, ",ring=128K", 1, *reports[0]); });
    REQUIRE(await([&] { return reports[0]->sent > 0; }, 20));  // its ring size is the link's
    const Child second([&] { return talk_for_ever(name, "", 1, *reports[1]); });
    REQUIRE(await([&] { return reports[0]->received > 0 && reports[1]->received > 0; }, 20));
  }
  const PortPtr a = open_end(name, ",ring=256K");
  const PortPtr b = open_end(name);
  REQUIRE(a != nullptr);
  REQUIRE(b != nullptr);
  Report report;
  Talker talker(*a, 1, report);
  Report other_report;
  Talker other(*b, 1, other_report);
  for (int i = 0; i < 100; ++i) {
    talker.turn(500);
    other.turn(500);
  }
  CHECK(report.received > 400);
  for (const Report* each : {&report, &other_report}) CHECK(each->corrupt + each->disorder + each->gaps == 0);
}
