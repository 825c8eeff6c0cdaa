/// One loop on a simulated link whose other end the test holds in its hands.
#pragma once

#include <memory>
#include <vector>

#include "drivers/loopback/loopback.h"
#include "engine/poll_loop.h"
#include "support/frames.h"
#include "support/script_packet.h"
#include "transport/rc_qp.h"
#include "wire/arp.h"

namespace uroce::test {

/// From Reset to RTR.
inline Status to_rtr(engine::PollLoop& loop, transport::QueuePair& qp, QpAttr attr,
                     const transport::QpBounds& bounds, Ticks now) {
  attr.state = QpState::kInit;
  if (Status moved = loop.modify(qp, attr, qp_attr::kInitMask, bounds, now); !moved) return moved;
  attr.state = QpState::kRtr;
  return loop.modify(qp, attr, qp_attr::kRtrMask, bounds, now);
}
/// From Reset to RTS.
inline Status to_rts(engine::PollLoop& loop, transport::QueuePair& qp, QpAttr attr,
                     const transport::QpBounds& bounds, Ticks now) {
  if (Status moved = to_rtr(loop, qp, attr, bounds, now); !moved) return moved;
  attr.state = QpState::kRts;
  return loop.modify(qp, attr, qp_attr::kRtsMask, bounds, now);
}

class LoopFixture {
 public:
  static constexpr std::uint64_t kAskNs = 100'000'000;
  static constexpr Qpn kPeerQpn{0x77};

  explicit LoopFixture(std::vector<engine::Address> own = {{*Gid::parse("fe80::1"), 64}, {local_v4(), 24}},
                       const drivers::LoopbackConfig& config = {.delay_ns = 1})
      : addresses(std::move(own), std::nullopt),
        link(config),
        port(link.open_end(0)),
        wire_end(link.open_end(1)),
        loop({}, *port, addresses, kAskNs) {}

  static Gid local_v4() { return Gid::from_v4({10, 0, 0, 1}); }
  static Gid peer_v4() { return Gid::from_v4({10, 0, 0, 2}); }

  std::unique_ptr<transport::RcQp> make_qp(std::uint32_t qpn, bool sq_sig_all = true) {
    auto qp = std::make_unique<transport::RcQp>(Qpn{qpn}, 1, QpInitAttr{.sq_sig_all = sq_sig_all}, keys,
                                                loop.counters(), cq, cq);
    loop.add(*qp);
    return qp;
  }

  Status connect(transport::RcQp& qp, const Gid& peer = peer_v4(), std::uint32_t sgid_index = 1,
                 std::uint8_t timeout = 8, std::uint32_t hardened = 0,
                 const transport::CongestionSettings& congestion = {}) {
    QpAttr attr;
    attr.dest_qpn = kPeerQpn;
    attr.dgid = peer;
    attr.sgid_index = sgid_index;
    attr.access_flags = access::kAll;
    attr.timeout = timeout;
    attr.max_dest_rd_atomic = 4;
    attr.path_mtu = PathMtu::k4096;
    const transport::QpBounds bounds{.gid_count = static_cast<std::uint32_t>(addresses.own().size()),
                                     .hardened = hardened,
                                     .congestion = congestion};
    return to_rts(loop, qp, attr, bounds, now());
  }

  void post_send(transport::RcQp& qp, std::uint64_t wr_id = 1) {
    if (qp.context().sq.put({.wr_id = wr_id}, 0)) qp.context().sq.publish(1);
    loop.ring(qp);
  }

  /// Lets `ns` pass, with an iteration each microsecond.
  void run(std::uint64_t ns) {
    const std::uint64_t end = now_ns + ns;
    while (true) {
      link.advance_to(now_ns);
      loop.run_once(now());
      if (now_ns >= end) return;
      now_ns = std::min(now_ns + 1000, end);
    }
  }
  [[nodiscard]] Ticks now() const { return Ticks{now_ns}; }

  /// A frame from the other end, which the loop sees in the next run().
  void give(const Bytes& frame) {
    std::byte* room = wire_end->tx_claim(static_cast<std::uint32_t>(frame.size()));
    if (room == nullptr) return;
    std::copy(frame.begin(), frame.end(), room);
    wire_end->tx_commit();
    now_ns += 10;
  }
  /// Everything that has arrived at the other end.
  std::vector<Bytes> taken() {
    link.advance_to(now_ns += 10);
    std::vector<Bytes> frames;
    port::RxFrame shown[port::kBurst];
    for (unsigned count = wire_end->rx_burst(shown); count > 0; count = wire_end->rx_burst(shown)) {
      for (unsigned i = 0; i < count; ++i) frames.emplace_back(shown[i].data, shown[i].data + shown[i].len);
      wire_end->rx_release();
    }
    return frames;
  }
  [[nodiscard]] MacAddress peer_mac() const { return wire_end->info().mac; }
  [[nodiscard]] wire::FrameAddress from_peer() const {
    return {.src_mac = peer_mac(), .dst_mac = port->info().mac, .sgid = peer_v4(), .dgid = local_v4()};
  }

  mem::KeyTable keys{1, [] {}};
  transport::CqRing cq{256};
  engine::Addresses addresses;
  drivers::LoopbackLink link;
  std::unique_ptr<port::Port> port;
  std::unique_ptr<port::Port> wire_end;
  engine::PollLoop loop;
  std::uint64_t now_ns = 1'000'000'000;
};

inline Bytes arp_request_of(const LoopFixture& f) {
  const wire::LinkAddress link{.src = f.peer_mac(), .dst = {{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}}};
  Bytes frame(wire::arp_frame_len(link));
  wire::emit_arp_frame(frame.data(), link, wire::make_arp_request(f.peer_mac(), f.peer_v4(), f.local_v4()));
  return frame;
}

/// The peer's Ethernet address, as ARP would tell it: by an ARP request of the peer, once a QP wants to know.
inline void introduce(LoopFixture& f, bool forget = true) {
  f.give(arp_request_of(f));
  f.run(5000);
  if (forget) f.taken();
}

/// Two loops of a device, each with a link of its own.
struct TwoLoops {
  TwoLoops() {
    for (unsigned i = 0; i < 2; ++i) {
      loops.push_back(
          std::make_unique<engine::PollLoop>(engine::LoopPlace{i, 2}, *ports[i], addresses, 1'000'000));
    }
    engine::PollLoop::connect(loops);
  }
  /// To the first loop. @pre there is room for it
  void give(const Bytes& frame) {
    std::byte* room = ends[0]->tx_claim(static_cast<std::uint32_t>(frame.size()));
    std::copy(frame.begin(), frame.end(), room);
    ends[0]->tx_commit();
  }
  void run(int times) {
    for (int i = 0; i < times; ++i) {
      for (auto& loop : loops) loop->run_once(now);
    }
  }
  const engine::Addresses addresses{{{*Gid::parse("fe80::1"), 64}, {LoopFixture::local_v4(), 24}},
                                    std::nullopt};
  drivers::LoopbackLink links[2]{drivers::LoopbackLink{{.delay_ns = 0}},
                                 drivers::LoopbackLink{{.delay_ns = 0}}};
  std::unique_ptr<port::Port> ports[2]{links[0].open_end(0), links[1].open_end(0)};
  std::unique_ptr<port::Port> ends[2]{links[0].open_end(1), links[1].open_end(1)};
  std::vector<std::unique_ptr<engine::PollLoop>> loops;
  Ticks now{1'000'000};
};

}  // namespace uroce::test
