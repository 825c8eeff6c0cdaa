// The engine without a link: two poll loops in one thread, joined by memory.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <memory>
#include <vector>

#include "bench/cycles.h"
#include "bench/reference.h"
#include "engine/poll_loop.h"
#include "loop/memory_port.h"
#include "transport/rc_qp.h"
#include "uroce/access.h"
#include "uroce/ece.h"

namespace uroce::bench {
namespace {

constexpr std::uint32_t kBuffer = 1 << 20;
constexpr std::uint32_t kPathMtu = 4096;
constexpr QpInitAttr kCapacities{.max_send_wr = 256, .max_recv_wr = 256, .max_inline_data = 64};

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

/// Packets that carry a message's data.
std::int64_t packets_of(std::uint32_t bytes) {
  return (bytes + kPathMtu - 1) / kPathMtu;
}

/// As measure(), of what a pair does.
template <typename Body>
void measure_pair(benchmark::State& state, const Pair& pair, std::int64_t packets, Body body) {
  measure(state, packets, body);
  if (!pair.is_well()) state.SkipWithError("a QP has failed");
}

BENCHMARK(BM_Reference);

/// One SEND, post to receive completion, with its ACK: both sides' CPU cost, without any link.
/// Arg: message bytes. Time: per message.
void BM_Send(benchmark::State& state) {
  const auto bytes = static_cast<std::uint32_t>(state.range(0));
  Pair pair;
  Wc wc[8];
  measure_pair(state, pair, packets_of(bytes), [&] {
    pair.b->post_recv(bytes);
    pair.a->post({.flags = send_flag::kSignaled}, bytes);
    while (pair.a->cq.poll(wc) == 0) pair.step();
    benchmark::DoNotOptimize(pair.b->cq.poll(wc));
  });
}
BENCHMARK(BM_Send)->Arg(64)->Arg(288)->Arg(4096);

/// A SEND there and one back, each posted by the thread that has the loop and looked for with one iteration:
/// what both ends of a round trip take beside the link. Arg: message bytes. Time: per message.
void BM_RoundTrip(benchmark::State& state) {
  const auto bytes = static_cast<std::uint32_t>(state.range(0));
  constexpr int kSignaled = 16;  // one of so many
  Pair pair(1, kCapacities, 100'000);
  Wc wc[4];
  std::uint32_t count = 0;
  const auto send = [&](End& from, End& to) {
    const bool is_signaled = count++ / 2 % kSignaled == 0;
    to.post_recv(bytes);
    from.put(*from.crowd.front(), {.flags = is_signaled ? send_flag::kSignaled : std::uint8_t{0}}, bytes);
    pair.now_ = pair.now_ + 500;
    from.loop.post(*from.crowd.front(), pair);
    do {
      pair.now_ = pair.now_ + 100;
      to.loop.run_once(pair.now_);
    } while (to.cq.poll(wc) == 0);
  };
  measure_pair(state, pair, 2, [&] {
    send(*pair.a, *pair.b);
    send(*pair.b, *pair.a);
  });
}
BENCHMARK(BM_RoundTrip)->Arg(64);

/// SENDs in batches of 32: what coalescing and bursts save. Arg: message bytes.
void BM_SendBatch(benchmark::State& state) {
  const auto bytes = static_cast<std::uint32_t>(state.range(0));
  constexpr int kBatch = 32;
  Pair pair;
  Wc wc[kBatch];
  measure_pair(state, pair, kBatch * packets_of(bytes), [&] {
    for (int i = 0; i < kBatch; ++i) {
      pair.b->post_recv(bytes);
      pair.a->post({.flags = i + 1 == kBatch ? send_flag::kSignaled : std::uint8_t{0}}, bytes);
    }
    while (pair.a->cq.poll(wc) == 0) pair.step();
    std::size_t received = 0;
    while (received < kBatch) received += pair.b->cq.poll(wc);
  });
}
BENCHMARK(BM_SendBatch)->Arg(64);

/// One request after the other, into or out of the peer's memory. Arg: message bytes.
void one_at_a_time(benchmark::State& state, WrOpcode opcode) {
  const auto bytes = static_cast<std::uint32_t>(state.range(0));
  Pair pair;
  Wc wc[8];
  const std::uint64_t target = pair.b->sge(0).addr;
  measure_pair(state, pair, packets_of(bytes), [&] {
    pair.a->post(
        {.opcode = opcode, .flags = send_flag::kSignaled, .remote_addr = target, .rkey = Rkey{pair.b->key}},
        bytes);
    while (pair.a->cq.poll(wc) == 0) pair.step();
  });
  state.SetBytesProcessed(state.iterations() * bytes);
}

/// RDMA WRITE of a large message: copy and ICRC on both sides included.
void BM_Write(benchmark::State& state) {
  one_at_a_time(state, WrOpcode::kRdmaWrite);
}
BENCHMARK(BM_Write)->Arg(64)->Arg(4096)->Arg(65536);

/// 64 B WRITEs of QPs that take turns, 128 of them under way at a time, each with its own ACK. The
/// application owns the loop. Arg: QPs. Time: per batch.
void BM_WriteInTurns(benchmark::State& state) {
  constexpr std::uint32_t kBytes = 64;
  constexpr int kBatch = 128;
  Pair pair(static_cast<std::uint32_t>(state.range(0)), {.max_send_wr = 16, .max_recv_wr = 1});
  Wc wc[kBatch];
  const std::uint64_t target = pair.b->sge(0).addr;
  std::size_t next = 0;
  measure_pair(state, pair, kBatch, [&] {
    for (int i = 0; i < kBatch; ++i) {
      transport::RcQp& qp = *pair.a->crowd[next];
      next = next + 1 == pair.a->crowd.size() ? 0 : next + 1;
      pair.a->put(qp,
                  {.opcode = WrOpcode::kRdmaWrite,
                   .flags = send_flag::kSignaled,
                   .remote_addr = target,
                   .rkey = Rkey{pair.b->key}},
                  kBytes);
      pair.a->loop.post(qp, pair);
    }
    std::size_t done = 0;
    while (done < kBatch) {
      pair.step();
      done += pair.a->cq.poll(wc);
    }
  });
}
BENCHMARK(BM_WriteInTurns)->Arg(128)->Arg(10'000);

/// RDMA READ, request to data.
void BM_Read(benchmark::State& state) {
  one_at_a_time(state, WrOpcode::kRdmaRead);
}
BENCHMARK(BM_Read)->Arg(64)->Arg(65536);

/// An iteration that finds nothing: what polling costs. It stands for the packet that is counted.
void BM_IdleIteration(benchmark::State& state) {
  Pair pair;
  measure_pair(state, pair, 1, [&] {
    pair.now_ = pair.now_ + 100;
    benchmark::DoNotOptimize(pair.a->loop.run_once(pair.now_));
  });
}
BENCHMARK(BM_IdleIteration);

}  // namespace
}  // namespace uroce::bench

int main(int argc, char** argv) {
  return uroce::bench::run(argc, argv);
}
