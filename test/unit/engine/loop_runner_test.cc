#include "engine/loop_runner.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <new>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "engine/loop_fixture.h"
#include "engine/socket_like.h"

using namespace uroce;
using namespace uroce::test;

TEST_CASE("what a command throws comes back to its caller, and the loop goes on", "[engine][runner]") {
  const Mode mode = GENERATE(Mode::kApp, Mode::kAuto, Mode::kLcore);
  LoopFixture f;
  const engine::Clock clock;
  engine::LoopRunner runner(f.loop, clock, mode, std::nullopt);
  REQUIRE(runner.start());
  const auto fail = [](engine::PollLoop&, Ticks) { throw std::bad_alloc(); };
  CHECK_THROWS_AS(runner.execute(fail), std::bad_alloc);
  bool done = false;
  runner.execute([&done](engine::PollLoop&, Ticks) { done = true; });
  CHECK(done);
  runner.stop();
}

TEST_CASE("the loop's thread has no part in the program's signals", "[engine][runner]") {
  const Mode mode = GENERATE(Mode::kAuto, Mode::kLcore);
  LoopFixture f;
  const engine::Clock clock;
  engine::LoopRunner runner(f.loop, clock, mode, std::nullopt);
  const auto tasks = [] {
    std::set<std::string> names;
    for (const auto& task : std::filesystem::directory_iterator("/proc/self/task"))
      names.insert(task.path().filename());
    return names;
  };
  const std::set<std::string> before = tasks();
  REQUIRE(runner.start());
  const auto blocked_of = [](const std::string& task) -> std::optional<std::uint64_t> {
    std::ifstream status("/proc/self/task/" + task + "/status");
    const std::string text(std::istreambuf_iterator<char>(status), {});
    const std::size_t at = text.find("SigBlk:");
    if (at == std::string::npos) return std::nullopt;  // it has ended
    return std::stoull(text.substr(at + 7), nullptr, 16);
  };
  unsigned made = 0;
  bool has_faults = false;  // not before it has begun
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (!has_faults && std::chrono::steady_clock::now() < end) {
    for (const std::string& task : tasks()) {
      const auto blocked = before.contains(task) ? std::nullopt : blocked_of(task);
      if (!blocked) continue;
      ++made;
      for (const int signal : {SIGINT, SIGTERM, SIGUSR1, SIGALRM}) CHECK((*blocked >> (signal - 1) & 1) == 1);
      has_faults = has_faults || (*blocked >> (SIGSEGV - 1) & 1) == 0;
    }
  }
  CHECK(made >= 1);
  CHECK(has_faults);
  runner.stop();
  sigset_t mine;
  REQUIRE(pthread_sigmask(SIG_BLOCK, nullptr, &mine) == 0);
  CHECK(sigismember(&mine, SIGTERM) == 0);
}

TEST_CASE("a command finds done what was posted before it", "[engine][runner]") {
  const Mode mode = GENERATE(Mode::kApp, Mode::kAuto, Mode::kLcore);
  LoopFixture f;
  const engine::Clock clock;
  engine::LoopRunner runner(f.loop, clock, mode, std::nullopt);
  auto qp = f.make_qp(0x10);
  REQUIRE(f.connect(*qp));
  introduce(f);
  REQUIRE(runner.start());
  std::atomic<bool> is_held{false};
  std::atomic<bool> may_go{false};
  std::thread holder([&] {
    runner.execute([&](engine::PollLoop&, Ticks) {
      is_held = true;
      is_held.notify_all();
      may_go.wait(false);
    });
  });
  is_held.wait(false);
  REQUIRE(qp->context().sq.put({.wr_id = 1}, 0));
  qp->context().sq.publish(1);
  runner.post(*qp);  // nobody can send it now
  CHECK(qp->in_flight() == 0);
  may_go = true;
  may_go.notify_all();
  std::uint32_t in_flight = 0;
  runner.execute([&](engine::PollLoop&, Ticks) { in_flight = qp->in_flight(); });
  CHECK(in_flight == 1);
  holder.join();
  runner.stop();
  f.loop.remove(*qp, f.now());
}

TEST_CASE("what an application takes from a sleeping helper is answered all the same", "[engine][runner]") {
  using Time = std::chrono::steady_clock;
  constexpr std::uint32_t kTries = 11;
  LoopFixture f;
  SocketLike socket(f);
  engine::PollLoop loop({}, socket, f.addresses, LoopFixture::kAskNs);
  const engine::Clock clock;
  transport::RcQp qp(Qpn{0x10}, 1, {}, f.keys, loop.counters(), f.cq, f.cq);
  loop.add(qp);
  connect(loop, qp, clock.now());
  socket.bring(arp_request_of(f));
  for (int i = 0; i < 10; ++i) loop.run_once(clock.now());
  engine::LoopRunner runner(loop, clock, Mode::kAuto, std::nullopt);
  REQUIRE(runner.start());
  std::vector<Time::duration> times;
  for (std::uint32_t psn = 0; psn < kTries; ++psn) {
    std::this_thread::sleep_for(
        std::chrono::milliseconds(5));  // of all states of the helper sleep is likeliest
    const unsigned before = socket.sent;
    const auto start = Time::now();
    socket.bring(write_to(f, psn));
    static_cast<void>(runner.run_from_application());  // once, and then it does something else
    while (socket.sent == before && Time::now() - start < std::chrono::seconds(5)) sched_yield();
    times.push_back(Time::now() - start);
  }
  runner.stop();
  std::ranges::nth_element(times, times.begin() + kTries / 2);
  CHECK(times[kTries / 2] < std::chrono::milliseconds(50));  // it sleeps for 100 unless it is told
  loop.remove(qp, clock.now());
}

TEST_CASE("a peer is woken when the loop has been given back", "[engine][runner]") {
  LoopFixture f;
  SocketLike socket(f);
  engine::PollLoop loop({}, socket, f.addresses, LoopFixture::kAskNs);
  const engine::Clock clock;
  engine::LoopRunner runner(loop, clock, Mode::kApp, std::nullopt);
  std::array<int, 2> bell{};
  REQUIRE(pipe2(bell.data(), O_NONBLOCK) == 0);
  std::array<char, 8> bytes{};
  const auto has_rung = [&] { return read(bell[0], bytes.data(), bytes.size()) > 0; };
  socket.let_peer_sleep(bell);
  REQUIRE(runner.run_from_application().has_value());  // flushes, then receives
  CHECK_FALSE(socket.rang_in_loop);
  CHECK(has_rung());
  runner.execute([&](engine::PollLoop& own, Ticks) {
    own.port().tx_flush();
    CHECK_FALSE(has_rung());
  });
  CHECK(has_rung());
  runner.execute([&](engine::PollLoop& own, Ticks) {
    own.port().tx_flush();
    runner.wake_peer();
    CHECK(has_rung());
  });
  for (const int end : bell) close(end);
}

namespace {

/// Puts the calling thread on one core for as long as it lives.
class OnOneCore {
 public:
  OnOneCore() {
    sched_getaffinity(0, sizeof before_, &before_);
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(core_, &one);
    sched_setaffinity(0, sizeof one, &one);
  }
  ~OnOneCore() { sched_setaffinity(0, sizeof before_, &before_); }
  OnOneCore(const OnOneCore&) = delete;
  OnOneCore& operator=(const OnOneCore&) = delete;
  [[nodiscard]] unsigned core() const noexcept { return core_; }

 private:
  unsigned core_ = static_cast<unsigned>(sched_getcpu());
  cpu_set_t before_{};
};

/// Whether `holds()` in one of a few attempts: a core that this thread is kept from for a while is the
/// loop's.
template <typename Holds>
bool once(Holds&& holds) {
  for (int attempt = 0; attempt < 5; ++attempt) {
    if (holds()) return true;
  }
  return false;
}

double cpu_ms(clockid_t of = CLOCK_THREAD_CPUTIME_ID) {
  timespec time{};
  clock_gettime(of, &time);
  return static_cast<double>(time.tv_sec) * 1e3 + static_cast<double>(time.tv_nsec) * 1e-6;
}

}  // namespace

TEST_CASE("a helper that sleeps looks at the timers", "[engine][runner]") {
  using Time = std::chrono::steady_clock;
  LoopFixture f;
  SocketLike socket(f);
  engine::PollLoop loop({}, socket, f.addresses, LoopFixture::kAskNs);
  const engine::Clock clock;
  engine::LoopRunner runner(loop, clock, Mode::kAuto, std::nullopt);
  REQUIRE(runner.start());
  CHECK(once([&] {
    transport::RcQp qp(Qpn{0x10}, 1, {}, f.keys, loop.counters(), f.cq, f.cq);
    runner.execute([&](engine::PollLoop&, Ticks now) {
      loop.add(qp);
      connect(loop, qp, now, 8);  // 1 ms, 8 times
    });
    REQUIRE(qp.context().sq.put({.wr_id = 1}, 0));
    qp.context().sq.publish(1);
    const auto start = Time::now();
    runner.post(qp);
    Wc wc;
    while (f.cq.poll({&wc, 1}) == 0 && Time::now() - start < std::chrono::seconds(5))
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    const auto took = Time::now() - start;
    runner.execute([&](engine::PollLoop&, Ticks now) { loop.remove(qp, now); });
    return took < std::chrono::milliseconds(400);  // not twice 100 for each
  }));
  runner.stop();
}

TEST_CASE("a loop that has its core together with the application leaves it when it has no work",
          "[engine][runner][core]") {
  // The time that the loop's own thread runs: whatever else runs on the machine has no part in it.
  const OnOneCore here;
  LoopFixture f;
  const engine::Clock clock;
  engine::LoopRunner runner(f.loop, clock, Mode::kLcore, here.core());
  REQUIRE(runner.start());
  double at = 0;
  const auto look = [&at](engine::PollLoop&, Ticks) { at = cpu_ms(); };
  CHECK(once([&] {
    for (int i = 0; i < 50; ++i) runner.execute(look);  // until it has noticed
    const double begin = at;
    for (int i = 0; i < 500; ++i) runner.execute(look);
    return at - begin < 100;  // time slices of milliseconds otherwise, one a command
  }));
  runner.stop();
}

TEST_CASE("a loop's own thread lends it to the application that has its core", "[engine][runner][core]") {
  const OnOneCore here;
  LoopFixture f;
  const engine::Clock clock;
  engine::LoopRunner runner(f.loop, clock, Mode::kLcore, here.core());
  CHECK_FALSE(runner.run_from_application());
  REQUIRE(runner.start());
  CHECK(once([&runner] {
    for (int i = 0; i < 200; ++i) runner.execute([](engine::PollLoop&, Ticks) {});  // until it has noticed
    int mine = 0;
    for (int i = 0; i < 1000; ++i) {
      if (runner.run_from_application()) ++mine;
      if (i % 100 == 0) sched_yield();
    }
    return mine > 500;
  }));
  runner.stop();
}

TEST_CASE("a helper leaves its core to whoever has the loop", "[engine][runner][core]") {
  const OnOneCore here;
  LoopFixture f;
  const engine::Clock clock;
  engine::LoopRunner runner(f.loop, clock, Mode::kAuto, std::nullopt);
  REQUIRE(runner.start());
  CHECK(once([&runner] {
    double mine = 0;
    double both = 0;
    runner.execute([&](engine::PollLoop&, Ticks) {
      mine = -cpu_ms();
      both = -cpu_ms(CLOCK_PROCESS_CPUTIME_ID);
      while (mine + cpu_ms() < 100) continue;
      mine += cpu_ms();
      both += cpu_ms(CLOCK_PROCESS_CPUTIME_ID);
    });
    return both - mine < mine / 3;  // half of the core otherwise
  }));
  runner.stop();
}
