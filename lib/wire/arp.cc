#include "wire/arp.h"

#include "wire/multicast.h"

namespace uroce::wire {

std::optional<Arp> parse_arp(std::span<const std::byte> frame, std::size_t l3_offset) noexcept {
  if (frame.size() < l3_offset + Arp::kSize) return std::nullopt;
  const auto arp = parse_at<Arp>(frame.data() + l3_offset);
  if (arp.types != Arp::kEthernetIpv4 || is_group(arp.sender_mac)) return std::nullopt;
  if (arp.operation != Arp::Operation::kRequest && arp.operation != Arp::Operation::kReply)
    return std::nullopt;
  return arp;
}

void emit_arp_frame(std::byte* frame, const LinkAddress& link, const Arp& arp) noexcept {
  emit_at(link.emit(frame, EtherType::kArp), arp);
}

}  // namespace uroce::wire
