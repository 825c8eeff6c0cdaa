/// ARP and IPv6 neighbour discovery. The captures check them against Linux; here are the rules.
#include <catch2/catch.hpp>

#include "support/hex.h"
#include "wire/arp.h"
#include "wire/multicast.h"
#include "wire/nd.h"

namespace uroce::wire {
namespace {

const MacAddress kOwnMac{{2, 0, 0, 0, 0, 1}};
const MacAddress kPeerMac{{2, 0, 0, 0, 0, 2}};
const Gid kOwn = *Gid::parse("fd99::1");
const Gid kPeer = *Gid::parse("fd99::2");

test::Bytes frame_of(const NeighbourMessage& message, const LinkAddress& link) {
  test::Bytes frame(neighbour_frame_len(link, message));
  emit_neighbour_frame(frame.data(), link, message);
  return frame;
}

std::optional<NeighbourMessage> read(std::span<const std::byte> frame) {
  PacketView packet;
  if (parse_packet(frame, packet) != ParseResult::kIcmp6) return std::nullopt;
  return parse_neighbour(packet);
}

/// Makes the ICMPv6 checksum of a changed frame right again.
void reseal(test::Bytes& frame) {
  PacketView packet;
  REQUIRE(parse_packet(frame, packet) == ParseResult::kIcmp6);
  frame[56] = frame[57] = std::byte{0};
  const std::uint16_t sum = finish_sum(icmp6_sum(packet.src_gid(), packet.dst_gid(), packet.ip_payload()));
  frame[56] = static_cast<std::byte>(sum >> 8);
  frame[57] = static_cast<std::byte>(sum);
}

/// A valid solicitation from the peer for our address, 86 bytes.
test::Bytes solicitation() {
  const auto message = make_solicitation(kPeerMac, kPeer, kOwn);
  return frame_of(message, {.src = kPeerMac, .dst = multicast_mac(message.dst)});
}

}  // namespace

TEST_CASE("an ARP request is asked, read and answered", "[wire][arp]") {
  const Gid own = Gid::from_v4({10, 0, 0, 1});
  const Gid peer = Gid::from_v4({10, 0, 0, 2});
  const LinkAddress everyone{.src = kOwnMac, .dst = kBroadcastMac};
  test::Bytes frame(arp_frame_len(everyone));
  emit_arp_frame(frame.data(), everyone, make_arp_request(kOwnMac, own, peer));
  CHECK(test::to_hex(frame) ==
        "ffffffffffff0200000000010806"
        "0001080006040001"
        "0200000000010a000001"
        "0000000000000a000002");

  PacketView packet;
  REQUIRE(parse_packet(frame, packet) == ParseResult::kArp);
  const auto request = parse_arp(frame, packet.l3_offset);
  REQUIRE(request.has_value());
  const Arp reply = make_arp_reply(*request, kPeerMac);
  CHECK(reply.operation == Arp::Operation::kReply);
  CHECK(reply.sender_mac == kPeerMac);
  CHECK(Gid::from_v4(reply.sender_ip) == peer);
  CHECK(reply.target_mac == kOwnMac);
  CHECK(Gid::from_v4(reply.target_ip) == own);
}

TEST_CASE("ARP keeps the VLAN tag and takes no part of a message", "[wire][arp]") {
  const LinkAddress tagged{.src = kOwnMac, .dst = kBroadcastMac, .vlan_tci = 0x0064};
  test::Bytes frame(arp_frame_len(tagged));
  emit_arp_frame(frame.data(), tagged,
                 make_arp_request(kOwnMac, Gid::from_v4({10, 0, 0, 1}), Gid::from_v4({10, 0, 0, 2})));
  CHECK(frame.size() == 46);
  PacketView packet;
  REQUIRE(parse_packet(frame, packet) == ParseResult::kArp);
  CHECK(packet.link() == tagged);
  CHECK(parse_arp(frame, packet.l3_offset).has_value());
  CHECK_FALSE(parse_arp(std::span{frame}.first(45), packet.l3_offset).has_value());
}

TEST_CASE("ARP of other networks, other operations or group senders is no ARP for us", "[wire][arp]") {
  const LinkAddress link{.src = kOwnMac, .dst = kBroadcastMac};
  Arp arp = make_arp_request(kOwnMac, Gid::from_v4({10, 0, 0, 1}), Gid::from_v4({10, 0, 0, 2}));
  const auto is_read = [&link](const Arp& message) {
    test::Bytes frame(arp_frame_len(link));
    emit_arp_frame(frame.data(), link, message);
    return parse_arp(frame, Ether::kSize).has_value();
  };
  CHECK(is_read(arp));
  arp.types = 0x0006'0800'0604;
  CHECK_FALSE(is_read(arp));
  arp.types = Arp::kEthernetIpv4;
  arp.operation = Arp::Operation{3};
  CHECK_FALSE(is_read(arp));
  arp.operation = Arp::Operation::kReply;
  arp.sender_mac = kBroadcastMac;
  CHECK_FALSE(is_read(arp));
}

TEST_CASE("a neighbour solicitation is asked, read and answered", "[wire][nd]") {
  const auto frame = solicitation();
  CHECK(test::to_hex(std::span{frame}.first(14)) == "3333ff00000102000000000286dd");
  const auto asked = read(frame);
  REQUIRE(asked.has_value());
  CHECK(*asked == make_solicitation(kPeerMac, kPeer, kOwn));
  CHECK(to_string(asked->dst) == "ff02::1:ff00:1");

  const auto answer = make_advertisement(*asked, kOwnMac);
  CHECK(answer.dst == kPeer);
  const auto heard = read(frame_of(answer, {.src = kOwnMac, .dst = kPeerMac}));
  REQUIRE(heard.has_value());
  CHECK(*heard == answer);
  CHECK(heard->solicited);
  CHECK(heard->override_old);
  CHECK_FALSE(heard->router);
  CHECK(heard->link_address == kOwnMac);
}

TEST_CASE("a neighbour that has no address yet is answered to all nodes", "[wire][nd]") {
  auto probe = make_solicitation(kPeerMac, Gid{}, kOwn);
  probe.link_address.reset();
  const auto asked = read(frame_of(probe, {.src = kPeerMac, .dst = multicast_mac(probe.dst)}));
  REQUIRE(asked.has_value());
  const auto answer = make_advertisement(*asked, kOwnMac);
  CHECK(answer.dst == kAllNodes);
  CHECK_FALSE(answer.solicited);
  CHECK(read(frame_of(answer, {.src = kOwnMac, .dst = multicast_mac(answer.dst)})) == answer);
}

TEST_CASE("a neighbour message that breaks a rule of RFC 4861 is dropped", "[wire][nd]") {
  auto frame = solicitation();
  SECTION("it came through a router") {
    frame[21] = std::byte{254};
    CHECK_FALSE(read(frame).has_value());
  }
  SECTION("its checksum is wrong") {
    frame[70] ^= std::byte{1};
    CHECK_FALSE(read(frame).has_value());
  }
  SECTION("its code is not 0") {
    frame[55] = std::byte{1};
    reseal(frame);
    CHECK_FALSE(read(frame).has_value());
  }
  SECTION("an option has length 0 or reaches beyond the end") {
    for (const unsigned length : {0U, 2U}) {
      frame[79] = static_cast<std::byte>(length);
      reseal(frame);
      CHECK_FALSE(read(frame).has_value());
    }
  }
  SECTION("its target is a group") {
    frame[62] = std::byte{0xff};
    reseal(frame);
    CHECK_FALSE(read(frame).has_value());
  }
  SECTION("a solicitation without source tells a link address, or goes to one node") {
    auto message = make_solicitation(kPeerMac, Gid{}, kOwn);
    CHECK_FALSE(read(frame_of(message, {.src = kPeerMac, .dst = kOwnMac})).has_value());
    message.link_address.reset();
    message.dst = kOwn;
    CHECK_FALSE(read(frame_of(message, {.src = kPeerMac, .dst = kOwnMac})).has_value());
  }
  SECTION("an advertisement to a group claims to be asked for") {
    auto message = make_advertisement(make_solicitation(kPeerMac, kPeer, kOwn), kOwnMac);
    message.dst = kAllNodes;
    CHECK_FALSE(read(frame_of(message, {.src = kOwnMac, .dst = kPeerMac})).has_value());
  }
}

TEST_CASE("unknown options of a neighbour message are stepped over", "[wire][nd]") {
  auto frame = solicitation();
  auto nonce = test::hex("0e01010203040506");  // RFC 3971
  frame.insert(frame.begin() + 78, nonce.begin(), nonce.end());
  frame[19] = std::byte{40};
  reseal(frame);
  const auto asked = read(frame);
  REQUIRE(asked.has_value());
  CHECK(asked->link_address == kPeerMac);
}

}  // namespace uroce::wire
