#include "wire/frame_template.h"

#include <catch2/catch.hpp>
#include <random>

#include "base/cache_line.h"
#include "support/frames.h"
#include "support/guarded_bytes.h"
#include "support/restless.h"
#include "support/skip.h"
#include "wire/crc32_wide.h"
#include "wire/packet.h"

namespace uroce::wire {
namespace {

using test::v1_address;
using test::v4_address;
using test::v6_address;

FrameAddress random_address(std::mt19937_64& random) {
  auto address = random() % 2 == 0 ? v4_address() : v6_address();
  if (random() % 3 == 0) address.type = GidType::kRoceV1;
  for (std::size_t i = 12; i < 16; ++i) {
    address.sgid.raw[i] = static_cast<std::uint8_t>(random());
    address.dgid.raw[i] = static_cast<std::uint8_t>(random());
  }
  for (auto& byte : address.src_mac.raw) byte = static_cast<std::uint8_t>(random());
  if (random() % 2 == 0) address.vlan_tci = static_cast<std::uint16_t>(random());
  address.udp_src_port = static_cast<std::uint16_t>(random());
  address.traffic_class = static_cast<std::uint8_t>(random());
  address.hop_limit = static_cast<std::uint8_t>(random() | 1);
  address.flow_label = static_cast<std::uint32_t>(random() & 0xf'ffff);
  return address;
}

constexpr std::size_t kLine = sizeof(CacheLine);

/// The words that headers of `bytes` bytes travel as.
FrameParts random_parts(std::mt19937_64& random, std::uint32_t payload_bytes) {
  FrameParts parts{};
  const Bth bth{.opcode = Opcode::kRcSendOnly,
                .solicited = random() % 2 == 0,
                .pad = pad_for(payload_bytes),
                .dest_qpn = Qpn{static_cast<std::uint32_t>(random() & 0xff'ffff)},
                .psn = Psn{static_cast<std::uint32_t>(random())}};
  parts.bth = bth.words();
  const auto extension = static_cast<std::uint32_t>(random() % 9 * 4);
  for (std::uint32_t at = 0; at < extension; at += 4)
    parts.extension[at / 8] |= (random() & 0xffff'ffff) << (8 * (at % 8));
  parts.header_bytes = static_cast<std::uint32_t>(Bth::kSize) + extension;
  parts.payload_bytes = payload_bytes;
  parts.udp_source_port = static_cast<std::uint16_t>(random());
  return parts;
}

/// The frame of those parts, header by header.
std::vector<std::byte> written_by_pieces(const FrameTemplate& head, const FrameParts& parts) {
  std::vector<std::byte> frame(
      head.frame_len(parts.header_bytes, parts.payload_bytes, pad_for(parts.payload_bytes)) + 64);
  const auto len = static_cast<std::uint32_t>(frame.size() - 64);
  std::byte* at = head.emit_head(frame.data(), len - head.overhead());
  head.put_source_port(at, parts.udp_source_port);
  store_words(bytes_at<Bth::kSize>(at), parts.bth);
  store_words(bytes_at<FrameParts::kMostExtension>(at + Bth::kSize), parts.extension);
  at += parts.header_bytes;
  std::fill(at, frame.data() + len, std::byte{0});
  std::copy_n(parts.payload, parts.payload_bytes, at);
  head.seal(frame.data(), len);
  frame.resize(len);
  return frame;
}

/// The lines that write_lines() may touch, between others.
struct Lines {
  static constexpr std::byte kAnything{0xa5};

  Lines() {
    for (CacheLine& line : lines) line.fill(kAnything);
  }
  [[nodiscard]] std::byte* room(std::size_t lead) { return lines[1].data() + lead; }
  /// Holds the frame, and zeros around it up to the borders of its lines, and nothing else was touched.
  [[nodiscard]] bool holds(std::span<const std::byte> frame, std::size_t lead) const {
    const std::span all{lines.front().data(), sizeof lines};
    std::vector<std::byte> expected((lead + frame.size() + kLine - 1) / kLine * kLine);
    std::copy(frame.begin(), frame.end(), expected.begin() + static_cast<std::ptrdiff_t>(lead));
    expected.insert(expected.begin(), kLine, kAnything);
    expected.resize(all.size(), kAnything);
    return std::equal(all.begin(), all.end(), expected.begin());
  }
  std::array<CacheLine, 12> lines;
};

void check_address(const PacketView& packet, const FrameAddress& address) {
  CHECK(packet.link() ==
        LinkAddress{.src = address.src_mac, .dst = address.dst_mac, .vlan_tci = address.vlan_tci});
  CHECK(packet.src_gid() == address.sgid);
  CHECK(packet.dst_gid() == address.dgid);
  CHECK(packet.traffic_class() == address.traffic_class);
  CHECK(packet.hop_limit() == address.hop_limit);
  CHECK(packet.gid_type == address.type);
  if (packet.is_v6) CHECK(packet.ipv6().flow_label == address.flow_label);
  if (address.type == GidType::kRoceV1) return;
  CHECK(packet.udp_src_port() == address.udp_src_port);
  CHECK(packet.udp().checksum == 0);
}

}  // namespace

TEST_CASE("a frame from a template is the frame that the fields spell", "[wire][template]") {
  const Bth bth{.opcode = Opcode::kRcSendOnly, .dest_qpn = Qpn{0x11}, .ack_req = true, .psn = Psn{0xab'cdef}};
  const auto v4 = test::make_frame(v4_address(), bth, {}, 5);
  const auto v6 = test::make_frame(v6_address(), bth, {}, 5);
  const auto v1 = test::make_frame(v1_address(), bth, {}, 5);
  // M is 1, identification 0, and 5 bytes of payload count up from 1; the ICRC is checked by the reference
  // elsewhere.
  CHECK(test::to_hex(std::span{v4}.first(62)) ==
        "020000000002020000000001"
        "0800"
        "4500003400004000401126b70a0000010a000002"
        "c12312b700200000"
        "0470ffff0000001180abcdef"
        "0102030405000000");
  CHECK(test::to_hex(std::span{v6}.first(82)) ==
        "020000000002020000000001"
        "86dd"
        "6001234500201140fd990000000000000000000000000001fd990000000000000000000000000002"
        "c12312b700200000"
        "0470ffff0000001180abcdef"
        "0102030405000000");
  CHECK(test::to_hex(std::span{v1}.first(74)) ==
        "020000000002020000000001"
        "8915"
        "6001234500181b40fd990000000000000000000000000001fd990000000000000000000000000002"
        "0470ffff0000001180abcdef"
        "0102030405000000");
}

TEST_CASE("frames of random addresses and sizes are read back as they were meant", "[wire][template]") {
  constexpr std::uint64_t kSeed = 0x5eed'0003;
  std::mt19937_64 random{kSeed};
  for (unsigned i = 0; i < 3000; ++i) {
    CAPTURE(kSeed, i);
    const auto address = random_address(random);
    const auto payload = static_cast<std::uint32_t>(random() % 4097);
    const Bth bth{.opcode = Opcode::kRcSendOnly, .dest_qpn = Qpn{0x11}, .psn = Psn{i}};
    const auto frame = test::make_frame(address, bth, {}, payload);
    PacketView packet;
    REQUIRE(parse_packet(frame, packet) == ParseResult::kRoce);
    REQUIRE(icrc_ok(packet));
    check_address(packet, address);
    CHECK(packet.payload.size() == payload);
    CHECK(packet.bth.psn == bth.psn);
    CHECK(packet.bth_offset + packet.roce_len == frame.size());
  }
}

TEST_CASE("a frame written by whole lines is the one that is written header by header",
          "[wire][template][lines]") {
  if (!has_wide_crc32()) return test::skip("this CPU lacks AVX-512, VPCLMULQDQ or GFNI");
  constexpr std::uint64_t kSeed = 0x5eed'0004;
  std::mt19937_64 random{kSeed};
  test::GuardedBytes guarded{4096};
  for (unsigned i = 0; i < 100'000; ++i) {
    CAPTURE(kSeed, i);
    const FrameTemplate head{random_address(random)};
    FrameParts parts =
        random_parts(random, static_cast<std::uint32_t>(random() % (FrameParts::kMostPayload + 1)));
    const auto payload = guarded.room(i % 2 == 0 ? parts.payload_bytes : 4096);
    for (std::byte& byte : payload) byte = static_cast<std::byte>(random());
    parts.payload = parts.payload_bytes == 0 ? nullptr : payload.data();
    const std::size_t lead = random() % 2 == 0 ? 0 : FrameTemplate::kLead;
    Lines lines;
    head.write_lines(lines.room(lead), parts);
    if (!lines.holds(written_by_pieces(head, parts), lead)) FAIL(parts.payload_bytes << " B, lead " << lead);
  }
}

TEST_CASE("a frame written piece by piece at once is the one that is written header by header",
          "[wire][template][lines]") {
  static_cast<void>(copies_in_one_pass());  // makes the choice
  if (!computes_crc32_of_parts()) return test::skip("this CPU lacks AVX2 or PCLMULQDQ");
  constexpr std::uint64_t kSeed = 0x5eed'0005;
  std::mt19937_64 random{kSeed};
  test::GuardedBytes guarded{4096};
  test::GuardedBytes room{4096};
  for (unsigned i = 0; i < 100'000; ++i) {
    CAPTURE(kSeed, i);
    const FrameTemplate head{random_address(random)};
    const std::uint64_t longest = i % 4 == 0 ? FrameParts::kMostPayload : 40;
    FrameParts parts = random_parts(random, static_cast<std::uint32_t>(random() % (longest + 1)));
    const auto payload = guarded.room(i % 2 == 0 ? parts.payload_bytes : 4096);
    for (std::byte& byte : payload) byte = static_cast<std::byte>(random());
    parts.payload = parts.payload_bytes == 0 ? nullptr : payload.data();
    const auto expected = written_by_pieces(head, parts);
    // Nothing behind the frame is touched, nor before it.
    const auto end = room.room(expected.size() + 64);
    std::fill(end.begin(), end.end(), Lines::kAnything);
    const auto frame = end.last(expected.size());
    head.write_pieces(frame.data(), parts);
    if (!std::equal(frame.begin(), frame.end(), expected.begin())) FAIL(parts.payload_bytes << " B");
    REQUIRE(std::ranges::all_of(end.first(64), [](std::byte b) { return b == Lines::kAnything; }));
  }
}

TEST_CASE(
    "memory that changes while it is sent leaves as it was at one time, or another, with the ICRC of that",
    "[wire][template][lines]") {
  static_cast<void>(copies_in_one_pass());  // makes the choice
  constexpr std::size_t kPayload = 1500;
  test::Restless memory{kPayload};
  std::mt19937_64 random{0x5eed'0006};
  const FrameTemplate head{v4_address()};
  alignas(kLine) std::array<std::byte, 1024> room{};
  std::vector<std::byte> copy(kPayload);
  for (unsigned i = 0; i < 200'000; ++i) {
    FrameParts parts = random_parts(random, static_cast<std::uint32_t>(random() % FrameParts::kMostPayload));
    parts.payload = memory.bytes().data();
    const std::uint32_t len =
        head.frame_len(parts.header_bytes, parts.payload_bytes, pad_for(parts.payload_bytes));
    if (computes_crc32_of_parts()) {
      head.write_pieces(room.data(), parts);
      const auto icrc = load_icrc(bytes_at<kIcrcSize>(room.data() + len - kIcrcSize));
      if (icrc != head.icrc_of_first(room.data(), len - kIcrcSize)) FAIL(parts.payload_bytes << " B");
    }
    const auto size = 64 + random() % (kPayload - 64);
    const std::uint32_t crc = copy_crc32(0, copy.data(), memory.bytes().first(size));
    if (crc != portable_masked_crc32(0, std::span{copy}.first(size), {})) FAIL(size << " B copied");
  }
}

TEST_CASE("a template stays inside the smallest frame", "[wire][template]") {
  test::GuardedBytes guarded{4096};
  for (auto address : {v4_address(), v6_address(), v1_address()}) {
    for (const bool tagged : {false, true}) {
      if (tagged) address.vlan_tci = 7;
      const FrameTemplate head{address};
      const std::uint32_t size = head.frame_len(Bth::kSize, 0, 0);
      const auto frame = guarded.room(size);
      std::byte* at = head.emit_head(frame.data(), size - head.overhead());
      CHECK(at == frame.data() + head.overhead());
      emit_at(at, Bth{.opcode = Opcode::kRcSendOnly});
      head.seal(frame.data(), size);
      PacketView packet;
      REQUIRE(parse_packet(frame, packet) == ParseResult::kRoce);
      CHECK(icrc_ok(packet));
      const bool is_v1 = address.type == GidType::kRoceV1;
      CHECK(size == (is_v1 ? 70U : head.is_v6() ? 78U : 58U) + (tagged ? 4U : 0U));
    }
  }
}

TEST_CASE("a hop limit of 0 goes out as 64", "[wire][template]") {
  auto address = v4_address();
  address.hop_limit = 0;
  const auto frame = test::make_frame(address, {.opcode = Opcode::kRcSendOnly});
  PacketView packet;
  REQUIRE(parse_packet(frame, packet) == ParseResult::kRoce);
  CHECK(packet.hop_limit() == 64);
  CHECK(packet.ipv4().ident == 0);
  CHECK(packet.ipv4().flags_fragment == Ipv4::kDontFragment);
}

TEST_CASE("the UDP source port follows the flow label, or the QP numbers alike on both sides",
          "[wire][template]") {
  CHECK(udp_source_port(0x1, Qpn{1}, Qpn{2}) == 0xc001);
  CHECK(udp_source_port(0xf'ffff, Qpn{1}, Qpn{2}) == (0xc000 | (0x3fff ^ 0x3f)));
  CHECK(udp_source_port(0x0'9064, Qpn{1}, Qpn{2}) == (0xc000 | (0x1064 ^ 0x2)));
  CHECK(udp_source_port(0, Qpn{0x11}, Qpn{0x12}) == (0xc000 | 0x132));
  CHECK(udp_source_port(0, Qpn{0xab'cdef}, Qpn{0x12'3456}) ==
        udp_source_port(0, Qpn{0x12'3456}, Qpn{0xab'cdef}));
  CHECK(udp_source_port(0, Qpn{0}, Qpn{0}) == 0xc000);
}

}  // namespace uroce::wire
