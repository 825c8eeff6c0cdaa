/// Any bytes as a received frame: what parse_packet() shows must lie inside the frame and be what was there.
///
/// Run: build-fuzz/test/fuzz/frame_fuzz -max_total_time=60 CORPUS build-fuzz/test/fuzz/seeds/frame_fuzz
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <vector>

#include "wire/arp.h"
#include "wire/describe.h"
#include "wire/igmp.h"
#include "wire/mld.h"
#include "wire/packet.h"

namespace {

using namespace uroce;

/// Holds in every build, unlike assert.
void require(bool holds) {
  if (!holds) std::abort();
}

bool lies_within(std::span<const std::byte> inner, std::span<const std::byte> outer) {
  return inner.empty() ||
         (inner.data() >= outer.data() && inner.data() + inner.size() <= outer.data() + outer.size());
}

/// Mutation breaks the IPv4 checksum nearly always; without this little behind it would ever be reached.
void mend_ipv4_checksum(std::span<std::byte> frame) {
  constexpr std::size_t kIp = wire::Ether::kSize;
  if (frame.size() < kIp + wire::Ipv4::kSize || frame[12] != std::byte{8} || frame[13] != std::byte{0})
    return;
  const auto header = frame.subspan(kIp, wire::Ipv4::kSize);
  header[10] = header[11] = std::byte{0};
  std::uint32_t sum = 0;
  for (std::size_t i = 0; i < header.size(); i += 2) {
    sum += std::to_integer<std::uint32_t>(header[i]) << 8 | std::to_integer<std::uint32_t>(header[i + 1]);
  }
  while (sum > 0xffff) sum = (sum & 0xffff) + (sum >> 16);
  header[10] = static_cast<std::byte>(~sum >> 8 & 0xff);
  header[11] = static_cast<std::byte>(~sum & 0xff);
}

void check_roce(const wire::PacketView& packet, std::span<const std::byte> frame) {
  require(packet.op != nullptr);
  require(lies_within(packet.payload, frame));
  require(lies_within(packet.icrc_covered(), frame));
  require(packet.roce_len >= wire::Bth::kSize + wire::kIcrcSize);
  require(packet.bth_offset + std::size_t{packet.roce_len} <= frame.size());

  std::array<std::byte, wire::Bth::kSize> again{};
  wire::emit_at(again.data(), packet.bth);
  require(wire::Bth::parse(again) == packet.bth);
  require(!wire::describe(packet).empty());
  (void)wire::icrc_ok(packet);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::vector<std::byte> frame(size);  // exactly as long as the input: a read beyond it is found
  std::transform(data, data + size, frame.begin(), [](std::uint8_t byte) { return std::byte{byte}; });
  mend_ipv4_checksum(frame);

  wire::PacketView packet;
  const auto result = wire::parse_packet(frame, packet);
  if (result == wire::ParseResult::kRoce) check_roce(packet, frame);
  if (result == wire::ParseResult::kArp) (void)wire::parse_arp(frame, packet.l3_offset);
  if (result == wire::ParseResult::kIgmp) (void)wire::parse_igmp(frame, packet.l3_offset);
  if (result == wire::ParseResult::kMld) (void)wire::parse_mld(frame, packet.l3_offset);
  if (result == wire::ParseResult::kIcmp || result == wire::ParseResult::kIcmp6) {
    require(lies_within(packet.ip_payload(), frame));
  }
  require(!wire::describe_frame(frame).empty());
  return 0;
}
