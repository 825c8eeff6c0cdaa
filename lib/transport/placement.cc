// FLUSH and ATOMIC WRITE: data that must be in place before more follows. IBA A19.
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
  const Fault fault = packet.op->is_flush ? flush_memory(packet) : write_word(packet);
  if (fault != Fault::kNone) return fail(fault, false);
  const wire::Reth reth = packet.reth();
  request->first_psn = expected_psn_;
  request->packets = request->end = 1;
  request->opcode = packet.bth.opcode;
  request->va = reth.va;
  request->rkey = raw(reth.rkey);
  request->msn = finish_message();
  resources_.queue(*request);
  advance(1);
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
/// them to everybody (global placement). Persistence asks that they leave the caches; the loop waits for
/// that.
Fault Responder::flush_memory(const wire::PacketView& packet) noexcept {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if ((packet.feth().placement & wire::Feth::kPersistent) == 0) return Fault::kNone;
  mem::KeyFault fault{};
  const std::span<const std::byte> bytes = flushed_range(packet, fault);
  if (fault != mem::KeyFault::kNone) return Fault::kRemoteKey;
  mem::write_back(bytes);
  return Fault::kNone;
}

}  // namespace uroce::transport
