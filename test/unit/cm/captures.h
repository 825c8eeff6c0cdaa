/// MADs out of capture files.
#pragma once

#include <catch2/catch.hpp>
#include <vector>

#include "support/pcap_reader.h"
#include "wire/cm_mad.h"
#include "wire/packet.h"

namespace uroce::test {

inline const std::filesystem::path kCaptures{UROCE_TEST_CAPTURES};

/// The MADs of a capture, in order.
inline std::vector<wire::Mad> mads_of(const std::filesystem::path& file) {
  std::vector<wire::Mad> mads;
  for (const auto& frame : read_pcap(file)) {
    wire::PacketView packet;
    if (wire::parse_packet(frame, packet) != wire::ParseResult::kRoce || raw(packet.bth.dest_qpn) != 1)
      continue;
    CHECK(packet.deth().qkey == 0x8001'0000);
    REQUIRE(packet.payload.size() == wire::kMadBytes);
    if (packet.payload[1] != std::byte{wire::kCmClass}) continue;
    std::copy(packet.payload.begin(), packet.payload.end(), mads.emplace_back().begin());
  }
  return mads;
}

template <typename Message>
[[nodiscard]] bool is_a(const wire::Mad& mad) {
  return load_be<16, 2>(std::span{mad}) == static_cast<std::uint16_t>(Message::kAttribute);
}

}  // namespace uroce::test
