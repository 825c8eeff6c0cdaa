#include "wire/icmp.h"

#include <algorithm>

#include "wire/multicast.h"

namespace uroce::wire {
namespace {

bool is_unicast(const PacketView& packet) noexcept {
  return !is_group(packet.dst_mac()) && !is_group(packet.src_mac()) && packet.dst_gid().is_unicast() &&
         packet.src_gid().is_unicast();
}

/// The IP header of the reply. @return where the ICMP message goes.
std::byte* emit_reply_ip(std::byte* at, const PacketView& request) noexcept {
  const std::size_t size = request.ip_payload().size();
  if (request.is_v6) {
    return emit_at(at, Ipv6{.traffic_class = request.traffic_class(),
                            .payload_length = static_cast<std::uint16_t>(size),
                            .next_header = IpProtocol::kIcmp6,
                            .src = request.dst_gid(),
                            .dst = request.src_gid()});
  }
  return emit_at(at, Ipv4{.tos = request.traffic_class(),
                          .total_length = static_cast<std::uint16_t>(Ipv4::kSize + size),
                          .protocol = IpProtocol::kIcmp,
                          .src = v4_part(request.dst_gid()),
                          .dst = v4_part(request.src_gid())}
                         .with_checksum());
}

}  // namespace

bool is_sound_icmp(const PacketView& packet) noexcept {
  const auto message = packet.ip_payload();
  if (message.size() < Icmp::kSize) return false;
  const std::uint64_t sum =
      packet.is_v6 ? icmp6_sum(packet.src_gid(), packet.dst_gid(), message) : add_words(message);
  return fold_sum(sum) == 0xffff;
}

std::uint32_t echo_reply_len(const PacketView& request) noexcept {
  if (!is_sound_icmp(request) || !is_unicast(request)) return 0;
  const auto echo = parse_at<Icmp>(request.ip_payload().data());
  const auto wanted = request.is_v6 ? Icmp::Type::kEchoRequest6 : Icmp::Type::kEchoRequest;
  if (echo.type != wanted || echo.code != 0) return 0;
  const std::size_t ip = request.is_v6 ? Ipv6::kSize : Ipv4::kSize;
  return static_cast<std::uint32_t>(request.l3_offset + ip + request.ip_payload().size());
}

void emit_echo_reply(const PacketView& request, std::byte* frame) noexcept {
  const LinkAddress from = request.link();
  const LinkAddress link{.src = from.dst, .dst = from.src, .vlan_tci = from.vlan_tci};
  std::byte* at = link.emit(frame, request.is_v6 ? EtherType::kIpv6 : EtherType::kIpv4);
  at = emit_reply_ip(at, request);

  const auto asked = request.ip_payload();
  std::copy(asked.begin(), asked.end(), at);
  Icmp reply = parse_at<Icmp>(asked.data());
  reply.type = request.is_v6 ? Icmp::Type::kEchoReply6 : Icmp::Type::kEchoReply;
  reply.checksum = 0;
  emit_at(at, reply);
  const std::span<const std::byte> message{at, asked.size()};
  // The pseudo header's sum does not care which address is the source.
  const std::uint64_t sum =
      request.is_v6 ? icmp6_sum(request.src_gid(), request.dst_gid(), message) : add_words(message);
  reply.checksum = finish_sum(sum);
  emit_at(at, reply);
}

}  // namespace uroce::wire
