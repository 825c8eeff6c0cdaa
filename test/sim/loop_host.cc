#include "sim/loop_host.h"

#include <array>
#include <bit>
#include <optional>

#include "base/timer_wheel.h"
#include "sim/bank.h"

namespace uroce::sim {

namespace {

constexpr std::uint64_t kAskIntervalNs = 100'000;
constexpr std::uint32_t kPd = 3;

Gid gid_of(unsigned index) noexcept {
  return Gid::from_v4({10, 0, 0, static_cast<std::uint8_t>(index + 1)});
}

}  // namespace

LoopHost::LoopHost(std::unique_ptr<port::Port> own_port, unsigned index, std::uint32_t memory_bytes)
    : number(index),
      port(std::move(own_port)),
      keys(index + 1, [] {}),
      loop({}, *port,
           engine::Addresses({{engine::link_local_gid(port->info().mac), 64}, {gid_of(index), 24}},
                             std::nullopt),
           kAskIntervalNs),
      cq(1 << 12),
      memory(memory_bytes),
      key(keys.insert({.addr = std::bit_cast<std::uint64_t>(memory.data()),
                       .length = memory.size(),
                       .pd = kPd,
                       .access = access::kAll})
              .value()) {}

std::unique_ptr<transport::RcQp> LoopHost::make_qp(Qpn qpn) {
  const QpInitAttr init{.type = QpType::kRc, .max_send_wr = kPosted, .max_recv_wr = 1, .sq_sig_all = true};
  auto qp = std::make_unique<transport::RcQp>(qpn, kPd, init, keys, loop.counters(), cq, cq);
  loop.add(*qp);
  qps.push_back(qp.get());
  return qp;
}

void LoopHost::connect(transport::RcQp& qp, const LoopHost& other, Qpn peer, const LoopPath& path,
                       Ticks now) {
  QpAttr attr{.path_mtu = path.mtu,
              .dest_qpn = peer,
              .rq_psn = Psn{1000},
              .sq_psn = Psn{1000},
              .access_flags = access::kAll,
              .dgid = gid_of(other.number),
              .traffic_class = path.traffic_class,
              .max_rd_atomic = 1,
              .max_dest_rd_atomic = 1,
              .timeout = 14};
  for (const auto& [state, mask] : {std::pair{QpState::kInit, qp_attr::kInitMask},
                                    {QpState::kRtr, qp_attr::kRtrMask},
                                    {QpState::kRts, qp_attr::kRtsMask}}) {
    attr.state = state;
    const Status moved = loop.modify(qp, attr, mask, path.bounds, now);
    require(moved.has_value(), moved ? "" : moved.error().text);
  }
}

unsigned LoopHost::post(transport::RcQp& qp, const LoopHost& other, unsigned count, std::uint32_t bytes) {
  transport::SendQueue& ring = qp.context().sq;
  const Sge sge{std::bit_cast<std::uint64_t>(memory.data()), bytes, Lkey{key}};
  unsigned posted = 0;
  for (; posted < count; ++posted) {
    const SendWr wr{.sges = {&sge, 1},
                    .opcode = WrOpcode::kRdmaWrite,
                    .remote_addr = std::bit_cast<std::uint64_t>(other.memory.data()),
                    .rkey = Rkey{other.key}};
    if (!ring.put(wr, 0)) break;
    ring.publish(1);
  }
  if (posted > 0) loop.ring(qp);
  return posted;
}

unsigned LoopHost::take_completions() {
  std::array<Wc, kPosted> wcs;
  unsigned all = 0;
  for (std::size_t count = cq.poll(wcs); count > 0; count = cq.poll(wcs)) {
    for (const Wc& wc : std::span(wcs).first(count)) require(wc.ok(), "a WRITE failed");
    all += static_cast<unsigned>(count);
  }
  return all;
}

/// The wheel looks at a deadline when the slot that it is in has ended.
Ticks LoopHost::deadline(Ticks now) const noexcept {
  Ticks due = loop.deadline(now);
  for (const transport::QueuePair* qp : qps) {
    if (const Ticks own = qp->deadline(); own.is_set())
      due = earlier(due, Ticks{(own.ns() / TimerWheel::kSlotNs + 1) * TimerWheel::kSlotNs});
  }
  return due;
}

}  // namespace uroce::sim
