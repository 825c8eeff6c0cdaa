#include "wire/packet.h"

#include <catch2/catch.hpp>
#include <random>
#include <set>

#include "support/frames.h"
#include "support/guarded_bytes.h"

namespace uroce::wire {
namespace {

using test::Bytes;
using test::make_frame;
using test::v1_address;
using test::v4_address;
using test::v6_address;

constexpr Bth kSend{
    .opcode = Opcode::kRcSendOnly, .dest_qpn = Qpn{0x11}, .ack_req = true, .psn = Psn{0x1000}};

ParseResult parsed(std::span<const std::byte> frame) {
  PacketView packet;
  return parse_packet(frame, packet);
}

bool accepted(std::span<const std::byte> frame) {
  PacketView packet;
  return parse_packet(frame, packet) == ParseResult::kRoce && icrc_ok(packet);
}

/// One small frame of each header shape, over IPv4, IPv6, GRH and VLAN.
std::vector<Bytes> small_frames() {
  auto tagged = v4_address();
  tagged.vlan_tci = 0x6064;
  std::vector<Bytes> frames;
  for (const auto& address : {v4_address(), v6_address(), v1_address(), tagged}) {
    frames.push_back(make_frame(address, kSend));
    frames.push_back(make_frame(address, kSend, {}, 5));
    for (const Opcode opcode :
         {Opcode::kRcWriteOnly, Opcode::kRcAck, Opcode::kRcFetchAdd, Opcode::kRcAtomicAck,
          Opcode::kRcWriteOnlyImm, Opcode::kRcSendOnlyInv, Opcode::kUdSendOnlyImm, Opcode::kCnp}) {
      const Bytes ext(info(opcode).header_bytes - Bth::kSize, std::byte{0x11});
      frames.push_back(make_frame(address, {.opcode = opcode}, ext, info(opcode).has_payload ? 3 : 0));
    }
  }
  return frames;
}

/// Sets a byte of an IPv4 frame and makes its header checksum right again.
void set_ipv4_byte(Bytes& frame, std::size_t offset, unsigned value) {
  frame[Ether::kSize + offset] = static_cast<std::byte>(value);
  std::byte* header = frame.data() + Ether::kSize;
  emit_at(header, parse_at<Ipv4>(header).with_checksum());
}

/// Sets the IPv4 and UDP lengths as if the frame had `roce_len` bytes from the BTH on.
void set_ipv4_roce_len(Bytes& frame, std::size_t roce_len) {
  const std::size_t udp = roce_len + Udp::kSize;
  frame[Ether::kSize + 24] = static_cast<std::byte>(udp >> 8);
  frame[Ether::kSize + 25] = static_cast<std::byte>(udp);
  set_ipv4_byte(frame, 2, static_cast<unsigned>((udp + Ipv4::kSize) >> 8));
  set_ipv4_byte(frame, 3, static_cast<unsigned>((udp + Ipv4::kSize) & 0xff));
}

/// Offsets at which no change of one byte is noticed.
std::set<std::size_t> deaf_bytes(Bytes frame) {
  std::set<std::size_t> deaf;
  for (std::size_t i = 0; i < frame.size(); ++i) {
    bool ever_noticed = false;
    for (unsigned flip = 1; flip < 256; ++flip) {
      frame[i] ^= static_cast<std::byte>(flip);
      if (!accepted(frame)) ever_noticed = true;
      frame[i] ^= static_cast<std::byte>(flip);
    }
    if (!ever_noticed) deaf.insert(i);
  }
  return deaf;
}

/// Offsets at which at least one change of one byte is not noticed.
std::set<std::size_t> partly_deaf_bytes(Bytes frame) {
  std::set<std::size_t> deaf;
  for (std::size_t i = 0; i < frame.size(); ++i) {
    for (unsigned flip = 1; flip < 256; ++flip) {
      frame[i] ^= static_cast<std::byte>(flip);
      if (accepted(frame)) deaf.insert(i);
      frame[i] ^= static_cast<std::byte>(flip);
    }
  }
  return deaf;
}

}  // namespace

TEST_CASE("any changed byte is noticed unless the ICRC leaves it to routers", "[wire][packet][icrc]") {
  const std::set<std::size_t> macs{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
  SECTION(
      "IPv4: MACs, UDP checksum and the ECN byte of the BTH; TOS and TTL are held by the header checksum") {
    auto may_change = macs;
    may_change.insert({40, 41, 46});
    const auto frame = make_frame(v4_address(), kSend, {}, 5);
    CHECK(deaf_bytes(frame) == may_change);
    CHECK(partly_deaf_bytes(frame) == may_change);
  }
  SECTION("IPv6: besides these, traffic class, flow label and hop limit") {
    auto may_change = macs;
    may_change.insert({15, 16, 17, 21, 60, 61, 66});
    const auto frame = make_frame(v6_address(), kSend, {}, 5);
    CHECK(deaf_bytes(frame) == may_change);
    may_change.insert(14);  // its low nibble is traffic class, its high one the version
    CHECK(partly_deaf_bytes(frame) == may_change);
  }
  SECTION("RoCE v1: MACs, traffic class, flow label and hop limit of the GRH, the ECN byte of the BTH") {
    auto may_change = macs;
    may_change.insert({15, 16, 17, 21, 58});
    const auto frame = make_frame(v1_address(), kSend, {}, 5);
    CHECK(deaf_bytes(frame) == may_change);
    may_change.insert(14);
    CHECK(partly_deaf_bytes(frame) == may_change);
  }
  SECTION("behind the IP packet: everything") {
    auto frame = make_frame(v4_address(), kSend);
    REQUIRE(frame.size() == 58);
    frame.resize(kMinFrame);
    CHECK(accepted(frame));
    CHECK(deaf_bytes(frame).contains(58));
    CHECK(deaf_bytes(frame).contains(59));
  }
}

TEST_CASE("a frame cut anywhere is dropped, and nothing behind its end is read", "[wire][packet]") {
  test::GuardedBytes guarded{4096};
  for (const Bytes& frame : small_frames()) {
    REQUIRE(accepted(guarded.hold(frame)));
    for (std::size_t size = 0; size < frame.size(); ++size) {
      const auto cut = guarded.hold(std::span{frame}.first(size));
      const ParseResult result = parsed(cut);
      (void)guess(cut);
      if (!is_drop(result)) FAIL("cut to " << size << " of " << frame.size() << ": " << name(result));
    }
  }
}

TEST_CASE("the QP and the memory that a frame is for are guessed right without a VLAN tag",
          "[wire][packet]") {
  constexpr Reth kReth{.va = 0x7f00'1234'5678, .rkey = Rkey{0xa1b2'c3d4}, .length = 64};
  Bytes reth(Reth::kSize);
  emit_at(reth.data(), kReth);
  for (const auto& address : {v4_address(), v6_address()}) {
    const Bytes ext(info(Opcode::kRcAck).header_bytes - Bth::kSize, std::byte{0x11});
    for (const std::uint32_t qpn : {0x1U, 0x123456U, 0xffffffU}) {
      const auto ack = guess(make_frame(address, {.opcode = Opcode::kRcAck, .dest_qpn = Qpn{qpn}}, ext));
      REQUIRE(ack.has_value());
      CHECK(ack->qpn == Qpn{qpn});
      CHECK_FALSE(ack->reth.has_value());
      const auto send =
          guess(make_frame(address, {.opcode = Opcode::kRcSendOnly, .dest_qpn = Qpn{qpn}}, {}, 64));
      REQUIRE(send.has_value());
      CHECK(send->qpn == Qpn{qpn});
      CHECK_FALSE(send->reth.has_value());
      const Bth write{.opcode = Opcode::kRcWriteOnly, .dest_qpn = Qpn{qpn}};
      CHECK(guess(make_frame(address, write, reth, 64)).value_or(Guess{}).reth == kReth);
    }
  }
}

TEST_CASE("damaged frames never make the parser read behind their end", "[wire][packet]") {
  constexpr unsigned kFrames = 300'000;
  constexpr std::uint64_t kSeed = 0x5eed'0002;
  std::mt19937_64 random{kSeed};
  test::GuardedBytes guarded{4096};
  const auto frames = small_frames();
  unsigned roce = 0;
  for (unsigned i = 0; i < kFrames; ++i) {
    Bytes frame = frames[random() % frames.size()];
    for (auto hits = random() % 4; hits > 0; --hits) {
      frame[random() % frame.size()] = static_cast<std::byte>(random());
    }
    if (random() % 4 == 0) frame.resize(random() % (frame.size() + 1));
    PacketView packet;
    const auto bytes = guarded.hold(frame);
    (void)guess(bytes);
    if (parse_packet(bytes, packet) != ParseResult::kRoce) continue;
    ++roce;
    REQUIRE(packet.payload.data() + packet.payload.size() + packet.bth.pad + kIcrcSize ==
            bytes.data() + packet.bth_offset + packet.roce_len);
    REQUIRE(packet.bth_offset + packet.roce_len <= bytes.size());
    (void)icrc_ok(packet);
  }
  CHECK(roce > kFrames / 10);
}

TEST_CASE("each reason to drop an IPv4 frame is told apart", "[wire][packet]") {
  using enum ParseResult;
  const Bytes good = make_frame(v4_address(), kSend, {}, 8);
  Bytes frame = good;
  REQUIRE(parsed(frame) == kRoce);

  SECTION("too short") {
    CHECK(parsed({}) == kTooShort);
    CHECK(parsed(std::span{frame}.first(13)) == kTooShort);
    CHECK(parsed(std::span{frame}.first(33)) == kTooShort);
    CHECK(parsed(std::span{frame}.first(frame.size() - 1)) == kTooShort);
  }
  SECTION("ethertype") {
    frame[12] = std::byte{0x88};
    CHECK(parsed(frame) == kBadEthertype);
    frame[12] = std::byte{0x81};  // a tag, and in it another ethertype
    CHECK(parsed(frame) == kBadEthertype);
  }
  SECTION("IP version, options, length, checksum") {
    set_ipv4_byte(frame, 0, 0x55);
    CHECK(parsed(frame) == kBadIpHeader);
    set_ipv4_byte(frame = good, 0, 0x46);
    CHECK(parsed(frame) == kBadIpHeader);
    set_ipv4_byte(frame = good, 3, 19);
    CHECK(parsed(frame) == kBadIpHeader);
    (frame = good)[24] ^= std::byte{1};
    CHECK(parsed(frame) == kBadIpHeader);
  }
  SECTION("fragments, first and later; a frame which may be fragmented is fine") {
    set_ipv4_byte(frame, 6, 0x20);
    CHECK(parsed(frame) == kFragment);
    set_ipv4_byte(frame = good, 7, 1);
    CHECK(parsed(frame) == kFragment);
    set_ipv4_byte(frame = good, 6, 0);
    CHECK(parsed(frame) == kRoce);
  }
}

TEST_CASE("each reason to drop a datagram is told apart", "[wire][packet]") {
  using enum ParseResult;
  const Bytes good = make_frame(v4_address(), kSend, {}, 8);
  Bytes frame = good;

  SECTION("another protocol or port") {
    set_ipv4_byte(frame, 9, 6);
    CHECK(parsed(frame) == kNotUdp);
    set_ipv4_byte(frame = good, 9, 1);
    CHECK(parsed(frame) == kIcmp);
    (frame = good)[37] ^= std::byte{1};
    CHECK(parsed(frame) == kNotRocePort);
  }
  SECTION("UDP length") {
    frame[39] = std::byte{31};
    CHECK(parsed(frame) == kBadUdp);
    set_ipv4_byte(frame = good, 3, 27);
    CHECK(parsed(frame) == kBadUdp);
  }
  SECTION("opcode and version") {
    frame[42] = std::byte{0x15};
    CHECK(parsed(frame) == kUnknownOpcode);
    (frame = good)[43] |= std::byte{1};
    CHECK(parsed(frame) == kBadVersion);
  }
  SECTION("length and pad") {
    set_ipv4_roce_len(frame, 15);
    CHECK(parsed(frame) == kBadLength);
    set_ipv4_roce_len(frame = good, 23);
    CHECK(parsed(frame) == kBadPad);
    (frame = good)[42] = std::byte{raw(Opcode::kRcFetchAdd)};  // needs 28 bytes behind the BTH
    CHECK(parsed(frame) == kBadLength);
    (frame = good)[42] = std::byte{raw(Opcode::kRcAck)};  // 4 bytes left over
    CHECK(parsed(frame) == kBadLength);
    set_ipv4_roce_len(frame = good, 16);
    frame[43] |= std::byte{0x30};  // pad that is not there
    CHECK(parsed(frame) == kBadLength);
  }
}

TEST_CASE("each reason to drop an IPv6 frame is told apart", "[wire][packet]") {
  using enum ParseResult;
  const Bytes good = make_frame(v6_address(), kSend, {}, 8);
  Bytes frame = good;
  REQUIRE(parsed(frame) == kRoce);
  CHECK(parsed(std::span{frame}.first(53)) == kTooShort);
  CHECK(parsed(std::span{frame}.first(frame.size() - 1)) == kTooShort);
  frame[14] = std::byte{0x40};
  CHECK(parsed(frame) == kBadIpHeader);
  (frame = good)[20] = std::byte{44};  // fragment header
  CHECK(parsed(frame) == kNotUdp);
  (frame = good)[20] = std::byte{58};
  CHECK(parsed(frame) == kIcmp6);
  (frame = good)[19] = std::byte{7};
  CHECK(parsed(frame) == kBadUdp);
}

TEST_CASE("each reason to drop a RoCE v1 frame is told apart", "[wire][packet]") {
  using enum ParseResult;
  const Bytes good = make_frame(v1_address(), kSend, {}, 8);
  Bytes frame = good;
  PacketView packet;
  REQUIRE(parse_packet(frame, packet) == kRoce);
  CHECK(packet.gid_type == GidType::kRoceV1);
  CHECK(parsed(std::span{frame}.first(53)) == kTooShort);
  CHECK(parsed(std::span{frame}.first(frame.size() - 1)) == kTooShort);
  frame[14] = std::byte{0x40};  // version
  CHECK(parsed(frame) == kBadIpHeader);
  (frame = good)[20] = std::byte{17};  // UDP has no business in a GRH
  CHECK(parsed(frame) == kBadIpHeader);
  (frame = good)[19] = std::byte{15};
  CHECK(parsed(frame) == kBadLength);
  (frame = good)[19] = std::byte{23};
  CHECK(parsed(frame) == kBadPad);
  (frame = good)[54] = std::byte{0x15};
  CHECK(parsed(frame) == kUnknownOpcode);
  // The other way round: a BTH right behind IPv6.
  (frame = good)[12] = std::byte{0x86};
  frame[13] = std::byte{0xdd};
  CHECK(parsed(frame) == kNotUdp);
  // What was parsed before leaves no trace.
  REQUIRE(parse_packet(make_frame(v6_address(), kSend), packet) == kRoce);
  CHECK(packet.gid_type == GidType::kRoceV2);
}

TEST_CASE("a VLAN tag is read and is no part of the ICRC", "[wire][packet]") {
  auto address = v4_address();
  address.vlan_tci = 0xc064;
  auto frame = make_frame(address, kSend, {}, 8);
  PacketView packet;
  REQUIRE(parse_packet(frame, packet) == ParseResult::kRoce);
  CHECK(packet.vlan_id() == 100);
  CHECK(packet.priority() == 6);
  CHECK(packet.link() == LinkAddress{.src = address.src_mac, .dst = address.dst_mac, .vlan_tci = 0xc064});

  frame[14] = std::byte{0};
  REQUIRE(parse_packet(frame, packet) == ParseResult::kRoce);
  CHECK(icrc_ok(packet));

  const auto plain = make_frame(v4_address(), kSend, {}, 8);
  REQUIRE(parse_packet(plain, packet) == ParseResult::kRoce);
  CHECK_FALSE(packet.has_vlan);
  CHECK(packet.vlan_id() == 0);
  CHECK(packet.priority() == 0);

  frame[16] = std::byte{0x81};  // a second tag is refused
  frame[17] = std::byte{0x00};
  CHECK(parsed(frame) == ParseResult::kBadEthertype);
}

TEST_CASE("every parse result has a name of its own", "[wire][packet]") {
  std::set<std::string_view> names;
  for (std::size_t i = 0; i < kParseResults; ++i)
    names.insert(name(ParseResult{static_cast<std::uint8_t>(i)}));
  CHECK(names.size() == kParseResults);
  CHECK_FALSE(is_drop(ParseResult::kIcmp6));
  CHECK(is_drop(ParseResult::kTooShort));
}

}  // namespace uroce::wire
