// FLUSH and ATOMIC WRITE: data that must be in place before more follows. IBA A19.
#include <algorithm>
#include <atomic>
#include <cstring>

#include "mem/write_back.h"
#include "transport/responder.h"
#include "uroce/access.h"

namespace uroce::transport {

/// Executes once; duplicates find the remembered request.
void Responder::execute_placement(const wire::PacketView& packet) noexcept {
  ResponderResource* request = resources_.add();
  if (request == nullptr) return fail(Fault::kReadDepth, false);
  if (!packet.op->is_flush) {
    const Fault fault = finish_flushes() ? write_word(packet) : Fault::kRemoteKey;
    if (fault != Fault::kNone) return fail(fault, false);
  }
  const wire::Reth reth = packet.reth();
  request->first_psn = expected_psn_;
  request->packets = request->end = 1;
  request->opcode = packet.bth.opcode;
  request->va = reth.va;
  request->rkey = raw(reth.rkey);
  if (packet.op->is_flush) begin_flush(*request, packet);
  request->msn = finish_message();
  resources_.queue(*request);
  advance_past_answered(1);
}

/// One store of 8 bytes, as they came: nobody sees a part of them.
Fault Responder::write_word(const wire::PacketView& packet) noexcept {
  const wire::Reth reth = packet.reth();
  mem::KeyFault fault{};
  void* memory = qp_.resolve_remote(raw(reth.rkey), access::kRemoteWrite, reth.va, 8, fault);
  if (memory == nullptr || !is_word_aligned(memory)) return Fault::kRemoteKey;
  std::uint64_t word = 0;
  std::memcpy(&word, packet.payload.data(), sizeof word);
  std::atomic_ref<std::uint64_t>(*static_cast<std::uint64_t*>(memory)).store(word, std::memory_order_release);
  return Fault::kNone;
}

/// Earlier packets of this QP were executed in order by this thread, so the processor's caches already show
/// them to everybody (global placement). Persistence asks that they leave the caches: before the answer.
void Responder::begin_flush(ResponderResource& request, const wire::PacketView& packet) noexcept {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  request.feth = packet.feth();
  request.range = packet.reth().length;
  request.pd = qp_.pd;
  request.is_unflushed = (request.feth.placement & wire::Feth::kPersistent) != 0;
}

/// A piece of the range, so that other QPs do not wait for all of it. The key is looked up for each one, as
/// for the packets of a READ: a region may be deregistered meanwhile.
/// @return false if the key is no longer good
bool Responder::flush_piece(ResponderResource& request) noexcept {
  mem::KeyFault fault{};
  const std::span<const std::byte> all =
      flushed_range({.feth = request.feth, .va = request.va, .length = request.range, .rkey = request.rkey},
                    {.pd = request.pd, .qpn = qp_.qpn}, fault);
  if (fault != mem::KeyFault::kNone) return false;
  const std::size_t done = std::min<std::size_t>(request.flushed, all.size());
  const std::size_t piece = std::min(all.size() - done, kFlushPiece);
  mem::write_back(all.subspan(done, piece));
  request.flushed += piece;
  request.is_unflushed = request.flushed < all.size();
  return true;
}

/// An ATOMIC WRITE is not seen before what was flushed ahead of it has left the caches. IBA A19 ?
bool Responder::finish_flushes() noexcept {
  bool is_good = true;
  resources_.for_each_queued([&](ResponderResource& request) {
    while (is_good && request.is_unflushed) is_good = flush_piece(request);
  });
  return is_good;
}

}  // namespace uroce::transport
