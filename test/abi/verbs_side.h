/// One end of an RC connection, made by calls of libibverbs.
#pragma once

#include <infiniband/verbs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>

namespace uroce::test {

/// A setting of the device while this lives.
class Setting {
 public:
  Setting(const char* name, const char* value) : name_(name) { setenv(name, value, 1); }
  ~Setting() { unsetenv(name_); }
  Setting(const Setting&) = delete;
  Setting& operator=(const Setting&) = delete;

 private:
  const char* name_;
};

/// What is written to stderr while this lives.
class Said {
 public:
  Said() : file_(std::tmpfile()), stderr_(dup(STDERR_FILENO)) {
    REQUIRE(file_ != nullptr);
    REQUIRE(dup2(fileno(file_), STDERR_FILENO) >= 0);
  }
  ~Said() {
    dup2(stderr_, STDERR_FILENO);
    close(stderr_);
    std::fclose(file_);
  }
  Said(const Said&) = delete;
  Said& operator=(const Said&) = delete;

  [[nodiscard]] std::string text() const {
    std::string text(1000, '\0');
    text.resize(
        static_cast<std::size_t>(std::max<ssize_t>(pread(fileno(file_), text.data(), text.size(), 0), 0)));
    return text;
  }

 private:
  std::FILE* file_;
  int stderr_;
};

/// Whether a thread of this process waits for something.
inline bool is_asleep(pid_t tid) {
  std::ifstream stat("/proc/self/task/" + std::to_string(tid) + "/stat");
  std::string text;
  std::getline(stat, text);  // of a thread that has ended: nothing
  return text.find(") S") != std::string::npos;
}

/// A context with a PD, a channel, a CQ and a QP made for ibv_wr_*; two of them talk within one device.
class VerbsSide {
 public:
  static constexpr std::uint32_t kDepth = 16;

  explicit VerbsSide(int comp_vector = 0) {
    use_own_link();
    int count = 0;
    ibv_device** list = ibv_get_device_list(&count);
    context = ibv_open_device(list[0]);
    ibv_free_device_list(list);
    REQUIRE(context != nullptr);
    pd = ibv_alloc_pd(context);
    channel = ibv_create_comp_channel(context);
    cq = ibv_create_cq(context, 2 * kDepth, this, channel, comp_vector);
    REQUIRE(cq != nullptr);
    ibv_qp_init_attr_ex attr{};
    attr.send_cq = attr.recv_cq = cq;
    attr.cap = {.max_send_wr = kDepth,
                .max_recv_wr = kDepth,
                .max_send_sge = 1,
                .max_recv_sge = 1,
                .max_inline_data = 64};
    attr.qp_type = IBV_QPT_RC;
    attr.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    attr.pd = pd;
    attr.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_READ |
                          IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD | IBV_QP_EX_WITH_BIND_MW;
    qp = ibv_create_qp_ex(context, &attr);
    REQUIRE(qp != nullptr);
    mr = ibv_reg_mr(
        pd, memory.data(), memory.size(),
        IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC);
    REQUIRE(mr != nullptr);
  }
  /// Before the device is listed or opened.
  static void use_own_link() {
    const char* const options = std::getenv("ABI_LINK_OPTIONS");
    const std::string link = "shm:abi-test-" + std::to_string(getpid()) + (options != nullptr ? options : "");
    setenv("UROCE_PORT", link.c_str(), 1);
  }
  ~VerbsSide() {
    CHECK(ibv_dereg_mr(mr) == 0);
    CHECK(ibv_destroy_qp(qp) == 0);
    CHECK(ibv_destroy_cq(cq) == 0);
    CHECK(ibv_destroy_comp_channel(channel) == 0);
    CHECK(ibv_dealloc_pd(pd) == 0);
    CHECK(ibv_close_device(context) == 0);
  }
  VerbsSide(const VerbsSide&) = delete;
  VerbsSide& operator=(const VerbsSide&) = delete;

  /// Another QP in the place of its own, with the same CQ for what it receives.
  void take_qp(ibv_qp_type type, ibv_cq* send_cq) {
    REQUIRE(ibv_destroy_qp(qp) == 0);
    ibv_qp_init_attr attr{};
    attr.send_cq = send_cq;
    attr.recv_cq = cq;
    attr.qp_type = type;
    attr.cap = {.max_send_wr = kDepth,
                .max_recv_wr = kDepth,
                .max_send_sge = 1,
                .max_recv_sge = 1,
                .max_inline_data = 0};
    qp = ibv_create_qp(pd, &attr);
    REQUIRE(qp != nullptr);
  }

  void to_init() const {
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_INIT;
    attr.port_num = 1;
    attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
    REQUIRE(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) ==
            0);
  }
  /// From Init to RTS.
  /// @param timeout  its code: eight times that is waited for the peer; 0.54 s
  void connect(const VerbsSide& peer, std::uint8_t timeout = 17) const {
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_RTR;
    attr.path_mtu = IBV_MTU_1024;
    attr.dest_qp_num = peer.qp->qp_num;
    attr.max_dest_rd_atomic = 4;
    attr.min_rnr_timer = 12;
    attr.ah_attr.is_global = 1;
    attr.ah_attr.port_num = 1;
    attr.ah_attr.grh.sgid_index = 1;
    REQUIRE(ibv_query_gid(peer.context, 1, 1, &attr.ah_attr.grh.dgid) == 0);
    REQUIRE(ibv_modify_qp(qp, &attr,
                          IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                              IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) == 0);
    attr.qp_state = IBV_QPS_RTS;
    attr.timeout = timeout;
    attr.retry_cnt = 7;
    attr.rnr_retry = 7;
    attr.max_rd_atomic = 4;
    REQUIRE(ibv_modify_qp(qp, &attr,
                          IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                              IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC) == 0);
  }
  [[nodiscard]] ibv_sge sge(std::size_t offset, std::uint32_t length) {
    return {
        .addr = reinterpret_cast<std::uintptr_t>(memory.data() + offset), .length = length, .lkey = mr->lkey};
  }
  void post_receive(std::uint64_t wr_id, ibv_sge room) const {
    ibv_recv_wr wr{};
    wr.wr_id = wr_id;
    wr.sg_list = &room;
    wr.num_sge = 1;
    ibv_recv_wr* bad = nullptr;
    REQUIRE(ibv_post_recv(qp, &wr, &bad) == 0);
  }
  /// A signaled SEND, or a READ or WRITE of `remote`.
  void post(std::uint64_t wr_id, ibv_sge data, ibv_wr_opcode opcode = IBV_WR_SEND,
            const ibv_sge& remote = {}) const {
    ibv_send_wr wr{};
    wr.wr_id = wr_id;
    wr.sg_list = &data;
    wr.num_sge = 1;
    wr.opcode = opcode;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.wr.rdma.remote_addr = remote.addr;
    wr.wr.rdma.rkey = remote.lkey;
    ibv_send_wr* bad = nullptr;
    REQUIRE(ibv_post_send(qp, &wr, &bad) == 0);
  }
  /// Polls until there is one completion, for at most ten seconds.
  [[nodiscard]] ibv_wc take() const {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    ibv_wc wc{};
    while (ibv_poll_cq(cq, 1, &wc) == 0) {
      if (std::chrono::steady_clock::now() > end) FAIL("no completion came");
    }
    return wc;
  }

  ibv_context* context = nullptr;
  ibv_pd* pd = nullptr;
  ibv_comp_channel* channel = nullptr;
  ibv_cq* cq = nullptr;
  ibv_qp* qp = nullptr;
  ibv_mr* mr = nullptr;
  std::array<std::byte, 4096> memory{};
};

inline constexpr std::uint32_t kQkey = 0x1234;  ///< of UD QPs

/// A UD QP in the place of the one of a side.
inline void become_datagram(VerbsSide& side) {
  side.take_qp(IBV_QPT_UD, side.cq);
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = 1;
  attr.qkey = kQkey;
  REQUIRE(ibv_modify_qp(side.qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY) == 0);
  attr.qp_state = IBV_QPS_RTR;
  REQUIRE(ibv_modify_qp(side.qp, &attr, IBV_QP_STATE) == 0);
  attr.qp_state = IBV_QPS_RTS;
  REQUIRE(ibv_modify_qp(side.qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN) == 0);
}

/// With room for 8 receives.
inline ibv_srq* make_srq(ibv_pd* pd) {
  ibv_srq_init_attr attr{};
  attr.attr = {.max_wr = 8, .max_sge = 1, .srq_limit = 0};
  ibv_srq* const srq = ibv_create_srq(pd, &attr);
  REQUIRE(srq != nullptr);
  return srq;
}

/// Connects the QPs of two sides.
inline void join(const VerbsSide& a, const VerbsSide& b) {
  a.to_init();
  b.to_init();
  a.connect(b);
  b.connect(a);
}

}  // namespace uroce::test
