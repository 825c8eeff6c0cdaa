// Threads that programs cancel (pthread_cancel(3)) in calls that wait, and in those that do not. Of the
// library as programs have it, too: its own copy of the C++ runtime has to bear it.
#include <pthread.h>
#include <rdma/rdma_user_cm.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <cstdio>
#include <thread>

#include "test/abi/rdma_cm_side.h"
#include "test/support/cancelled.h"

/// Of rdma-core's drivers.
extern "C" int ibv_read_sysfs_file(const char* folder, const char* file, char* text, std::size_t size);

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
  _exit(close_device(file.fd) == 0 ? 0 : 4);
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

namespace {

/// The device is closed while a thread waits for an event: that one goes on waiting.
[[noreturn]] void close_under_waiter(bool destroys_cq) noexcept {
  alarm(30);
  VerbsSide& side = *new VerbsSide;  // its destructor would destroy the channel
  struct Waiter {
    VerbsSide& side;
    std::atomic<pid_t> tid{0};
  } of{side};
  const auto wait = [](void* waiter) -> void* {
    Waiter& own = *static_cast<Waiter*>(waiter);
    own.tid = gettid();
    ibv_cq* cq = nullptr;
    void* context = nullptr;
    (void)ibv_get_cq_event(own.side.channel, &cq, &context);
    return nullptr;
  };
  pthread_t waiter{};
  if (pthread_create(&waiter, nullptr, wait, &of) != 0) _exit(1);
  while (of.tid == 0 || !is_asleep(of.tid)) std::this_thread::yield();
  if (destroys_cq && (ibv_destroy_qp(side.qp) != 0 || ibv_destroy_cq(side.cq) != 0)) _exit(2);
  if (ibv_close_device(side.context) != 0) _exit(3);
  void* result = nullptr;
  if (pthread_cancel(waiter) != 0 || pthread_join(waiter, &result) != 0) _exit(4);
  _exit(result == PTHREAD_CANCELED ? 0 : 5);
}

}  // namespace

TEST_CASE("the device may be closed while a thread waits for an event", "[abi][events][cancel]") {
  const bool destroys_cq = GENERATE(true, false);
  CHECK(status_of([destroys_cq] { close_under_waiter(destroys_cq); }) == 0);
}

namespace {

/// What is destroyed before its event is acknowledged.
struct Destroyed {
  Two two;
  ibv_srq* srq = make_srq(two.a.pd);
  bool is_srq = false;
  ibv_async_event event{};
  std::atomic<pid_t> tid{0};
  int error = -1;

  explicit Destroyed(bool of_srq) : is_srq(of_srq) {
    ibv_srq_attr limit{};
    limit.srq_limit = 4;  // fewer are posted
    ibv_qp_attr drained{};
    drained.qp_state = IBV_QPS_SQD;
    drained.en_sqd_async_notify = 1;
    REQUIRE((is_srq ? ibv_modify_srq(srq, &limit, IBV_SRQ_LIMIT)
                    : ibv_modify_qp(two.a.qp, &drained, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY)) == 0);
    REQUIRE(ibv_get_async_event(two.a.context, &event) == 0);
  }
};

void* destroy(void* of) {
  auto& it = *static_cast<Destroyed*>(of);
  it.tid = gettid();
  it.error = it.is_srq ? ibv_destroy_srq(it.srq) : ibv_destroy_qp(it.two.a.qp);
  pthread_testcancel();
  return nullptr;
}

[[noreturn]] void cancel_destroyer(bool is_srq) noexcept {
  alarm(30);
  Destroyed it(is_srq);
  pthread_t thread{};
  if (pthread_create(&thread, nullptr, destroy, &it) != 0) _exit(1);
  while (it.tid == 0 || !is_asleep(it.tid)) std::this_thread::yield();
  if (pthread_cancel(thread) != 0) _exit(2);
  ibv_ack_async_event(&it.event);
  void* result = nullptr;
  if (pthread_join(thread, &result) != 0 || result != PTHREAD_CANCELED) _exit(3);
  _exit(it.error == 0 ? 0 : 4);
}

/// A page where the system puts nothing by itself: once unmapped it stays so, whatever a new thread maps.
void* map_apart(int protection) noexcept {
  constexpr std::uintptr_t kFarFromOthers = 0x5000'0000'0000;
  return mmap(reinterpret_cast<void*>(kFarFromOthers), 4096, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

/// Registers a region anew where there is no memory.
[[noreturn]] void cancel_registrar() noexcept {
  alarm(30);
  VerbsSide side;
  void* const page = map_apart(PROT_READ);
  if (page == MAP_FAILED || munmap(page, 4096) != 0) _exit(1);
  int error = 0;
  const bool is_whole = is_cancelled_after([&] {
    const int result = ibv_rereg_mr(side.mr, IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, page, 4096, 0);
    error = result == IBV_REREG_MR_ERR_INPUT ? errno : 0;
  });
  if (!is_whole) _exit(2);
  _exit(error == EFAULT ? 0 : 3);
}

/// Makes, changes, uses and destroys.
[[noreturn]] void cancel_maker() noexcept {
  alarm(30);
  const Setting config("UROCE_CONFIG", "/dev/null");  // is read, too
  const bool is_whole = is_cancelled_after([] {
    Two two;
    two.pass_one();
    ibv_destroy_srq(make_srq(two.a.pd));
    char text[64];
    if (ibv_get_device_guid(two.a.context->device) == 0) _exit(1);
    if (ibv_read_sysfs_file("/proc/self", "comm", text, sizeof text) < 0) _exit(3);
  });
  _exit(is_whole ? 0 : 2);
}

}  // namespace

TEST_CASE("a thread that destroys what has an event that is not acknowledged is cancelled afterwards",
          "[abi][events][cancel]") {
  const bool is_srq = GENERATE(false, true);
  CAPTURE(is_srq);
  CHECK(status_of([is_srq] { cancel_destroyer(is_srq); }) == 0);
}

TEST_CASE("a thread is not cancelled in calls that make, change and destroy", "[abi][cancel]") {
  CHECK(status_of([] { cancel_registrar(); }) == 0);
  CHECK(status_of([] { cancel_maker(); }) == 0);
}

namespace {

/// A UD QP to a group: such frames leave by the port.
struct Caster {
  VerbsSide side;
  ibv_ah* group = nullptr;

  Caster() {
    become_datagram(side);
    ibv_ah_attr to{};
    to.is_global = 1;
    to.port_num = 1;
    to.grh.hop_limit = 1;
    to.grh.dgid.raw[0] = 0xff;
    to.grh.dgid.raw[1] = 0x0e;
    to.grh.dgid.raw[15] = 1;
    group = ibv_create_ah(side.pd, &to);
    REQUIRE(group != nullptr);
  }
  void cast_one() {
    ibv_sge data = side.sge(0, 1024);
    ibv_send_wr wr{};
    wr.sg_list = &data;
    wr.num_sge = 1;
    wr.opcode = IBV_WR_SEND;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.wr.ud = {.ah = group, .remote_qpn = 0xff'ffff, .remote_qkey = kQkey};
    ibv_send_wr* bad = nullptr;
    if (ibv_post_send(side.qp, &wr, &bad) != 0 || side.take().status != IBV_WC_SUCCESS) _exit(4);
  }
};

/// A READ of memory that was unmapped, of which stderr is told.
[[noreturn]] void cancel_reader() noexcept {
  alarm(30);
  const Setting mode("UROCE_MODE", "app");  // by whoever calls
  Two two;
  void* const page = map_apart(PROT_READ | PROT_WRITE);
  if (page == MAP_FAILED) _exit(1);
  ibv_mr* const mr = ibv_reg_mr(two.b.pd, page, 4096, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ);
  if (mr == nullptr || munmap(page, 4096) != 0) _exit(2);
  const Said said;
  const bool is_whole = is_cancelled_after([&] {
    two.a.post(1, two.a.sge(0, 8), IBV_WR_RDMA_READ,
               {.addr = reinterpret_cast<std::uintptr_t>(page), .length = 8, .lkey = mr->rkey});
    if (two.a.take().status != IBV_WC_SUCCESS) _exit(3);
  });
  if (!is_whole) _exit(4);
  _exit(said.text().find("unmapped") != std::string::npos ? 0 : 5);
}

/// More frames than a capture holds back are sent.
[[noreturn]] void cancel_caster() noexcept {
  alarm(30);
  const Setting mode("UROCE_MODE", "app");  // by whoever calls
  const Setting capture("UROCE_PCAP", "/dev/null");
  Caster caster;
  const bool is_whole = is_cancelled_after([&caster] {
    for (int i = 0; i < 3000; ++i) caster.cast_one();
  });
  _exit(is_whole ? 0 : 1);
}

}  // namespace

TEST_CASE("a thread that posts and polls can be cancelled where registered memory was unmapped",
          "[abi][mr][cancel]") {
  CHECK(status_of([] { cancel_reader(); }) == 0);
}

TEST_CASE("a thread that posts and polls where frames are captured can be cancelled", "[abi][pcap][cancel]") {
  CHECK(status_of([] { cancel_caster(); }) == 0);
}

}  // namespace uroce::test
