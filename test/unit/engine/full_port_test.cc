// A port whose peer has stopped reading, and QPs of the same loop that have nothing to do with it.
#include <catch2/catch.hpp>

#include "engine/loop_fixture.h"

using namespace uroce;
using namespace uroce::test;

namespace {

constexpr std::uint32_t kBulkBytes = 1U << 20;

/// To another QP of the device.
void connect_to_own(LoopFixture& f, transport::RcQp& qp, const transport::RcQp& peer) {
  QpAttr attr;
  attr.dest_qpn = peer.context().qpn;
  attr.dgid = LoopFixture::local_v4();
  attr.sgid_index = 1;
  attr.access_flags = access::kAll;
  attr.timeout = 8;
  attr.retry_cnt = attr.rnr_retry = 7;
  attr.path_mtu = PathMtu::k1024;
  REQUIRE(to_rts(f.loop, qp, attr, {.gid_count = 2}, f.now()));
}

/// More than the link takes, of which nobody takes anything.
void fill_port(LoopFixture& f, transport::RcQp& qp, bool with_bulk) {
  if (!with_bulk) {
    for (std::uint64_t i = 0; i < 32; ++i) f.post_send(qp, 100 + i);
  } else {
    static std::byte memory[kBulkBytes];
    const auto addr = reinterpret_cast<std::uint64_t>(memory);
    const auto key = f.keys.insert({addr, kBulkBytes, 1, access::kAll});
    REQUIRE(key);
    const Sge sge{.addr = addr, .length = kBulkBytes, .lkey = Lkey{*key}};
    REQUIRE(qp.context().sq.put({.wr_id = 100, .sges = {&sge, 1}, .opcode = WrOpcode::kRdmaWrite}, 0));
    qp.context().sq.publish(1);
    f.loop.ring(qp);
  }
  f.run(100'000);
  REQUIRE(f.loop.counters().get(Count::kLoopTxNoRoom) > 0);
}

}  // namespace

TEST_CASE("a CNP that the port has no room for is sent when it has", "[engine][loop][dcqcn]") {
  LoopFixture f({{*Gid::parse("fe80::1"), 64}, {LoopFixture::local_v4(), 24}},
                {.delay_ns = 1, .queue_frames = 8});
  auto stuck = f.make_qp(0x10);
  auto marked = f.make_qp(0x20);
  REQUIRE(f.connect(*stuck, LoopFixture::peer_v4(), 1, 20));
  REQUIRE(f.connect(*marked, LoopFixture::peer_v4(), 1, 20, 0,
                    {.is_on = true, .line_bps = 10'000'000'000, .cnp_gap_ns = 50'000}));
  introduce(f);
  fill_port(f, *stuck, false);
  wire::FrameAddress from = f.from_peer();
  from.traffic_class = 3;  // congestion experienced
  f.give(frame_of({.opcode = wire::Opcode::kRcWriteOnly, .reth = wire::Reth{}}, from, marked->context().qpn));
  f.run(10'000);
  CHECK(f.loop.counters().get(Count::kMarkedPackets) == 1);
  CHECK(f.loop.counters().get(Count::kCnpsSent) == 0);
  for (int i = 0; i < 8; ++i) {
    static_cast<void>(f.taken());
    f.run(10'000);
  }
  CHECK(f.loop.counters().get(Count::kCnpsSent) == 1);
  for (transport::RcQp* qp : {stuck.get(), marked.get()}) f.loop.remove(*qp, f.now());
}

TEST_CASE("QPs of the device among themselves do not wait for a peer that has stopped reading",
          "[engine][loop][local]") {
  const bool with_bulk = GENERATE(false, true);
  LoopFixture f({{*Gid::parse("fe80::1"), 64}, {LoopFixture::local_v4(), 24}},
                {.delay_ns = 1, .queue_frames = 8});
  auto stuck = f.make_qp(0x10);
  auto from = f.make_qp(0x20);
  auto to = f.make_qp(0x30);
  REQUIRE(f.connect(*stuck, LoopFixture::peer_v4(), 1, 20));
  connect_to_own(f, *from, *to);
  connect_to_own(f, *to, *from);
  introduce(f);
  fill_port(f, *stuck, with_bulk);
  REQUIRE(to->context().receives.own.put({.wr_id = 5}, 0));
  to->context().receives.own.publish(1);
  f.post_send(*from, 1);
  f.run(100'000);
  Wc wc[4];
  REQUIRE(f.cq.poll(wc) == 2);  // the receive and the send
  CHECK(wc[0].ok());
  CHECK(wc[1].ok());
  for (transport::RcQp* qp : {stuck.get(), from.get(), to.get()}) f.loop.remove(*qp, f.now());
}
