#include "wire/frame_template.h"

#include <algorithm>
#include <cassert>
#include <cstring>

#include "wire/bth.h"
#include "wire/ether.h"
#include "wire/icrc.h"
#include "wire/icrc_masks.h"
#include "wire/ipv6.h"

namespace uroce::wire {
namespace {

constexpr std::size_t kSmallestRoce = Bth::kSize + kIcrcSize;

/// Bytes copied in one go: a constant, at least the longest head, at most the shortest frame.
constexpr std::size_t kCopyV4 = 48;
constexpr std::size_t kCopyV6 = 72;
constexpr std::size_t kHeadV4 = Ether::kSize + Ipv4::kSize + Udp::kSize;
constexpr std::size_t kHeadV6 = Ether::kSize + Ipv6::kSize + Udp::kSize;
constexpr std::size_t kCopyGrh = 64;
constexpr std::size_t kHeadGrh = Ether::kSize + Ipv6::kSize;
static_assert(kCopyV4 >= kHeadV4 + Vlan::kSize && kCopyV4 <= kHeadV4 + kSmallestRoce);
static_assert(kCopyV6 >= kHeadV6 + Vlan::kSize && kCopyV6 <= kHeadV6 + kSmallestRoce);
static_assert(FrameTemplate::kMaxOverhead == kHeadV6 + Vlan::kSize);
static_assert(kCopyGrh >= kHeadGrh + Vlan::kSize && kCopyGrh <= kHeadGrh + kSmallestRoce);

std::uint8_t hop_limit_of(const FrameAddress& address) noexcept {
  return address.hop_limit == 0 ? std::uint8_t{64} : address.hop_limit;
}

}  // namespace

FrameTemplate::FrameTemplate(const FrameAddress& address) noexcept {
  const bool is_v1 = address.type == GidType::kRoceV1;
  assert(is_v1 || address.sgid.is_v4() == address.dgid.is_v4());
  if (is_v1) {
    underlay_ = Underlay::kGrh;
  } else if (!address.dgid.is_v4()) {
    underlay_ = Underlay::kIpv6;
  }
  constexpr std::array kTypes{EtherType::kIpv4, EtherType::kIpv6, EtherType::kRoceV1};  // by Underlay
  const LinkAddress link{.src = address.src_mac, .dst = address.dst_mac, .vlan_tci = address.vlan_tci};
  std::byte* at = link.emit(head_.data(), kTypes[raw(underlay_)]);
  l3_offset_ = static_cast<std::uint16_t>(at - head_.data());
  if (underlay_ == Underlay::kIpv4) {
    at = put_ipv4(at, address);
  } else {
    at = emit_at(at, Ipv6{.traffic_class = address.traffic_class,
                          .flow_label = address.flow_label,
                          .next_header = is_v1 ? IpProtocol::kIbaGrh : IpProtocol::kUdp,
                          .hop_limit = hop_limit_of(address),
                          .src = address.sgid,
                          .dst = address.dgid});
  }
  const std::span<const std::byte> l3{head_.data() + l3_offset_, at};
  const CrcMask& mask = underlay_ == Underlay::kIpv4 ? kIcrcMaskV4 : is_v1 ? kIcrcMaskV1 : kIcrcMaskV6;
  crc_state_ = ~portable_masked_crc32(kIcrcPrefix, l3, mask);
  if (!is_v1) at = emit_at(at, Udp{.src_port = address.udp_src_port});
  overhead_ = static_cast<std::uint16_t>(at - head_.data());
}

std::byte* FrameTemplate::put_ipv4(std::byte* at, const FrameAddress& address) noexcept {
  std::byte* const end = emit_at(at, Ipv4{.tos = address.traffic_class,
                                          .ttl = hop_limit_of(address),
                                          .src = v4_part(address.sgid),
                                          .dst = v4_part(address.dgid)});
  ip_sum_ = fold_sum(add_words(bytes_at<Ipv4::kSize>(at)));
  return end;
}

std::byte* FrameTemplate::emit_head(std::byte* frame, std::uint32_t roce_len) const noexcept {
  assert(roce_len >= kSmallestRoce && roce_len + Udp::kSize + Ipv4::kSize <= 0xffff);
  const Lengths len = lengths(roce_len);
  std::byte* l3 = frame + l3_offset_;
  if (underlay_ == Underlay::kIpv4) {
    std::memcpy(frame, head_.data(), kCopyV4);
    const auto ip = bytes_at<Ipv4::kSize + Udp::kSize>(l3);
    store_be<2, 2>(ip, len.ip);
    store_be<10, 2>(ip, len.ip_sum);
    store_be<Ipv4::kSize + 4, 2>(ip, len.udp);
  } else if (underlay_ == Underlay::kIpv6) {
    std::memcpy(frame, head_.data(), kCopyV6);
    const auto ip = bytes_at<Ipv6::kSize + Udp::kSize>(l3);
    store_be<4, 2>(ip, len.ip);
    store_be<Ipv6::kSize + 4, 2>(ip, len.udp);
  } else {
    std::memcpy(frame, head_.data(), kCopyGrh);
    store_be<4, 2>(bytes_at<Ipv6::kSize>(l3), len.ip);
  }
  return frame + overhead_;
}

void FrameTemplate::put_source_port(std::byte* bth, std::uint16_t port) const noexcept {
  if (underlay_ != Underlay::kGrh) store_be<0, 2>(bytes_at<Udp::kSize>(bth - Udp::kSize), port);
}

std::uint16_t FrameTemplate::source_port() const noexcept {
  if (underlay_ == Underlay::kGrh) return 0;
  return load_be<0, 2>(bytes_at<Udp::kSize>(head_.data() + overhead_ - Udp::kSize));
}

void FrameTemplate::seal(std::byte* frame, std::uint32_t frame_len) const noexcept {
  assert(frame_len >= overhead_ + kSmallestRoce);
  store_icrc(bytes_at<kIcrcSize>(frame + frame_len - kIcrcSize), icrc_of_first(frame, frame_len - kIcrcSize));
}

std::uint32_t FrameTemplate::icrc_of_first(const std::byte* frame, std::size_t size) const noexcept {
  const std::span<const std::byte> covered{frame + l3_offset_, size - l3_offset_};
  return underlay_ == Underlay::kGrh ? compute_icrc_v1(covered) : compute_icrc(covered, is_v6());
}

std::uint16_t udp_source_port(std::uint32_t flow_label, Qpn local, Qpn remote) noexcept {
  std::uint64_t label = flow_label & 0xf'ffff;
  if (label == 0) {
    label = std::uint64_t{raw(local)} * raw(remote);
    label ^= label >> 20;
    label ^= label >> 40;
    label &= 0xf'ffff;
  }
  const std::uint64_t low = label & 0x3fff;
  const std::uint64_t high = label >> 14;
  return static_cast<std::uint16_t>((low ^ high) | 0xc000);
}

}  // namespace uroce::wire
