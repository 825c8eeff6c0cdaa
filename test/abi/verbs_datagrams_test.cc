// Datagrams, from a QP to itself.
#include <catch2/catch.hpp>
#include <cstdlib>
#include <cstring>

#include "test/abi/verbs_side.h"

namespace uroce::test {

namespace {

/// From the QP to itself. @return the completion of the receive, at the beginning of the memory.
ibv_wc send_to_self(VerbsSide& side, ibv_ah* ah) {
  side.post_receive(1, side.sge(0, 100));
  ibv_send_wr send{};
  send.opcode = IBV_WR_SEND;
  send.wr.ud = {.ah = ah, .remote_qpn = side.qp->qp_num, .remote_qkey = kQkey};
  ibv_send_wr* bad_send = nullptr;
  REQUIRE(ibv_post_send(side.qp, &send, &bad_send) == 0);
  const ibv_wc wc = side.take();
  REQUIRE(wc.status == IBV_WC_SUCCESS);
  REQUIRE((wc.wc_flags & IBV_WC_GRH) != 0);
  return wc;
}

}  // namespace

TEST_CASE("a datagram is answered in the VLAN that it came in, where its address may be in several",
          "[abi][ud][vlan]") {
  const char* const ips = GENERATE("10.9.0.1/24@5", "10.9.0.1/24,10.9.0.1/24@5,10.9.0.1/24@6");
  const Setting addresses("UROCE_IP", ips);
  VerbsSide side;
  become_datagram(side);
  ibv_port_attr port{};
  REQUIRE(ibv_query_port(side.context, 1, &port) == 0);
  int seen = 0;
  for (int index = 0; index < port.gid_tbl_len; ++index) {
    ibv_ah_attr to{};
    to.is_global = 1;
    to.port_num = 1;
    to.grh.sgid_index = static_cast<std::uint8_t>(index);
    to.grh.hop_limit = 9;
    ibv_gid_entry gid{};
    if (ibv_query_gid_ex(side.context, 1, static_cast<std::uint32_t>(index), &gid, 0) != 0) continue;
    to.grh.dgid = gid.gid;
    CAPTURE(ips, index);
    ibv_ah* ah = ibv_create_ah(side.pd, &to);
    REQUIRE(ah != nullptr);
    ibv_wc wc = send_to_self(side, ah);
    CHECK(ibv_destroy_ah(ah) == 0);
    ibv_grh grh{};
    std::memcpy(&grh, side.memory.data(), sizeof grh);
    ibv_ah_attr back{};
    REQUIRE(ibv_init_ah_from_wc(side.context, 1, &wc, &grh, &back) == 0);
    CHECK(back.grh.sgid_index == index);
    CHECK(std::memcmp(&back.grh.dgid, &to.grh.dgid, sizeof back.grh.dgid) == 0);
    ah = ibv_create_ah_from_wc(side.pd, &wc, &grh, 1);
    REQUIRE(ah != nullptr);
    (void)send_to_self(side, ah);
    CHECK(ibv_destroy_ah(ah) == 0);
    ++seen;
  }
  CHECK(seen > 1);  // there is a link-local one, too
}

TEST_CASE("a datagram is answered also by a program that has lost what its completion told of the VLAN",
          "[abi][ud][vlan]") {
  const Setting addresses("UROCE_IP", "10.9.0.1/24@5");
  VerbsSide side;
  become_datagram(side);
  ibv_ah_attr to{};
  to.is_global = 1;
  to.port_num = 1;
  to.grh.sgid_index = 1;
  REQUIRE(ibv_query_gid(side.context, 1, 1, &to.grh.dgid) == 0);
  ibv_ah* ah = ibv_create_ah(side.pd, &to);
  REQUIRE(ah != nullptr);
  ibv_wc wc = send_to_self(side, ah);
  CHECK(ibv_destroy_ah(ah) == 0);
  wc.slid = 0;
  ibv_grh grh{};
  std::memcpy(&grh, side.memory.data(), sizeof grh);
  ibv_ah_attr back{};
  REQUIRE(ibv_init_ah_from_wc(side.context, 1, &wc, &grh, &back) == 0);
  CHECK(back.grh.sgid_index == 1);
}

TEST_CASE("a QP that is attached to a multicast group is in use", "[abi][ud][multicast][lifetime]") {
  VerbsSide side;
  become_datagram(side);
  ibv_gid groups[2]{};
  for (std::uint8_t i = 0; i < 2; ++i) {
    groups[i].raw[0] = 0xff;
    groups[i].raw[1] = 0x0e;
    groups[i].raw[15] = i;
    REQUIRE(ibv_attach_mcast(side.qp, &groups[i], 0) == 0);
  }
  REQUIRE(ibv_attach_mcast(side.qp, &groups[0], 0) == 0);  // it is already
  for (ibv_gid& group : groups) {
    CHECK(ibv_destroy_qp(side.qp) == EBUSY);
    CHECK(ibv_detach_mcast(side.qp, &group, 0) == 0);
  }
}

}  // namespace uroce::test
