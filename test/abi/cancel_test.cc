// Threads that programs cancel (pthread_cancel(3)) in calls that wait, and in those that do not. Of the
// library as programs have it, too: its own copy of the C++ runtime has to bear it.
#include <pthread.h>
#include <rdma/rdma_user_cm.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <cstdio>
#include <thread>

#include "test/abi/rdma_cm_side.h"

namespace uroce::test {

namespace {

/// Of a child that does that, which may end it.
template <typename F>
int status_of(F&& act) {
  std::fflush(stdout);
  const pid_t child = fork();
  if (child == 0) act();
  int status = -1;
  REQUIRE(waitpid(child, &status, 0) == child);
  return status;
}

/// A thread that waits for an event is cancelled, and the channel goes on.
[[noreturn]] void cancel_waiter() noexcept {
  alarm(30);
  const Own own;
  static const File file;
  static std::atomic<pid_t> tid;
  pthread_t waiter{};
  const auto wait = [](void*) -> void* {
    tid = gettid();
    rdma_ucm_event_resp event{};  // not by ask(): its check would catch what ends the thread
    (void)file.say(RDMA_USER_CM_CMD_GET_EVENT,
                   rdma_ucm_get_event{.response = reinterpret_cast<std::uint64_t>(&event)});
    return nullptr;
  };
  if (pthread_create(&waiter, nullptr, wait, nullptr) != 0) _exit(1);
  while (tid == 0 || !is_asleep(tid)) std::this_thread::yield();
  void* result = nullptr;
  if (pthread_cancel(waiter) != 0 || pthread_join(waiter, &result) != 0) _exit(2);
  if (result != PTHREAD_CANCELED) _exit(3);
  (void)resolved(file, 1, own.ip, 7000);
  _exit(uroce_rdma_cm_close(file.fd) == 0 ? 0 : 4);
}

}  // namespace

TEST_CASE("a thread that waits for an event can be cancelled", "[abi][rdmacm][cancel]") {
  CHECK(status_of([] { cancel_waiter(); }) == 0);
}

namespace {

struct Two {
  VerbsSide a;
  VerbsSide b;

  Two() { join(a, b); }
  void pass_one() {
    b.post_receive(1, b.sge(0, 8));
    a.post(2, a.sge(0, 8));
    if (b.take().status != IBV_WC_SUCCESS || a.take().status != IBV_WC_SUCCESS) _exit(6);
  }
};

void* wait_for_ever(void* of) {
  ibv_cq* cq = nullptr;
  void* context = nullptr;
  (void)ibv_get_cq_event(static_cast<Two*>(of)->b.channel, &cq, &context);
  return nullptr;
}

/// With a request to be cancelled that it looks for in the end.
void* talk(void* of) {
  Two& two = *static_cast<Two*>(of);
  pthread_cancel(pthread_self());
  for (int i = 0; i < 100; ++i) {
    if (ibv_req_notify_cq(two.b.cq, 0) != 0) _exit(5);
    two.pass_one();
  }
  pthread_testcancel();
  return nullptr;
}

/// Such a thread is cancelled, and the QPs go on.
[[noreturn]] void cancel(void* (*thread)(void*)) noexcept {
  alarm(30);
  Two two;
  pthread_t cancelled{};
  if (pthread_create(&cancelled, nullptr, thread, &two) != 0) _exit(1);
  void* result = nullptr;
  if (pthread_cancel(cancelled) != 0 || pthread_join(cancelled, &result) != 0) _exit(2);
  if (result != PTHREAD_CANCELED) _exit(3);
  two.pass_one();
  _exit(0);
}

}  // namespace

TEST_CASE("a thread that waits for an event, or posts and polls, can be cancelled", "[abi][events][cancel]") {
  const auto thread = GENERATE(&wait_for_ever, &talk);
  CHECK(status_of([thread] { cancel(thread); }) == 0);
}

}  // namespace uroce::test
