// What a message touches of its QPs: run by bench/touched.py under a tool that traces loads and stores.
//
// Prints a line "mark ADDRESS BYTES", then "range NAME END ADDRESS BYTES" for each piece of memory that
// belongs to one of the QPs. Each message is sent between two stores to the mark, in the order WRITE, SEND,
// and WRITE among those of other QPs, so that their ACKs share a packet.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <span>
#include <utility>
#include <vector>

#include "loop/pair.h"

namespace {

struct Block {
  const void* begin;
  std::size_t bytes;
};

/// What the heap gives while a QP is made: a fixed array, as it is filled within operator new.
struct Taken {
  bool is_on = false;
  std::size_t count = 0;
  Block blocks[64];
};
Taken taken;

void* take(std::size_t bytes, std::size_t alignment) {
  void* const memory = std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
  if (memory == nullptr) throw std::bad_alloc();
  if (taken.is_on) {
    if (taken.count == std::size(taken.blocks)) std::abort();
    taken.blocks[taken.count++] = {memory, bytes};
  }
  return memory;
}

}  // namespace

void* operator new(std::size_t bytes) {
  return take(bytes, __STDCPP_DEFAULT_NEW_ALIGNMENT__);
}
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return take(bytes, static_cast<std::size_t>(alignment));
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::align_val_t) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept {
  std::free(memory);
}

namespace uroce::bench {
namespace {

constexpr QpInitAttr kDepth64{.max_send_wr = 64, .max_recv_wr = 64};
constexpr std::uint32_t kBytes = 64;
constexpr std::uint32_t kCrowd = 300;  // other QPs: so many that what is done for many is done
constexpr int kWarmUp = 200;           // messages of a kind: both rings have been gone round
constexpr int kMostSteps = 1000;

volatile std::uint64_t mark = 0;

void tell(const char* name, const char* end, const void* begin, std::size_t bytes) {
  std::printf("range %s %s %p %zu\n", name, end, begin, bytes);
}

/// All slots, as those of a ring lie one behind the other.
template <typename Ring>
void tell_ring(const char* name, const char* end, const Ring& ring) {
  const auto* const first = reinterpret_cast<const std::byte*>(&ring.at(0));
  const auto stride = reinterpret_cast<const std::byte*>(&ring.at(1)) - first;
  tell(name, end, first, static_cast<std::size_t>(stride) * ring.depth());
}

/// Makes `end` one more QP, its first from now on.
/// @return what came from the heap for it: what is made only once for all QPs of a loop or of a peer was made
/// for the one before
std::vector<Block> add_qp(End& end, Qpn qpn) {
  end.crowd.reserve(end.crowd.size() + 1);
  taken.count = 0;
  taken.is_on = true;
  auto qp =
      std::make_unique<transport::RcQp>(qpn, 1U, kDepth64, end.keys, end.loop.counters(), end.cq, end.cq);
  taken.is_on = false;
  end.loop.add(*qp);
  end.crowd.insert(end.crowd.begin(), std::move(qp));
  return {taken.blocks, taken.blocks + taken.count};
}

std::vector<Block> connect(End& end, const End& peer, Ticks now) {
  taken.count = 0;
  taken.is_on = true;
  end.connect(*end.crowd.front(), peer, peer.crowd.front()->context().qpn, 0, now);
  taken.is_on = false;
  return {taken.blocks, taken.blocks + taken.count};
}

void tell_end(const char* name, End& end, const std::vector<Block>& made,
              const std::vector<Block>& connected) {
  const transport::RcQp& qp = *end.crowd.front();
  tell("qp", name, &qp, sizeof qp);
  tell_ring("send_ring", name, qp.context().sq);
  tell_ring("receive_ring", name, qp.context().receives.own);
  for (const auto* blocks : {&made, &connected})
    for (const Block& block : *blocks) tell("heap", name, block.begin, block.bytes);
}

/// A message of each of these QPs of the sender, in this order, with its ACK and both completions, as an
/// application has it.
void send(Pair& pair, const SendWr& wr, std::span<const std::size_t> through) {
  const std::size_t receives = wr.opcode == WrOpcode::kSend ? through.size() : 0;
  Wc wc[4];
  if (receives != 0) pair.b->post_recv(kBytes);
  for (const std::size_t number : through) {
    transport::RcQp& qp = *pair.a->crowd[number];
    pair.a->put(qp, wr, kBytes);
    pair.a->loop.post(qp, pair);
  }
  std::size_t completed = 0;
  std::size_t received = 0;
  for (int i = 0; i < kMostSteps && (completed < through.size() || received < receives); ++i) {
    pair.step();
    completed += pair.a->cq.poll(wc);
    received += pair.b->cq.poll(wc);
  }
  if (completed != through.size() || received != receives || !pair.is_well()) std::abort();
}

std::uint64_t joint_acks(const Pair& pair) {
  return pair.b->loop.counters().get(Count::kResponderJointAcks);
}

int run() {
  Pair pair(kCrowd, kDepth64);
  const std::vector<Block> made[] = {add_qp(*pair.a, Qpn{0x3333}), add_qp(*pair.b, Qpn{0x44444})};
  const std::vector<Block> connected[] = {connect(*pair.a, *pair.b, pair.now()),
                                          connect(*pair.b, *pair.a, pair.now())};
  std::printf("mark %p %zu\n", static_cast<const void*>(const_cast<const std::uint64_t*>(&mark)),
              sizeof mark);
  tell_end("sender", *pair.a, made[0], connected[0]);
  tell_end("receiver", *pair.b, made[1], connected[1]);
  std::fflush(stdout);
  const SendWr write{.opcode = WrOpcode::kRdmaWrite,
                     .flags = send_flag::kSignaled,
                     .remote_addr = pair.b->sge(0).addr,
                     .rkey = Rkey{pair.b->key}};
  const SendWr message{.opcode = WrOpcode::kSend, .flags = send_flag::kSignaled};
  const std::vector<std::size_t> alone{0};
  const std::vector<std::size_t> among_others{1, 0, 2};
  for (const auto& [wr, through] : {std::pair{write, alone}, {message, alone}, {write, among_others}}) {
    for (int i = 0; i < kWarmUp; ++i) send(pair, wr, through);
    const std::uint64_t joint = joint_acks(pair);
    mark = 1;
    send(pair, wr, through);
    mark = 2;
    if (joint_acks(pair) - joint != (through.size() > 1 ? through.size() : 0)) std::abort();
  }
  return 0;
}

}  // namespace
}  // namespace uroce::bench

int main() {
  return uroce::bench::run();
}
