// Several threads at one device, in each mode: what the headers allow at once happens at once.
#include <atomic>
#include <cstring>
#include <functional>
#include <span>
#include <thread>
#include <vector>

#include "api/ends.h"
#include "base/random.h"

namespace uroce::api {
namespace {

constexpr auto kTime = 1500ms;  // of each storm; the counts below mostly end it earlier
constexpr std::uint64_t kMessages = 20'000;
constexpr unsigned kLives = 300;  // of regions and QPs
constexpr std::uint32_t kRegion = 8192;

/// Threads that run until their work is done, the time is over, or one of them finds something wrong.
class Storm {
 public:
  ~Storm() { join(); }

  /// Catch2's checks are for one thread: others say what is wrong here.
  bool check(bool right, const char* what) {
    const char* none = nullptr;
    if (!right) wrong_.compare_exchange_strong(none, what);
    return right;
  }
  [[nodiscard]] bool goes_on() const { return wrong_.load() == nullptr && Clock::now() < end_; }
  /// Runs `step` until it answers false.
  void run(std::function<bool()> step) {
    threads_.emplace_back([this, step = std::move(step)] {
      while (goes_on() && step()) {
      }
    });
  }
  /// Likewise, for what the others need until they are done.
  void serve(std::function<void()> step) {
    servants_.emplace_back([this, step = std::move(step)] {
      while (!over_.load()) step();
    });
  }
  void join() {
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
    over_.store(true);
    for (std::thread& thread : servants_) thread.join();
    servants_.clear();
  }
  [[nodiscard]] const char* wrong() const { return wrong_.load(); }

 private:
  const Clock::time_point end_ = Clock::now() + kTime;
  std::atomic<const char*> wrong_{nullptr};
  std::atomic<bool> over_{false};
  std::vector<std::thread> threads_;
  std::vector<std::thread> servants_;
};

/// A QP on each side of the link with CQs of its own.
struct Wire {
  Wire(Joined& link, const QpInitAttr& capacities = {})
      : cq_a(must(Cq::create(link.a.device, 256))),
        cq_b(must(Cq::create(link.b.device, 256))),
        a(must(Qp::create(link.a.pd, cq_a, cq_a, capacities))),
        b(must(Qp::create(link.b.pd, cq_b, cq_b, capacities))) {}
  Cq cq_a;
  Cq cq_b;
  Qp a;
  Qp b;
};

std::string name_of(Mode mode) {
  return mode == Mode::kApp ? "app" : mode == Mode::kAuto ? "auto" : "lcore";
}

/// In kApp nobody runs the loops but the application.
void keep_running(Mode mode, Storm& storm, Joined& link) {
  if (mode != Mode::kApp) return;
  storm.serve([&link] {
    link.a.device.progress();
    link.b.device.progress();
    std::this_thread::yield();
  });
}

/// One thread posts, another polls: each message completes once and in order, at both ends.
struct Messages {
  Messages(Joined& link, Storm& all) : storm(all), wire(link) {
    REQUIRE(join(link.a, wire.a, link.b, wire.b).has_value());
    for (; receives < kWindow; ++receives) REQUIRE(wire.b.post_recv({.wr_id = receives}));
  }
  void start() {
    storm.run([this] { return post(); });
    storm.run([this] { return poll_sends(); });
    storm.run([this] { return poll_receives(); });
  }
  bool post() {
    if (posted - done.load() >= kWindow) {
      std::this_thread::yield();
      return true;
    }
    if (wire.a.post_send(
            {.wr_id = posted, .opcode = WrOpcode::kSendWithImm, .flags = send_flag::kSignaled})) {
      ++posted;
    }
    return posted < kMessages;
  }
  bool poll_sends() {
    if (take_sends() == 0) (void)wire.cq_a.wait(1ms);
    return done.load() < kMessages;
  }
  /// Sleeps on the descriptor: arm, look once more, wait.
  bool poll_receives() {
    if (take_receives() == 0) {
      wire.cq_b.arm();
      if (take_receives() == 0) await_event();
    }
    return received < kMessages;
  }
  void await_event() {
    bool is_woken = false;
    for (int i = 0; i < 100 && !is_woken && storm.goes_on(); ++i) is_woken = is_readable(wire.cq_b.fd(), 20);
    if (!is_woken && take_receives() > 0) {  // its event may be about to come
      is_woken = is_readable(wire.cq_b.fd(), 2000);
      storm.check(is_woken, "a wake-up was lost");
    }
    if (is_woken) wire.cq_b.clear_event();
  }
  /// When the threads are gone: what is on its way arrives. @return whether all did
  bool drain(Mode mode, Joined& link) {
    return within(5s, [&] {
      if (mode == Mode::kApp) {
        link.a.device.progress();
        link.b.device.progress();
      }
      take_sends();
      take_receives();
      return storm.wrong() != nullptr || (done.load() == posted && received == posted);
    });
  }
  std::size_t take_sends() {
    Wc wcs[16];
    const std::size_t count = wire.cq_a.poll(wcs);
    for (const Wc& wc : std::span(wcs).first(count)) {
      if (!storm.check(wc.ok() && wc.wr_id == done.load(), "a send failed or is out of order")) break;
      done.fetch_add(1);
    }
    return count;
  }
  std::size_t take_receives() {
    Wc wcs[16];
    const std::size_t count = wire.cq_b.poll(wcs);
    for (const Wc& wc : std::span(wcs).first(count)) {
      if (!storm.check(wc.ok() && wc.wr_id == received, "a receive failed or is out of order")) break;
      ++received;
      if (!storm.check(wire.b.post_recv({.wr_id = receives++}), "a receive is refused")) break;
    }
    return count;
  }

  static constexpr std::uint64_t kWindow = 32;
  Storm& storm;
  Wire wire;
  std::uint64_t posted = 0;
  std::atomic<std::uint64_t> done{0};
  std::uint64_t received = 0;
  std::uint64_t receives = 0;
};

/// One side registers and deregisters; the other READs and WRITEs there meanwhile. What a key gives is its
/// region's bytes or REM_ACCESS_ERR, never anything else.
///
/// Before it is registered, a region's memory has the bytes of its life; after it is gone those of no life,
/// so that a READ or WRITE through a dead key shows.
struct Regions {
  Regions(Joined& joined, Storm& all)
      : storm(all),
        link(joined),
        memory(kRegion),
        wire(joined),
        local(must(Mr::alloc(joined.b.pd, 2 * kRegion, access::kAll))) {
    REQUIRE(join(link.a, wire.a, link.b, wire.b).has_value());
    std::memset(local.memory().data() + kRegion, kWritten, kRegion);
  }
  void start() {
    storm.run([this] { return live(); });
    storm.run([this] { return read_and_write(); });
  }
  /// Its first half is read, its second written.
  bool live() {
    const auto life = static_cast<int>(1 + lives % 100);
    std::memset(memory.data(), life, kRegion / 2);
    std::memset(memory.data() + kRegion / 2, 0, kRegion / 2);
    {
      const Mr mr = must(Mr::reg(link.a.pd, memory, access::kAll));
      key.store(std::uint64_t{raw(mr.rkey())} << 32 | static_cast<unsigned>(life));
      const std::uint64_t before = rounds.load();
      while (rounds.load() < before + 2 && storm.goes_on()) std::this_thread::yield();
    }
    std::memset(memory.data(), kDead, kRegion);
    std::this_thread::yield();
    for (const std::byte byte : memory) {
      if (!storm.check(byte == std::byte{kDead}, "a region that is gone was written")) return false;
    }
    return ++lives < kLives;
  }
  bool read_and_write() {
    if (lives.load() >= kLives) return false;
    const std::uint64_t named = key.load();
    if (named == 0) return true;
    const bool writes = (rounds.load() & 1) != 0;
    const Sge sge = local.sge(writes ? kRegion : 0, kRegion / 2);
    std::memset(local.memory().data(), 0, kRegion / 2);
    const std::uint64_t at = std::bit_cast<std::uint64_t>(memory.data()) + (writes ? kRegion / 2 : 0);
    if (!storm.check(wire.b.post_send({.wr_id = 1,
                                       .sges = {&sge, 1},
                                       .opcode = writes ? WrOpcode::kRdmaWrite : WrOpcode::kRdmaRead,
                                       .flags = send_flag::kSignaled,
                                       .remote_addr = at,
                                       .rkey = Rkey{static_cast<std::uint32_t>(named >> 32)}}),
                     "a READ is refused"))
      return false;
    Wc wc{.status = WcStatus::kGeneralErr};
    if (!storm.check(wire.cq_b.wait(5s) && wire.cq_b.poll({&wc, 1}) == 1, "a READ hangs")) return false;
    rounds.fetch_add(1);
    return wc.ok() ? writes || has_bytes_of(named) : mend(wc);
  }
  bool has_bytes_of(std::uint64_t named) {
    ++good;
    for (const std::byte byte : local.memory().first(kRegion / 2)) {
      if (!storm.check(byte == static_cast<std::byte>(named), "a READ gave bytes of another time"))
        return false;
    }
    return true;
  }
  /// The key was of a region that is gone: both QPs are in Error and start anew.
  bool mend(const Wc& wc) {
    ++refused;
    if (!storm.check(wc.status == WcStatus::kRemAccessErr,
                     "a READ failed otherwise than with REM_ACCESS_ERR"))
      return false;
    for (Qp* qp : {&wire.a, &wire.b}) {
      if (!storm.check(qp->modify({.state = QpState::kReset}, qp_attr::kState).has_value(),
                       "no way to Reset"))
        return false;
    }
    return storm.check(join(link.a, wire.a, link.b, wire.b).has_value(), "no way back from Reset");
  }

  static constexpr int kDead = 0xdd;
  static constexpr int kWritten = 0x77;
  Storm& storm;
  Joined& link;
  std::vector<std::byte> memory;
  Wire wire;
  Mr local;
  std::atomic<std::uint64_t> key{0};  // rkey << 32 | byte
  std::atomic<std::uint64_t> rounds{0};
  std::atomic<unsigned> lives{0};
  std::uint64_t good = 0;
  std::uint64_t refused = 0;
};

/// QPs come, send, and go in the middle of it, with their ack timers running: the peer may be gone first.
struct Mayflies {
  Mayflies(Joined& joined, Storm& all, std::uint64_t seed) : storm(all), link(joined), random(seed) {}
  void start() {
    storm.run([this] { return live(); });
  }
  bool live() {
    Cq cq_a = must(Cq::create(link.a.device, 64));
    Cq cq_b = must(Cq::create(link.b.device, 64));
    auto a = std::make_unique<Qp>(must(Qp::create(link.a.pd, cq_a, cq_a, {})));
    auto b = std::make_unique<Qp>(must(Qp::create(link.b.pd, cq_b, cq_b, {})));
    QpAttr there = towards(link.b, *b);
    QpAttr back = towards(link.a, *a);
    there.timeout = back.timeout = static_cast<std::uint8_t>(1 + random.below(6));  // 8 to 260 us
    if (!storm.check(a->connect(there).has_value() && b->connect(back).has_value(), "a QP does not connect"))
      return false;
    for (std::uint64_t i = random.below(20); i > 0; --i) {
      (void)b->post_recv({.wr_id = i});
      (void)a->post_send({.wr_id = i, .flags = send_flag::kSignaled});
      (void)b->post_send({.wr_id = i, .opcode = WrOpcode::kRdmaWrite});
    }
    Wc wcs[8];
    for (std::uint64_t i = random.below(4); i > 0; --i) {
      const std::size_t count = cq_a.poll(wcs);
      for (const Wc& wc : std::span(wcs).first(count)) {
        if (!storm.check(wc.qpn == a->qpn(), "a CQ has a completion of another QP")) return false;
      }
    }
    (random.below(2) == 0 ? a : b).reset();
    if (a != nullptr && random.below(2) == 0) (void)a->modify({.state = QpState::kError}, qp_attr::kState);
    (void)cq_b.poll(wcs);
    return ++lives < kLives;
  }

  Storm& storm;
  Joined& link;
  Random random;
  unsigned lives = 0;
};

/// Regions, QPs and messages at once, all on the same two devices.
void all_at_once(Mode mode) {
  Joined link(mode);
  Storm storm;
  Messages messages(link, storm);
  Regions regions(link, storm);
  Mayflies mayflies(link, storm, 1);
  keep_running(mode, storm, link);
  messages.start();
  regions.start();
  mayflies.start();
  storm.join();
  const bool all_arrived = messages.drain(mode, link);
  std::printf("%s: %llu messages%s, %u regions, %llu READs and WRITEs, %llu refused, %u QPs\n",
              name_of(mode).c_str(), static_cast<unsigned long long>(messages.received),
              messages.posted < kMessages ? " until the time was over" : "", regions.lives.load(),
              static_cast<unsigned long long>(regions.good), static_cast<unsigned long long>(regions.refused),
              mayflies.lives);
  INFO(storm.wrong());
  CHECK(storm.wrong() == nullptr);
  CHECK(all_arrived);
  CHECK(messages.done.load() == messages.posted);
  CHECK(messages.received == messages.posted);
  CHECK(messages.received > 0);
  CHECK(regions.lives > 0);
  CHECK(mayflies.lives > 0);
}

}  // namespace

TEST_CASE("threads share a device that the application runs", "[threads][app]") {
  all_at_once(Mode::kApp);
}
TEST_CASE("threads share a device with a helper", "[threads][auto]") {
  all_at_once(Mode::kAuto);
}
TEST_CASE("threads share a device with a loop thread", "[threads][lcore]") {
  all_at_once(Mode::kLcore);
}

TEST_CASE("a send queue has room again when a completion is seen", "[threads][lcore][auto]") {
  Joined link(GENERATE(Mode::kAuto, Mode::kLcore));
  const QpInitAttr capacities{.type = QpType::kUc, .max_send_wr = 1};
  Wire wire(link, capacities);
  REQUIRE(join(link.a, wire.a, link.b, wire.b).has_value());
  const auto end = Clock::now() + 500ms;
  std::uint64_t done = 0;
  for (; done <= 100 || Clock::now() < end; ++done) {
    const bool has_room =
        wire.a.post_send({.wr_id = done, .opcode = WrOpcode::kSend, .flags = send_flag::kSignaled});
    INFO("message " << done);
    REQUIRE(has_room);
    Wc wc{};
    REQUIRE(within(5s, [&] { return wire.cq_a.poll({&wc, 1}) == 1; }));
    REQUIRE(wc.wr_id == done);
  }
}

}  // namespace uroce::api
