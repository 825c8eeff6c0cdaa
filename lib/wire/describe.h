/// Packets in words: for captures, traces and failing tests, not for the data path.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "wire/packet.h"

namespace uroce::wire {

/// One line about a packet that parse_packet() called kRoce, without addresses, e.g.
/// "RC WRITE_FIRST qpn 0x000011 psn 0x001000 ack_req reth va 0x7f00 rkey 0xabcd01 len 2148 payload 1024".
[[nodiscard]] std::string describe(const PacketView& packet);

/// One line about any frame: addresses and describe(), with "bad icrc" if it is; or why it is not a RoCE
/// packet.
[[nodiscard]] std::string describe_frame(std::span<const std::byte> frame);

/// An AETH syndrome in words: "ack", "ack credits 3", "rnr_nak timer 12", "nak psn_sequence".
[[nodiscard]] std::string describe_syndrome(std::uint8_t syndrome);

}  // namespace uroce::wire
