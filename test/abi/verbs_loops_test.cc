// A device with two loops: completion vectors tell them apart.
#include <catch2/catch.hpp>
#include <cerrno>
#include <cstring>

#include "test/abi/verbs_side.h"

namespace uroce::test {

namespace {

ibv_qp* make_qp(ibv_pd* pd, ibv_cq* send_cq, ibv_cq* recv_cq, ibv_srq* srq, std::uint32_t sends = 4) {
  ibv_qp_init_attr attr{};
  attr.send_cq = send_cq;
  attr.recv_cq = recv_cq;
  attr.srq = srq;
  attr.qp_type = IBV_QPT_RC;
  attr.cap = {
      .max_send_wr = sends, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = 0};
  errno = 0;
  return ibv_create_qp(pd, &attr);
}

/// From the memory of `a` into that of `b`, which waits for it in `receive`.
template <typename Receive>
void pass(VerbsSide& a, VerbsSide& b, Receive&& receive) {
  std::memset(a.memory.data(), 0x5a, 64);
  ibv_sge room = b.sge(0, 64);
  ibv_recv_wr recv{};
  recv.wr_id = 1;
  recv.sg_list = &room;
  recv.num_sge = 1;
  ibv_recv_wr* bad_recv = nullptr;
  REQUIRE(receive(&recv, &bad_recv) == 0);
  a.post(2, a.sge(0, 64));
  CHECK(b.take().wr_id == 1);
  CHECK(a.take().wr_id == 2);
  CHECK(std::memcmp(b.memory.data(), a.memory.data(), 64) == 0);
}

}  // namespace

TEST_CASE("a device has a completion vector for each of its loops", "[abi][loops]") {
  {
    const VerbsSide one;
    CHECK(one.context->num_comp_vectors == 1);
  }
  const Setting loops("UROCE_LCORES", "0,1");
  const VerbsSide side(1);
  CHECK(side.context->num_comp_vectors == 2);
  for (const int vector : {-1, 2}) {
    CAPTURE(vector);
    errno = 0;
    CHECK(ibv_create_cq(side.context, 8, nullptr, nullptr, vector) == nullptr);
    CHECK(errno == EINVAL);
    ibv_cq_init_attr_ex attr{};
    attr.cqe = 8;
    attr.comp_vector = static_cast<std::uint32_t>(vector);
    errno = 0;
    CHECK(ibv_create_cq_ex(side.context, &attr) == nullptr);
    CHECK(errno == EINVAL);
  }
}

TEST_CASE("QPs of two completion vectors are on two loops, and reach each other", "[abi][loops]") {
  const Setting loops("UROCE_LCORES", "0,1");
  VerbsSide a(0);
  VerbsSide b(1);
  CHECK((a.qp->qp_num & 1) == 0);  // loops are told apart by the low bits
  CHECK((b.qp->qp_num & 1) == 1);
  join(a, b);
  pass(a, b, [&](ibv_recv_wr* wr, ibv_recv_wr** bad) { return ibv_post_recv(b.qp, wr, bad); });
  pass(b, a, [&](ibv_recv_wr* wr, ibv_recv_wr** bad) { return ibv_post_recv(a.qp, wr, bad); });
}

TEST_CASE("the queues of a QP are of one loop", "[abi][loops][errors]") {
  const Setting loops("UROCE_LCORES", "0,1");
  const VerbsSide side(0);
  ibv_cq* const other = ibv_create_cq(side.context, 8, nullptr, nullptr, 1);
  REQUIRE(other != nullptr);
  {
    const Said said;
    CHECK(make_qp(side.pd, side.cq, other, nullptr) == nullptr);
    CHECK(errno == EINVAL);
    CHECK(said.text() ==
          "uroce: both CQs of a QP must belong to the same loop (comp_vector is the loop of a CQ)\n");
  }
  CHECK(ibv_destroy_cq(other) == 0);
}

TEST_CASE("what is wrong with one queue has nothing to do with loops", "[abi][loops][errors]") {
  const Setting loops("UROCE_LCORES", "0,1");
  const VerbsSide side(0);
  const Said said;
  CHECK(make_qp(side.pd, side.cq, side.cq, nullptr, 1U << 24) == nullptr);
  CHECK(errno == EINVAL);
  ibv_srq_init_attr srq_attr{};
  srq_attr.attr = {.max_wr = 1U << 24, .max_sge = 1, .srq_limit = 0};
  errno = 0;
  CHECK(ibv_create_srq(side.pd, &srq_attr) == nullptr);
  CHECK(errno == EINVAL);
  CHECK(said.text().empty());
}

TEST_CASE("a shared receive queue is on the loop of its QPs, which the first of them chooses",
          "[abi][loops][srq]") {
  const Setting loops("UROCE_LCORES", "0,1");
  VerbsSide a(0);
  VerbsSide b(1);
  ibv_srq* const srq = make_srq(b.pd);
  ibv_qp* shared = make_qp(b.pd, b.cq, b.cq, srq);
  REQUIRE(shared != nullptr);
  ibv_cq* const other = ibv_create_cq(b.context, 8, nullptr, nullptr, 0);
  {
    const Said said;
    CHECK(make_qp(b.pd, other, other, srq) == nullptr);
    CHECK(errno == EINVAL);
    CHECK(
        said.text() ==
        "uroce: the CQs of QPs that share an SRQ must belong to the same loop (comp_vector is the loop of a "
        "CQ)\n");
  }
  CHECK(ibv_destroy_cq(other) == 0);
  std::swap(b.qp, shared);
  join(a, b);
  pass(a, b, [&](ibv_recv_wr* wr, ibv_recv_wr** bad) { return ibv_post_srq_recv(srq, wr, bad); });
  std::swap(b.qp, shared);
  CHECK(ibv_destroy_qp(shared) == 0);
  CHECK(ibv_destroy_srq(srq) == 0);
}

}  // namespace uroce::test
