/// Packets as a script writes them: what goes in, and what must come out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "support/hex.h"
#include "wire/frame_template.h"
#include "wire/packet.h"

namespace uroce::test {

/// Bytes that tell where they belong: byte i of the pattern depends on `tag` and on i, with a period above 64
/// KiB.
struct Pattern {
  std::uint8_t tag = 0;
  std::uint64_t offset = 0;

  [[nodiscard]] constexpr std::byte operator[](std::uint64_t i) const noexcept {
    const std::uint64_t at = offset + i;
    return static_cast<std::byte>(tag + at + (at >> 8) * 7 + (at >> 16) * 31);
  }
};

/// One packet. What is not set is not sent, or not compared.
struct Packet {
  wire::Opcode opcode{};
  std::uint32_t psn = 0;
  std::uint32_t payload = 0;  ///< bytes
  bool ack_req = false;
  bool solicited = false;
  std::optional<wire::Deth> deth = std::nullopt;
  std::optional<std::uint32_t> srq = std::nullopt;  ///< of XRC requests
  std::optional<wire::Feth> feth = std::nullopt;
  std::optional<wire::Reth> reth = std::nullopt;
  std::optional<wire::AtomicEth> atomic = std::nullopt;
  std::optional<wire::AtomicMaskEth> masks = std::nullopt;
  std::optional<wire::Aeth> aeth = std::nullopt;
  std::optional<wire::HeldEth> held = std::nullopt;
  std::optional<std::uint64_t> original = std::nullopt;  ///< of an atomic response
  std::optional<std::uint32_t> imm = std::nullopt;       ///< the number that the four bytes spell
  std::optional<std::uint32_t> ieth = std::nullopt;
  std::optional<Pattern> data = std::nullopt;

  // Sent by the peer only.
  std::uint16_t pkey = 0xffff;
  bool mig_req = true;
  std::optional<Qpn> dest_qpn = std::nullopt;
};

/// Positive acknowledgement: of all up to `psn`, `msn` messages done.
struct Ack {
  std::uint32_t psn = 0;
  std::optional<std::uint32_t> msn = std::nullopt;

  operator Packet() const { return {.opcode = wire::Opcode::kRcAck, .psn = psn, .aeth = aeth()}; }

 private:
  [[nodiscard]] wire::Aeth aeth() const { return {.syndrome = 0x1f, .msn = msn.value_or(0)}; }
};

/// Positive acknowledgement that also tells of receives.
struct CreditAck {
  std::uint32_t psn = 0;
  std::uint32_t msn = 0;
  std::uint8_t code = 0;  ///< IBA 9.7.7.2 ?: 0 to 4 are as many receives

  operator Packet() const {
    return {.opcode = wire::Opcode::kRcAck, .psn = psn, .aeth = wire::Aeth{.syndrome = code, .msn = msn}};
  }
};

/// Negative acknowledgement with any syndrome.
struct Nak {
  std::uint32_t psn = 0;
  std::uint8_t syndrome = 0;
  std::uint32_t msn = 0;

  operator Packet() const {
    return {.opcode = wire::Opcode::kRcAck, .psn = psn, .aeth = wire::Aeth{.syndrome = syndrome, .msn = msn}};
  }
};

/// "The packet with this PSN is missing."
struct NakSequence {
  std::uint32_t psn = 0;
  std::uint32_t msn = 0;

  operator Packet() const { return Nak{psn, 0x60, msn}; }
};

/// Likewise, and which are held behind it.
struct SelectiveNak {
  std::uint32_t psn = 0;
  std::vector<std::uint32_t> held;
  std::uint32_t msn = 0;

  operator Packet() const {
    wire::HeldEth bits;
    for (const std::uint32_t one : held) bits.add(((one - psn) & 0xff'ffff) - 1);
    return {.opcode = wire::Opcode::kRcSelectiveNak,
            .psn = psn,
            .aeth = wire::Aeth{.syndrome = 0x60, .msn = msn},
            .held = bits};
  }
};

/// "No receive is posted for the packet with this PSN; wait for the time that `timer` codes."
struct RnrNak {
  std::uint32_t psn = 0;
  std::uint8_t timer = 0;
  std::uint32_t msn = 0;

  operator Packet() const { return Nak{psn, static_cast<std::uint8_t>(0x20 | timer), msn}; }
};

/// The frame of a packet that the peer sends to `dest_qpn` unless the packet says otherwise. Headers that the
/// opcode has and the packet does not set are zero.
[[nodiscard]] Bytes frame_of(const Packet& packet, const wire::FrameAddress& address, Qpn dest_qpn);

/// What `seen` has that `expected` does not say; empty if nothing.
[[nodiscard]] std::string difference(const Packet& expected, const wire::PacketView& seen);

/// A packet in words, for failing tests.
[[nodiscard]] std::string to_string(const Packet& packet);

}  // namespace uroce::test
