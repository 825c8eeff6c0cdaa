// What connections to the same peer share.
#include "engine/paths.h"

#include <catch2/catch.hpp>

#include "engine/loop_fixture.h"
#include "wire/packet.h"

using namespace uroce;
using namespace uroce::test;
using engine::Paths;

namespace {

struct Sent {
  wire::Opcode opcode;
  MacAddress to;
  std::uint16_t udp_src_port;
};

/// The RoCE packets that have left.
std::vector<Sent> sent(LoopFixture& f) {
  std::vector<Sent> all;
  for (const Bytes& frame : f.taken()) {
    wire::PacketView view;
    if (wire::parse_packet(frame, view) != wire::ParseResult::kRoce) continue;
    all.push_back({view.bth.opcode, view.dst_mac(), view.udp_src_port()});
  }
  return all;
}

}  // namespace

TEST_CASE("one path is made for each address vector, and kept as long as somebody uses it", "[loop][path]") {
  Paths paths;
  const AhAttr to{.dgid = LoopFixture::peer_v4()};
  const AhAttr marked{.dgid = LoopFixture::peer_v4(), .traffic_class = 2};
  transport::Path& first = paths.acquire(to, false);
  CHECK(&paths.acquire(to, false) == &first);
  transport::Path& other = paths.acquire(marked, false);
  CHECK(&other != &first);
  transport::Path& inner = paths.acquire(to, true);  // the same address is the device's own now
  CHECK(&inner != &first);
  CHECK(paths.size() == 3);
  paths.release(inner);
  CHECK(first.to == to);
  CHECK(other.to == marked);
  CHECK(paths.size() == 2);
  paths.release(first);
  CHECK(paths.size() == 2);
  paths.release(first);
  CHECK(paths.size() == 1);
  paths.release(other);
  CHECK(paths.size() == 0);
}

TEST_CASE("QPs with the same peer share their path, but not the UDP source port; its new address is both's",
          "[loop][path]") {
  LoopFixture f;
  auto a = f.make_qp(0x10);
  auto b = f.make_qp(0x11);
  REQUIRE(f.connect(*a));
  introduce(f);
  REQUIRE(f.connect(*b));
  CHECK(a->context().path == b->context().path);
  const auto send = [&](transport::RcQp& qp) {
    f.post_send(qp);
    f.run(1000);
    const auto all = sent(f);
    REQUIRE(all.size() == 1);
    return std::pair{all.front().to, all.front().udp_src_port};
  };
  const auto [mac, port] = send(*a);
  CHECK(port == wire::udp_source_port(0, Qpn{0x10}, LoopFixture::kPeerQpn));
  CHECK(send(*b) == std::pair{mac, wire::udp_source_port(0, Qpn{0x11}, LoopFixture::kPeerQpn)});

  const MacAddress moved{{0x02, 0, 0, 0, 0xee, 1}};
  a->context().path->head = wire::FrameTemplate{
      {.dst_mac = moved, .sgid = LoopFixture::local_v4(), .dgid = LoopFixture::peer_v4()}};
  CHECK(send(*b).first == moved);
  f.loop.remove(*a, f.now());
  CHECK(send(*b).first == moved);
  f.loop.remove(*b, f.now());
}

TEST_CASE("a QP that is about to answer also sends what is posted meanwhile", "[loop][lifetime]") {
  LoopFixture f;
  auto qp = f.make_qp(0x10, false);
  REQUIRE(f.connect(*qp));
  introduce(f);
  f.give(frame_of(
      {.opcode = wire::Opcode::kRcWriteOnly, .ack_req = true, .reth = wire::Reth{}, .dest_qpn = Qpn{0x10}},
      f.from_peer(), {}));
  f.link.advance_to(f.now_ns += 100);
  f.loop.run_once(f.now());
  REQUIRE(qp->context().only_answers);
  f.post_send(*qp);
  f.run(1000);
  const auto all = sent(f);
  REQUIRE(all.size() == 2);
  CHECK(all[0].opcode == wire::Opcode::kRcSendOnly);
  CHECK(all[1].opcode == wire::Opcode::kRcAck);
  f.loop.remove(*qp, f.now());
}
