// Copies of packets that came ahead, from memory that the peer may write to meanwhile.
#include "transport/held_frames.h"

#include <catch2/catch.hpp>

#include "support/frames.h"

using namespace uroce;
using namespace uroce::test;
using namespace uroce::transport;

namespace {

constexpr std::uint32_t kPayload = 64;
constexpr Psn kMissing{100};

Bytes write_frame(Psn psn) {
  return make_frame(v4_address(), {.opcode = wire::Opcode::kRcWriteMiddle, .dest_qpn = Qpn{0x11}, .psn = psn},
                    {}, kPayload);
}

}  // namespace

TEST_CASE("a packet that came ahead is shown as it was", "[transport][selective]") {
  HeldFrames held(16, kPayload);
  const Bytes frame = write_frame(kMissing + 1);
  wire::PacketView packet;
  REQUIRE(wire::parse_packet(frame, packet) == wire::ParseResult::kRoce);
  REQUIRE(held.put(kMissing, packet) == HeldFrames::Put::kHeld);
  wire::PacketView shown;
  CHECK_FALSE(held.take(kMissing, shown));
  REQUIRE(held.take(kMissing + 1, shown));
  CHECK(shown.op == packet.op);
  CHECK(wire::icrc_ok(shown));
  CHECK_FALSE(held.take(kMissing + 1, shown));
}

TEST_CASE("a packet that has become another one before it was copied is none",
          "[transport][selective][hostile]") {
  HeldFrames held(16, kPayload);
  Bytes frame = write_frame(kMissing + 1);
  wire::PacketView packet;
  REQUIRE(wire::parse_packet(frame, packet) == wire::ParseResult::kRoce);
  constexpr std::size_t kEthertype = 12;
  SECTION("ARP") {
    frame[kEthertype + 1] = std::byte{6};
  }
  SECTION("nothing that is known") {
    frame[kEthertype] = std::byte{0x77};
  }
  SECTION("another request") {
    frame[packet.bth_offset] = std::byte{static_cast<std::uint8_t>(wire::Opcode::kRcAck)};
  }
  SECTION("of another PSN") {
    frame[packet.bth_offset + 11] ^= std::byte{4};
  }
  REQUIRE(held.put(kMissing, packet) == HeldFrames::Put::kHeld);
  wire::PacketView shown;
  CHECK_FALSE(held.take(kMissing + 1, shown));
  CHECK_FALSE(held.has(kMissing + 1));
}
