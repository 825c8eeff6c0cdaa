#include "wire/mld.h"

#include "wire/icmp.h"
#include "wire/multicast.h"

namespace uroce::wire {
namespace {

constexpr Gid kAllRouters{{0xff, 0x02, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2}};
constexpr Gid kReportGroup{{0xff, 0x02, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x16}};
constexpr std::size_t kOptions = 8;                            // the hop-by-hop header
constexpr std::uint64_t kRouterAlert = 0x3a00'0502'0000'0100;  // ICMPv6 follows; alert 0: MLD; PadN. RFC 2711
constexpr std::size_t kMessage = 24;  // version 1, and the start of a version 2 query
constexpr std::size_t kQueryV2 = 28;
constexpr std::size_t kReportHead = 8;
constexpr std::size_t kRecord = 20;
constexpr std::uint8_t kQuery = 130;
constexpr std::uint8_t kReportV2 = 143;
constexpr std::uint64_t kMs = 1'000'000;

/// Whether the option list has a router alert for MLD.
bool has_router_alert(std::span<const std::byte> options) noexcept {
  while (!options.empty()) {
    const auto type = std::to_integer<std::uint8_t>(options[0]);
    if (type == 0) {  // Pad1
      options = options.subspan(1);
      continue;
    }
    if (options.size() < 2) return false;
    const std::size_t size = 2 + std::to_integer<std::size_t>(options[1]);
    if (size > options.size()) return false;
    if (type == 5 && size == 4 && options[2] == std::byte{0} && options[3] == std::byte{0}) return true;
    options = options.subspan(size);
  }
  return false;
}

/// The ICMPv6 message behind the hop-by-hop header; empty if it may not be believed.
std::span<const std::byte> message_of(std::span<const std::byte> packet) noexcept {
  if (packet.size() < Ipv6::kSize + kOptions) return {};
  const auto header = parse_at<Ipv6>(packet.data());
  const auto rest = packet.subspan(Ipv6::kSize);
  if (header.next_header != IpProtocol::kHopByHop || header.payload_length > rest.size()) return {};
  if (header.hop_limit != 1 || !header.src.is_link_local()) return {};
  const std::size_t options = 8 + std::to_integer<std::size_t>(rest[1]) * 8;
  if (rest[0] != std::byte{raw(IpProtocol::kIcmp6)} || header.payload_length < options + kReportHead)
    return {};
  if (!has_router_alert(rest.subspan(2, options - 2))) return {};
  const auto message = rest.subspan(options, header.payload_length - options);
  return fold_sum(icmp6_sum(header.src, header.dst, message)) == 0xffff ? message
                                                                        : std::span<const std::byte>{};
}

/// Everything before the message. @return where that goes.
std::byte* emit_ip(std::byte* frame, const GroupReporter& from, const Gid& dst,
                   std::size_t message_len) noexcept {
  std::byte* at = emit_at(from.link_to(dst).emit(frame, EtherType::kIpv6),
                          Ipv6{.payload_length = static_cast<std::uint16_t>(kOptions + message_len),
                               .next_header = IpProtocol::kHopByHop,
                               .hop_limit = 1,
                               .src = from.own,
                               .dst = dst});
  store_be<0, 8>(bytes_at<kOptions>(at), kRouterAlert);
  return at + kOptions;
}

}  // namespace

bool mld_reports(const Gid& group) noexcept {
  constexpr unsigned kLinkLocal = 2;
  return (group.raw[1] & 0xf) >= kLinkLocal && group != kAllNodes;
}

std::optional<GroupMessage> parse_mld(std::span<const std::byte> frame, std::size_t l3_offset) noexcept {
  if (frame.size() < l3_offset) return std::nullopt;
  const auto message = message_of(frame.subspan(l3_offset));
  if (message.empty()) return std::nullopt;
  const auto type = std::to_integer<std::uint8_t>(message[0]);
  GroupMessage out;
  if (type != kQuery && type != raw(MldType::kReport)) return out;
  if (message.size() < kMessage) return std::nullopt;
  const auto head = bytes_at<kMessage>(message.data());
  out.group = Gid{load_array<8, 16>(head)};
  if (!out.group.is_zero() && !out.group.is_multicast()) return std::nullopt;
  out.version = 1;
  if (type != kQuery) {
    out.kind = GroupMessage::Kind::kReport;
    return out;
  }
  if (message.size() > kMessage && message.size() < kQueryV2) return std::nullopt;  // RFC 3810 8.1
  out.kind = GroupMessage::Kind::kQuery;
  const std::uint32_t code = load_be<4, 2>(head);
  if (message.size() >= kQueryV2) out.version = 2;
  out.max_delay_ns = (out.version == 1 ? code : from_delay_code(code, 12)) * kMs;
  return out;
}

std::uint32_t mld_frame_len(const GroupReporter& from) noexcept {
  return static_cast<std::uint32_t>(from.link_to({}).header_bytes() + Ipv6::kSize + kOptions + kMessage);
}

void emit_mld_frame(std::byte* frame, const GroupReporter& from, MldType type, const Gid& group) noexcept {
  const Gid& dst = type == MldType::kDone ? kAllRouters : group;
  std::byte* const message = emit_ip(frame, from, dst, kMessage);
  const auto head = bytes_at<kMessage>(message);
  store_be<0, 8>(head, std::uint64_t{raw(type)} << 56);
  store_array<8>(head, group.raw);
  store_be<2, 2>(head, finish_sum(icmp6_sum(from.own, dst, head)));
}

std::uint32_t mld_report_len(const GroupReporter& from, std::size_t records) noexcept {
  return static_cast<std::uint32_t>(from.link_to({}).header_bytes() + Ipv6::kSize + kOptions + kReportHead +
                                    records * kRecord);
}

void emit_mld_report(std::byte* frame, const GroupReporter& from,
                     std::span<const GroupRecord> records) noexcept {
  const std::size_t len = kReportHead + records.size() * kRecord;
  std::byte* const message = emit_ip(frame, from, kReportGroup, len);
  const auto head = bytes_at<kReportHead>(message);
  store_be<0, 8>(head, std::uint64_t{kReportV2} << 56 | records.size());
  std::byte* at = message + kReportHead;
  for (const GroupRecord& record : records) {
    const auto out = bytes_at<kRecord>(at);
    store_be<0, 4>(out, std::uint32_t{raw(record.type)} << 24);  // no auxiliary data, no sources
    store_array<4>(out, record.group.raw);
    at += kRecord;
  }
  store_be<2, 2>(head, finish_sum(icmp6_sum(from.own, kReportGroup, {message, len})));
}

}  // namespace uroce::wire
