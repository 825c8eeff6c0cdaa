#include "drivers/frame_fields.h"

#include <algorithm>

#include "base/endian.h"

namespace uroce::drivers {
namespace {

constexpr std::uint32_t kEthernet = 14;
constexpr std::uint32_t kVlan = 4;
constexpr std::uint32_t kIpv6 = 40;
constexpr std::uint32_t kUdp = 8;
constexpr std::uint32_t kBth = 12;
constexpr std::uint32_t kIcrc = 4;
constexpr std::uint16_t kUdpPort = 4791;
constexpr std::uint8_t kProtocolUdp = 17;
constexpr std::uint8_t kNextHeaderBth = 0x1b;

using Frame = std::span<const std::byte>;

std::uint8_t byte_at(Frame frame, std::size_t at) noexcept {
  return std::to_integer<std::uint8_t>(frame[at]);
}

std::uint16_t word_at(Frame frame, std::size_t at) noexcept {
  return load_be<0, 2>(frame.subspan(at).first<2>());
}

std::uint32_t number_at(Frame frame, std::size_t at) noexcept {  // 24 bits
  return load_be<0, 3>(frame.subspan(at).first<3>());
}

/// Fills in `bth` and `end`. @return false if UDP is not RoCE.
bool read_udp(Frame frame, std::uint32_t udp, RoceFields& fields) noexcept {
  if (frame.size() < udp + kUdp || word_at(frame, udp + 2) != kUdpPort) return false;
  fields.bth = udp + kUdp;
  fields.end = udp + word_at(frame, udp + 4);
  return true;
}

bool read_ipv4(Frame frame, RoceFields& fields) noexcept {
  fields.is_ipv4 = true;
  const std::uint32_t ip = fields.ip;
  if (frame.size() < ip + 20 || byte_at(frame, ip + 9) != kProtocolUdp) return false;
  if ((word_at(frame, ip + 6) & 0x1fff) != 0) return false;  // a later fragment has no UDP header
  return read_udp(frame, ip + (byte_at(frame, ip) & 0x0fU) * 4, fields);
}

bool read_ipv6(Frame frame, RoceFields& fields) noexcept {
  const std::uint32_t ip = fields.ip;
  return frame.size() >= ip + kIpv6 && byte_at(frame, ip + 6) == kProtocolUdp &&
         read_udp(frame, ip + kIpv6, fields);
}

bool read_grh(Frame frame, RoceFields& fields) noexcept {
  const std::uint32_t ip = fields.ip;
  if (frame.size() < ip + kIpv6 || byte_at(frame, ip + 6) != kNextHeaderBth) return false;
  fields.bth = ip + kIpv6;
  fields.end = fields.bth + word_at(frame, ip + 4);
  return true;
}

/// READ responses other than Middle, Acknowledge and Atomic Acknowledge, of RC and XRC.
bool has_aeth(std::uint8_t opcode) noexcept {
  const unsigned transport = opcode & 0xe0U;
  const unsigned operation = opcode & 0x1fU;
  return (transport == 0x00 || transport == 0xa0) &&
         (operation == 0x0d || (operation >= 0x0f && operation <= 0x12));
}

}  // namespace

std::optional<RoceFields> find_roce(Frame frame) noexcept {
  if (frame.size() < kEthernet) return std::nullopt;
  std::uint32_t ether_type_at = kEthernet - 2;
  if (word_at(frame, ether_type_at) == 0x8100) ether_type_at += kVlan;
  if (frame.size() < ether_type_at + 2) return std::nullopt;
  RoceFields fields;
  fields.ip = ether_type_at + 2;
  bool is_roce = false;
  switch (word_at(frame, ether_type_at)) {
    case 0x0800:
      is_roce = read_ipv4(frame, fields);
      break;
    case 0x86dd:
      is_roce = read_ipv6(frame, fields);
      break;
    case 0x8915:
      is_roce = read_grh(frame, fields);
      break;
    default:
      break;
  }
  fields.end = std::min(fields.end, static_cast<std::uint32_t>(frame.size()));
  if (!is_roce || fields.end < fields.bth + kBth + kIcrc) return std::nullopt;
  fields.opcode = byte_at(frame, fields.bth);
  fields.dest_qpn = number_at(frame, fields.bth + 5);
  fields.psn = number_at(frame, fields.bth + 9);
  if (has_aeth(fields.opcode) && fields.end >= fields.bth + kBth + 4 + kIcrc) {
    fields.syndrome = byte_at(frame, fields.bth + kBth);
  }
  return fields;
}

bool is_ecn_capable(Frame frame, const RoceFields& fields) noexcept {
  // IPv4: the second byte's low bits; IPv6: traffic class is bits 4-11, so its low bits are in the upper
  // half.
  const std::uint8_t mask = fields.is_ipv4 ? 0x03 : 0x30;
  return (byte_at(frame, fields.ip + 1) & mask) != 0;
}

void mark_congestion(std::span<std::byte> frame, const RoceFields& fields) noexcept {
  if (!fields.is_ipv4) {
    frame[fields.ip + 1] |= std::byte{0x30};
    return;
  }
  const std::uint16_t before = word_at(frame, fields.ip);
  frame[fields.ip + 1] |= std::byte{0x03};
  const std::uint16_t after = word_at(frame, fields.ip);
  const auto checksum = frame.subspan(fields.ip + 10).first<2>();
  // RFC 1624, equation 3.
  std::uint32_t sum = static_cast<std::uint16_t>(~load_be<0, 2>(Frame(checksum).first<2>()));
  sum += static_cast<std::uint16_t>(~before);
  sum += after;
  sum = (sum & 0xffff) + (sum >> 16);
  sum = (sum & 0xffff) + (sum >> 16);
  store_be<0, 2>(checksum, static_cast<std::uint16_t>(~sum));
}

}  // namespace uroce::drivers
