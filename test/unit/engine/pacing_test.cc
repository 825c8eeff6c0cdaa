// QPs that CNPs have slowed down, as a loop runs them. Zhu et al., SIGCOMM 2015.
#include <catch2/catch.hpp>

#include <algorithm>

#include "engine/loop_fixture.h"

using namespace uroce;
using namespace uroce::test;

namespace {

using enum wire::Opcode;

/// PSNs of the packets with that opcode.
std::vector<std::uint32_t> psns_of(const std::vector<Bytes>& frames, wire::Opcode opcode) {
  std::vector<std::uint32_t> psns;
  for (const Bytes& frame : frames) {
    wire::PacketView view;
    if (wire::parse_packet(frame, view) != wire::ParseResult::kRoce) continue;
    if (view.bth.opcode == opcode) psns.push_back(view.bth.psn.value());
  }
  return psns;
}

}  // namespace

TEST_CASE("what waits for its time leaves then, whatever the QP has answered meanwhile", "[loop][dcqcn]") {
  LoopFixture f;
  const auto qp = f.make_qp(0x10);
  REQUIRE(f.connect(*qp, f.peer_v4(), 1, 0, 0, {.is_on = true, .line_bps = 20'000'000}));
  introduce(f);
  const auto give = [&](const Packet& packet) {
    f.give(frame_of(packet, f.from_peer(), Qpn{0x10}));
    f.run(1000);
  };
  give({.opcode = kCnp});
  REQUIRE(qp->context().congestion->rate.is_limited());
  f.post_send(*qp, 1);
  f.post_send(*qp, 2);
  f.run(2000);
  REQUIRE(psns_of(f.taken(), kRcSendOnly) == std::vector<std::uint32_t>{0});  // the second must wait 46 us
  CHECK(f.loop.has_work());  // whoever runs the loop does not sleep meanwhile
  give({.opcode = kRcAck, .psn = 0, .aeth = wire::Aeth{.syndrome = 0x1f, .msn = 1}});
  give({.opcode = kRcWriteOnly, .psn = 0, .ack_req = true, .reth = wire::Reth{}});
  f.run(20'000);
  const auto early = f.taken();
  CHECK(psns_of(early, kRcAck).size() == 1);
  CHECK(psns_of(early, kRcSendOnly).empty());
  f.run(150'000);
  CHECK(psns_of(f.taken(), kRcSendOnly) == std::vector<std::uint32_t>{1});
  f.run(1'000'000);
  CHECK_FALSE(f.loop.has_work());
}
