// Events of completion queues: whose they are, what they cost, and how many there are.
#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <thread>
#include <utility>

#include "test/abi/verbs_side.h"
#include "test/support/no_descriptors.h"

namespace uroce::test {

namespace {

bool is_readable(int fd, int timeout_ms) {
  pollfd wanted{.fd = fd, .events = POLLIN, .revents = 0};
  return poll(&wanted, 1, timeout_ms) == 1;
}

void receive(VerbsSide& side) {
  ibv_recv_wr* bad = nullptr;
  ibv_recv_wr wr{};
  REQUIRE(ibv_post_recv(side.qp, &wr, &bad) == 0);
}

/// A message without data.
void send(VerbsSide& side, unsigned flags = 0) {
  ibv_send_wr* bad = nullptr;
  ibv_send_wr wr{};
  wr.opcode = IBV_WR_SEND;
  wr.send_flags = flags;
  REQUIRE(ibv_post_send(side.qp, &wr, &bad) == 0);
}

/// From a QP at `a` to a shared queue at `b`, whose CQ has `entries`.
struct Xrc {
  Xrc(VerbsSide& a, VerbsSide& b, int entries, int comp_vector = 0) {
    ibv_xrcd_init_attr domain_attr{};
    domain_attr.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
    domain_attr.fd = -1;
    domain_attr.oflags = O_CREAT;
    domain = ibv_open_xrcd(b.context, &domain_attr);
    cq = ibv_create_cq(b.context, entries, nullptr, nullptr, comp_vector);
    REQUIRE((domain != nullptr && cq != nullptr));
    ibv_srq_init_attr_ex srq_attr{};
    srq_attr.attr = {.max_wr = VerbsSide::kDepth, .max_sge = 1, .srq_limit = 0};
    srq_attr.comp_mask =
        IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;
    srq_attr.srq_type = IBV_SRQT_XRC;
    srq_attr.pd = b.pd;
    srq_attr.xrcd = domain;
    srq_attr.cq = cq;
    srq = ibv_create_srq_ex(b.context, &srq_attr);
    REQUIRE(srq != nullptr);
    ibv_qp_init_attr_ex to{};
    to.qp_type = IBV_QPT_XRC_RECV;
    to.comp_mask = IBV_QP_INIT_ATTR_XRCD;
    to.xrcd = domain;
    to.pd = reinterpret_cast<ibv_pd*>(8);  // without its bit it means nothing
    target = ibv_create_qp_ex(b.context, &to);
    REQUIRE(target != nullptr);
    CHECK(target->pd == nullptr);
    ibv_qp_init_attr_ex from{};
    from.qp_type = IBV_QPT_XRC_SEND;
    from.send_cq = a.cq;
    from.cap.max_send_wr = VerbsSide::kDepth;
    from.comp_mask = IBV_QP_INIT_ATTR_PD;
    from.pd = a.pd;
    initiator = ibv_create_qp_ex(a.context, &from);
    REQUIRE(initiator != nullptr);
    std::swap(a.qp, initiator);
    std::swap(b.qp, target);
    join(a, b);
    std::swap(a.qp, initiator);
    std::swap(b.qp, target);
  }
  ~Xrc() {
    CHECK(ibv_destroy_qp(initiator) == 0);
    CHECK(ibv_destroy_qp(target) == 0);
    CHECK(ibv_destroy_srq(srq) == 0);
    CHECK(ibv_destroy_cq(cq) == 0);
    CHECK(ibv_close_xrcd(domain) == 0);
  }
  Xrc(const Xrc&) = delete;
  Xrc& operator=(const Xrc&) = delete;

  /// A message without data, and a receive for it.
  void pass_one() const {
    ibv_recv_wr* bad_recv = nullptr;
    ibv_recv_wr recv{};
    REQUIRE(ibv_post_srq_recv(srq, &recv, &bad_recv) == 0);
    ibv_send_wr* bad = nullptr;
    ibv_send_wr wr{};
    wr.opcode = IBV_WR_SEND;
    REQUIRE(ibv_get_srq_num(srq, &wr.qp_type.xrc.remote_srqn) == 0);
    REQUIRE(ibv_post_send(initiator, &wr, &bad) == 0);
  }

  ibv_xrcd* domain = nullptr;
  ibv_cq* cq = nullptr;
  ibv_srq* srq = nullptr;
  ibv_qp* target = nullptr;
  ibv_qp* initiator = nullptr;
};

/// The first event of a context.
ibv_async_event event_of(ibv_context* context) {
  REQUIRE(is_readable(context->async_fd, 5000));
  ibv_async_event event{};
  REQUIRE(ibv_get_async_event(context, &event) == 0);
  ibv_ack_async_event(&event);
  return event;
}

}  // namespace

TEST_CASE("a CQ that overflows is named, not another one of the QP", "[abi][events][cq]") {
  VerbsSide a;
  VerbsSide b;
  ibv_cq* small = ibv_create_cq(a.context, 2, nullptr, nullptr, 0);
  REQUIRE(small != nullptr);
  a.take_qp(IBV_QPT_RC, small);
  join(a, b);
  for (int i = 0; i < 4; ++i) {
    receive(b);
    send(a, IBV_SEND_SIGNALED);
  }
  const ibv_async_event event = event_of(a.context);
  CHECK(event.event_type == IBV_EVENT_CQ_ERR);
  CHECK(event.element.cq == small);
  a.take_qp(IBV_QPT_RC, a.cq);
  CHECK(ibv_destroy_cq(small) == 0);
}

TEST_CASE("a QP that a closed context has left behind is gone, and tells nobody of its events",
          "[abi][events][lifetime]") {
  VerbsSide a;
  static const VerbsSide* const left = new VerbsSide;  // never destroyed
  a.to_init();
  left->to_init();
  a.connect(*left, 10);  // 4 ms
  left->connect(a);
  REQUIRE(ibv_close_device(left->context) == 0);
  const VerbsSide next;  // perhaps where that was
  ibv_send_wr wr{};
  ibv_send_wr* bad = nullptr;
  wr.opcode = IBV_WR_RDMA_WRITE;
  wr.send_flags = IBV_SEND_SIGNALED;
  ibv_sge data = a.sge(0, 1);
  wr.sg_list = &data;
  wr.num_sge = 1;
  REQUIRE(ibv_post_send(a.qp, &wr, &bad) == 0);  // without a key
  CHECK(a.take().status == IBV_WC_RETRY_EXC_ERR);
  ibv_srq* srq = make_srq(next.pd);
  ibv_srq_attr limit{};
  limit.srq_limit = 4;  // fewer are posted
  REQUIRE(ibv_modify_srq(srq, &limit, IBV_SRQ_LIMIT) == 0);
  CHECK(event_of(next.context).event_type == IBV_EVENT_SRQ_LIMIT_REACHED);
  CHECK(ibv_destroy_srq(srq) == 0);
}

TEST_CASE("of an XRC target the CQ that overflows is that of a queue in its domain", "[abi][events][xrc]") {
  const bool has_loops = GENERATE(false, true);
  const Setting loops("UROCE_LCORES", has_loops ? "0,1" : "");
  VerbsSide a;
  VerbsSide b;
  const Xrc xrc(a, b, 2, has_loops ? 1 : 0);
  ibv_send_wr none{};
  ibv_send_wr* bad = nullptr;
  CHECK(ibv_post_send(xrc.target, &none, &bad) == EINVAL);
  for (int i = 0; i < 4; ++i) xrc.pass_one();
  const ibv_async_event event = event_of(b.context);
  CHECK(event.event_type == IBV_EVENT_CQ_ERR);
  CHECK(event.element.cq == xrc.cq);
}

TEST_CASE("only what has a channel costs a descriptor; without any it says so", "[abi][cq][errors]") {
  VerbsSide side;
  CHECK(errno_without_descriptors([&] {
          ibv_cq* plain = ibv_create_cq(side.context, 8, nullptr, nullptr, 0);
          return plain != nullptr && ibv_req_notify_cq(plain, 0) == 0 && ibv_destroy_cq(plain) == 0;
        }) == 0);
  CHECK(errno_without_descriptors(
            [&] { return ibv_create_cq(side.context, 8, nullptr, side.channel, 0) != nullptr; }) == EMFILE);
  CHECK(errno_without_descriptors([&] { return ibv_create_comp_channel(side.context) != nullptr; }) ==
        EMFILE);
  CHECK(errno_without_descriptors([&] { return ibv_open_device(side.context->device) != nullptr; }) ==
        EMFILE);
}

TEST_CASE("no device is opened where there are no descriptors, and errno says so", "[abi][device][errors]") {
  VerbsSide::use_own_link();
  ibv_device** list = ibv_get_device_list(nullptr);
  REQUIRE(list != nullptr);
  CHECK(errno_without_descriptors([&] { return ibv_open_device(list[0]) != nullptr; }) == EMFILE);
  ibv_context* context = ibv_open_device(list[0]);
  REQUIRE(context != nullptr);
  CHECK(ibv_close_device(context) == 0);
  ibv_free_device_list(list);
}

TEST_CASE("to ask for solicited events only takes no earlier request back", "[abi][events][cq]") {
  VerbsSide a;
  VerbsSide b;
  join(a, b);
  receive(b);
  REQUIRE(ibv_req_notify_cq(b.cq, 0) == 0);
  REQUIRE(ibv_req_notify_cq(b.cq, 1) == 0);
  send(a);
  CHECK(is_readable(b.channel->fd, 5000));
  ibv_cq* cq = nullptr;
  void* context = nullptr;
  REQUIRE(ibv_get_cq_event(b.channel, &cq, &context) == 0);
  ibv_ack_cq_events(cq, 1);
}

TEST_CASE("two events of a channel that nobody reads meanwhile are two", "[abi][events][cq]") {
  VerbsSide a;
  VerbsSide b;
  join(a, b);
  REQUIRE(fcntl(b.channel->fd, F_SETFL, O_NONBLOCK) == 0);
  for (int i = 0; i < 2; ++i) {
    receive(b);
    REQUIRE(ibv_req_notify_cq(b.cq, 0) == 0);
    send(a);
    CHECK(b.take().status == IBV_WC_SUCCESS);
    REQUIRE(is_readable(b.channel->fd, 5000));  // else the one that comes would be of both requests
  }
  ibv_cq* cq = nullptr;
  void* context = nullptr;
  for (int i = 0; i < 2; ++i) {
    CHECK(is_readable(b.channel->fd, 5000));
    REQUIRE(ibv_get_cq_event(b.channel, &cq, &context) == 0);
    CHECK(cq == b.cq);
  }
  CHECK(ibv_get_cq_event(b.channel, &cq, &context) == -1);
  ibv_ack_cq_events(b.cq, 2);
}

namespace {

/// In a child: tells that it waits for an event, and brings that when it is told to.
[[noreturn]] void wait_for_event(int told, int go) noexcept {
  alarm(30);
  struct sigaction action {};
  action.sa_handler = [](int) {};  // which ends calls that wait
  sigaction(SIGUSR1, &action, nullptr);
  VerbsSide a;
  VerbsSide b;
  join(a, b);
  receive(b);
  REQUIRE(ibv_req_notify_cq(b.cq, 0) == 0);
  int result = -1;
  std::atomic<pid_t> tid = 0;
  std::thread waiter([&] {
    tid = gettid();
    ibv_cq* cq = nullptr;
    void* context = nullptr;
    result = ibv_get_cq_event(b.channel, &cq, &context);
  });
  while (tid == 0 || !is_asleep(tid)) std::this_thread::yield();
  char none = 0;
  if (write(told, &none, 1) != 1 || read(go, &none, 1) != 1) _exit(2);
  send(a);
  waiter.join();
  _exit(result == 0 ? 0 : 1);
}

}  // namespace

// signal(7): a stop ends epoll_wait, but no read of a descriptor, which is what rdma-core does.
TEST_CASE("a program that is stopped and goes on still waits for its event", "[abi][events][signals]") {
  int told[2];
  int go[2];
  REQUIRE(pipe(told) == 0);
  REQUIRE(pipe(go) == 0);
  std::fflush(stdout);
  const pid_t child = fork();
  if (child == 0) wait_for_event(told[1], go[0]);
  close(told[1]);  // so that it ends when the child does
  char none = 0;
  int status = 0;
  REQUIRE(read(told[0], &none, 1) == 1);
  REQUIRE(kill(child, SIGSTOP) == 0);
  REQUIRE(waitpid(child, &status, WUNTRACED) == child);
  REQUIRE(WIFSTOPPED(status));
  REQUIRE(kill(child, SIGCONT) == 0);
  REQUIRE(write(go[1], &none, 1) == 1);
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  for (const int fd : {told[0], go[0], go[1]}) close(fd);
}

TEST_CASE("a send queue says that it drains, and that it is drained to who has asked", "[abi][events][sqd]") {
  const bool asks = GENERATE(false, true);
  CAPTURE(asks);
  VerbsSide a;
  VerbsSide b;
  join(a, b);
  const auto query = [&a] {
    ibv_qp_attr attr{};
    ibv_qp_init_attr init{};
    REQUIRE(ibv_query_qp(a.qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN, &init) == 0);
    return attr;
  };
  const auto is_draining = [&query] { return query().sq_draining != 0; };
  send(a, IBV_SEND_SIGNALED);                             // there is no receive for it
  while (query().sq_psn == 0) std::this_thread::yield();  // until it has begun
  CHECK_FALSE(is_draining());
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_SQD;
  attr.en_sqd_async_notify = asks ? 1 : 0;
  const int mask = GENERATE(0, static_cast<int>(IBV_QP_EN_SQD_ASYNC_NOTIFY));
  CAPTURE(mask);
  REQUIRE(ibv_modify_qp(a.qp, &attr, IBV_QP_STATE | mask) == 0);
  CHECK(is_draining());
  CHECK(query().qp_state == IBV_QPS_SQD);
  receive(b);
  CHECK(a.take().status == IBV_WC_SUCCESS);
  CHECK_FALSE(is_draining());
  if (asks && mask != 0) {
    CHECK(event_of(a.context).event_type == IBV_EVENT_SQ_DRAINED);
  } else {
    CHECK_FALSE(is_readable(a.context->async_fd, 50));
  }
}

TEST_CASE("events are told after setuid(), which interrupts all threads", "[abi][events]") {
  VerbsSide a;
  REQUIRE(setuid(getuid()) == 0);
  ibv_srq_init_attr wanted{};
  wanted.attr = {.max_wr = 8, .max_sge = 1, .srq_limit = 0};
  ibv_srq* const srq = ibv_create_srq(a.pd, &wanted);
  REQUIRE(srq != nullptr);
  ibv_srq_attr limit{};
  limit.srq_limit = 4;  // above what is posted
  REQUIRE(ibv_modify_srq(srq, &limit, IBV_SRQ_LIMIT) == 0);
  CHECK(event_of(a.context).event_type == IBV_EVENT_SRQ_LIMIT_REACHED);
  CHECK(ibv_destroy_srq(srq) == 0);
}

}  // namespace uroce::test
