#include "wire/nd.h"

#include "wire/multicast.h"

namespace uroce::wire {
namespace {

constexpr std::uint8_t kHopLimit = 255;
constexpr std::size_t kTarget = Icmp::kSize;          // offset in the message
constexpr std::size_t kFixedSize = Icmp::kSize + 16;  // header and target
constexpr std::size_t kLinkAddressSize = 8;           // option: type, length in units of 8, MAC
constexpr std::uint32_t kRouter = 0x8000'0000;        // flags of an advertisement
constexpr std::uint32_t kSolicited = 0x4000'0000;
constexpr std::uint32_t kOverride = 0x2000'0000;

/// Option types. RFC 4861 4.6.1.
constexpr std::uint8_t link_address_option(bool is_advertisement) noexcept {
  return is_advertisement ? 2 : 1;
}

/// Walks the options for the link address. @return false if one has length 0 or reaches beyond the message.
bool parse_options(std::span<const std::byte> options, NeighbourMessage& out) noexcept {
  while (!options.empty()) {
    if (options.size() < kLinkAddressSize) return false;
    const auto type = std::to_integer<std::uint8_t>(options[0]);
    const std::size_t size = std::to_integer<std::size_t>(options[1]) * 8;
    if (size == 0 || size > options.size()) return false;
    if (type == link_address_option(out.is_advertisement) && size == kLinkAddressSize) {
      out.link_address = MacAddress{load_array<2, 6>(bytes_at<kLinkAddressSize>(options.data()))};
    }
    options = options.subspan(size);
  }
  return true;
}

/// The rules that look at more than one field. RFC 4861 7.1.1, 7.1.2.
bool is_consistent(const NeighbourMessage& message) noexcept {
  if (message.target.is_multicast() || message.src.is_multicast()) return false;
  if (message.link_address && is_group(*message.link_address)) return false;
  if (message.is_advertisement)
    return !message.src.is_zero() && !(message.solicited && message.dst.is_multicast());
  if (!message.src.is_zero()) return true;
  return !message.link_address && message.dst == solicited_node_group(message.target);
}

std::size_t message_size(const NeighbourMessage& message) noexcept {
  return kFixedSize + (message.link_address ? kLinkAddressSize : 0);
}

}  // namespace

NeighbourMessage make_solicitation(const MacAddress& own_mac, const Gid& own, const Gid& target) noexcept {
  return {.src = own, .dst = solicited_node_group(target), .target = target, .link_address = own_mac};
}

NeighbourMessage make_advertisement(const NeighbourMessage& solicitation,
                                    const MacAddress& own_mac) noexcept {
  const bool has_asker = !solicitation.src.is_zero();
  return {.is_advertisement = true,
          .solicited = has_asker,
          .override_old = true,
          .src = solicitation.target,
          .dst = has_asker ? solicitation.src : kAllNodes,
          .target = solicitation.target,
          .link_address = own_mac};
}

bool is_neighbour_message(const PacketView& packet) noexcept {
  const auto message = packet.ip_payload();
  if (!packet.is_v6 || message.size() < Icmp::kSize) return false;
  const Icmp::Type type = parse_at<Icmp>(message.data()).type;
  return type == Icmp::Type::kNeighbourAdvertisement || type == Icmp::Type::kNeighbourSolicitation;
}

std::optional<NeighbourMessage> parse_neighbour(const PacketView& packet) noexcept {
  const auto message = packet.ip_payload();
  if (!is_neighbour_message(packet) || !is_sound_icmp(packet)) return std::nullopt;
  if (message.size() < kFixedSize || packet.hop_limit() != kHopLimit) return std::nullopt;
  const auto header = parse_at<Icmp>(message.data());
  const bool is_advertisement = header.type == Icmp::Type::kNeighbourAdvertisement;
  NeighbourMessage out{.is_advertisement = is_advertisement,
                       .router = is_advertisement && (header.rest & kRouter) != 0,
                       .solicited = is_advertisement && (header.rest & kSolicited) != 0,
                       .override_old = is_advertisement && (header.rest & kOverride) != 0,
                       .src = packet.src_gid(),
                       .dst = packet.dst_gid(),
                       .target = {load_array<kTarget, 16>(bytes_at<kFixedSize>(message.data()))}};
  if (header.code != 0) return std::nullopt;
  if (!parse_options(message.subspan(kFixedSize), out) || !is_consistent(out)) return std::nullopt;
  return out;
}

std::uint32_t neighbour_frame_len(const LinkAddress& link, const NeighbourMessage& message) noexcept {
  return static_cast<std::uint32_t>(link.header_bytes() + Ipv6::kSize + message_size(message));
}

void emit_neighbour_frame(std::byte* frame, const LinkAddress& link,
                          const NeighbourMessage& message) noexcept {
  using enum Icmp::Type;
  const std::size_t size = message_size(message);
  std::byte* at =
      emit_at(link.emit(frame, EtherType::kIpv6), Ipv6{.payload_length = static_cast<std::uint16_t>(size),
                                                       .next_header = IpProtocol::kIcmp6,
                                                       .hop_limit = kHopLimit,
                                                       .src = message.src,
                                                       .dst = message.dst});
  Icmp header{.type = message.is_advertisement ? kNeighbourAdvertisement : kNeighbourSolicitation,
              .rest = (message.router ? kRouter : 0) | (message.solicited ? kSolicited : 0) |
                      (message.override_old ? kOverride : 0)};
  emit_at(at, header);
  store_array<kTarget>(bytes_at<kFixedSize>(at), message.target.raw);
  if (message.link_address) {
    const auto option = bytes_at<kLinkAddressSize>(at + kFixedSize);
    store_be<0, 1>(option, link_address_option(message.is_advertisement));
    store_be<1, 1>(option, 1);
    store_array<2>(option, message.link_address->raw);
  }
  header.checksum = finish_sum(icmp6_sum(message.src, message.dst, {at, size}));
  emit_at(at, header);
}

}  // namespace uroce::wire
