// Header prediction: what is compared and not parsed must come out as if it were.
#include "wire/header_pattern.h"

#include <catch2/catch.hpp>
#include <vector>

#include "support/frames.h"
#include "support/guarded_bytes.h"

namespace uroce::wire {
namespace {

using test::Bytes;
using test::make_frame;

/// One frame of each underlay, with a tag and without, of shapes that differ.
std::vector<Bytes> frames() {
  std::vector<Bytes> all;
  auto tagged_v4 = test::v4_address();
  auto tagged_v6 = test::v6_address();
  tagged_v4.vlan_tci = tagged_v6.vlan_tci = 0x6064;
  for (const auto& address :
       {test::v4_address(), test::v6_address(), test::v1_address(), tagged_v4, tagged_v6}) {
    for (const Opcode opcode : {Opcode::kRcSendOnly, Opcode::kRcWriteOnlyImm, Opcode::kRcAck,
                                Opcode::kUdSendOnly, xrc(Opcode::kRcSendOnly)}) {
      const Bytes ext(info(opcode).header_bytes - Bth::kSize, std::byte{0x11});
      all.push_back(make_frame(address, {.opcode = opcode, .dest_qpn = Qpn{0x12}, .psn = Psn{0x34}}, ext,
                               info(opcode).has_payload ? 5 : 0));
    }
  }
  return all;
}

PacketView view_of(std::span<const std::byte> frame) {
  PacketView view;
  REQUIRE(parse_packet(frame, view) == ParseResult::kRoce);
  return view;
}

bool same(std::span<const std::byte> a, std::span<const std::byte> b) {
  return a.data() == b.data() && a.size() == b.size();
}

/// Whether nobody can tell one from the other.
bool is_same(const PacketView& a, const PacketView& b) {
  const bool same_place = a.frame == b.frame && a.frame_len == b.frame_len && a.l3_offset == b.l3_offset &&
                          a.bth_offset == b.bth_offset && a.roce_len == b.roce_len;
  const bool same_kind = a.vlan_tci == b.vlan_tci && a.has_vlan == b.has_vlan && a.is_v6 == b.is_v6 &&
                         a.gid_type == b.gid_type && a.op == b.op && a.bth == b.bth;
  return same_place && same_kind && a.ext == b.ext && same(a.payload, b.payload) &&
         same(a.ip_payload(), b.ip_payload());
}

}  // namespace

TEST_CASE("whatever byte of a packet changes, the pattern shows what parsing would, or nothing", "[wire]") {
  for (const Bytes& frame : frames()) {
    HeaderPattern pattern;
    pattern.learn(view_of(frame));
    const std::size_t bth = view_of(frame).bth_offset;
    test::GuardedBytes memory(frame.size());
    const auto other = memory.room(frame.size());
    std::size_t shown = 0;
    for (std::size_t at = 0; at < frame.size(); ++at) {
      for (unsigned bit = 0; bit < 8; ++bit) {
        std::copy(frame.begin(), frame.end(), other.begin());
        other[at] ^= static_cast<std::byte>(1U << bit);
        const PacketView* view = pattern.show(other);
        if (view == nullptr) continue;
        ++shown;
        CAPTURE(bth, at, bit);
        REQUIRE(is_same(*view, view_of(other)));
      }
    }
    // Destination QPN, AckReq and PSN, solicited event, UDP source port, and all behind the BTH.
    const std::size_t port = view_of(frame).gid_type == GidType::kRoceV1 ? 0 : 2;
    CHECK(shown == 8 * (3 + 4 + port + frame.size() - bth - Bth::kSize) + 1);
  }
}

TEST_CASE("a pattern shows packets one after the other, each where it is", "[wire]") {
  HeaderPattern pattern;
  const Bth first{.opcode = Opcode::kRcSendOnly, .dest_qpn = Qpn{0x12}, .psn = Psn{0xff'ffff}};
  const Bth second{
      .opcode = Opcode::kRcSendOnly, .solicited = true, .dest_qpn = Qpn{0xab'cdef}, .ack_req = true};
  const Bytes a = make_frame(test::v4_address(), first, {}, 64);
  const Bytes b = make_frame(test::v4_address(), second, {}, 64);
  pattern.learn(view_of(a));
  for (const Bytes& frame : {b, a, b}) {
    const PacketView* view = pattern.show(frame);
    REQUIRE(view != nullptr);
    CHECK(is_same(*view, view_of(frame)));
    CHECK(pattern.is_shown_by(*view));
    CHECK(icrc_ok(*view));
  }
}

TEST_CASE("a pattern that has learned nothing shows nothing, nor frames of other lengths", "[wire]") {
  HeaderPattern pattern;
  CHECK(pattern.show({}) == nullptr);
  const Bth bth{.opcode = Opcode::kRcSendOnly};
  const Bytes frame = make_frame(test::v4_address(), bth, {}, 8);
  CHECK(pattern.show(frame) == nullptr);
  pattern.learn(view_of(frame));
  CHECK(pattern.show(frame) != nullptr);
  CHECK(pattern.show(std::span(frame).first(frame.size() - 1)) == nullptr);
  CHECK(pattern.show({}) == nullptr);
  CHECK(pattern.show(make_frame(test::v4_address(), bth, {}, 12)) == nullptr);
}

}  // namespace uroce::wire
