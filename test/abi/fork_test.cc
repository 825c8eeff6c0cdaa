// Calls of libibverbs in a child that was forked with a device open.
#include <fcntl.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <thread>

#include "test/abi/verbs_side.h"

namespace uroce::test {

namespace {

/// A connected pair with all else that verbs make, and with an event of each kind that nobody has read.
struct Parent {
  VerbsSide side;
  VerbsSide peer;
  ibv_cq_ex* cq_ex = nullptr;
  ibv_srq* srq = nullptr;
  ibv_mw* mw = nullptr;
  ibv_ah* ah = nullptr;
  ibv_xrcd* xrcd = nullptr;

  Parent() {
    side.to_init();
    peer.to_init();
    side.connect(peer);
    peer.connect(side);
    ibv_cq_init_attr_ex cq_attr{};
    cq_attr.cqe = 8;
    cq_ex = ibv_create_cq_ex(side.context, &cq_attr);
    ibv_srq_init_attr srq_attr{};
    srq_attr.attr = {.max_wr = 8, .max_sge = 1, .srq_limit = 0};
    srq = ibv_create_srq(side.pd, &srq_attr);
    mw = ibv_alloc_mw(side.pd, IBV_MW_TYPE_1);
    ibv_ah_attr to = way();
    ah = ibv_create_ah(side.pd, &to);
    ibv_xrcd_init_attr xrcd_attr = domain();
    xrcd = ibv_open_xrcd(side.context, &xrcd_attr);
    REQUIRE((cq_ex != nullptr && srq != nullptr && mw != nullptr && ah != nullptr && xrcd != nullptr));
    ibv_srq_attr limit{};
    limit.srq_limit = 4;  // fewer are posted
    REQUIRE(ibv_modify_srq(srq, &limit, IBV_SRQ_LIMIT) == 0);
    REQUIRE(ibv_req_notify_cq(side.cq, 0) == 0);
    write(1);
    REQUIRE(is_readable(side.context->async_fd, 5000));
    REQUIRE(is_readable(side.channel->fd, 5000));
  }
  /// @return how many calls did not succeed
  int destroy() {
    const int failed = (ibv_close_xrcd(xrcd) != 0) + (ibv_destroy_ah(ah) != 0) + (ibv_dealloc_mw(mw) != 0) +
                       (ibv_destroy_srq(srq) != 0) + (ibv_destroy_cq(ibv_cq_ex_to_cq(cq_ex)) != 0);
    return failed;
  }
  ~Parent() { CHECK(destroy() == 0); }
  Parent(const Parent&) = delete;
  Parent& operator=(const Parent&) = delete;

  [[nodiscard]] ibv_ah_attr way() const {
    ibv_ah_attr to{};
    to.is_global = 1;
    to.port_num = 1;
    to.grh.sgid_index = 1;
    ibv_query_gid(side.context, 1, 1, &to.grh.dgid);
    return to;
  }
  static ibv_xrcd_init_attr domain() {
    ibv_xrcd_init_attr attr{};
    attr.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
    attr.fd = -1;
    attr.oflags = O_CREAT;
    return attr;
  }
  /// @return what ibv_wr_complete() says
  int start_write(std::uint64_t wr_id) {
    ibv_qp_ex* qp = ibv_qp_to_qp_ex(side.qp);
    ibv_wr_start(qp);
    qp->wr_id = wr_id;
    qp->wr_flags = IBV_SEND_SIGNALED;
    ibv_wr_rdma_write(qp, peer.mr->rkey, reinterpret_cast<std::uintptr_t>(peer.memory.data()));
    ibv_wr_set_sge(qp, side.mr->lkey, reinterpret_cast<std::uintptr_t>(side.memory.data()), 8);
    return ibv_wr_complete(qp);
  }
  void write(std::uint64_t wr_id) { REQUIRE(start_write(wr_id) == 0); }
  static bool is_readable(int fd, int timeout_ms) {
    pollfd wanted{.fd = fd, .events = POLLIN, .revents = 0};
    return poll(&wanted, 1, timeout_ms) == 1;
  }
};

/// Counts, and names, the calls that are not refused.
class Refusals {
 public:
  /// Of a call that answers an error number.
  void of(const char* call, int error) { count(call, error == EIO); }
  /// Of one that answers -1, with errno.
  void of_minus(const char* call, int result) { count(call, result < 0 && errno == EIO); }
  /// Of one that makes something.
  void of_made(const char* call, const void* made) { count(call, made == nullptr && errno == EIO); }
  void count(const char* call, bool is_refused) {
    if (!is_refused) std::fprintf(stderr, "%s is not refused\n", call);
    works_ += is_refused ? 0 : 1;
    errno = 0;
  }
  [[nodiscard]] int works() const noexcept { return works_; }

 private:
  int works_ = 0;
};

void post_and_poll(Parent& it, Refusals& refused) {
  ibv_qp* qp = it.side.qp;
  ibv_send_wr send{};
  ibv_send_wr* bad_send = nullptr;
  refused.of("post_send", ibv_post_send(qp, &send, &bad_send));
  refused.count("post_send, of which", bad_send == &send);
  ibv_recv_wr receive{};
  ibv_recv_wr* bad = nullptr;
  refused.of("post_recv", ibv_post_recv(qp, &receive, &bad));
  refused.of("post_srq_recv", ibv_post_srq_recv(it.srq, &receive, &bad));
  refused.of("wr_complete", it.start_write(2));
  ibv_wr_start(ibv_qp_to_qp_ex(qp));
  ibv_wr_abort(ibv_qp_to_qp_ex(qp));
  ibv_mw_bind bind{};
  refused.of("bind_mw", ibv_bind_mw(qp, it.mw, &bind));
  ibv_wc wc{};
  refused.of("poll_cq", -ibv_poll_cq(it.side.cq, 1, &wc));
  ibv_poll_cq_attr attr{};
  refused.of("start_poll", ibv_start_poll(it.cq_ex, &attr));
  refused.of("next_poll", ibv_next_poll(it.cq_ex));
  ibv_end_poll(it.cq_ex);
  refused.of("req_notify_cq", ibv_req_notify_cq(it.side.cq, 0));
  ibv_cq* cq = nullptr;
  void* cq_context = nullptr;
  refused.of_minus("get_cq_event", ibv_get_cq_event(it.side.channel, &cq, &cq_context));
  ibv_async_event event{};
  refused.of_minus("get_async_event", ibv_get_async_event(it.side.context, &event));
}

void make(Parent& it, Refusals& refused) {
  VerbsSide& side = it.side;
  refused.of_made("alloc_pd", ibv_alloc_pd(side.context));
  ibv_parent_domain_init_attr parent{};
  parent.pd = side.pd;
  refused.of_made("alloc_parent_domain", ibv_alloc_parent_domain(side.context, &parent));
  refused.of_made("reg_mr", ibv_reg_mr(side.pd, side.memory.data(), 8, 0U));
  refused.of_made("alloc_mw", ibv_alloc_mw(side.pd, IBV_MW_TYPE_1));
  ibv_ah_attr to{};
  to.is_global = 1;
  to.port_num = 1;
  refused.of_made("create_ah", ibv_create_ah(side.pd, &to));
  ibv_wc wc{};
  wc.wc_flags = IBV_WC_GRH;
  ibv_grh grh{};
  refused.of_minus("init_ah_from_wc", ibv_init_ah_from_wc(side.context, 1, &wc, &grh, &to));
  refused.of_made("create_ah_from_wc", ibv_create_ah_from_wc(side.pd, &wc, &grh, 1));
  refused.of_made("create_comp_channel", ibv_create_comp_channel(side.context));
  refused.of_made("create_cq", ibv_create_cq(side.context, 4, nullptr, nullptr, 0));
  ibv_cq_init_attr_ex cq{};
  cq.cqe = 4;
  refused.of_made("create_cq_ex", ibv_create_cq_ex(side.context, &cq));
  ibv_qp_init_attr qp{};
  qp.send_cq = qp.recv_cq = side.cq;
  qp.qp_type = IBV_QPT_RC;
  qp.cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = 0};
  refused.of_made("create_qp", ibv_create_qp(side.pd, &qp));
  ibv_srq_init_attr srq{};
  srq.attr = {.max_wr = 8, .max_sge = 1, .srq_limit = 0};
  refused.of_made("create_srq", ibv_create_srq(side.pd, &srq));
  ibv_xrcd_init_attr xrcd = Parent::domain();
  refused.of_made("open_xrcd", ibv_open_xrcd(side.context, &xrcd));
}

void change(Parent& it, Refusals& refused) {
  ibv_qp* qp = it.side.qp;
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_ERR;
  refused.of("modify_qp", ibv_modify_qp(qp, &attr, IBV_QP_STATE));
  ibv_gid group{};
  refused.of("attach_mcast", ibv_attach_mcast(qp, &group, 0));
  refused.of("detach_mcast", ibv_detach_mcast(qp, &group, 0));
  ibv_ece ece{};
  refused.of("set_ece", ibv_set_ece(qp, &ece));
  ibv_srq_attr limit{};
  limit.srq_limit = 1;
  refused.of("modify_srq", ibv_modify_srq(it.srq, &limit, IBV_SRQ_LIMIT));
  refused.of("resize_cq", ibv_resize_cq(it.side.cq, 64));
  ibv_modify_cq_attr moderation{};
  moderation.attr_mask = IBV_CQ_ATTR_MODERATE;
  refused.of("modify_cq", ibv_modify_cq(ibv_cq_ex_to_cq(it.cq_ex), &moderation));
  const int changed = ibv_rereg_mr(it.side.mr, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, 0);
  refused.count("rereg_mr", changed != 0 && errno == EIO);
}

void ask(Parent& it, Refusals& refused) {
  ibv_context* context = it.side.context;
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  refused.of("query_qp", ibv_query_qp(it.side.qp, &attr, 0, &init));
  ibv_ece ece{};
  refused.of("query_ece", ibv_query_ece(it.side.qp, &ece));
  ibv_srq_attr limit{};
  refused.of("query_srq", ibv_query_srq(it.srq, &limit));
  ibv_port_attr port{};
  refused.of("query_port", ibv_query_port(context, 1, &port));
  ibv_gid gid{};
  refused.of_minus("query_gid", ibv_query_gid(context, 1, 1, &gid));
  ibv_gid_entry entry{};
  refused.of("query_gid_ex", ibv_query_gid_ex(context, 1, 1, &entry, 0));
  refused.of("query_gid_table", static_cast<int>(-ibv_query_gid_table(context, &entry, 1, 0)));
  ibv_values_ex values{};
  values.comp_mask = IBV_VALUES_MASK_RAW_CLOCK;
  refused.of("query_rt_values_ex", ibv_query_rt_values_ex(context, &values));
}

/// In the order in which programs do. @return how many calls did not succeed
int destroy_all(Parent& it) {
  return it.destroy() + (ibv_dereg_mr(it.side.mr) != 0) + (ibv_destroy_qp(it.side.qp) != 0) +
         (ibv_destroy_cq(it.side.cq) != 0) + (ibv_destroy_comp_channel(it.side.channel) != 0) +
         (ibv_dealloc_pd(it.side.pd) != 0) + (ibv_close_device(it.side.context) != 0);
}

}  // namespace

TEST_CASE("a child that was forked has no device: all that it asks of one is refused, and it ends in peace",
          "[abi][fork]") {
  Parent it;
  std::fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    alarm(30);
    Refusals refused;
    post_and_poll(it, refused);
    make(it, refused);
    change(it, refused);
    ask(it, refused);
    if (const int failed = destroy_all(it); failed != 0) _exit(100 + failed);
    _exit(refused.works());
  }
  int status = -1;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(status == 0);

  CHECK(it.side.take().wr_id == 1);
  ibv_cq* cq = nullptr;
  void* cq_context = nullptr;
  REQUIRE(Parent::is_readable(it.side.channel->fd, 0));
  REQUIRE(ibv_get_cq_event(it.side.channel, &cq, &cq_context) == 0);
  ibv_ack_cq_events(cq, 1);
  ibv_async_event event{};
  REQUIRE(Parent::is_readable(it.side.context->async_fd, 0));
  REQUIRE(ibv_get_async_event(it.side.context, &event) == 0);
  ibv_ack_async_event(&event);
  it.write(3);
  const ibv_wc wc = it.side.take();
  CHECK(wc.wr_id == 3);
  CHECK(wc.status == IBV_WC_SUCCESS);
}

namespace {

/// In a child: whether a device can be opened and used; the GID that it has.
bool opens_device(ibv_device* device, ibv_gid& gid) {
  ibv_context* context = ibv_open_device(device);
  if (context == nullptr || ibv_query_gid(context, 1, 1, &gid) != 0) return false;
  ibv_pd* pd = ibv_alloc_pd(context);
  ibv_cq* cq = ibv_create_cq(context, 4, nullptr, nullptr, 0);
  return pd != nullptr && cq != nullptr && ibv_destroy_cq(cq) == 0 && ibv_dealloc_pd(pd) == 0;
}

}  // namespace

TEST_CASE("children that were forked open a device of their own, and meet on one link", "[abi][fork]") {
  VerbsSide side;
  int told[2];
  int held[2];
  REQUIRE(pipe(told) == 0);
  REQUIRE(pipe(held) == 0);
  pid_t children[2];
  for (pid_t& child : children) {
    child = fork();
    if (child != 0) continue;
    alarm(20);
    close(told[0]);
    close(held[1]);
    ibv_gid gid{};
    const bool opens = opens_device(side.context->device, gid);
    const char end = opens ? static_cast<char>(gid.raw[15]) : '\0';
    const bool tells = write(told[1], &end, 1) == 1;
    char none = 0;
    _exit(opens && tells && read(held[0], &none, 1) == 0 && ibv_close_device(side.context) == 0 ? 0 : 1);
  }
  close(told[1]);  // so that it ends when both are dead
  char ends[2] = "";
  REQUIRE(read(told[0], &ends[0], 1) == 1);
  REQUIRE(read(told[0], &ends[1], 1) == 1);
  // 10.77.0.1 and 10.77.0.2, unless the first one has an end of the same link
  CHECK(ends[0] + ends[1] == (std::getenv("ABI_LINK_OPTIONS") == nullptr ? 1 + 2 : 2 + 3));
  close(held[1]);
  for (const pid_t child : children) {
    int status = -1;
    REQUIRE(waitpid(child, &status, 0) == child);
    CHECK(status == 0);
  }
  for (const int fd : {told[0], held[0]}) close(fd);
}

// A sanitizer's allocator may be locked by the other thread, for ever in the child.
TEST_CASE("a device that cannot be opened for want of threads is not half open", "[abi][fork][errors]") {
  VerbsSide::use_own_link();
  ibv_device** devices = ibv_get_device_list(nullptr);
  REQUIRE(devices != nullptr);
  const pid_t child = fork();
  if (child == 0) {
    constexpr uid_t kNobody = 65534;
    rlimit limit{};
    getrlimit(RLIMIT_NPROC, &limit);
    limit.rlim_cur = 1;
    setenv("UROCE_MODE", "app", 1);  // no thread but the one for events
    if (setrlimit(RLIMIT_NPROC, &limit) != 0 || (getuid() == 0 && setuid(kNobody) != 0)) _exit(2);
    for (int i = 0; i < 2; ++i) {
      if (ibv_open_device(devices[0]) != nullptr) _exit(3);
    }
    limit.rlim_cur = limit.rlim_max;
    if (setrlimit(RLIMIT_NPROC, &limit) != 0) _exit(4);
    ibv_context* context = ibv_open_device(devices[0]);
    _exit(context != nullptr && ibv_close_device(context) == 0 ? 0 : 5);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  ibv_free_device_list(devices);
}

#ifdef UROCE_TEST_FORKS_MID_OPEN

namespace {

/// Whether a child ends with 0 within some seconds; it is killed otherwise. The library has signals wait
/// while it opens a device, also that of an alarm.
bool ends_well(pid_t child) {
  pollfd wanted{.fd = static_cast<int>(syscall(SYS_pidfd_open, child, 0)), .events = POLLIN, .revents = 0};
  if (poll(&wanted, 1, 20'000) != 1) kill(child, SIGKILL);
  close(wanted.fd);
  int status = -1;
  return waitpid(child, &status, 0) == child && status == 0;
}

}  // namespace

TEST_CASE("a child that is forked while another thread opens the device opens one of its own",
          "[abi][fork]") {
  constexpr int kChildren = 10;
  VerbsSide::use_own_link();
  int count = 0;
  ibv_device** devices = ibv_get_device_list(&count);
  REQUIRE(count == 1);
  std::atomic<bool> ends = false;
  std::thread opener([&] {
    while (!ends) {
      ibv_context* context = ibv_open_device(devices[0]);
      if (context == nullptr || ibv_close_device(context) != 0) return;
    }
  });
  int failed = 0;
  for (int i = 0; i < kChildren; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      ibv_context* context = ibv_open_device(devices[0]);
      _exit(context != nullptr && ibv_close_device(context) == 0 ? 0 : 1);
    }
    failed += ends_well(child) ? 0 : 1;
  }
  ends = true;
  opener.join();
  CHECK(failed == 0);
  ibv_free_device_list(devices);
}

#endif

}  // namespace uroce::test
