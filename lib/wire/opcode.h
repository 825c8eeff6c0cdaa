/// Opcodes of the Base Transport Header: one constexpr row per opcode says all that depends on it. IBA 9.2.1.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "uroce/types.h"

namespace uroce::wire {

/// First byte of the BTH. Bits 7-5 name the transport, bits 4-0 the operation.
enum class Opcode : std::uint8_t {
  kRcSendFirst = 0x00,
  kRcSendMiddle,
  kRcSendLast,
  kRcSendLastImm,
  kRcSendOnly,
  kRcSendOnlyImm,
  kRcWriteFirst,
  kRcWriteMiddle,
  kRcWriteLast,
  kRcWriteLastImm,
  kRcWriteOnly,
  kRcWriteOnlyImm,
  kRcReadRequest,
  kRcReadResponseFirst,
  kRcReadResponseMiddle,
  kRcReadResponseLast,
  kRcReadResponseOnly,
  kRcAck,
  kRcAtomicAck,
  kRcCompareSwap,
  kRcFetchAdd,
  kRcSendLastInv = 0x16,
  kRcSendOnlyInv = 0x17,
  kRcFlush = 0x1c,
  kRcAtomicWrite = 0x1d,

  kUcSendFirst = 0x20,
  kUcSendMiddle,
  kUcSendLast,
  kUcSendLastImm,
  kUcSendOnly,
  kUcSendOnlyImm,
  kUcWriteFirst,
  kUcWriteMiddle,
  kUcWriteLast,
  kUcWriteLastImm,
  kUcWriteOnly,
  kUcWriteOnlyImm,

  kUdSendOnly = 0x64,
  kUdSendOnlyImm = 0x65,

  kCnp = 0x81,  // congestion notification packet, IBA A17.9.3

  kXrcSendFirst = 0xa0,  // and so on, with the operations of RC: xrc()

  // Extensions of this library, of those opcodes that IBA leaves to manufacturers: see wire/held_eth.h,
  // wire/joint_ack.h and wire/atomic_mask_eth.h.
  kRcSelectiveNak = 0xd1,
  kRcJointAck = 0xd2,
  kRcMaskedCompareSwap = 0xd3,
  kRcMaskedFetchAdd = 0xd4,
};

/// What an operation of RC is called in an XRC connection.
[[nodiscard]] constexpr Opcode xrc(Opcode rc) noexcept {
  return Opcode{static_cast<std::uint8_t>(raw(Opcode::kXrcSendFirst) | raw(rc))};
}

/// Whether both ends must have agreed on it: 0xc0 to 0xff are no opcodes of IBA.
[[nodiscard]] constexpr bool is_extension(Opcode opcode) noexcept {
  return raw(opcode) >= 0xc0;
}

/// Which kind of QP a packet belongs to.
enum class Transport : std::uint8_t { kRc, kUc, kUd, kXrc, kCnp };

[[nodiscard]] constexpr std::string_view name(Transport transport) noexcept {
  constexpr std::array<std::string_view, 5> kNames{"RC", "UC", "UD", "XRC", "CNP"};
  return kNames[raw(transport)];
}

/// Everything that follows from an opcode alone. Unknown opcodes have `known == false` and nothing else.
struct OpcodeInfo {
  const char* name = "UNKNOWN";  ///< without the transport: "WRITE_FIRST"
  bool known = false;
  Transport transport = Transport::kRc;
  std::uint8_t header_bytes = 0;  ///< BTH and extension headers

  // Whose packet it is.
  bool is_request = false;   ///< from a requester to a responder
  bool is_response = false;  ///< from a responder to a requester (CNP is neither)

  // The operation: exactly one is set for a known opcode, except CNP.
  bool is_send = false;
  bool is_write = false;
  bool is_read_request = false;
  bool is_read_response = false;
  bool is_atomic_request = false;  ///< has an AtomicETH, masked ones an AtomicMaskETH behind it
  bool is_flush = false;           ///< has a FETH
  bool is_atomic_write = false;
  bool is_ack = false;         ///< plain acknowledge, ACK or NAK
  bool is_atomic_ack = false;  ///< has an AtomicAckETH

  // The place in its message; both for ONLY, neither for MIDDLE.
  bool starts_message = false;
  bool ends_message = false;

  // Headers, in wire order, but for those that only one operation has: FETH before RETH, AtomicETH,
  // AtomicAckETH behind AETH.
  bool has_deth = false;
  bool has_reth = false;
  bool has_aeth = false;
  bool has_imm = false;
  bool has_ieth = false;

  // Payload and effect.
  bool has_payload = false;     ///< may carry payload: else it must be empty
  bool payload_is_mtu = false;  ///< FIRST and MIDDLE: exactly the path MTU
  bool takes_recv =
      false;  ///< this packet takes a receive WQE: start of a SEND, end of a WRITE with immediate

  [[nodiscard]] constexpr bool is_only() const noexcept { return starts_message && ends_message; }
  /// A request with a response of its own, which the responder remembers for duplicates: READ, atomics, FLUSH
  /// and ATOMIC WRITE.
  [[nodiscard]] constexpr bool is_remembered() const noexcept { return is_request && !is_send && !is_write; }
  /// Requests of XRC say whose receives they take.
  [[nodiscard]] constexpr bool has_xrceth() const noexcept {
    return transport == Transport::kXrc && is_request;
  }
  /// An atomic with an AtomicMaskETH.
  [[nodiscard]] constexpr bool is_masked() const noexcept {
    return is_atomic_request && header_bytes >= 12 + 28 + 16;
  }
  /// A NAK with a HeldEth.
  [[nodiscard]] constexpr bool is_selective_nak() const noexcept { return is_ack && header_bytes > 12 + 4; }
  /// An ACK with others behind it, for other QPs.
  [[nodiscard]] constexpr bool is_joint_ack() const noexcept { return is_ack && has_payload; }
  /// LAST carries at least one byte, ONLY may be empty.
  [[nodiscard]] constexpr bool payload_may_be_empty() const noexcept { return is_only(); }
};
static_assert(sizeof(OpcodeInfo) == 32);  // two rows per cache line

namespace detail {

/// Bytes of all headers that a row claims. IBA 9.2, 9.3.
constexpr std::uint8_t header_bytes(const OpcodeInfo& row) noexcept {
  unsigned size = 12;  // BTH
  if (row.has_deth) size += 8;
  if (row.has_xrceth()) size += 4;
  if (row.has_reth) size += 16;
  if (row.is_flush) size += 4;
  if (row.is_atomic_request) size += 28;
  if (row.has_aeth) size += 4;
  if (row.is_atomic_ack) size += 8;
  if (row.has_imm) size += 4;
  if (row.has_ieth) size += 4;
  if (row.transport == Transport::kCnp) size += 16;  // reserved, zero
  return static_cast<std::uint8_t>(size);
}

/// What follows the operation and its place in the message.
constexpr OpcodeInfo complete(OpcodeInfo row, bool extension) noexcept {
  const unsigned more = !extension || row.is_joint_ack() ? 0 : row.is_ack ? 32 : 16;  // held, or the masks
  row.known = true;
  row.is_request = row.is_send || row.is_write || row.is_read_request || row.is_atomic_request ||
                   row.is_flush || row.is_atomic_write;
  row.header_bytes = static_cast<std::uint8_t>(header_bytes(row) + more);
  row.is_response = row.is_read_response || row.is_ack || row.is_atomic_ack;
  row.has_payload |= row.is_send || row.is_write || row.is_read_response || row.is_atomic_write;
  row.payload_is_mtu = row.has_payload && !row.ends_message;
  row.takes_recv = (row.is_send && row.starts_message) || (row.is_write && row.has_imm);
  return row;
}

using OpcodeTable = std::array<OpcodeInfo, 256>;

/// SEND and WRITE, which RC and UC share. IBA table 38.
constexpr void add_connected_rows(OpcodeTable& t, Transport x, std::size_t base) noexcept {
  OpcodeInfo* row = &t[base];
  *row++ = {.name = "SEND_FIRST", .transport = x, .is_send = true, .starts_message = true};
  *row++ = {.name = "SEND_MIDDLE", .transport = x, .is_send = true};
  *row++ = {.name = "SEND_LAST", .transport = x, .is_send = true, .ends_message = true};
  *row++ = {.name = "SEND_LAST_IMM", .transport = x, .is_send = true, .ends_message = true, .has_imm = true};
  *row++ = {
      .name = "SEND_ONLY", .transport = x, .is_send = true, .starts_message = true, .ends_message = true};
  *row++ = {.name = "SEND_ONLY_IMM",
            .transport = x,
            .is_send = true,
            .starts_message = true,
            .ends_message = true,
            .has_imm = true};
  *row++ = {
      .name = "WRITE_FIRST", .transport = x, .is_write = true, .starts_message = true, .has_reth = true};
  *row++ = {.name = "WRITE_MIDDLE", .transport = x, .is_write = true};
  *row++ = {.name = "WRITE_LAST", .transport = x, .is_write = true, .ends_message = true};
  *row++ = {
      .name = "WRITE_LAST_IMM", .transport = x, .is_write = true, .ends_message = true, .has_imm = true};
  *row++ = {.name = "WRITE_ONLY",
            .transport = x,
            .is_write = true,
            .starts_message = true,
            .ends_message = true,
            .has_reth = true};
  *row++ = {.name = "WRITE_ONLY_IMM",
            .transport = x,
            .is_write = true,
            .starts_message = true,
            .ends_message = true,
            .has_reth = true,
            .has_imm = true};
}

/// READ, ACK, atomics, SEND with invalidate, FLUSH and ATOMIC WRITE: RC and XRC alone.
constexpr void add_reliable_rows(OpcodeTable& t) noexcept {
  OpcodeInfo* row = &t[0x0c];
  *row++ = {.name = "READ_REQUEST",
            .is_read_request = true,
            .starts_message = true,
            .ends_message = true,
            .has_reth = true};
  *row++ = {
      .name = "READ_RESPONSE_FIRST", .is_read_response = true, .starts_message = true, .has_aeth = true};
  *row++ = {.name = "READ_RESPONSE_MIDDLE", .is_read_response = true};
  *row++ = {.name = "READ_RESPONSE_LAST", .is_read_response = true, .ends_message = true, .has_aeth = true};
  *row++ = {.name = "READ_RESPONSE_ONLY",
            .is_read_response = true,
            .starts_message = true,
            .ends_message = true,
            .has_aeth = true};
  *row++ = {.name = "ACK", .is_ack = true, .starts_message = true, .ends_message = true, .has_aeth = true};
  *row++ = {.name = "ATOMIC_ACK",
            .is_atomic_ack = true,
            .starts_message = true,
            .ends_message = true,
            .has_aeth = true};
  for (const char* atomic : {"COMPARE_SWAP", "FETCH_ADD"}) {
    *row++ = {.name = atomic, .is_atomic_request = true, .starts_message = true, .ends_message = true};
  }
  t[0x16] = {.name = "SEND_LAST_INV", .is_send = true, .ends_message = true, .has_ieth = true};
  t[0x17] = {.name = "SEND_ONLY_INV",
             .is_send = true,
             .starts_message = true,
             .ends_message = true,
             .has_ieth = true};
  t[0x1c] = {
      .name = "FLUSH", .is_flush = true, .starts_message = true, .ends_message = true, .has_reth = true};
  t[0x1d] = {.name = "ATOMIC_WRITE",
             .is_atomic_write = true,
             .starts_message = true,
             .ends_message = true,
             .has_reth = true};
}

constexpr OpcodeTable make_opcode_table() noexcept {
  OpcodeTable t{};
  add_connected_rows(t, Transport::kRc, 0x00);
  add_reliable_rows(t);
  add_connected_rows(t, Transport::kUc, 0x20);
  t[0x64] = {.name = "SEND_ONLY",
             .transport = Transport::kUd,
             .is_send = true,
             .starts_message = true,
             .ends_message = true,
             .has_deth = true};
  t[0x65] = t[0x64];
  t[0x65].name = "SEND_ONLY_IMM";
  t[0x65].has_imm = true;
  t[0x81] = {.name = "CNP", .transport = Transport::kCnp, .starts_message = true, .ends_message = true};

  t[0xd1] = t[0x11];
  t[0xd1].name = "SELECTIVE_NAK";
  t[0xd2] = t[0x11];
  t[0xd2].name = "JOINT_ACK";
  t[0xd2].has_payload = true;
  t[0xd3] = t[0x13];
  t[0xd3].name = "MASKED_COMPARE_SWAP";
  t[0xd4] = t[0x14];
  t[0xd4].name = "MASKED_FETCH_ADD";

  for (const std::size_t base : {0x00U, 0xc0U}) {
    for (std::size_t rc = base; rc < base + 0x20; ++rc) {
      t[0xa0 | rc] = t[rc];
      t[0xa0 | rc].transport = Transport::kXrc;
    }
  }
  constexpr std::string_view kUnknown = OpcodeInfo{}.name;
  for (std::size_t i = 0; i < t.size(); ++i) {
    if (t[i].name != kUnknown) t[i] = complete(t[i], is_extension(Opcode{static_cast<std::uint8_t>(i)}));
  }
  return t;
}

inline constexpr OpcodeTable kOpcodeTable = make_opcode_table();

}  // namespace detail

/// The row of any opcode, known or not.
[[nodiscard]] constexpr const OpcodeInfo& info(Opcode opcode) noexcept {
  return detail::kOpcodeTable[raw(opcode)];
}

/// Bytes of BTH and extension headers in front of any payload, at most.
inline constexpr std::uint32_t kMaxPayloadHeaders = [] {
  std::uint32_t most = 0;
  for (const OpcodeInfo& row : detail::kOpcodeTable) {
    if (row.has_payload && row.header_bytes > most) most = row.header_bytes;
  }
  return most;
}();
static_assert(kMaxPayloadHeaders == info(xrc(Opcode::kRcWriteOnlyImm)).header_bytes);

static_assert(
    [] {  // 29 RC, as many XRC, 12 UC, 2 UD opcodes and CNP; whatever is known is one operation of one side
      std::size_t known = 0;
      for (const OpcodeInfo& row : detail::kOpcodeTable) {
        if (!row.known) continue;
        ++known;
        const int operations = row.is_send + row.is_write + row.is_read_request + row.is_read_response +
                               row.is_atomic_request + row.is_flush + row.is_atomic_write + row.is_ack +
                               row.is_atomic_ack;
        const int sides = row.is_request + row.is_response;
        const int wanted = row.transport == Transport::kCnp ? 0 : 1;
        if (operations != wanted || sides != wanted) return false;
        if (row.header_bytes % 4 != 0 || row.header_bytes < 12) return false;
      }
      return known == 73;
    }());
static_assert(info(Opcode::kRcWriteOnlyImm).header_bytes == 32 && info(Opcode::kRcWriteOnlyImm).takes_recv);
static_assert(info(Opcode::kRcFetchAdd).header_bytes == 40 && info(Opcode::kRcFetchAdd).is_remembered());
static_assert(info(Opcode::kRcMaskedFetchAdd).header_bytes == 56 &&
              info(Opcode::kRcMaskedFetchAdd).is_masked());
static_assert(info(xrc(Opcode::kRcMaskedCompareSwap)).header_bytes == 60 &&
              !info(xrc(Opcode::kRcFetchAdd)).is_masked());
static_assert(info(Opcode::kRcAtomicAck).header_bytes == 24 && info(Opcode::kRcAck).header_bytes == 16);
static_assert(info(Opcode::kRcSelectiveNak).header_bytes == 48 &&
              info(Opcode::kRcSelectiveNak).is_selective_nak() && !info(Opcode::kRcAck).is_selective_nak());
static_assert(info(Opcode::kRcJointAck).header_bytes == 16 && info(Opcode::kRcJointAck).is_joint_ack() &&
              !info(Opcode::kRcJointAck).is_selective_nak() && info(Opcode::kRcJointAck).is_response &&
              !info(Opcode::kRcAck).is_joint_ack() && info(xrc(Opcode::kRcJointAck)).is_joint_ack());
static_assert(info(Opcode::kRcReadResponseMiddle).header_bytes == 12);
static_assert(info(Opcode::kRcReadResponseMiddle).payload_is_mtu);
static_assert(info(Opcode::kRcFlush).header_bytes == 32 && !info(Opcode::kRcFlush).has_payload);
static_assert(info(Opcode::kRcAtomicWrite).header_bytes == 28 && info(Opcode::kRcAtomicWrite).has_payload);
static_assert(info(Opcode::kRcSendOnlyInv).has_ieth && info(Opcode::kRcSendOnlyInv).takes_recv);
static_assert(!info(Opcode::kRcSendLast).takes_recv && !info(Opcode::kRcWriteOnly).takes_recv);
static_assert(info(Opcode::kUdSendOnlyImm).header_bytes == 24 && info(Opcode::kCnp).header_bytes == 28);
static_assert(info(xrc(Opcode::kRcWriteOnly)).header_bytes == 32 &&
              info(xrc(Opcode::kRcAck)).header_bytes == 16);
static_assert(!info(Opcode{0xa0}).is_response && !info(Opcode{0xb5}).known);
static_assert(!info(Opcode{0x15}).known && !info(Opcode{0x40}).known && !info(Opcode{0xff}).known);

}  // namespace uroce::wire
