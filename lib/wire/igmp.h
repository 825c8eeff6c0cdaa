/// IGMP: membership in IPv4 multicast groups. Versions 2 (RFC 2236) and 3 (RFC 3376), and what is needed
/// of 1.
#pragma once

#include <optional>
#include <span>

#include "uroce/types.h"
#include "wire/group_message.h"
#include "wire/packet.h"

namespace uroce::wire {

/// All hosts of the link, 224.0.0.1: never reported.
inline constexpr Gid kAllHosts = Gid::from_v4({224, 0, 0, 1});

/// Messages that name one group.
enum class IgmpType : std::uint8_t { kReportV1 = 0x12, kReportV2 = 0x16, kLeave = 0x17 };

/// Reads a frame that parse_packet() called kIgmp.
///
/// @param l3_offset  PacketView::l3_offset
/// @return nothing if it is cut short, a fragment, a checksum is wrong, or a query as long as none is
[[nodiscard]] std::optional<GroupMessage> parse_igmp(std::span<const std::byte> frame,
                                                     std::size_t l3_offset) noexcept;

/// Bytes of the frame that carries one message about `group`; it goes to the group, a leave to all routers.
[[nodiscard]] std::uint32_t igmp_frame_len(const GroupReporter& from) noexcept;
void emit_igmp_frame(std::byte* frame, const GroupReporter& from, IgmpType type, const Gid& group) noexcept;

/// Bytes of the frame that carries a version 3 report of `records` groups.
[[nodiscard]] std::uint32_t igmp_report_len(const GroupReporter& from, std::size_t records) noexcept;
void emit_igmp_report(std::byte* frame, const GroupReporter& from,
                      std::span<const GroupRecord> records) noexcept;

}  // namespace uroce::wire
