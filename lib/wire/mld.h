/// MLD: membership in IPv6 multicast groups. Versions 1 (RFC 2710) and 2 (RFC 3810).
#pragma once

#include <optional>
#include <span>

#include "uroce/types.h"
#include "wire/group_message.h"
#include "wire/packet.h"

namespace uroce::wire {

/// Version 1 messages, which name one group.
enum class MldType : std::uint8_t { kReport = 131, kDone = 132 };

/// Whether listeners tell routers and switches about an IPv6 group: not those that stay within the node, nor
/// all nodes. RFC 3810 6.
[[nodiscard]] bool mld_reports(const Gid& group) noexcept;

/// Reads a frame that parse_packet() called kMld.
///
/// @param l3_offset  PacketView::l3_offset
/// @return nothing if it is another protocol or cut short, its checksum is wrong, it came through a router,
/// lacks the router alert option or is a query as long as none is. RFC 3810 6.2.
[[nodiscard]] std::optional<GroupMessage> parse_mld(std::span<const std::byte> frame,
                                                    std::size_t l3_offset) noexcept;

/// Bytes of the frame that carries one message about `group`; it goes to the group, a done to all routers.
[[nodiscard]] std::uint32_t mld_frame_len(const GroupReporter& from) noexcept;
/// @param own  a link-local address
void emit_mld_frame(std::byte* frame, const GroupReporter& from, MldType type, const Gid& group) noexcept;

/// Bytes of the frame that carries a version 2 report of `records` groups.
[[nodiscard]] std::uint32_t mld_report_len(const GroupReporter& from, std::size_t records) noexcept;
void emit_mld_report(std::byte* frame, const GroupReporter& from,
                     std::span<const GroupRecord> records) noexcept;

}  // namespace uroce::wire
