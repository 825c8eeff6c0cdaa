/// Strong types of the RDMA world that every layer shares. Standard library only.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace uroce {

/// Queue pair number, 24 bits.
enum class Qpn : std::uint32_t {};
/// Local key of a memory region (SGEs).
enum class Lkey : std::uint32_t {};
/// Remote key of a memory region or window (RETH, AtomicETH, IETH).
enum class Rkey : std::uint32_t {};

/// Name of an address handle (Ah) in work requests.
enum class AhId : std::uint64_t {};

/// The plain number inside a strong integer type.
template <typename E>
requires std::is_enum_v<E>
[[nodiscard]] constexpr std::underlying_type_t<E> raw(E value) noexcept {
  return static_cast<std::underlying_type_t<E>>(value);
}

/// Packet sequence number: 24 bits, circular. It has no `<`; ask `before(a, b)`. IBA 9.7.2.
class Psn {
 public:
  static constexpr std::uint32_t kMask = 0xff'ffff;

  constexpr Psn() noexcept = default;
  constexpr explicit Psn(std::uint32_t value) noexcept : value_(value & kMask) {}

  [[nodiscard]] constexpr std::uint32_t value() const noexcept { return value_; }
  friend constexpr bool operator==(Psn, Psn) noexcept = default;
  friend constexpr Psn operator+(Psn a, std::uint32_t n) noexcept { return Psn{a.value_ + n}; }
  friend constexpr Psn operator-(Psn a, std::uint32_t n) noexcept { return Psn{a.value_ - n}; }

  /// Packets from `b` up to `a`, signed, in [-2^23, 2^23).
  friend constexpr std::int32_t distance(Psn a, Psn b) noexcept {
    return static_cast<std::int32_t>((a.value_ - b.value_) << 8) >> 8;
  }
  /// Packets from `b` up to `a`, in [0, 2^24).
  friend constexpr std::uint32_t span_from(Psn a, Psn b) noexcept { return (a.value_ - b.value_) & kMask; }
  friend constexpr bool before(Psn a, Psn b) noexcept { return distance(a, b) < 0; }

 private:
  std::uint32_t value_ = 0;
};

/// Path MTU: payload bytes of a full packet, coded as in verbs (1 = 256 .. 5 = 4096).
enum class PathMtu : std::uint8_t { k256 = 1, k512 = 2, k1024 = 3, k2048 = 4, k4096 = 5 };

[[nodiscard]] constexpr std::uint32_t bytes(PathMtu mtu) noexcept {
  return 128U << raw(mtu);
}

/// The largest path MTU that fits a link MTU (bytes after the Ethernet header), as RDMA-CM reckons it:
/// 96 bytes are kept for the headers. Nothing fits below 352 bytes.
[[nodiscard]] constexpr std::optional<PathMtu> path_mtu_for_link(std::uint32_t link_mtu) noexcept {
  for (auto code = raw(PathMtu::k4096); code >= raw(PathMtu::k256); --code) {
    if (bytes(PathMtu{code}) + 96 <= link_mtu) return PathMtu{code};
  }
  return std::nullopt;
}

/// Path MTU of exactly `size` payload bytes (256, 512, 1024, 2048 or 4096).
[[nodiscard]] constexpr std::optional<PathMtu> path_mtu_from_bytes(std::uint32_t size) noexcept {
  for (auto code = raw(PathMtu::k256); code <= raw(PathMtu::k4096); ++code) {
    if (bytes(PathMtu{code}) == size) return PathMtu{code};
  }
  return std::nullopt;
}

/// Global identifier: an IPv6 address, or an IPv4 address as ::ffff:a.b.c.d. IBA A17.
struct Gid {
  std::array<std::uint8_t, 16> raw{};

  friend constexpr bool operator==(const Gid&, const Gid&) noexcept = default;
  friend constexpr auto operator<=>(const Gid&, const Gid&) noexcept = default;

  [[nodiscard]] constexpr bool is_zero() const noexcept { return *this == Gid{}; }
  [[nodiscard]] constexpr bool is_v4() const noexcept {
    for (std::size_t i = 0; i < 10; ++i) {
      if (raw[i] != 0) return false;
    }
    return raw[10] == 0xff && raw[11] == 0xff;
  }
  [[nodiscard]] constexpr bool is_multicast() const noexcept {
    return is_v4() ? (raw[12] & 0xf0) == 0xe0 : raw[0] == 0xff;
  }
  /// 0.0.0.0 or ::, nobody's address: whoever has none yet, or all of the family. RFC 1122 3.2.1.3, RFC 4291
  /// 2.5.2.
  [[nodiscard]] constexpr bool is_unspecified() const noexcept { return is_zero() || *this == from_v4({}); }
  /// Of one host: all but those that are unspecified, of groups, or 255.255.255.255. RFC 1122 3.2.1.3, RFC
  /// 4291 2.4.
  [[nodiscard]] constexpr bool is_unicast() const noexcept {
    return !is_unspecified() && !is_multicast() && *this != from_v4({255, 255, 255, 255});
  }
  [[nodiscard]] constexpr bool is_link_local() const noexcept {
    return raw[0] == 0xfe && (raw[1] & 0xc0) == 0x80;
  }
  /// 127.0.0.0/8 or ::1
  [[nodiscard]] constexpr bool is_loopback() const noexcept {
    constexpr std::uint8_t kLoopbackNet = 127;
    return is_v4() ? raw[12] == kLoopbackNet : *this == Gid{{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}};
  }

  static constexpr Gid from_v4(std::array<std::uint8_t, 4> v4) noexcept {
    Gid gid;
    gid.raw[10] = gid.raw[11] = 0xff;
    for (std::size_t i = 0; i < 4; ++i) gid.raw[12 + i] = v4[i];
    return gid;
  }
  /// Reads "10.0.0.1", "::ffff:10.0.0.1" or any IPv6 text.
  static std::optional<Gid> parse(std::string_view text);
};

/// What frames a GID stands for. Same values as enum ibv_gid_type.
enum class GidType : std::uint8_t {
  kRoceV1 = 1,  ///< Ethernet and GRH: stays on its link
  kRoceV2 = 2,  ///< Ethernet, IP and UDP
};

/// "RoCE v1" or "RoCE v2".
[[nodiscard]] std::string_view to_string(GidType type) noexcept;

/// Text of a GID: IPv6 notation ("::ffff:10.0.0.1" for IPv4).
[[nodiscard]] std::string to_string(const Gid& gid);
/// The IP address in it, as programs take it: "10.0.0.1" or "fd00::1".
[[nodiscard]] std::string host_text(const Gid& gid);

/// Ethernet address.
struct MacAddress {
  std::array<std::uint8_t, 6> raw{};

  friend constexpr bool operator==(const MacAddress&, const MacAddress&) noexcept = default;
  /// Reads "02:99:00:00:01:01".
  static std::optional<MacAddress> parse(std::string_view text);
};

[[nodiscard]] std::string to_string(const MacAddress& mac);

}  // namespace uroce
