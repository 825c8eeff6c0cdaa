/// Neighbour discovery of IPv6: what ARP is to IPv4. RFC 4861.
#pragma once

#include <optional>

#include "wire/icmp.h"

namespace uroce::wire {

/// A neighbour solicitation ("who has `target`?") or advertisement.
struct NeighbourMessage {
  bool is_advertisement = false;
  bool router = false;        ///< advertisement only, as the two below
  bool solicited = false;     ///< it answers a solicitation
  bool override_old = false;  ///< it replaces what was known
  Gid src{};                  ///< IPv6 source; zero for duplicate address detection
  Gid dst{};
  Gid target{};
  /// Link-layer address of the sender (solicitation) or of the target (advertisement), if the message tells
  /// it.
  std::optional<MacAddress> link_address = std::nullopt;

  friend constexpr bool operator==(const NeighbourMessage&, const NeighbourMessage&) = default;
};

/// Who has `target`? Goes to multicast_mac() of its `dst`.
[[nodiscard]] NeighbourMessage make_solicitation(const MacAddress& own_mac, const Gid& own,
                                                 const Gid& target) noexcept;

/// The answer to `solicitation`, whose target is ours. It goes to the asker, or to all nodes (multicast_mac()
/// of its `dst`) if the asker has no address yet.
[[nodiscard]] NeighbourMessage make_advertisement(const NeighbourMessage& solicitation,
                                                  const MacAddress& own_mac) noexcept;

/// Whether a packet that parse_packet() called kIcmp6 is one by its type, sound or not.
[[nodiscard]] bool is_neighbour_message(const PacketView& packet) noexcept;

/// Reads a packet that parse_packet() called kIcmp6.
///
/// @return nothing if it is another message, or if RFC 4861 7.1 wants it dropped: hop limit not 255 (it came
/// through a
///         router), wrong checksum, code not 0, too short, an option of length 0, a multicast target, a
///         solicitation without source which names a link address or does not go to a solicited-node group,
///         an advertisement to a group which claims to be solicited
[[nodiscard]] std::optional<NeighbourMessage> parse_neighbour(const PacketView& packet) noexcept;

/// Bytes of the frame on `link`.
[[nodiscard]] std::uint32_t neighbour_frame_len(const LinkAddress& link,
                                                const NeighbourMessage& message) noexcept;

/// Writes the whole frame, neighbour_frame_len() bytes.
void emit_neighbour_frame(std::byte* frame, const LinkAddress& link,
                          const NeighbourMessage& message) noexcept;

}  // namespace uroce::wire
