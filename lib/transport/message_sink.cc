#include "transport/message_sink.h"

#include "uroce/ece.h"

namespace uroce::transport {

/// Extensions are for peers that agreed on them; there are only masked atomics.
Fault MessageSink::check_extension() const noexcept {
  return (qp_.ece & ece::kMaskedAtomics) != 0 ? Fault::kNone : Fault::kOpcodeForQp;
}

Fault MessageSink::check_remote_key(const wire::PacketView& packet) const noexcept {
  const wire::OpcodeInfo& op = *packet.op;
  if (op.is_flush) return check_flush_key(packet);
  std::uint64_t va = 0;
  std::uint64_t length = 0;
  std::uint32_t rkey = 0;
  if (op.has_reth) {
    const wire::Reth reth = packet.reth();
    va = reth.va;
    length = reth.length;
    rkey = raw(reth.rkey);
  } else if (op.is_atomic_request) {
    const wire::AtomicEth atomic = packet.atomic_eth();
    va = atomic.va;
    length = 8;
    rkey = raw(atomic.rkey);
  } else {
    va = partial_.write_va;
    length = partial_.write_left;
    rkey = partial_.write_rkey;
  }
  if ((op.is_atomic_request || op.is_atomic_write) && va % 8 != 0) return Fault::kMisalignedAtomic;
  if (length == 0) return Fault::kNone;  // IBA C9-88 ?: no bytes, no key
  mem::KeyFault fault{};
  const std::byte* memory = qp_.resolve_remote(rkey, access_needed(op), va, length, fault);
  if (memory == nullptr) return Fault::kRemoteKey;
  const bool is_atomic = op.is_atomic_request || op.is_atomic_write;
  // A place that counts from 0 says nothing about the address.
  return is_atomic && !is_word_aligned(memory) ? Fault::kMisalignedAtomic : Fault::kNone;
}

/// The key is looked at also if the range is empty.
Fault MessageSink::check_flush_key(const wire::PacketView& packet) const noexcept {
  mem::KeyFault fault{};
  const wire::Reth reth = packet.reth();
  static_cast<void>(
      flushed_range({.feth = packet.feth(), .va = reth.va, .length = reth.length, .rkey = raw(reth.rkey)},
                    qp_.user(), fault));
  return fault == mem::KeyFault::kNone ? Fault::kNone : Fault::kRemoteKey;
}

std::span<const std::byte> MessageSink::flushed_range(const FlushRange& range, const mem::KeyUser& user,
                                                      mem::KeyFault& fault) const noexcept {
  const std::uint32_t access = flush_access(range.feth);
  if (range.feth.selectivity == wire::Feth::kWholeMr)
    return qp_.keys.resolve_all(range.rkey, user, access, fault);
  return {qp_.keys.resolve_remote(range.rkey, user, access, range.va, range.length, fault), range.length};
}

void MessageSink::reset_message() noexcept {
  message_ = Message::kNone;
  qp_.receives.reset();
  partial_ = {};
}

/// @param whole  bytes of the message
[[gnu::always_inline]] inline Fault MessageSink::write(const wire::PacketView& packet, std::uint64_t va,
                                                       std::uint32_t rkey, std::uint32_t whole) noexcept {
  if (packet.payload.empty()) return Fault::kNone;
  mem::KeyFault fault{};
  std::byte* memory = qp_.resolve_remote(rkey, access::kRemoteWrite, va, packet.payload.size(), fault);
  if (memory == nullptr) return Fault::kRemoteKey;
  wire::place_part(packet, memory, packet.payload, whole);
  return Fault::kNone;
}

Fault MessageSink::place_write(const wire::PacketView& packet, const wire::OpcodeInfo& op) noexcept {
  if (op.starts_message) {
    const wire::Reth reth = packet.reth();
    if (op.is_only()) return write(packet, reth.va, raw(reth.rkey), reth.length);
    partial_.write_va = reth.va;
    partial_.write_rkey = raw(reth.rkey);
    partial_.write_left = partial_.write_length = reth.length;
  }
  const Fault fault = write(packet, partial_.write_va, partial_.write_rkey, partial_.write_length);
  if (fault != Fault::kNone) return fault;
  const auto size = static_cast<std::uint32_t>(packet.payload.size());
  partial_.write_va += size;
  partial_.write_left -= size;
  message_ = op.ends_message ? Message::kNone : Message::kWrite;
  return Fault::kNone;
}

void MessageSink::flush() noexcept {
  qp_.flush_receives();
  message_ = Message::kNone;
}

}  // namespace uroce::transport
