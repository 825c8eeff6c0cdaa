/// The endpoint over libibverbs: runs in the guest, on Soft-RoCE.
#include <arpa/inet.h>
#include <infiniband/verbs.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <stdexcept>
#include <vector>

#include "endpoint.h"

namespace uroce::interop {
namespace {

constexpr std::uint8_t kPort = 1;
constexpr int kAllAccess =
    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;

template <typename T>
T* need(T* made, const char* what) {
  if (made == nullptr) throw std::runtime_error(std::string("cannot get ") + what);
  return made;
}

void need_zero(int outcome, const char* what) {
  if (outcome != 0) throw std::runtime_error(std::string(what) + " failed: " + std::to_string(outcome));
}

ibv_context* open_device(const std::string& name) {
  int count = 0;
  ibv_device** devices = need(ibv_get_device_list(&count), "the device list");
  ibv_context* opened = nullptr;
  for (int i = 0; i < count && opened == nullptr; ++i) {
    if (name == ibv_get_device_name(devices[i])) opened = ibv_open_device(devices[i]);
  }
  ibv_free_device_list(devices);
  return need(opened, "the device");
}

ibv_mtu mtu_code(std::uint32_t bytes) {
  for (int code = IBV_MTU_256; code <= IBV_MTU_4096; ++code) {
    if (128U << code == bytes) return static_cast<ibv_mtu>(code);
  }
  throw std::runtime_error("no such path MTU");
}

ibv_wr_opcode opcode_of(Verb verb) {
  constexpr std::array kOpcodes{
      IBV_WR_SEND,      IBV_WR_SEND_WITH_IMM,      IBV_WR_RDMA_WRITE,          IBV_WR_RDMA_WRITE_WITH_IMM,
      IBV_WR_RDMA_READ, IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WR_ATOMIC_FETCH_AND_ADD};
  return kOpcodes.at(static_cast<std::size_t>(verb));
}

class VerbsEndpoint final : public Endpoint {
 public:
  VerbsEndpoint(const std::string& device, const LinkAttr& attr, std::uint32_t psn)
      : memory_(kMemoryBytes), context_(open_device(device)), psn_(psn) {
    pd_ = need(ibv_alloc_pd(context_), "a protection domain");
    cq_ = need(ibv_create_cq(context_, 4 * kMaxWr, nullptr, nullptr, 0), "a completion queue");
    mr_ = need(ibv_reg_mr(pd_, memory_.data(), memory_.size(), kAllAccess), "a memory region");
    ibv_qp_init_attr init{};
    init.send_cq = init.recv_cq = cq_;
    init.cap = {.max_send_wr = kMaxWr,
                .max_recv_wr = kMaxWr,
                .max_send_sge = 1,
                .max_recv_sge = 1,
                .max_inline_data = 0};
    init.qp_type = IBV_QPT_RC;
    qp_ = need(ibv_create_qp(pd_, &init), "a queue pair");
    need_zero(ibv_query_gid(context_, kPort, attr.gid_index, &gid_), "query of the GID");
  }
  VerbsEndpoint(const VerbsEndpoint&) = delete;
  VerbsEndpoint& operator=(const VerbsEndpoint&) = delete;
  ~VerbsEndpoint() override {
    ibv_destroy_qp(qp_);
    ibv_dereg_mr(mr_);
    ibv_destroy_cq(cq_);
    ibv_dealloc_pd(pd_);
    ibv_close_device(context_);
  }

  Identity identity() const override {
    std::array<char, INET6_ADDRSTRLEN> gid{};
    inet_ntop(AF_INET6, gid_.raw, gid.data(), gid.size());
    return {.qpn = qp_->qp_num, .psn = psn_, .rkey = mr_->rkey, .address = address(0), .gid = gid.data()};
  }

  std::span<std::byte> memory() noexcept override { return memory_; }

  void connect(const Identity& peer, const LinkAttr& attr) override {
    peer_ = peer;
    to_init();
    to_rtr(peer, attr);
    ibv_qp_attr rts{};
    rts.qp_state = IBV_QPS_RTS;
    rts.sq_psn = psn_;
    rts.timeout = attr.timeout;
    rts.retry_cnt = attr.retry_cnt;
    rts.rnr_retry = attr.rnr_retry;
    rts.max_rd_atomic = attr.rd_atomic;
    need_zero(ibv_modify_qp(qp_, &rts,
                            IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                                IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC),
              "move to RTS");
  }

  void post_receive(std::uint64_t id, std::uint64_t offset, std::uint32_t length) override {
    ibv_sge sge{.addr = address(offset), .length = length, .lkey = mr_->lkey};
    ibv_recv_wr wr{};
    wr.wr_id = id;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    ibv_recv_wr* bad = nullptr;
    need_zero(ibv_post_recv(qp_, &wr, &bad), "posting a receive");
  }

  void post(std::uint64_t id, const Request& request) override {
    ibv_sge sge{.addr = address(request.offset), .length = request.length, .lkey = mr_->lkey};
    ibv_send_wr wr{};
    wr.wr_id = id;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.opcode = opcode_of(request.verb);
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.imm_data = htonl(request.imm);
    const std::uint64_t remote = peer_.address + request.remote_offset;
    if (request.verb == Verb::kCompareSwap || request.verb == Verb::kFetchAdd) {
      wr.wr.atomic.remote_addr = remote;
      wr.wr.atomic.rkey = request.rkey;
      wr.wr.atomic.compare_add = request.compare_add;
      wr.wr.atomic.swap = request.swap;
    } else {
      wr.wr.rdma.remote_addr = remote;
      wr.wr.rdma.rkey = request.rkey;
    }
    ibv_send_wr* bad = nullptr;
    need_zero(ibv_post_send(qp_, &wr, &bad), "posting a request");
  }

  std::size_t poll(std::span<Completion> out) override {
    std::vector<ibv_wc> taken(out.size());
    const int count = ibv_poll_cq(cq_, static_cast<int>(taken.size()), taken.data());
    if (count < 0) throw std::runtime_error("polling failed");
    for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
      const ibv_wc& wc = taken[i];
      out[i] = {.id = wc.wr_id,
                .status = wc.status,
                .bytes = wc.byte_len,
                .has_imm = (wc.wc_flags & IBV_WC_WITH_IMM) != 0,
                .imm = ntohl(wc.imm_data)};
    }
    return static_cast<std::size_t>(count);
  }

  void idle() noexcept override { usleep(200); }
  std::string counters() const override { return {}; }

 private:
  std::uint64_t address(std::uint64_t offset) const noexcept {
    return std::bit_cast<std::uintptr_t>(memory_.data()) + offset;
  }

  void to_init() {
    ibv_qp_attr init{};
    init.qp_state = IBV_QPS_INIT;
    init.port_num = kPort;
    init.qp_access_flags = kAllAccess;
    need_zero(ibv_modify_qp(qp_, &init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
              "move to INIT");
  }

  void to_rtr(const Identity& peer, const LinkAttr& attr) {
    ibv_qp_attr rtr{};
    rtr.qp_state = IBV_QPS_RTR;
    rtr.path_mtu = mtu_code(attr.mtu);
    rtr.dest_qp_num = peer.qpn;
    rtr.rq_psn = peer.psn;
    rtr.max_dest_rd_atomic = attr.rd_atomic;
    rtr.min_rnr_timer = attr.min_rnr_timer;
    rtr.ah_attr.is_global = 1;
    rtr.ah_attr.port_num = kPort;
    rtr.ah_attr.grh.sgid_index = attr.gid_index;
    rtr.ah_attr.grh.hop_limit = 64;
    if (inet_pton(AF_INET6, peer.gid.c_str(), rtr.ah_attr.grh.dgid.raw) != 1)
      throw std::runtime_error("bad GID");
    need_zero(ibv_modify_qp(qp_, &rtr,
                            IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER),
              "move to RTR");
  }

  std::vector<std::byte> memory_;
  ibv_context* context_;
  std::uint32_t psn_;
  ibv_pd* pd_ = nullptr;
  ibv_cq* cq_ = nullptr;
  ibv_mr* mr_ = nullptr;
  ibv_qp* qp_ = nullptr;
  ibv_gid gid_{};
  Identity peer_;
};

}  // namespace

std::unique_ptr<Endpoint> make_endpoint(const Options& options, const LinkAttr& attr, std::uint32_t psn) {
  const auto device = options.find("device");
  return std::make_unique<VerbsEndpoint>(device == options.end() ? "rxe0" : device->second, attr, psn);
}

}  // namespace uroce::interop
