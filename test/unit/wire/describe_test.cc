#include "wire/describe.h"

#include <catch2/catch.hpp>

#include "support/frames.h"
#include "wire/arp.h"

namespace uroce::wire {
namespace {

/// describe() of a frame with these headers.
template <typename... Headers>
std::string line(const Bth& bth, std::uint32_t payload, const Headers&... headers) {
  test::Bytes ext((std::size_t{0} + ... + Headers::kSize));
  std::byte* at = ext.data();
  ((at = emit_at(at, headers)), ...);
  const auto frame = test::make_frame(test::v4_address(), bth, ext, payload);
  PacketView packet;
  REQUIRE(parse_packet(frame, packet) == ParseResult::kRoce);
  return describe(packet);
}

constexpr Bth bth(Opcode opcode, bool ack_req = false) {
  return {.opcode = opcode, .dest_qpn = Qpn{0x11}, .ack_req = ack_req, .psn = Psn{0x1000}};
}

}  // namespace

TEST_CASE("a packet is told in one line", "[wire][describe]") {
  const Reth reth{.va = 0x7f00'0000'1000, .rkey = Rkey{0xab'cd01}, .length = 2148};
  CHECK(line(bth(Opcode::kRcWriteFirst, true), 1024, reth) ==
        "RC WRITE_FIRST qpn 0x000011 psn 0x001000 ack_req reth va 0x7f0000001000 rkey 0x00abcd01 len 2148 "
        "payload 1024");
  CHECK(line(bth(Opcode::kRcSendOnlyImm), 3, ImmDt{.value = 0xcafe}) ==
        "RC SEND_ONLY_IMM qpn 0x000011 psn 0x001000 imm 0x0000cafe payload 3");
  CHECK(line(bth(Opcode::kRcAtomicAck), 0, Aeth{.msn = 9}, AtomicAckEth{.original = 0x2222}) ==
        "RC ATOMIC_ACK qpn 0x000011 psn 0x001000 aeth ack msn 9 original 0x2222");
  CHECK(line(bth(Opcode::kUdSendOnly), 0, Deth{.qkey = 0x1111'1111, .src_qpn = Qpn{0x78}}) ==
        "UD SEND_ONLY qpn 0x000011 psn 0x001000 deth qkey 0x11111111 src_qpn 0x000078 payload 0");
  CHECK(line(bth(Opcode::kRcFetchAdd, true), 0, AtomicEth{.va = 8, .rkey = Rkey{1}, .swap_add = 5}) ==
        "RC FETCH_ADD qpn 0x000011 psn 0x001000 ack_req atomic_eth va 0x8 rkey 0x00000001 swap_add 0x5 "
        "compare 0x0");
  CHECK(line(bth(Opcode::kRcSendOnlyInv), 4, Ieth{.rkey = Rkey{2}}) ==
        "RC SEND_ONLY_INV qpn 0x000011 psn 0x001000 ieth rkey 0x00000002 payload 4");
}

TEST_CASE("syndromes are told in words", "[wire][describe]") {
  CHECK(describe_syndrome(0x1f) == "ack");
  CHECK(describe_syndrome(0x03) == "ack credits 3");
  CHECK(describe_syndrome(0x2c) == "rnr_nak timer 12");
  CHECK(describe_syndrome(0x60) == "nak psn_sequence");
  CHECK(describe_syndrome(0x63) == "nak remote_op");
  CHECK(describe_syndrome(0x45) == "reserved syndrome 0x45");
  CHECK(describe_syndrome(0xff) == "reserved syndrome 0xff");
}

TEST_CASE("any frame is told in one line, and a wrong ICRC is named", "[wire][describe]") {
  auto frame = test::make_frame(test::v4_address(), bth(Opcode::kRcSendOnly), {}, 4);
  CHECK(describe_frame(frame) == "10.0.0.1 > 10.0.0.2 RC SEND_ONLY qpn 0x000011 psn 0x001000 payload 4");
  frame.back() ^= std::byte{1};
  CHECK(describe_frame(frame) ==
        "10.0.0.1 > 10.0.0.2 RC SEND_ONLY qpn 0x000011 psn 0x001000 payload 4 bad icrc");
  frame[12] = std::byte{0x99};
  CHECK(describe_frame(frame) == "dropped: bad_ethertype, 62 bytes");
  CHECK(describe_frame({}) == "dropped: too_short, 0 bytes");

  const LinkAddress link{.src = {{2, 0, 0, 0, 0, 1}}, .dst = kBroadcastMac};
  test::Bytes arp(arp_frame_len(link));
  emit_arp_frame(arp.data(), link,
                 make_arp_request(link.src, Gid::from_v4({10, 0, 0, 1}), Gid::from_v4({10, 0, 0, 2})));
  CHECK(describe_frame(arp) == "ARP who has 10.0.0.2 tell 10.0.0.1");
}

}  // namespace uroce::wire
