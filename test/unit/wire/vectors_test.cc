/// Frames with ICRCs that this project did not compute: scapy (A-D, H), a ConnectX-4 Lx (K), a UC sender in
/// hardware (L), the IBA specification's sample (M); E, F and G by a separate script.
#include <catch2/catch.hpp>

#include "support/hex.h"
#include "support/reference_icrc.h"
#include "wire/frame_template.h"
#include "wire/grh.h"
#include "wire/packet.h"

namespace uroce::wire {
namespace {

using test::hex;

struct Vector {
  const char* what;
  const char* frame;
  Opcode opcode;
  std::uint32_t dest_qpn;
  std::uint32_t psn;
  std::size_t payload;
};

constexpr const char* kRoceV1 =
    "0200000000020200000000018915 6000 0000 0018 1b 01 fe800000000000000000000000000001 "
    "fe800000000000000000000000000002"
    "04b0ffff0000001180abcdef 68656c6c6f000000 ea82c65a";

// clang-format off
constexpr Vector kVectors[] = {
    {"A: IPv4 SEND_ONLY, 5 bytes, pad 3",
     "020000000002020000000001 0800 4502003412344000401114810a0000010a000002 c12312b700200000"
     "04b0ffff0000001180abcdef 68656c6c6f000000 94447921",
     Opcode::kRcSendOnly, 0x11, 0xab'cdef, 5},
    {"B: IPv4 WRITE_ONLY, 8 bytes",
     "020000000002020000000001 0800 4502004412344000401114710a0000010a000002 c12312b700300000"
     "0a00ffff0000001280fffffe 00007f001122334400abcd0100000008 0001020304050607 f8450d73",
     Opcode::kRcWriteOnly, 0x12, 0xff'fffe, 8},
    {"C: IPv4 ACK",
     "020000000002020000000001 0800 4502003012344000401114850a0000010a000002 c12312b7001c0000"
     "1100ffff0000001300abcdef 1f000007 b8f32184",
     Opcode::kRcAck, 0x13, 0xab'cdef, 0},
    {"D: IPv4 CNP",
     "020000000002020000000001 0800 45c0003c12344000401113bb0a0000010a000002 c12312b700280000"
     "8100ffff4000001400000000 00000000000000000000000000000000 eaef5573",
     Opcode::kCnp, 0x14, 0, 0},
    {"E: IPv6 SEND_ONLY",
     "020000000002020000000001 86dd 6021234500201140 20010db8000000000000000000000001"
     "20010db8000000000000000000000002 c12312b700200000 04b0ffff0000001180abcdef 68656c6c6f000000 538cc63b",
     Opcode::kRcSendOnly, 0x11, 0xab'cdef, 5},
    {"F: IPv6 WRITE_ONLY",
     "020000000002020000000001 86dd 6021234500301140 20010db8000000000000000000000001"
     "20010db8000000000000000000000002 c12312b700300000 0a00ffff0000001280fffffe"
     "00007f001122334400abcd0100000008"
     "0001020304050607 4626ca82",
     Opcode::kRcWriteOnly, 0x12, 0xff'fffe, 8},
    {"K: CNP of a ConnectX-4 Lx",
     "e41d2dab2bc27cfe90643b32 0800 45c2003c718c4000401191610a0011010a001201 000012b700280000"
     "8100ffff4000011800000000 00000000000000000000000000000000 82fd002a",
     Opcode::kCnp, 0x118, 0, 0},
    {"L: UC SEND_ONLY of a NIC which sends UDP checksums",
     "248a07a8fa22248a07a8fa22 0800 45010040047840004011b4d5c0a80007c0a80007 c00012b7002caca2"
     "2460ffff000000d300cf1710 4630818be28935d90e9a95505401be885e500000 78f353f3",
     Opcode::kUcSendOnly, 0xd3, 0xcf'1710, 18},
};
// clang-format on

/// A packet from the BTH on, in the Ethernet, IP and UDP headers of vector A, sealed.
test::Bytes in_frame_a(const char* ib) {
  const auto body = hex(ib);
  auto frame = hex("020000000002020000000001 0800");
  frame.resize(Ether::kSize + Ipv4::kSize + Udp::kSize);
  const auto udp_len = static_cast<std::uint16_t>(Udp::kSize + body.size() + kIcrcSize);
  const Ipv4 ip{.tos = 2,
                .total_length = static_cast<std::uint16_t>(Ipv4::kSize + udp_len),
                .ident = 0x1234,
                .src = {10, 0, 0, 1},
                .dst = {10, 0, 0, 2}};
  emit_at(emit_at(frame.data() + Ether::kSize, ip.with_checksum()),
          Udp{.src_port = 0xc123, .length = udp_len});
  frame.insert(frame.end(), body.begin(), body.end());
  const std::uint32_t icrc = compute_icrc(std::span{frame}.subspan(Ether::kSize), false);
  frame.resize(frame.size() + kIcrcSize);
  store_icrc(bytes_at<kIcrcSize>(frame.data() + frame.size() - kIcrcSize), icrc);
  return frame;
}

}  // namespace

TEST_CASE("foreign frames are understood and their ICRC is accepted", "[wire][icrc][vectors]") {
  for (const Vector& vector : kVectors) {
    CAPTURE(vector.what);
    const auto frame = hex(vector.frame);
    PacketView packet;
    REQUIRE(parse_packet(frame, packet) == ParseResult::kRoce);
    CHECK(packet.bth.opcode == vector.opcode);
    CHECK(raw(packet.bth.dest_qpn) == vector.dest_qpn);
    CHECK(packet.bth.psn == Psn{vector.psn});
    CHECK(packet.payload.size() == vector.payload);
    CHECK(icrc_ok(packet));
  }
}

TEST_CASE("the fields of a foreign WRITE_ONLY are read", "[wire][vectors]") {
  const auto frame = hex(kVectors[1].frame);
  PacketView packet;
  REQUIRE(parse_packet(frame, packet) == ParseResult::kRoce);
  CHECK(packet.reth() == Reth{.va = 0x7f00'1122'3344, .rkey = Rkey{0x00ab'cd01}, .length = 8});
  CHECK(packet.bth.ack_req);
  CHECK_FALSE(packet.bth.mig_req);
  CHECK_FALSE(packet.bth.solicited);
  CHECK(packet.payload[7] == std::byte{7});
  CHECK(packet.src_gid() == Gid::from_v4({10, 0, 0, 1}));
  CHECK(packet.dst_gid() == Gid::from_v4({10, 0, 0, 2}));
  CHECK(packet.udp_src_port() == 0xc123);
  CHECK(packet.ecn() == 2);
  CHECK(packet.hop_limit() == 64);
}

TEST_CASE("the fields of a foreign IPv6 frame, an ACK and a CNP are read", "[wire][vectors]") {
  const auto v6 = hex(kVectors[4].frame);
  PacketView packet;
  REQUIRE(parse_packet(v6, packet) == ParseResult::kRoce);
  CHECK(packet.dst_gid() == Gid::parse("2001:db8::2"));
  CHECK(packet.traffic_class() == 2);
  CHECK(packet.ipv6().flow_label == 0x1'2345);
  CHECK(packet.bth.solicited);

  const auto ack = hex(kVectors[2].frame);
  REQUIRE(parse_packet(ack, packet) == ParseResult::kRoce);
  CHECK(packet.aeth() == Aeth{.syndrome = 0x1f, .msn = 7});

  const auto cnp = hex(kVectors[6].frame);
  REQUIRE(parse_packet(cnp, packet) == ParseResult::kRoce);
  CHECK(packet.bth.becn);
  CHECK(packet.traffic_class() == 0xc2);
  CHECK(packet.src_mac() == MacAddress{{0x7c, 0xfe, 0x90, 0x64, 0x3b, 0x32}});
}

TEST_CASE("a RoCE v1 frame is understood, and its ICRC follows the rules of the GRH",
          "[wire][icrc][vectors]") {
  const auto frame = hex(kRoceV1);
  PacketView packet;
  REQUIRE(parse_packet(frame, packet) == ParseResult::kRoce);
  CHECK(packet.gid_type == GidType::kRoceV1);
  CHECK(packet.bth == Bth{.opcode = Opcode::kRcSendOnly,
                          .solicited = true,
                          .mig_req = false,
                          .pad = 3,
                          .dest_qpn = Qpn{0x11},
                          .ack_req = true,
                          .psn = Psn{0xab'cdef}});
  CHECK(test::to_hex(packet.payload) == "68656c6c6f");
  CHECK(icrc_ok(packet));
  CHECK(parse_at<Grh>(packet.l3()) == Grh{.payload_length = 24,
                                          .hop_limit = 1,
                                          .sgid = *Gid::parse("fe80::1"),
                                          .dgid = *Gid::parse("fe80::2")});
  CHECK(packet.src_gid() == *Gid::parse("fe80::1"));
  CHECK(packet.dst_gid() == *Gid::parse("fe80::2"));

  // The same fields make the same frame.
  FrameAddress address{.src_mac = packet.src_mac(),
                       .dst_mac = packet.dst_mac(),
                       .type = GidType::kRoceV1,
                       .sgid = packet.src_gid(),
                       .dgid = packet.dst_gid(),
                       .hop_limit = 1};
  const FrameTemplate head{address};
  test::Bytes made(frame.size());
  std::byte* at = head.emit_head(made.data(), packet.roce_len);
  at = emit_at(at, packet.bth);
  std::copy(frame.begin() + packet.bth_offset + Bth::kSize, frame.end(), at);
  head.seal(made.data(), static_cast<std::uint32_t>(made.size()));
  CHECK(test::to_hex(made) == test::to_hex(frame));
}

TEST_CASE("the specification's sample packet has its printed CRC", "[wire][icrc][vectors]") {
  const auto masked =
      hex("f012375c000e17d20a202487ff87b1b3000dec2a01710a1c015d400238f27a050000000ebb884d85fd5cfba4728bc0690e"
          "d40000");
  CHECK(test::reference_crc32(masked) == 0x5ab7'2596);
}

TEST_CASE("one packet of each kind has the ICRC that an independent tool gave it", "[wire][icrc][vectors]") {
  using enum ParseResult;
  struct Part {
    const char* ib;
    const char* icrc;
    ParseResult parsed;
  };
  constexpr Part kParts[] = {
      {"0c00ffff0000001280000010 0000000000001000 00abcd01 00002328", "41a1f350", kRoce},
      {"1300ffff0000001280000020 0000000000002000 00abcd01 0000000000001111 0000000000002222", "ec3cf592",
       kRoce},
      {"1200ffff0000001300000020 1f000002 0000000000002222", "2c3e830b", kRoce},
      {"1c00ffff0000001280000021 00000001 0000000000002000 00abcd01 00000040", "ac28c1a4", kRoce},
      {"1d00ffff0000001280000022 0000000000002000 00abcd01 00000008 0001020304050607", "9d1431ad", kRoce},
      {"1700ffff0000001280000023 00abcd02 61626364", "5db208b9", kRoce},
      {"0b80ffff0000001280000024 0000000000002000 00abcd01 00000004 deadbeef 7778797a", "398e1eaa", kRoce},
      {"6520ffff0000007700000025 11111111 00000078 0000cafe 68690000", "65c70d18", kRoce},
      {"1100ffff0000001300000030 60000003", "1de56f53", kRoce},
      {"1100ffff0000001300000030 2c000003", "9802ad82", kRoce},
  };
  for (const Part& part : kParts) {
    CAPTURE(part.ib);
    const auto frame = in_frame_a(part.ib);
    CHECK(test::to_hex(std::span{frame}.last(kIcrcSize)) == part.icrc);
    PacketView packet;
    CHECK(parse_packet(frame, packet) == part.parsed);
  }
}

TEST_CASE("extension headers are found behind one another", "[wire]") {
  PacketView packet;
  const auto parse = [&packet](const test::Bytes& frame) {
    return parse_packet(frame, packet) == ParseResult::kRoce;
  };

  const auto write =
      in_frame_a("0b80ffff0000001280000024 0000000000002000 00abcd01 00000004 deadbeef 7778797a");
  REQUIRE(parse(write));
  CHECK(packet.reth() == Reth{.va = 0x2000, .rkey = Rkey{0xab'cd01}, .length = 4});
  CHECK(packet.imm() == ImmDt{.value = 0xdead'beef});
  CHECK(test::to_hex(packet.payload) == "7778797a");

  const auto atomic =
      in_frame_a("1300ffff0000001280000020 0000000000002000 00abcd01 0000000000001111 0000000000002222");
  REQUIRE(parse(atomic));
  CHECK(packet.atomic_eth() ==
        AtomicEth{.va = 0x2000, .rkey = Rkey{0xab'cd01}, .swap_add = 0x1111, .compare = 0x2222});

  const auto atomic_ack = in_frame_a("1200ffff0000001300000020 1f000002 0000000000002222");
  REQUIRE(parse(atomic_ack));
  CHECK(packet.aeth() == Aeth{.syndrome = syndrome::ack(), .msn = 2});
  CHECK(packet.atomic_ack_eth() == AtomicAckEth{.original = 0x2222});

  const auto flush = in_frame_a("1c00ffff0000001280000021 00000012 0000000000002000 00abcd01 00000040");
  REQUIRE(parse(flush));
  CHECK(packet.feth() == Feth{.placement = Feth::kPersistent, .selectivity = Feth::kWholeMr});
  CHECK(packet.reth() == Reth{.va = 0x2000, .rkey = Rkey{0xab'cd01}, .length = 64});

  const auto atomic_write =
      in_frame_a("1d00ffff0000001280000022 0000000000002000 00abcd01 00000008 0001020304050607");
  REQUIRE(parse(atomic_write));
  CHECK(packet.reth() == Reth{.va = 0x2000, .rkey = Rkey{0xab'cd01}, .length = 8});
  CHECK(test::to_hex(packet.payload) == "0001020304050607");

  const auto invalidate = in_frame_a("1700ffff0000001280000023 00abcd02 61626364");
  REQUIRE(parse(invalidate));
  CHECK(packet.ieth() == Ieth{.rkey = Rkey{0xab'cd02}});

  const auto datagram = in_frame_a("6520ffff0000007700000025 11111111 00000078 0000cafe 68690000");
  REQUIRE(parse(datagram));
  CHECK(packet.deth() == Deth{.qkey = 0x1111'1111, .src_qpn = Qpn{0x78}});
  CHECK(packet.imm() == ImmDt{.value = 0xcafe});
  CHECK(test::to_hex(packet.payload) == "6869");
}

}  // namespace uroce::wire
