// Applications that sleep in the place of the helper: LoopRunner::sleep().
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <cerrno>
#include <chrono>
#include <fstream>
#include <string>
#include <thread>

#include "engine/loop_fixture.h"
#include "engine/loop_runner.h"
#include "engine/socket_like.h"

using namespace uroce;
using namespace uroce::test;
using namespace std::chrono_literals;

namespace {

using Time = std::chrono::steady_clock;

/// A loop with a QP that a peer writes to, and its helper.
struct World {
  LoopFixture f;
  SocketLike socket{f};
  engine::PollLoop loop{{}, socket, f.addresses, LoopFixture::kAskNs};
  engine::Clock clock;
  transport::RcQp qp{Qpn{0x10}, 1, {}, f.keys, loop.counters(), f.cq, f.cq};
  engine::LoopRunner runner{loop, clock, Mode::kAuto, std::nullopt};
  std::uint32_t psn = 0;

  World() {
    loop.add(qp);
    connect(loop, qp, clock.now());
    socket.bring(arp_request_of(f));
    for (int i = 0; i < 10; ++i) loop.run_once(clock.now());
    REQUIRE(runner.start());
  }
  ~World() {
    runner.stop();
    loop.remove(qp, clock.now());
  }
  World(const World&) = delete;
  World& operator=(const World&) = delete;
  /// The peer writes. @return whether it had its answer in time
  [[nodiscard]] bool is_answered(std::chrono::milliseconds most = 5s) {
    const unsigned before = socket.sent;
    const auto end = Time::now() + most;
    socket.bring(write_to(f, psn++));
    while (socket.sent == before && Time::now() < end) sched_yield();
    return socket.sent != before;
  }
};

/// A thread that sleeps for events of its own, which come by `fd`, until it is told to end.
class Sleeper {
 public:
  explicit Sleeper(World& world) : runner_(world.runner) {
    REQUIRE(pthread_create(&thread_, nullptr, &run, this) == 0);
    while (tid == 0) std::this_thread::yield();
  }
  ~Sleeper() {
    if (!is_joined_) end();
    close(fd);
  }
  Sleeper(const Sleeper&) = delete;
  Sleeper& operator=(const Sleeper&) = delete;

  /// Waits until it sleeps.
  void await_sleep() const {
    const std::string name = "/proc/self/task/" + std::to_string(tid) + "/stat";
    for (const auto end = Time::now() + 10s; Time::now() < end; std::this_thread::yield()) {
      std::string text;
      std::getline(std::ifstream(name), text);
      if (text.find(") S ") != std::string::npos) return;
    }
    FAIL("a thread that should sleep is awake");
  }
  void end() {
    is_over_ = true;
    signal_eventfd(fd);
    REQUIRE(pthread_join(thread_, nullptr) == 0);
    is_joined_ = true;
  }
  /// By a signal whose handler does not come back yet.
  void hold_up() const { REQUIRE(pthread_kill(thread_, SIGUSR1) == 0); }
  void cancel() {
    void* result = nullptr;
    REQUIRE(pthread_cancel(thread_) == 0);
    REQUIRE(pthread_join(thread_, &result) == 0);
    REQUIRE(result == PTHREAD_CANCELED);
    is_joined_ = true;
  }

  const int fd = eventfd(0, EFD_NONBLOCK);
  std::atomic<pid_t> tid{0};
  std::atomic<unsigned> wakeups{0};
  std::atomic<unsigned> events{0};

 private:
  static void* run(void* of) {
    auto& own = *static_cast<Sleeper*>(of);
    own.tid = gettid();
    while (!own.is_over_) {
      if (own.runner_.sleep({&own.fd, 1}, 10s) > 0 && drain_eventfd(own.fd) != 0) ++own.events;
      ++own.wakeups;
    }
    return nullptr;
  }

  engine::LoopRunner& runner_;
  pthread_t thread_{};
  std::atomic<bool> is_over_{false};
  bool is_joined_ = false;
};

/// Whether that thread takes what comes, in one of a few attempts: one that lies down while another is at the
/// loop leaves it to the helper until its next event.
bool comes_to_take(World& world, Sleeper& sleeper) {
  for (int attempt = 0; attempt < 20; ++attempt) {
    sleeper.await_sleep();
    REQUIRE(world.is_answered());
    if (world.socket.taker == sleeper.tid) return true;
    signal_eventfd(sleeper.fd);
  }
  return false;
}

}  // namespace

TEST_CASE("what comes wakes the application that sleeps, which answers it itself", "[engine][sleep]") {
  World w;
  Sleeper sleeper(w);
  REQUIRE(comes_to_take(w, sleeper));
  // And so on: the helper has no part in it.
  unsigned own = 0;
  for (int i = 0; i < 100; ++i) {
    sleeper.await_sleep();
    REQUIRE(w.is_answered());
    if (w.socket.taker == sleeper.tid) ++own;
  }
  CHECK(own >= 90);
}

TEST_CASE("an application that sleeps hears of its events, and of what others leave to it",
          "[engine][sleep]") {
  World w;
  Sleeper sleeper(w);
  REQUIRE(comes_to_take(w, sleeper));
  const auto await = [&](auto&& holds) {
    for (const auto end = Time::now() + 5s; !holds() && Time::now() < end;) std::this_thread::yield();
    return holds();
  };
  sleeper.await_sleep();
  unsigned before = sleeper.events;
  signal_eventfd(sleeper.fd);
  CHECK(await([&] { return sleeper.events != before; }));
  for (const bool is_kick : {true, false}) {
    sleeper.await_sleep();
    before = sleeper.wakeups;
    is_kick ? w.runner.wake() : w.runner.disturb();
    CHECK(await([&] { return sleeper.wakeups != before; }));
  }
}

TEST_CASE("of several that sleep another one takes the place of the first", "[engine][sleep]") {
  World w;
  Sleeper first(w);
  REQUIRE(comes_to_take(w, first));
  first.await_sleep();
  Sleeper second(w);
  second.await_sleep();
  REQUIRE(w.is_answered());
  first.end();
  CHECK(comes_to_take(w, second));
}

TEST_CASE("a thread that is cancelled in its sleep gives the place back", "[engine][sleep][cancel]") {
  World w;
  {
    Sleeper cancelled(w);
    REQUIRE(comes_to_take(w, cancelled));
    cancelled.await_sleep();
    cancelled.cancel();
  }
  CHECK(w.is_answered());  // by the helper
  CHECK(w.socket.taker != 0);
  Sleeper next(w);
  CHECK(comes_to_take(w, next));
}

TEST_CASE("an application that has slept and is busy then leaves the loop to the helper", "[engine][sleep]") {
  World w;
  {
    Sleeper sleeper(w);
    REQUIRE(comes_to_take(w, sleeper));
    std::this_thread::sleep_for(250ms);  // the helper looks up only every 100 ms by then
    sleeper.end();
  }
  const auto begin = Time::now();
  CHECK(w.is_answered());
  CHECK(Time::now() - begin < 50ms);
  CHECK(w.is_answered());
}

TEST_CASE("an application that sleeps looks at the timers", "[engine][sleep]") {
  World w;
  Sleeper sleeper(w);
  REQUIRE(comes_to_take(w, sleeper));
  Time::duration shortest = 5s;
  for (int attempt = 0; attempt < 5 && shortest > 400ms; ++attempt) {
    transport::RcQp qp(Qpn{0x20}, 1, {}, w.f.keys, w.loop.counters(), w.f.cq, w.f.cq);
    w.runner.execute([&](engine::PollLoop&, Ticks now) {
      w.loop.add(qp);
      connect(w.loop, qp, now, 8);  // 1 ms, 8 times
    });
    REQUIRE(qp.context().sq.put({.wr_id = 1}, 0));
    qp.context().sq.publish(1);
    const auto begin = Time::now();
    w.runner.post(qp);
    Wc wc;
    while (w.f.cq.poll({&wc, 1}) == 0 && Time::now() - begin < 5s) std::this_thread::sleep_for(1ms);
    shortest = std::min<Time::duration>(shortest, Time::now() - begin);
    w.runner.execute([&](engine::PollLoop&, Ticks now) { w.loop.remove(qp, now); });
  }
  CHECK(shortest <= 400ms);  // not 100 for each
  CHECK(sleeper.events <= 20);
}

namespace {

int gate[2];  // who reads the first waits for the second to be closed

}  // namespace

TEST_CASE("the helper looks after the loop of an application that is held up in its sleep",
          "[engine][sleep]") {
  REQUIRE(pipe(gate) == 0);
  struct sigaction action {};
  action.sa_handler = [](int) {
    char none = 0;
    static_cast<void>(read(gate[0], &none, 1) != 0);
  };
  struct sigaction before {};
  REQUIRE(sigaction(SIGUSR1, &action, &before) == 0);
  World w;
  {
    Sleeper sleeper(w);
    REQUIRE(comes_to_take(w, sleeper));
    sleeper.await_sleep();
    sleeper.hold_up();
    CHECK(w.is_answered());
    CHECK(w.is_answered());
    CHECK(w.socket.taker != sleeper.tid);
    close(gate[1]);
  }
  CHECK(w.is_answered());
  close(gate[0]);
  REQUIRE(sigaction(SIGUSR1, &before, nullptr) == 0);
}

TEST_CASE("a helper that others keep from the loop has frames wake it", "[engine][sleep]") {
  World world;
  const unsigned before = world.socket.sent;
  const auto end = Time::now() + 10s;
  world.runner.execute([&](engine::PollLoop&, Ticks) {
    world.socket.bring(write_to(world.f, world.psn++));
    while (world.socket.armed_beside == 0 && Time::now() < end) sched_yield();
  });
  CHECK(world.socket.armed_beside != 0);
  while (world.socket.sent == before && Time::now() < end) sched_yield();
  CHECK(world.socket.sent != before);
}

TEST_CASE("frames that others take first make an application leave the place", "[engine][sleep]") {
  World w;
  Sleeper sleeper(w);
  REQUIRE(comes_to_take(w, sleeper));
  // One that polls all the time, when it has a core: on a busy machine that takes a while.
  std::atomic<bool> is_over{false};
  std::thread polls([&] {
    while (!is_over) static_cast<void>(w.runner.run_from_application());
  });
  const auto is_woken_by_few = [&] {
    const unsigned before = sleeper.wakeups;
    for (int i = 0; i < 500; ++i) REQUIRE(w.is_answered());
    return sleeper.wakeups - before < 250;
  };
  const auto end = Time::now() + 10s;
  bool has_left = false;
  while (!has_left && Time::now() < end) has_left = is_woken_by_few();
  CHECK(has_left);
  is_over = true;
  polls.join();
  CHECK(w.is_answered());  // the helper is back
}
