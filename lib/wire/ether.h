#pragma once

#include <optional>

#include "uroce/types.h"
#include "wire/bytes.h"

namespace uroce::wire {

/// Ethertypes that matter here.
enum class EtherType : std::uint16_t {
  kIpv4 = 0x0800,
  kArp = 0x0806,
  kVlan = 0x8100,
  kIpv6 = 0x86dd,
  kRoceV1 = 0x8915,
};

/// Ethernet header. IEEE 802.3.
///
///    0-5  destination    6-11  source    12-13  ethertype
struct Ether {
  static constexpr std::size_t kSize = 14;  // bytes

  MacAddress dst{};
  MacAddress src{};
  EtherType type{};

  friend constexpr bool operator==(const Ether&, const Ether&) = default;

  [[nodiscard]] static constexpr Ether parse(std::span<const std::byte, kSize> in) noexcept {
    return {
        .dst = {load_array<0, 6>(in)}, .src = {load_array<6, 6>(in)}, .type = EtherType{load_be<12, 2>(in)}};
  }

  constexpr void emit(std::span<std::byte, kSize> out) const noexcept {
    store_array<0>(out, dst.raw);
    store_array<6>(out, src.raw);
    store_be<12, 2>(out, raw(type));
  }
};

/// What follows an ethertype of 0x8100. IEEE 802.1Q.
///
///    0-1  PCP:3 DEI:1 VLAN:12    2-3  ethertype of the payload
struct Vlan {
  static constexpr std::size_t kSize = 4;  // bytes

  std::uint16_t tci = 0;
  EtherType type{};

  friend constexpr bool operator==(const Vlan&, const Vlan&) = default;

  [[nodiscard]] constexpr std::uint16_t id() const noexcept { return tci & 0xfff; }
  [[nodiscard]] constexpr std::uint8_t priority() const noexcept {
    return static_cast<std::uint8_t>(tci >> 13);
  }

  [[nodiscard]] static constexpr Vlan parse(std::span<const std::byte, kSize> in) noexcept {
    return {.tci = load_be<0, 2>(in), .type = EtherType{load_be<2, 2>(in)}};
  }

  constexpr void emit(std::span<std::byte, kSize> out) const noexcept {
    store_be<0, 2>(out, tci);
    store_be<2, 2>(out, raw(type));
  }
};

/// The tag of a frame in VLAN `id`; 0: none, whatever the priority, as a link without VLANs expects.
[[nodiscard]] constexpr std::optional<std::uint16_t> vlan_tag(std::uint16_t id,
                                                              std::uint8_t priority = 0) noexcept {
  if (id == 0) return std::nullopt;
  return static_cast<std::uint16_t>(priority << 13 | id);
}

/// Between whom a frame travels on one link.
struct LinkAddress {
  MacAddress src{};
  MacAddress dst{};
  std::optional<std::uint16_t> vlan_tci = std::nullopt;

  friend constexpr bool operator==(const LinkAddress&, const LinkAddress&) = default;

  /// Bytes of the Ethernet header, with the VLAN tag if there is one.
  [[nodiscard]] constexpr std::uint32_t header_bytes() const noexcept {
    return vlan_tci ? Ether::kSize + Vlan::kSize : Ether::kSize;
  }
  /// Writes header_bytes() bytes. @return the first byte behind them.
  constexpr std::byte* emit(std::byte* at, EtherType type) const noexcept {
    at = emit_at(at, Ether{.dst = dst, .src = src, .type = vlan_tci ? EtherType::kVlan : type});
    return vlan_tci ? emit_at(at, Vlan{.tci = *vlan_tci, .type = type}) : at;
  }
};

inline constexpr MacAddress kBroadcastMac{{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}};

/// Smallest frame on the wire, without FCS; shorter ones are padded by whoever sends them. IEEE 802.3.
inline constexpr std::size_t kMinFrame = 60;

static_assert([] {
  constexpr Ether h{.dst = kBroadcastMac, .src = {{2, 0, 0, 0, 0, 1}}, .type = EtherType::kIpv6};
  std::array<std::byte, Ether::kSize> b{};
  h.emit(b);
  return b[0] == std::byte{0xff} && b[11] == std::byte{1} && b[12] == std::byte{0x86} && Ether::parse(b) == h;
}());
static_assert([] {
  constexpr Vlan h{.tci = 0xc064, .type = EtherType::kIpv4};
  std::array<std::byte, Vlan::kSize> b{};
  h.emit(b);
  return h.id() == 100 && h.priority() == 6 && b[2] == std::byte{0x08} && Vlan::parse(b) == h;
}());

}  // namespace uroce::wire
