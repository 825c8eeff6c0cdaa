#include "support/script_packet.h"

#include <algorithm>

#include "wire/describe.h"

namespace uroce::test {

namespace {

/// The extension headers of `packet`, in wire order.
Bytes extension_headers(const Packet& packet, const wire::OpcodeInfo& op) {
  Bytes out(op.header_bytes);  // never longer
  std::byte* at = out.data();
  if (op.has_deth) at = wire::emit_at(at, packet.deth.value_or(wire::Deth{}));
  if (op.has_xrceth()) at = wire::emit_at(at, wire::Xrceth{.srq = packet.srq.value_or(0)});
  if (op.is_flush) at = wire::emit_at(at, packet.feth.value_or(wire::Feth{}));
  if (op.has_reth) at = wire::emit_at(at, packet.reth.value_or(wire::Reth{}));
  if (op.is_atomic_request) at = wire::emit_at(at, packet.atomic.value_or(wire::AtomicEth{}));
  if (op.is_masked()) at = wire::emit_at(at, packet.masks.value_or(wire::AtomicMaskEth{}));
  if (op.has_aeth) at = wire::emit_at(at, packet.aeth.value_or(wire::Aeth{}));
  if (op.is_selective_nak()) at = wire::emit_at(at, packet.held.value_or(wire::HeldEth{}));
  if (op.is_atomic_ack) at = wire::emit_at(at, wire::AtomicAckEth{.original = packet.original.value_or(0)});
  if (op.has_imm) at = wire::emit_at(at, wire::ImmDt{.value = packet.imm.value_or(0)});
  if (op.has_ieth) at = wire::emit_at(at, wire::Ieth{.rkey = Rkey{packet.ieth.value_or(0)}});
  out.resize(op.header_bytes - wire::Bth::kSize);  // a CNP has zeros behind its BTH
  return out;
}

bool payload_is(std::span<const std::byte> payload, const Pattern& pattern) {
  for (std::size_t i = 0; i < payload.size(); ++i) {
    if (payload[i] != pattern[i]) return false;
  }
  return true;
}

}  // namespace

Bytes frame_of(const Packet& packet, const wire::FrameAddress& address, Qpn dest_qpn) {
  const wire::OpcodeInfo& op = wire::info(packet.opcode);
  const wire::FrameTemplate head{address};
  const Bytes ext = extension_headers(packet, op);
  const std::uint8_t pad = wire::pad_for(packet.payload);
  const auto header_bytes = static_cast<std::uint32_t>(wire::Bth::kSize + ext.size());
  const std::uint32_t size = head.frame_len(header_bytes, packet.payload, pad);
  Bytes frame(size);
  std::byte* at = head.emit_head(frame.data(), size - head.overhead());
  at = wire::emit_at(at, wire::Bth{.opcode = packet.opcode,
                                   .solicited = packet.solicited,
                                   .mig_req = packet.mig_req,
                                   .pad = pad,
                                   .pkey = packet.pkey,
                                   .dest_qpn = packet.dest_qpn.value_or(dest_qpn),
                                   .ack_req = packet.ack_req,
                                   .psn = Psn{packet.psn}});
  at = std::copy(ext.begin(), ext.end(), at);
  const Pattern data = packet.data.value_or(Pattern{});
  for (std::uint32_t i = 0; i < packet.payload; ++i) at[i] = data[i];
  std::fill_n(at + packet.payload, pad, std::byte{0});
  head.seal(frame.data(), size);
  return frame;
}

std::string difference(const Packet& expected, const wire::PacketView& seen) {
  const wire::Bth& bth = seen.bth;
  if (bth.opcode != expected.opcode) return "opcode";
  if (bth.psn != Psn{expected.psn}) return "psn";
  if (seen.payload.size() != expected.payload) return "payload length";
  if (bth.ack_req != expected.ack_req) return "ack_req";
  if (bth.solicited != expected.solicited) return "solicited";
  if (expected.deth && seen.deth() != *expected.deth) return "deth";
  if (expected.srq && seen.xrceth().srq != *expected.srq) return "xrceth";
  if (expected.feth && seen.feth() != *expected.feth) return "feth";
  if (expected.reth && seen.reth() != *expected.reth) return "reth";
  if (expected.atomic && seen.atomic_eth() != *expected.atomic) return "atomic_eth";
  if (expected.masks && seen.atomic_mask_eth() != *expected.masks) return "atomic_mask_eth";
  if (expected.aeth && seen.aeth() != *expected.aeth) return "aeth";
  if (expected.held && seen.held_eth() != *expected.held) return "held_eth";
  if (expected.original && seen.atomic_ack_eth().original != *expected.original) return "original value";
  if (expected.imm && seen.imm().value != *expected.imm) return "immediate";
  if (expected.ieth && raw(seen.ieth().rkey) != *expected.ieth) return "ieth";
  if (expected.data && !payload_is(seen.payload, *expected.data)) return "payload";
  return {};
}

std::string to_string(const Packet& packet) {
  const Bytes frame = frame_of(
      packet, wire::FrameAddress{.sgid = Gid::from_v4({0, 0, 0, 0}), .dgid = Gid::from_v4({0, 0, 0, 0})},
      Qpn{});
  wire::PacketView view;
  if (wire::parse_packet(frame, view) != wire::ParseResult::kRoce) return wire::describe_frame(frame);
  return wire::describe(view);
}

}  // namespace uroce::test
