// Threads that wait for events of /dev/infiniband/rdma_cm: what interrupts, cancels and outlives them.
#include <poll.h>
#include <pthread.h>
#include <rdma/rdma_user_cm.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <memory>
#include <thread>

#include "test/abi/rdma_cm_side.h"

namespace uroce::test {

namespace {

std::atomic<int> signals_seen = 0;

/// Whoever waits for an event is interrupted. @return what GET_EVENT said, errno or 0.
int wait_through_signal(const File& file, const Own& own, int sa_flags) {
  struct sigaction action {};
  action.sa_handler = [](int) { ++signals_seen; };
  action.sa_flags = sa_flags;
  REQUIRE(sigaction(SIGUSR1, &action, nullptr) == 0);
  std::atomic<int> result = -1;
  std::atomic<pid_t> tid = 0;
  std::thread waiter([&] {
    rdma_ucm_event_resp response{};
    tid = gettid();
    const rdma_ucm_get_event get{.response = reinterpret_cast<std::uint64_t>(&response)};
    result = file.say(RDMA_USER_CM_CMD_GET_EVENT, get);
  });
  const auto interrupt = [&] {
    while (result == -1 && (tid == 0 || !is_asleep(tid))) std::this_thread::yield();
    const int before = signals_seen;
    if (result == -1) REQUIRE(pthread_kill(waiter.native_handle(), SIGUSR1) == 0);
    while (result == -1 && signals_seen == before) std::this_thread::yield();
  };
  interrupt();
  if ((sa_flags & SA_RESTART) != 0) {
    const std::uint32_t id = file.create(5);
    REQUIRE(file.resolve(id, own.ip, 7000) == 0);
  } else {
    while (result == -1) interrupt();  // it may have slept over something else than the event
  }
  waiter.join();
  return result;
}

}  // namespace

TEST_CASE("a signal whose handler restarts calls does not end the wait for an event", "[abi][rdmacm]") {
  const Own own;
  const File file;
  // The test's own, which do not.
  const auto of_int = std::signal(SIGINT, SIG_DFL);
  const auto of_term = std::signal(SIGTERM, SIG_DFL);
  CHECK(wait_through_signal(file, own, SA_RESTART) == 0);
  CHECK(wait_through_signal(file, own, 0) == EINTR);
  std::signal(SIGUSR1, SIG_DFL);
  std::signal(SIGINT, of_int);
  std::signal(SIGTERM, of_term);
}

namespace {

/// What a thread has seen that takes events, and waits for ever for one that never comes.
struct LeftBehind {
  std::atomic<bool> has_event{false};
  std::atomic<bool> may_return{false};
  std::atomic<int> answer{-1};  // to its last question: none
  std::atomic<pid_t> tid{0};
};

/// Whether a thread that is about to ask for the next event when its file is closed waits on, as one that
/// asked before does.
bool waits_on_after_close(const Own& own) {
  const auto seen = std::make_shared<LeftBehind>();
  const auto* const file = new File;  // the thread has it for ever
  std::thread([seen, file] {
    rdma_ucm_event_resp response{};
    const rdma_ucm_get_event get{.response = reinterpret_cast<std::uint64_t>(&response)};
    seen->tid = gettid();
    (void)file->say(RDMA_USER_CM_CMD_GET_EVENT, get);
    seen->has_event = true;
    while (!seen->may_return) std::this_thread::yield();
    seen->answer = file->say(RDMA_USER_CM_CMD_GET_EVENT, get);
  }).detach();
  REQUIRE(file->resolve(file->create(1), own.ip, 7000) == 0);
  while (!seen->has_event) std::this_thread::yield();
  seen->may_return = true;
  CHECK(close_device(file->fd) == 0);
  while (seen->answer == -1 && !is_asleep(seen->tid)) std::this_thread::yield();
  return seen->answer == -1;
}

}  // namespace

TEST_CASE("who comes back for the next event as the channel is closed waits as if it were there",
          "[abi][rdmacm]") {
  std::fflush(stdout);
  const pid_t child = fork();  // the thread ends with it
  if (child == 0) {
    const Own own;
    int attempts = 5;  // it may stand still for longer than it is waited for
    while (attempts > 0 && !waits_on_after_close(own)) --attempts;
    _exit(attempts > 0 ? 0 : 1);
  }
  int status = -1;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(status == 0);
}

namespace {

/// A channel whose only event another thread has taken, which lives on and has done `after` since, is closed.
/// @return how long that took, the shortest of a few times: the machine may stand still.
template <typename F>
std::chrono::steady_clock::duration shortest_close(const Own& own, F&& after) {
  auto shortest = std::chrono::steady_clock::duration::max();
  for (int i = 0; i < 5; ++i) {
    std::atomic<bool> is_ready = false;
    std::atomic<bool> is_over = false;
    std::thread reader;
    std::chrono::steady_clock::time_point begin;
    {
      const File file;
      REQUIRE(file.resolve(file.create(1), own.ip, 7000) == 0);
      reader = std::thread([&] {
        (void)file.next();
        after(file);
        is_ready = true;
        while (!is_over) std::this_thread::yield();
      });
      while (!is_ready) std::this_thread::yield();
      begin = std::chrono::steady_clock::now();
    }
    shortest = std::min(shortest, std::chrono::steady_clock::now() - begin);
    is_over = true;
    reader.join();
  }
  return shortest;
}

}  // namespace

TEST_CASE("who will not come back for an event is not waited for when the channel is closed",
          "[abi][rdmacm]") {
  constexpr std::chrono::milliseconds kAtMost{70};
  const Own own;
  const File others;
  CHECK(shortest_close(own, [](const File& file) { file.create(2); }) < kAtMost);
  CHECK(shortest_close(own, [&](const File&) { others.create(3); }) < kAtMost);
  CHECK(shortest_close(own, [&](const File&) {
          REQUIRE(others.resolve(others.create(4), own.ip, 7000) == 0);
          (void)others.next();
        }) < kAtMost);
  CHECK(shortest_close(own, [](const File&) { poll(nullptr, 0, 101); }) < kAtMost);
}

}  // namespace uroce::test
