// The engine without a link: two poll loops in one thread, joined by memory.
#include <benchmark/benchmark.h>

#include "bench/cycles.h"
#include "bench/reference.h"
#include "loop/pair.h"

namespace uroce::bench {
namespace {

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
