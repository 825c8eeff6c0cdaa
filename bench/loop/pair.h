/// Two poll loops in one thread, joined by memory: the engine without a link.
#pragma once

#include <algorithm>
#include <array>
#include <cstdlib>
#include <memory>
#include <utility>
#include <vector>

#include "engine/poll_loop.h"
#include "loop/memory_port.h"
#include "transport/rc_qp.h"
#include "uroce/access.h"
#include "uroce/ece.h"

namespace uroce::bench {

inline constexpr std::uint32_t kBuffer = 1 << 20;
inline constexpr std::uint32_t kPathMtu = 4096;
inline constexpr QpInitAttr kCapacities{.max_send_wr = 256, .max_recv_wr = 256, .max_inline_data = 64};

/// One side: loop, QPs, CQ and registered memory.
struct End {
  /// @param qpn  of the first QP
  End(std::uint8_t number, std::uint32_t qpn, std::uint32_t qps, const QpInitAttr& capacities)
      : port(number),
        addresses({{engine::link_local_gid(port.info().mac), 64}, {Gid::from_v4({10, 0, 0, number}), 24}},
                  {}),
        loop({}, port, addresses, 1'000'000),
        keys(number, [] {}),
        cq(4096),
        memory(kBuffer) {
    key = *keys.insert({reinterpret_cast<std::uint64_t>(memory.data()), memory.size(), 1, access::kAll});
    for (std::uint32_t i = 0; i < qps; ++i) {
      crowd.push_back(
          std::make_unique<transport::RcQp>(Qpn{qpn + i}, 1U, capacities, keys, loop.counters(), cq, cq));
      loop.add(*crowd.back());
    }
  }
  void connect(const End& peer, std::uint64_t probe_floor_ns, Ticks now) {
    for (std::size_t i = 0; i < crowd.size(); ++i)
      connect(*crowd[i], peer, peer.crowd[i]->context().qpn, probe_floor_ns, now);
  }
  void connect(transport::RcQp& qp, const End& peer, Qpn to, std::uint64_t probe_floor_ns, Ticks now) {
    QpAttr attr{.path_mtu = PathMtu::k4096,
                .dest_qpn = to,
                .access_flags = access::kAll,
                .dgid = peer.addresses.own()[1].gid,
                .timeout = 0};
    const transport::QpBounds bounds{.gid_count = 2, .probe_floor_ns = probe_floor_ns};
    qp.grant(ece::kJointAcks);  // as connections of uroce peers have it
    for (const auto& [state, mask] : {std::pair{QpState::kInit, qp_attr::kInitMask},
                                      {QpState::kRtr, qp_attr::kRtrMask},
                                      {QpState::kRts, qp_attr::kRtsMask}}) {
      attr.state = state;
      if (!loop.modify(qp, attr, mask, bounds, now)) std::abort();
    }
  }
  [[nodiscard]] Sge sge(std::uint32_t bytes) const {
    return {reinterpret_cast<std::uint64_t>(memory.data()), bytes, Lkey{key}};
  }
  void post_recv(std::uint32_t bytes) {
    const Sge list = sge(bytes);
    transport::RcQp& qp = *crowd.front();
    if (!qp.context().receives.own.put({.wr_id = 1, .sges = {&list, 1}}, 0)) std::abort();
    qp.context().receives.own.publish(1);
  }
  void put(transport::RcQp& qp, SendWr wr, std::uint32_t bytes) {
    const Sge list = sge(bytes);
    wr.sges = {&list, 1};
    if (!qp.context().sq.put(wr, 0)) std::abort();
    qp.context().sq.publish(1);
  }
  /// As from another thread.
  void post(const SendWr& wr, std::uint32_t bytes) {
    put(*crowd.front(), wr, bytes);
    loop.ring(*crowd.front());
  }

  MemoryPort port;
  engine::Addresses addresses;
  engine::PollLoop loop;
  mem::KeyTable keys;
  transport::CqRing cq;
  std::vector<std::byte> memory;
  std::vector<std::unique_ptr<transport::RcQp>> crowd;
  std::uint32_t key = 0;
};

/// Two connected ends; time moves by 1 us a step, so that neighbours resolve and no timer matters.
struct Pair {
  /// @param probe_floor_ns  0: each message asks for an ACK
  explicit Pair(std::uint32_t qps = 1, const QpInitAttr& capacities = kCapacities,
                std::uint64_t probe_floor_ns = 0)
      : a(std::make_unique<End>(1, 0x1111, qps, capacities)),
        b(std::make_unique<End>(2, 0x22222, qps, capacities)) {
    MemoryPort::join(a->port, b->port);
    a->connect(*b, probe_floor_ns, now_);
    b->connect(*a, probe_floor_ns, now_);
    for (int i = 0; i < 16; ++i) step();
  }
  void step() {
    now_ = now_ + 1000;
    a->loop.run_once(now_);
    b->loop.run_once(now_);
  }
  [[nodiscard]] Ticks now() const noexcept { return now_; }
  /// Whether no QP has failed: one that has completes whatever is posted, and faster than packets do.
  [[nodiscard]] bool is_well() const {
    return std::ranges::all_of(std::array{a.get(), b.get()}, [](const End* end) {
      return std::ranges::all_of(end->crowd, [](const auto& qp) { return qp->state() == QpState::kRts; });
    });
  }

  Ticks now_{1'000'000};
  std::unique_ptr<End> a;
  std::unique_ptr<End> b;
};

}  // namespace uroce::bench
