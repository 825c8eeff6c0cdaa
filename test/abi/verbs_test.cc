// Calls of libibverbs that need no peer: objects, their users, errors, events.
#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include "test/abi/verbs_side.h"

namespace uroce::test {

TEST_CASE("the device is listed under the GUID that it has when open", "[abi][device]") {
  VerbsSide::use_own_link();
  int count = 0;
  ibv_device** list = ibv_get_device_list(&count);
  REQUIRE(list != nullptr);
  REQUIRE(count == 1);
  CHECK(list[1] == nullptr);
  const auto guid = ibv_get_device_guid(list[0]);
  CHECK(guid != 0);
  VerbsSide side;
  ibv_device_attr attr{};
  REQUIRE(ibv_query_device(side.context, &attr) == 0);
  CHECK(attr.node_guid == guid);
  CHECK(side.context->device == list[0]);
  ibv_free_device_list(list);
}

TEST_CASE("a lone end of a link counts as up, and has a GID of each kind", "[abi][device]") {
  VerbsSide side;
  ibv_port_attr port{};
  REQUIRE(ibv_query_port(side.context, 1, &port) == 0);
  CHECK(port.state == IBV_PORT_ACTIVE);
  CHECK(port.link_layer == IBV_LINK_LAYER_ETHERNET);
  CHECK(ibv_query_port(side.context, 2, &port) == EINVAL);
  ibv_gid gid{};
  CHECK(ibv_query_gid(side.context, 1, 1, &gid) == 0);
  CHECK(gid.raw[10] == 0xff);
  CHECK(ibv_query_gid(side.context, 1, port.gid_tbl_len - 1, &gid) == 0);
  CHECK(gid.global.interface_id == 0);
  CHECK(ibv_query_gid(side.context, 1, port.gid_tbl_len, &gid) == -1);
  ibv_gid_entry entry{};
  CHECK(ibv_query_gid_ex(side.context, 1, 1, &entry, 0) == 0);
  CHECK(entry.gid_type == IBV_GID_TYPE_ROCE_V2);
  CHECK(ibv_query_gid_ex(side.context, 1, 9, &entry, 0) == ENODATA);
  CHECK(ibv_query_gid_ex(side.context, 1, 1, &entry, 1) == EOPNOTSUPP);
}

TEST_CASE("an object that others use is not destroyed", "[abi][lifetime]") {
  VerbsSide side;
  CHECK(ibv_destroy_cq(side.cq) == EBUSY);
  CHECK(ibv_dealloc_pd(side.pd) == EBUSY);
  CHECK(ibv_destroy_comp_channel(side.channel) == EBUSY);
}

TEST_CASE("a channel may be destroyed as soon as another thread has destroyed its last CQ",
          "[abi][lifetime]") {
  VerbsSide side;
  for (int i = 0; i < 300; ++i) {
    ibv_comp_channel* const channel = ibv_create_comp_channel(side.context);
    REQUIRE(channel != nullptr);
    ibv_cq* const cq = ibv_create_cq(side.context, 1, nullptr, channel, 0);
    REQUIRE(cq != nullptr);
    int destroyed = -1;
    std::thread other([&] { destroyed = ibv_destroy_cq(cq); });
    int error = EBUSY;
    while (error == EBUSY) error = ibv_destroy_comp_channel(channel);
    other.join();
    REQUIRE(error == 0);
    REQUIRE(destroyed == 0);
  }
}

TEST_CASE(
    "the attributes of a QP are written as programs know them that were built before there was a rate limit",
    "[abi][old]") {
  VerbsSide side;
  ibv_qp_attr attr{};
  attr.rate_limit = 1;  // something else of theirs
  attr.alt_timeout = 1;
  ibv_qp_init_attr init{};
  REQUIRE(ibv_query_qp(side.qp, &attr, IBV_QP_STATE, &init) == 0);
  CHECK(attr.alt_timeout == 0);
  CHECK(attr.rate_limit == 1);
}

TEST_CASE("unknown masks and flags are refused, with errno", "[abi][errors]") {
  VerbsSide side;
  ibv_cq_init_attr_ex cq{};
  cq.cqe = 8;
  cq.wc_flags = IBV_WC_EX_WITH_TM_INFO;
  CHECK(ibv_create_cq_ex(side.context, &cq) == nullptr);
  CHECK(errno == EOPNOTSUPP);
  ibv_qp_init_attr_ex qp{};
  qp.qp_type = IBV_QPT_RC;
  qp.send_cq = qp.recv_cq = side.cq;
  qp.pd = side.pd;
  qp.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  qp.send_ops_flags = IBV_QP_EX_WITH_TSO;
  errno = 0;
  CHECK(ibv_create_qp_ex(side.context, &qp) == nullptr);
  CHECK(errno == EOPNOTSUPP);
  CHECK(ibv_create_cq(side.context, 0, nullptr, nullptr, 0) == nullptr);
  CHECK(errno == EINVAL);
  CHECK(ibv_create_cq(side.context, 8, nullptr, nullptr, 1) == nullptr);
  CHECK(ibv_import_device(0) == nullptr);
  std::byte byte{};
  CHECK(ibv_reg_mr(side.pd, &byte, 1, unsigned{IBV_ACCESS_REMOTE_WRITE}) == nullptr);
  CHECK(errno == EINVAL);
  CHECK(ibv_reg_mr(side.pd, &byte, 1, unsigned{IBV_ACCESS_ON_DEMAND}) == nullptr);
  CHECK(errno == EOPNOTSUPP);
}

TEST_CASE("a QP can be asked for what its type can send", "[abi][errors]") {
  VerbsSide side;
  ibv_qp_init_attr_ex qp{};
  qp.send_cq = qp.recv_cq = side.cq;
  qp.cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = 0};
  qp.pd = side.pd;
  qp.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  const auto is_made = [&](ibv_qp_type type, std::uint64_t ops) {
    qp.qp_type = type;
    qp.send_ops_flags = ops;
    errno = 0;
    ibv_qp* made = ibv_create_qp_ex(side.context, &qp);
    if (made != nullptr) return ibv_destroy_qp(made) == 0;
    CHECK(errno == EOPNOTSUPP);
    return false;
  };
  CHECK(is_made(IBV_QPT_UD, IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM));
  CHECK_FALSE(is_made(IBV_QPT_UD, IBV_QP_EX_WITH_RDMA_WRITE));
  CHECK(is_made(IBV_QPT_UC, IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_BIND_MW));
  for (const std::uint64_t op : {IBV_QP_EX_WITH_RDMA_READ, IBV_QP_EX_WITH_SEND_WITH_INV,
                                 IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD, IBV_QP_EX_WITH_ATOMIC_WRITE}) {
    CHECK_FALSE(is_made(IBV_QPT_UC, op));
    CHECK(is_made(IBV_QPT_RC, op));
    CHECK(is_made(IBV_QPT_XRC_SEND, op));
  }
}

TEST_CASE("what another context has made is not there", "[abi][errors]") {
  VerbsSide side;
  VerbsSide other;
  ibv_srq* srq = make_srq(other.pd);
  for (int i = 0; i < 3; ++i) {
    ibv_qp_init_attr qp{};
    qp.qp_type = IBV_QPT_RC;
    qp.cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = 0};
    qp.send_cq = i == 0 ? other.cq : side.cq;
    qp.recv_cq = i == 1 ? other.cq : side.cq;
    qp.srq = i == 2 ? srq : nullptr;
    errno = 0;
    CAPTURE(i);
    CHECK(ibv_create_qp(side.pd, &qp) == nullptr);
    CHECK(errno == EINVAL);
  }
  CHECK(ibv_destroy_srq(srq) == 0);
  errno = 0;
  CHECK(ibv_create_cq(side.context, 8, nullptr, other.channel, 0) == nullptr);
  CHECK(errno == EINVAL);
  ibv_parent_domain_init_attr domain{};
  domain.pd = other.pd;
  CHECK(ibv_alloc_parent_domain(side.context, &domain) == nullptr);
  CHECK(ibv_rereg_mr(side.mr, IBV_REREG_MR_CHANGE_PD, other.pd, nullptr, 0, 0) != 0);
  CHECK(errno == EINVAL);
}

TEST_CASE("that no gateway leads to a peer which is in no prefix is told, once", "[abi][errors]") {
  const VerbsSide side;
  const Said said;
  for (const char* peer : {"::ffff:10.77.0.9", "::ffff:192.0.2.1", "::ffff:192.0.2.2"}) {
    side.to_init();
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_RTR;
    attr.path_mtu = IBV_MTU_1024;
    attr.ah_attr.is_global = 1;
    attr.ah_attr.grh.sgid_index = 1;
    REQUIRE(inet_pton(AF_INET6, peer, &attr.ah_attr.grh.dgid) == 1);
    REQUIRE(ibv_modify_qp(side.qp, &attr,
                          IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                              IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) == 0);
    attr.qp_state = IBV_QPS_RESET;
    REQUIRE(ibv_modify_qp(side.qp, &attr, IBV_QP_STATE) == 0);
  }
  CHECK(
      said.text() ==
      "uroce: 192.0.2.1 is in no prefix of this port (--ip) and there is no gateway to it: use --gateway\n");
}

TEST_CASE("a path without an alternate one is where it migrated to, and nowhere else", "[abi][errors]") {
  VerbsSide side;
  side.to_init();
  side.connect(side);
  ibv_qp_attr attr{};
  attr.path_mig_state = IBV_MIG_MIGRATED;
  CHECK(ibv_modify_qp(side.qp, &attr, IBV_QP_PATH_MIG_STATE) == 0);
  attr.path_mig_state = IBV_MIG_REARM;
  CHECK(ibv_modify_qp(side.qp, &attr, IBV_QP_PATH_MIG_STATE) == EOPNOTSUPP);
}

TEST_CASE("a post that is not taken names the work request, and says why", "[abi][errors]") {
  VerbsSide side;
  ibv_send_wr* bad_send = nullptr;
  ibv_send_wr send{};
  send.opcode = IBV_WR_SEND;
  CHECK(ibv_post_send(side.qp, &send, &bad_send) == EINVAL);  // not before RTS
  CHECK(bad_send == &send);
  ibv_recv_wr* bad = nullptr;
  ibv_recv_wr receive{};
  CHECK(ibv_post_recv(side.qp, &receive, &bad) == EINVAL);  // not in Reset
  side.to_init();
  std::vector<ibv_recv_wr> many(VerbsSide::kDepth + 2);
  for (std::size_t i = 0; i + 1 < many.size(); ++i) many[i].next = &many[i + 1];
  CHECK(ibv_post_recv(side.qp, many.data(), &bad) == ENOMEM);
  CHECK(bad == &many[VerbsSide::kDepth]);
  ibv_sge two[2]{};
  receive.sg_list = two;
  for (const int number : {2, -1}) {
    receive.num_sge = number;
    CHECK(ibv_post_recv(side.qp, &receive, &bad) == EINVAL);
  }
}

TEST_CASE("a descriptor of events obeys O_NONBLOCK", "[abi][events]") {
  VerbsSide side;
  fcntl(side.context->async_fd, F_SETFL, O_NONBLOCK);
  ibv_async_event event{};
  CHECK(ibv_get_async_event(side.context, &event) == -1);
  CHECK(errno == EAGAIN);
  fcntl(side.channel->fd, F_SETFL, O_NONBLOCK);
  ibv_cq* cq = nullptr;
  void* cq_context = nullptr;
  errno = 0;
  CHECK(ibv_get_cq_event(side.channel, &cq, &cq_context) == -1);
  CHECK(errno == EAGAIN);
}

TEST_CASE("events of a queue that is destroyed are gone with it", "[abi][events]") {
  VerbsSide side;
  ibv_srq* srq = make_srq(side.pd);
  ibv_srq_attr limit{};
  limit.srq_limit = 4;  // fewer are posted
  pollfd events{.fd = side.context->async_fd, .events = POLLIN, .revents = 0};

  REQUIRE(ibv_modify_srq(srq, &limit, IBV_SRQ_LIMIT) == 0);
  REQUIRE(poll(&events, 1, 5000) == 1);
  ibv_async_event event{};
  REQUIRE(ibv_get_async_event(side.context, &event) == 0);
  CHECK(event.event_type == IBV_EVENT_SRQ_LIMIT_REACHED);
  CHECK(event.element.srq == srq);
  ibv_ack_async_event(&event);

  REQUIRE(ibv_modify_srq(srq, &limit, IBV_SRQ_LIMIT) == 0);
  REQUIRE(poll(&events, 1, 5000) == 1);
  CHECK(ibv_destroy_srq(srq) == 0);
  CHECK(poll(&events, 1, 0) == 0);
}

TEST_CASE("the way back to a sender that a completion does not tell is -1, and no handle, with errno",
          "[abi][errors]") {
  VerbsSide side;
  ibv_wc wc{};
  ibv_grh grh{};
  ibv_ah_attr attr{};
  errno = 0;
  CHECK(ibv_init_ah_from_wc(side.context, 1, &wc, &grh, &attr) == -1);  // came without a GRH
  CHECK(errno == EINVAL);
  wc.wc_flags = IBV_WC_GRH;
  CHECK(ibv_init_ah_from_wc(side.context, 2, &wc, &grh, &attr) == -1);  // no such port
  errno = 0;
  CHECK(ibv_init_ah_from_wc(side.context, 1, &wc, &grh, &attr) == -1);  // to nobody
  CHECK(errno == EINVAL);
  errno = 0;
  CHECK(ibv_create_ah_from_wc(side.pd, &wc, &grh, 1) == nullptr);
  CHECK(errno == EINVAL);
}

TEST_CASE("whoever opens an XRC domain has a name for it that outlives those of others", "[abi][xrc]") {
  VerbsSide side;
  std::FILE* const file = std::tmpfile();
  REQUIRE(file != nullptr);
  ibv_xrcd_init_attr attr{};
  attr.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
  attr.fd = fileno(file);
  CHECK(ibv_open_xrcd(side.context, &attr) == nullptr);  // there is none yet
  CHECK(errno == EAGAIN);
  attr.oflags = O_CREAT;
  ibv_context* first = ibv_open_device(side.context->device);
  REQUIRE(first != nullptr);
  ibv_xrcd* before = ibv_open_xrcd(first, &attr);
  REQUIRE(before != nullptr);
  attr.oflags = O_CREAT | O_EXCL;
  CHECK(ibv_open_xrcd(side.context, &attr) == nullptr);
  CHECK(errno == EINVAL);
  attr.oflags = 0;
  ibv_xrcd* domain = ibv_open_xrcd(side.context, &attr);
  REQUIRE(domain != nullptr);
  CHECK(domain->context == side.context);
  CHECK(ibv_close_xrcd(before) == 0);
  CHECK(ibv_close_device(first) == 0);

  ibv_srq_init_attr_ex init{};
  init.attr = {.max_wr = 8, .max_sge = 1, .srq_limit = 0};
  init.comp_mask =
      IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;
  init.srq_type = IBV_SRQT_XRC;
  init.pd = side.pd;
  init.xrcd = domain;
  init.cq = side.cq;
  ibv_srq* srq = ibv_create_srq_ex(side.context, &init);
  REQUIRE(srq != nullptr);
  CHECK(ibv_close_xrcd(domain) == EBUSY);
  CHECK(ibv_destroy_srq(srq) == 0);
  CHECK(ibv_close_xrcd(domain) == 0);
  CHECK(ibv_open_xrcd(side.context, &attr) == nullptr);  // it is gone
  std::fclose(file);
}

TEST_CASE("an XRC domain is not taken for one whose file is gone", "[abi][xrc]") {
  VerbsSide side;
  const std::string path = "/tmp/uroce-domain-" + std::to_string(getpid());
  const auto open_named = [&](int oflags) {  // most file systems give the file the number of the one before
    const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    REQUIRE(fd >= 0);
    ibv_xrcd_init_attr attr{};
    attr.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
    attr.fd = fd;
    attr.oflags = oflags;
    ibv_xrcd* const domain = ibv_open_xrcd(side.context, &attr);
    close(fd);
    unlink(path.c_str());
    return domain;
  };
  ibv_xrcd* const first = open_named(O_CREAT);
  REQUIRE(first != nullptr);
  ibv_xrcd* const second = open_named(O_CREAT | O_EXCL);
  REQUIRE(second != nullptr);
  CHECK(ibv_close_xrcd(first) == 0);
  CHECK(ibv_close_xrcd(second) == 0);
}

TEST_CASE("rates and names", "[abi][strings]") {
  CHECK(ibv_rate_to_mbps(IBV_RATE_100_GBPS) == 103125);
  CHECK(mbps_to_ibv_rate(103125) == IBV_RATE_100_GBPS);
  CHECK(ibv_rate_to_mult(IBV_RATE_10_GBPS) == 4);
  CHECK(ibv_rate_to_mult(IBV_RATE_100_GBPS) == -1);
  CHECK(mult_to_ibv_rate(0) == IBV_RATE_MAX);
  CHECK(std::string(ibv_wc_status_str(IBV_WC_WR_FLUSH_ERR)) == "Work Request Flushed Error");
  CHECK(std::string(ibv_event_type_str(IBV_EVENT_WQ_FATAL)) == "WQ fatal");
  CHECK(std::string(ibv_node_type_str(IBV_NODE_UNKNOWN)) == "unknown");
  CHECK(std::string(ibv_port_state_str(IBV_PORT_ACTIVE)) == "active");
}

TEST_CASE("a shared receive queue takes on all that is asked for, or nothing", "[abi][srq]") {
  const VerbsSide side;
  ibv_srq* srq = make_srq(side.pd);
  const auto modify = [srq](std::uint32_t max_wr, std::uint32_t limit, int mask) {
    ibv_srq_attr attr{};
    attr.max_wr = max_wr;
    attr.srq_limit = limit;
    return ibv_modify_srq(srq, &attr, mask);
  };
  const auto max_wr = [srq] {
    ibv_srq_attr attr{};
    REQUIRE(ibv_query_srq(srq, &attr) == 0);
    return attr.max_wr;
  };
  REQUIRE(max_wr() == 8);
  CHECK(modify(128, 1000, IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT) == EINVAL);
  CHECK(max_wr() == 8);
  CHECK(modify(1, 1, 0) == 0);
  CHECK(max_wr() == 8);
  CHECK(modify(128, 100, IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT) == 0);
  CHECK(max_wr() == 128);
  CHECK(ibv_destroy_srq(srq) == 0);
}

TEST_CASE("a QP on a shared receive queue may say anything of its own receives", "[abi][srq]") {
  // ibv_create_qp(3): "ignored"
  const VerbsSide side;
  ibv_srq* srq = make_srq(side.pd);
  for (const ibv_qp_type type : {IBV_QPT_RC, IBV_QPT_XRC_SEND}) {
    ibv_qp_init_attr attr{};
    attr.send_cq = attr.recv_cq = side.cq;
    attr.srq = type == IBV_QPT_RC ? srq : nullptr;
    attr.cap = {.max_send_wr = 4,
                .max_recv_wr = UINT32_MAX,
                .max_send_sge = 1,
                .max_recv_sge = UINT32_MAX,
                .max_inline_data = 0};
    attr.qp_type = type;
    ibv_qp* qp = ibv_create_qp(side.pd, &attr);
    REQUIRE(qp != nullptr);
    CHECK(attr.cap.max_recv_wr == 0);
    CHECK(attr.cap.max_recv_sge == 0);
    CHECK(ibv_destroy_qp(qp) == 0);
  }
  CHECK(ibv_destroy_srq(srq) == 0);
}

TEST_CASE("the raw clock counts as the timestamps of completions do", "[abi][cq][timestamp]") {
  VerbsSide side;
  ibv_cq_init_attr_ex wanted{};
  wanted.cqe = 4;
  wanted.wc_flags = IBV_WC_EX_WITH_COMPLETION_TIMESTAMP;
  ibv_cq_ex* cq = ibv_create_cq_ex(side.context, &wanted);
  REQUIRE(cq != nullptr);
  const auto raw_clock = [&side] {
    ibv_values_ex values{};
    values.comp_mask = IBV_VALUES_MASK_RAW_CLOCK;
    REQUIRE(ibv_query_rt_values_ex(side.context, &values) == 0);
    CHECK(values.raw_clock.tv_sec == 0);  // so that who reads one field and who reads both find the same
    return static_cast<std::uint64_t>(values.raw_clock.tv_nsec);
  };
  side.take_qp(IBV_QPT_RC, ibv_cq_ex_to_cq(cq));
  ibv_qp_attr failed{};
  failed.qp_state = IBV_QPS_ERR;
  REQUIRE(ibv_modify_qp(side.qp, &failed, IBV_QP_STATE) == 0);
  const std::uint64_t before = raw_clock();
  ibv_poll_cq_attr attr{};
  REQUIRE(ibv_start_poll(cq, &attr) == ENOENT);  // the loop's time is that of its last turn
  side.post(1, side.sge(0, 8));                  // is flushed
  while (ibv_start_poll(cq, &attr) == ENOENT) {
    if (raw_clock() - before > 5'000'000'000) FAIL("nothing has completed");
  }
  const std::uint64_t completed = ibv_wc_read_completion_ts(cq);
  ibv_end_poll(cq);
  CHECK(before <= completed + 1'000'000);
  CHECK(completed <= raw_clock());
  side.take_qp(IBV_QPT_RC, side.cq);
  CHECK(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)) == 0);
}

TEST_CASE("no CQ is to be had whose overruns are ignored", "[abi][cq]") {
  const VerbsSide side;
  ibv_cq_init_attr_ex attr{};
  attr.cqe = 4;
  attr.comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS;
  attr.flags = IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN;
  errno = 0;
  CHECK(ibv_create_cq_ex(side.context, &attr) == nullptr);
  CHECK(errno == EOPNOTSUPP);
}

}  // namespace uroce::test
