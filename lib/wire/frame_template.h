/// The part of a QP's frames that never changes, built once and then copied and patched for each packet.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <type_traits>

#include "uroce/types.h"
#include "wire/checksum.h"
#include "wire/frame_parts.h"
#include "wire/ipv4.h"
#include "wire/udp.h"

namespace uroce::wire {

/// Where a QP's packets go, and how they are marked.
struct FrameAddress {
  MacAddress src_mac{};
  MacAddress dst_mac{};
  std::optional<std::uint16_t> vlan_tci = std::nullopt;
  GidType type = GidType::kRoceV2;
  Gid sgid{};  ///< RoCE v2: of the same family as dgid
  Gid dgid{};
  std::uint16_t udp_src_port = 0xc000;  ///< RoCE v2 only
  std::uint8_t traffic_class = 0;       ///< DSCP:6 ECN:2
  std::uint8_t hop_limit = 64;          ///< 0 stands for 64
  std::uint32_t flow_label = 0;         ///< 20 bits; not in IPv4
};

/// Ethernet, VLAN, IP and UDP headers of one address pair, or the GRH of RoCE v1 in place of the last two.
/// IPv4: DF, identification 0. UDP checksum 0.
///
/// Threads: const members from any thread. A value: copy it freely.
class FrameTemplate {
 public:
  /// What carries the BTH.
  enum class Underlay : std::uint8_t { kIpv4, kIpv6, kGrh };

  /// Addressed to nobody; only assignment makes it useful.
  FrameTemplate() noexcept = default;
  explicit FrameTemplate(const FrameAddress& address) noexcept;

  static constexpr std::uint32_t kMaxOverhead = 66;  ///< bytes: Ethernet, VLAN, IPv6 and UDP

  /// Bytes before the BTH.
  [[nodiscard]] std::uint32_t overhead() const noexcept { return overhead_; }
  [[nodiscard]] bool is_v6() const noexcept { return underlay_ == Underlay::kIpv6; }

  /// Bytes from the BTH up to and with the ICRC.
  /// @param header_bytes  BTH and extension headers: OpcodeInfo::header_bytes
  [[nodiscard]] static constexpr std::uint32_t roce_len(std::uint32_t header_bytes, std::uint32_t payload,
                                                        std::uint32_t pad) noexcept {
    return header_bytes + payload + pad + 4;
  }
  /// Bytes of the whole frame, with the ICRC.
  [[nodiscard]] std::uint32_t frame_len(std::uint32_t header_bytes, std::uint32_t payload,
                                        std::uint32_t pad) const noexcept {
    return overhead_ + roce_len(header_bytes, payload, pad);
  }

  /// Writes all that stands before the BTH. May scribble over bytes behind that, which the caller writes
  /// next.
  ///
  /// @param frame     room for overhead() + roce_len bytes
  /// @param roce_len  at least 16
  /// @return where the BTH goes
  std::byte* emit_head(std::byte* frame, std::uint32_t roce_len) const noexcept;

  /// Another UDP source port than the template's, in a frame that has its head. RoCE v1 has none.
  /// @param bth  what emit_head() returned
  void put_source_port(std::byte* bth, std::uint16_t port) const noexcept;

  /// Computes the ICRC over a frame that is complete but for it, and writes it into the last four bytes.
  ///
  /// @param frame_len  bytes, as frame_len() gave them
  void seal(std::byte* frame, std::uint32_t frame_len) const noexcept;

  /// Writes a short frame, ICRC and all, in one go, by whole cache lines, each once and the first one last:
  /// from that in which it begins, with zeros before it, to that in which it ends. Where
  /// computes_wide_crc32() says that the CPU can.
  ///
  /// @param frame  where it begins: at the start of a line, or kLead bytes behind that
  void write_lines(std::byte* frame, const FrameParts& parts) const noexcept;
  static constexpr std::size_t kLead = 4;

  /// Writes a short frame, ICRC and all, and nothing else, the line in which it begins last. Nothing of it is
  /// read. Where computes_crc32_of_parts() says that the CPU can.
  void write_pieces(std::byte* frame, const FrameParts& parts) const noexcept;

  /// The UDP source port; 0 in RoCE v1.
  [[nodiscard]] std::uint16_t source_port() const noexcept;

  /// The ICRC of a frame's first `size` bytes: all headers at least. copy_crc32() continues it.
  [[nodiscard]] std::uint32_t icrc_of_first(const std::byte* frame, std::size_t size) const noexcept;

 private:
  /// What depends on how long a frame is, as numbers.
  struct Lengths {
    std::uint16_t udp;
    std::uint16_t ip;
    std::uint16_t ip_sum;  ///< of IPv4, else 0
  };
  [[nodiscard]] Lengths lengths(std::uint32_t roce_len) const noexcept {
    const auto udp = static_cast<std::uint16_t>(Udp::kSize + roce_len);
    if (underlay_ == Underlay::kGrh) return {udp, static_cast<std::uint16_t>(roce_len), 0};
    if (underlay_ == Underlay::kIpv6) return {udp, udp, 0};
    const auto total = static_cast<std::uint16_t>(Ipv4::kSize + udp);
    return {udp, total, finish_sums(ip_sum_, total)};
  }
  std::byte* put_ipv4(std::byte* at, const FrameAddress& address) noexcept;

  // All that is needed of IPv4 lies in the first 64 bytes.
  std::uint32_t crc_state_ = 0;  ///< that the ICRC is in behind the IP header of length 0, not inverted
  std::uint16_t ip_sum_ = 0;     ///< of the IPv4 header with total length and checksum 0, folded
  std::uint16_t overhead_ = 0;
  std::uint16_t l3_offset_ = 0;
  Underlay underlay_ = Underlay::kIpv4;
  std::array<std::byte, 72> head_{};  ///< kMaxOverhead used; the rest makes the copy one of constant size
};
static_assert(std::is_trivially_copyable_v<FrameTemplate> && sizeof(FrameTemplate) <= 88);

/// Pad bytes that bring `payload` bytes to a multiple of 4.
[[nodiscard]] constexpr std::uint8_t pad_for(std::uint32_t payload) noexcept {
  return static_cast<std::uint8_t>(-payload & 3);
}

/// The UDP source port of a QP's packets: the same in both directions, and one flow per QP. IBA A17.9.
///
/// @param flow_label  of the address; if 0 one is made from the QP numbers
/// @return 0xc000..0xffff
[[nodiscard]] std::uint16_t udp_source_port(std::uint32_t flow_label, Qpn local, Qpn remote) noexcept;

}  // namespace uroce::wire
