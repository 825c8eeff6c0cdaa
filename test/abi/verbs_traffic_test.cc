// Calls of libibverbs that move data, between two contexts of one device.
#include <poll.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <cstring>
#include <thread>
#include <vector>

#include "test/abi/verbs_side.h"

namespace uroce::test {

namespace {

struct Pair {
  VerbsSide a;
  VerbsSide b;

  Pair() { join(a, b); }
};

void fill(VerbsSide& side, std::size_t bytes) {
  for (std::size_t i = 0; i < bytes; ++i) side.memory[i] = static_cast<std::byte>(i * 7 + 1);
}

}  // namespace

TEST_CASE("a list of sends arrives in order, its completions in an array", "[abi][traffic]") {
  Pair it;
  fill(it.a, 4 * 64);
  for (std::size_t i = 0; i < 4; ++i) it.b.post_receive(i, it.b.sge(64 * i, 64));
  ibv_sge sges[4];
  ibv_send_wr wrs[4]{};
  for (std::uint32_t i = 0; i < 4; ++i) {
    sges[i] = it.a.sge(64 * i, 64);
    wrs[i].wr_id = 10 + i;
    wrs[i].sg_list = &sges[i];
    wrs[i].num_sge = 1;
    wrs[i].opcode = IBV_WR_SEND_WITH_IMM;
    wrs[i].imm_data = i;
    wrs[i].send_flags = IBV_SEND_SIGNALED | (i == 3 ? unsigned{IBV_SEND_INLINE} : 0U);
    wrs[i].next = i < 3 ? &wrs[i + 1] : nullptr;
  }
  ibv_send_wr* bad = nullptr;
  REQUIRE(ibv_post_send(it.a.qp, wrs, &bad) == 0);
  for (std::uint32_t i = 0; i < 4; ++i) {
    const ibv_wc received = it.b.take();
    CHECK(received.status == IBV_WC_SUCCESS);
    CHECK(received.wr_id == i);
    CHECK(received.opcode == IBV_WC_RECV);
    CHECK(received.byte_len == 64);
    CHECK(received.imm_data == i);
    CHECK(received.wc_flags == IBV_WC_WITH_IMM);
    CHECK(received.qp_num == it.b.qp->qp_num);
    CHECK(it.a.take().wr_id == 10 + i);
  }
  CHECK(std::memcmp(it.a.memory.data(), it.b.memory.data(), 4 * 64) == 0);
}

TEST_CASE("sends built call by call: nothing until they are complete, nothing if aborted", "[abi][wr]") {
  Pair it;
  fill(it.a, 128);
  ibv_qp_ex* qp = ibv_qp_to_qp_ex(it.a.qp);
  REQUIRE(qp != nullptr);
  qp->wr_flags = IBV_SEND_SIGNALED;
  const auto remote = reinterpret_cast<std::uintptr_t>(it.b.memory.data());

  ibv_wr_start(qp);
  qp->wr_id = 1;
  ibv_wr_rdma_write(qp, it.b.mr->rkey, remote);
  ibv_wr_set_sge(qp, it.a.mr->lkey, reinterpret_cast<std::uintptr_t>(it.a.memory.data()), 64);
  ibv_wr_abort(qp);
  ibv_wc none{};
  CHECK(ibv_poll_cq(it.a.cq, 1, &none) == 0);

  ibv_wr_start(qp);
  qp->wr_id = 2;
  ibv_wr_rdma_write(qp, it.b.mr->rkey, remote);
  ibv_wr_set_sge(qp, it.a.mr->lkey, reinterpret_cast<std::uintptr_t>(it.a.memory.data()), 64);
  qp->wr_id = 3;
  ibv_wr_rdma_write(qp, it.b.mr->rkey, remote + 64);
  std::array<std::byte, 32> copied{};
  std::memcpy(copied.data(), it.a.memory.data() + 64, copied.size());
  const ibv_data_buf parts[2] = {{copied.data(), 20}, {copied.data() + 20, 12}};
  ibv_wr_set_inline_data_list(qp, 2, parts);
  copied.fill(std::byte{0});  // may be used for something else
  REQUIRE(ibv_wr_complete(qp) == 0);
  CHECK(it.a.take().wr_id == 2);
  CHECK(it.a.take().wr_id == 3);
  CHECK(std::memcmp(it.a.memory.data(), it.b.memory.data(), 96) == 0);
  CHECK(it.b.memory[96] == std::byte{0});

  ibv_wr_start(qp);
  ibv_wr_rdma_write(qp, it.b.mr->rkey, remote);
  std::array<std::byte, 65> too_long{};
  ibv_wr_set_inline_data(qp, too_long.data(), too_long.size());
  CHECK(ibv_wr_complete(qp) == ENOMEM);
}

TEST_CASE("a window has its new key once its bind is complete, and none of one that is not",
          "[abi][wr][mw]") {
  Pair it;
  ibv_mr* mr = ibv_reg_mr(it.a.pd, it.a.memory.data(), 128, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
  ibv_mw* mw = ibv_alloc_mw(it.a.pd, IBV_MW_TYPE_2);
  REQUIRE((mr != nullptr && mw != nullptr));
  ibv_qp_ex* qp = ibv_qp_to_qp_ex(it.a.qp);
  qp->wr_flags = IBV_SEND_SIGNALED;
  const std::uint32_t first = mw->rkey;
  const ibv_mw_bind_info info{.mr = mr,
                              .addr = reinterpret_cast<std::uintptr_t>(mr->addr),
                              .length = 128,
                              .mw_access_flags = IBV_ACCESS_REMOTE_READ};
  const auto build = [&] {
    ibv_wr_start(qp);
    ibv_wr_bind_mw(qp, mw, ibv_inc_rkey(first), &info);
    CHECK(mw->rkey == first);
  };
  build();
  ibv_wr_abort(qp);
  build();
  qp->wr_flags = IBV_SEND_IP_CSUM;
  ibv_wr_rdma_write(qp, it.b.mr->rkey, 0);
  CHECK(ibv_wr_complete(qp) == EINVAL);
  CHECK(mw->rkey == first);
  qp->wr_flags = IBV_SEND_SIGNALED;
  build();
  REQUIRE(ibv_wr_complete(qp) == 0);
  CHECK(mw->rkey == ibv_inc_rkey(first));
  CHECK(it.a.take().status == IBV_WC_SUCCESS);
  CHECK(ibv_dealloc_mw(mw) == 0);
  CHECK(ibv_dereg_mr(mr) == 0);
}

TEST_CASE("of sends built call by call that do not all fit none is posted; of a list, those that do",
          "[abi][wr]") {
  Pair it;
  constexpr std::uint32_t kMany = VerbsSide::kDepth + 1;
  ibv_qp_ex* qp = ibv_qp_to_qp_ex(it.a.qp);
  const auto remote = reinterpret_cast<std::uintptr_t>(it.b.memory.data());
  const auto build = [&](std::uint32_t count, std::byte data) {
    ibv_wr_start(qp);
    for (std::uint32_t i = 0; i < count; ++i) {
      qp->wr_id = i;
      qp->wr_flags = i + 1 < VerbsSide::kDepth ? 0 : IBV_SEND_SIGNALED;
      ibv_wr_rdma_write(qp, it.b.mr->rkey, remote + i);
      ibv_wr_set_inline_data(qp, &data, 1);
    }
  };
  build(kMany, std::byte{1});
  CHECK(ibv_wr_complete(qp) == ENOMEM);
  build(3, std::byte{2});
  std::array<ibv_sge, 2> two{it.a.sge(0, 1), it.a.sge(0, 1)};  // more than the QP has room for
  ibv_wr_rdma_write(qp, it.b.mr->rkey, remote);
  ibv_wr_set_sge_list(qp, two.size(), two.data());
  CHECK(ibv_wr_complete(qp) == EINVAL);
  build(VerbsSide::kDepth, std::byte{3});  // all of the queue is free
  REQUIRE(ibv_wr_complete(qp) == 0);
  CHECK(it.a.take().wr_id == VerbsSide::kDepth - 1);
  CHECK(it.b.memory[0] == std::byte{3});
  CHECK(it.b.memory[VerbsSide::kDepth] == std::byte{0});
  ibv_wc none{};
  CHECK(ibv_poll_cq(it.a.cq, 1, &none) == 0);

  std::vector<ibv_send_wr> wrs(kMany);
  for (std::uint32_t i = 0; i < kMany; ++i) {
    wrs[i].next = i + 1 < kMany ? &wrs[i + 1] : nullptr;
    wrs[i].wr_id = 100 + i;
    wrs[i].opcode = IBV_WR_RDMA_WRITE;
    wrs[i].send_flags = i + 2 == kMany ? IBV_SEND_SIGNALED : 0;
    wrs[i].wr.rdma = {.remote_addr = remote, .rkey = it.b.mr->rkey};
  }
  wrs[kMany - 1].num_sge = -1;
  ibv_send_wr* bad = nullptr;
  CHECK(ibv_post_send(it.a.qp, wrs.data(), &bad) == EINVAL);
  CHECK(bad == &wrs[kMany - 1]);
  CHECK(it.a.take().wr_id == 100 + kMany - 2);
}

TEST_CASE("a region under other addresses is read and added to by them", "[abi][iova]") {
  Pair it;
  constexpr std::uint64_t kBase = 0x10'0000;
  fill(it.b, 64);
  ibv_mr* mr = ibv_reg_mr_iova(it.b.pd, it.b.memory.data(), 64, kBase,
                               IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC);
  REQUIRE(mr != nullptr);
  ibv_qp_ex* qp = ibv_qp_to_qp_ex(it.a.qp);
  qp->wr_flags = IBV_SEND_SIGNALED;
  const auto local = reinterpret_cast<std::uintptr_t>(it.a.memory.data());
  ibv_wr_start(qp);
  ibv_wr_rdma_read(qp, mr->rkey, kBase + 8);
  ibv_wr_set_sge(qp, it.a.mr->lkey, local, 56);
  ibv_wr_atomic_fetch_add(qp, mr->rkey, kBase, 5);
  ibv_wr_set_sge(qp, it.a.mr->lkey, local + 64, 8);
  REQUIRE(ibv_wr_complete(qp) == 0);
  CHECK(it.a.take().status == IBV_WC_SUCCESS);
  CHECK(std::memcmp(it.a.memory.data(), it.b.memory.data() + 8, 56) == 0);
  CHECK(it.a.take().status == IBV_WC_SUCCESS);
  std::uint64_t before = 0;
  std::uint64_t after = 0;
  std::memcpy(&before, it.a.memory.data() + 64, sizeof before);
  std::memcpy(&after, it.b.memory.data(), sizeof after);
  CHECK(after == before + 5);

  ibv_wr_start(qp);
  ibv_wr_rdma_read(qp, mr->rkey, reinterpret_cast<std::uintptr_t>(it.b.memory.data()));
  ibv_wr_set_sge(qp, it.a.mr->lkey, local, 8);
  REQUIRE(ibv_wr_complete(qp) == 0);
  CHECK(it.a.take().status == IBV_WC_REM_ACCESS_ERR);
  CHECK(ibv_dereg_mr(mr) == 0);
}

TEST_CASE("a zero-based region, and a zero-based window on it, name bytes by their place",
          "[abi][zero_based]") {
  Pair it;
  fill(it.b, 128);
  const auto all = unsigned{IBV_ACCESS_LOCAL_WRITE} | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_MW_BIND;
  ibv_mr* mr = ibv_reg_mr(it.b.pd, it.b.memory.data(), 128, all | IBV_ACCESS_ZERO_BASED);
  REQUIRE(mr != nullptr);
  ibv_qp_ex* qp = ibv_qp_to_qp_ex(it.a.qp);
  qp->wr_flags = IBV_SEND_SIGNALED;
  const auto local = reinterpret_cast<std::uintptr_t>(it.a.memory.data());
  const auto read = [&](std::uint32_t rkey, std::uint64_t from) {
    ibv_wr_start(qp);
    ibv_wr_rdma_read(qp, rkey, from);
    ibv_wr_set_sge(qp, it.a.mr->lkey, local, 16);
    REQUIRE(ibv_wr_complete(qp) == 0);
    return it.a.take().status;
  };
  CHECK(read(mr->rkey, 8) == IBV_WC_SUCCESS);
  CHECK(std::memcmp(it.a.memory.data(), it.b.memory.data() + 8, 16) == 0);

  ibv_mw* mw = ibv_alloc_mw(it.b.pd, IBV_MW_TYPE_2);
  REQUIRE(mw != nullptr);
  ibv_send_wr bind{};
  ibv_send_wr* bad = nullptr;
  bind.opcode = IBV_WR_BIND_MW;
  bind.send_flags = IBV_SEND_SIGNALED;
  bind.bind_mw.mw = mw;
  bind.bind_mw.rkey = ibv_inc_rkey(mw->rkey);
  bind.bind_mw.bind_info = {.mr = mr,
                            .addr = 64,
                            .length = 32,
                            .mw_access_flags = unsigned{IBV_ACCESS_REMOTE_READ} | IBV_ACCESS_ZERO_BASED};
  REQUIRE(ibv_post_send(it.b.qp, &bind, &bad) == 0);
  CHECK(it.b.take().status == IBV_WC_SUCCESS);
  CHECK(read(mw->rkey, 4) == IBV_WC_SUCCESS);
  CHECK(std::memcmp(it.a.memory.data(), it.b.memory.data() + 68, 16) == 0);
  CHECK(read(mw->rkey, 64) == IBV_WC_REM_ACCESS_ERR);
  CHECK(ibv_dealloc_mw(mw) == 0);
  CHECK(ibv_dereg_mr(mr) == 0);
}

TEST_CASE("a sleeper on a channel is told which of its queues has something", "[abi][events]") {
  Pair it;
  ibv_cq* other = ibv_create_cq(it.b.context, 4, nullptr, it.b.channel, 0);
  REQUIRE(other != nullptr);
  it.b.post_receive(1, it.b.sge(0, 8));
  REQUIRE(ibv_req_notify_cq(it.b.cq, 0) == 0);
  REQUIRE(ibv_req_notify_cq(other, 0) == 0);
  std::thread sender([&it] {
    ibv_send_wr* bad = nullptr;
    ibv_sge sge = it.a.sge(0, 8);
    ibv_send_wr wr{};
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.opcode = IBV_WR_SEND;
    ibv_post_send(it.a.qp, &wr, &bad);
  });
  ibv_cq* cq = nullptr;
  void* cq_context = nullptr;
  REQUIRE(ibv_get_cq_event(it.b.channel, &cq, &cq_context) == 0);
  sender.join();
  CHECK(cq == it.b.cq);
  CHECK(cq_context == &it.b);
  ibv_ack_cq_events(cq, 1);
  CHECK(it.b.take().wr_id == 1);
  pollfd channel{.fd = it.b.channel->fd, .events = POLLIN, .revents = 0};
  CHECK(poll(&channel, 1, 0) == 0);
  CHECK(ibv_destroy_cq(other) == 0);
}

TEST_CASE("threads share a queue pair and a completion queue", "[abi][threads]") {
  Pair it;
  constexpr int kEach = 500;
  constexpr int kThreads = 3;
  std::atomic<int> completed{0};
  const auto remote = reinterpret_cast<std::uintptr_t>(it.b.memory.data());
  const auto work = [&](int thread) {
    for (int i = 0; i < kEach;) {
      ibv_sge sge = it.a.sge(64 * static_cast<std::size_t>(thread), 8);
      ibv_send_wr wr{};
      wr.sg_list = &sge;
      wr.num_sge = 1;
      wr.opcode = IBV_WR_RDMA_WRITE;
      wr.send_flags = IBV_SEND_SIGNALED;
      wr.wr.rdma.remote_addr = remote;
      wr.wr.rdma.rkey = it.b.mr->rkey;
      ibv_send_wr* bad = nullptr;
      if (ibv_post_send(it.a.qp, &wr, &bad) == 0) ++i;
      ibv_wc wcs[4];
      const int count = ibv_poll_cq(it.a.cq, 4, wcs);
      for (int k = 0; k < count; ++k) completed += wcs[k].status == IBV_WC_SUCCESS;
    }
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) threads.emplace_back(work, i);
  for (std::thread& thread : threads) thread.join();
  while (completed < kThreads * kEach) completed += it.a.take().status == IBV_WC_SUCCESS;
  CHECK(completed == kThreads * kEach);
}

}  // namespace uroce::test
