/// The few fields of a RoCE frame that decorators and simulated links look at, found by offset.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace uroce::drivers {

/// Where the parts of a RoCE frame are. All offsets are from the Ethernet header and inside the frame.
struct RoceFields {
  std::uint32_t ip = 0;  ///< IPv4 or IPv6 header, or the GRH
  bool is_ipv4 = false;
  std::uint32_t bth = 0;
  std::uint32_t end = 0;  ///< behind the ICRC: padding after it does not count
  std::uint8_t opcode = 0;
  std::uint32_t dest_qpn = 0;
  std::uint32_t psn = 0;
  std::optional<std::uint8_t> syndrome;  ///< of the AETH, in responses that have one
};

/// @return nothing if the frame is not RoCE v2 (UDP port 4791 over IPv4 or IPv6) or v1, or is too short for
/// it.
[[nodiscard]] std::optional<RoceFields> find_roce(std::span<const std::byte> frame) noexcept;

/// Whether the IP header says that the flow understands ECN marks (ECT or CE). RFC 3168 5.
[[nodiscard]] bool is_ecn_capable(std::span<const std::byte> frame, const RoceFields& fields) noexcept;

/// Sets the IP header's ECN field to Congestion Experienced, with the IPv4 header checksum. RFC 3168 5.
void mark_congestion(std::span<std::byte> frame, const RoceFields& fields) noexcept;

}  // namespace uroce::drivers
