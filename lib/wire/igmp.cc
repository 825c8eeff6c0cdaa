#include "wire/igmp.h"

#include "wire/multicast.h"

namespace uroce::wire {
namespace {

constexpr Gid kAllRouters = Gid::from_v4({224, 0, 0, 2});
constexpr Gid kReportGroup = Gid::from_v4({224, 0, 0, 22});
constexpr std::size_t kHeader = Ipv4::kSize + 4;  // with the router alert option, RFC 2113
constexpr std::uint32_t kRouterAlert = 0x9404'0000;
constexpr std::size_t kMessage = 8;
constexpr std::size_t kQueryV3 = 12;  // and more
constexpr std::size_t kRecord = 8;
constexpr std::uint8_t kQuery = 0x11;
constexpr std::uint8_t kReportV3 = 0x22;
constexpr std::uint64_t kTenthNs = 100'000'000;
constexpr std::uint32_t kV1Tenths = 100;  // version 1 queries do not say: 10 s

/// The IGMP message in an IPv4 packet with or without options; empty if it is not a whole one.
std::span<const std::byte> message_of(std::span<const std::byte> packet) noexcept {
  if (packet.size() < Ipv4::kSize) return {};
  const auto header = parse_at<Ipv4>(packet.data());
  const std::size_t header_len = std::size_t{header.version_ihl} % 16 * 4;
  if (header.version_ihl >> 4 != 4 || header_len < Ipv4::kSize || header.is_fragment()) return {};
  if (header.protocol != IpProtocol::kIgmp || header.total_length > packet.size()) return {};
  if (header.total_length < header_len + kMessage) return {};
  if (fold_sum(add_words(packet.first(header_len))) != 0xffff) return {};
  return packet.subspan(header_len, header.total_length - header_len);
}

/// Everything before the message. @return where that goes.
std::byte* emit_ip(std::byte* frame, const GroupReporter& from, const Gid& dst,
                   std::size_t message_len) noexcept {
  std::byte* const ip = from.link_to(dst).emit(frame, EtherType::kIpv4);
  constexpr std::uint8_t kInternetworkControl = 0xc0;
  Ipv4 header{.version_ihl = 0x40 | kHeader / 4,
              .tos = kInternetworkControl,
              .total_length = static_cast<std::uint16_t>(kHeader + message_len),
              .ttl = 1,
              .protocol = IpProtocol::kIgmp,
              .src = v4_part(from.own),
              .dst = v4_part(dst)};
  const auto bytes = bytes_at<kHeader>(ip);
  emit_at(ip, header);
  store_be<Ipv4::kSize, 4>(bytes, kRouterAlert);
  header.checksum = finish_sum(add_words(bytes));
  emit_at(ip, header);
  return ip + kHeader;
}

void put_checksum(std::byte* message, std::size_t len) noexcept {
  const auto head = bytes_at<kMessage>(message);
  store_be<2, 2>(head, 0);
  store_be<2, 2>(head, finish_sum(add_words({message, len})));
}

}  // namespace

std::optional<GroupMessage> parse_igmp(std::span<const std::byte> frame, std::size_t l3_offset) noexcept {
  if (frame.size() < l3_offset) return std::nullopt;
  const auto message = message_of(frame.subspan(l3_offset));
  if (message.empty() || fold_sum(add_words(message)) != 0xffff) return std::nullopt;
  const auto head = bytes_at<kMessage>(message.data());
  const auto type = load_be<0, 1>(head);
  const std::uint32_t code = load_be<1, 1>(head);
  const Gid group = Gid::from_v4(load_array<4, 4>(head));
  GroupMessage out;
  if (type == kQuery) {
    if (message.size() > kMessage && message.size() < kQueryV3) return std::nullopt;  // RFC 3376 7.1
    out.kind = GroupMessage::Kind::kQuery;
    out.version = message.size() > kMessage ? 3 : code == 0 ? 1 : 2;
    const std::uint32_t tenths = out.version == 1   ? kV1Tenths
                                 : out.version == 2 ? code
                                                    : from_delay_code(code, 4);
    out.max_delay_ns = tenths * kTenthNs;
    if (group.is_multicast()) {
      out.group = group;
    } else if (!group.is_unspecified()) {
      return std::nullopt;
    }
  } else if ((type == raw(IgmpType::kReportV1) || type == raw(IgmpType::kReportV2)) && group.is_multicast()) {
    out.kind = GroupMessage::Kind::kReport;
    out.version = type == raw(IgmpType::kReportV1) ? 1 : 2;
    out.group = group;
  }
  return out;
}

std::uint32_t igmp_frame_len(const GroupReporter& from) noexcept {
  return static_cast<std::uint32_t>(from.link_to({}).header_bytes() + kHeader + kMessage);
}

void emit_igmp_frame(std::byte* frame, const GroupReporter& from, IgmpType type, const Gid& group) noexcept {
  std::byte* message = emit_ip(frame, from, type == IgmpType::kLeave ? kAllRouters : group, kMessage);
  const auto head = bytes_at<kMessage>(message);
  store_be<0, 2>(head, static_cast<std::uint16_t>(raw(type) << 8));
  store_array<4>(head, v4_part(group));
  put_checksum(message, kMessage);
}

std::uint32_t igmp_report_len(const GroupReporter& from, std::size_t records) noexcept {
  return static_cast<std::uint32_t>(from.link_to({}).header_bytes() + kHeader + kMessage + records * kRecord);
}

void emit_igmp_report(std::byte* frame, const GroupReporter& from,
                      std::span<const GroupRecord> records) noexcept {
  const std::size_t len = kMessage + records.size() * kRecord;
  std::byte* const message = emit_ip(frame, from, kReportGroup, len);
  const auto head = bytes_at<kMessage>(message);
  store_be<0, 4>(head, std::uint32_t{kReportV3} << 24);
  store_be<4, 4>(head, static_cast<std::uint32_t>(records.size()));
  std::byte* at = message + kMessage;
  for (const GroupRecord& record : records) {
    const auto out = bytes_at<kRecord>(at);
    store_be<0, 4>(out, std::uint32_t{raw(record.type)} << 24);  // no auxiliary data, no sources
    store_array<4>(out, v4_part(record.group));
    at += kRecord;
  }
  put_checksum(message, len);
}

}  // namespace uroce::wire
