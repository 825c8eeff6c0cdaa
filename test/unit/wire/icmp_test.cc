#include "wire/icmp.h"

#include <catch2/catch.hpp>

#include "support/hex.h"

namespace uroce::wire {
namespace {

// Identifier 0x1234, sequence number 1, data "abcdefg" (an odd length). Made by a script with its own
// checksum code; tshark calls all checksums good.
constexpr const char* kRequest4 =
    "020000000002 020000000001 0800 4500002355664000 4001d171 0a000001 0a000002"
    "0800549d12340001 61626364656667";
constexpr const char* kReply4 =
    "020000000001 020000000002 0800 4500002300004000 400126d8 0a000002 0a000001"
    "00005c9d12340001 61626364656667";
constexpr const char* kRequest6 =
    "020000000002 020000000001 86dd 60000000000f3a40 fd990000000000000000000000000001"
    "fd990000000000000000000000000002 8000e11c12340001 61626364656667";
constexpr const char* kReply6 =
    "020000000001 020000000002 86dd 60000000000f3a40 fd990000000000000000000000000002"
    "fd990000000000000000000000000001 8100e01c12340001 61626364656667";

test::Bytes reply_to(std::span<const std::byte> frame) {
  PacketView request;
  const ParseResult result = parse_packet(frame, request);
  REQUIRE((result == ParseResult::kIcmp || result == ParseResult::kIcmp6));
  test::Bytes reply(echo_reply_len(request));
  if (!reply.empty()) emit_echo_reply(request, reply.data());
  return reply;
}

}  // namespace

TEST_CASE("an echo request over IPv4 is answered", "[wire][icmp]") {
  CHECK(test::to_hex(reply_to(test::hex(kRequest4))) == test::to_hex(test::hex(kReply4)));
}

TEST_CASE("padding behind an echo request is not echoed", "[wire][icmp]") {
  auto frame = test::hex(kRequest4);
  frame.resize(kMinFrame, std::byte{0xee});
  CHECK(test::to_hex(reply_to(frame)) == test::to_hex(test::hex(kReply4)));
}

TEST_CASE("an echo request over IPv6 is answered", "[wire][icmp]") {
  CHECK(test::to_hex(reply_to(test::hex(kRequest6))) == test::to_hex(test::hex(kReply6)));
}

TEST_CASE("an echo reply keeps the VLAN tag of the request", "[wire][icmp]") {
  auto frame = test::hex(kRequest4);
  const auto tag = test::hex("81000064");
  frame.insert(frame.begin() + 12, tag.begin(), tag.end());
  const auto reply = reply_to(frame);
  REQUIRE(reply.size() == frame.size());
  CHECK(test::to_hex(std::span{reply}.subspan(12, 6)) == "810000640800");
}

TEST_CASE("what is not a sound echo request to one node gets no answer", "[wire][icmp]") {
  auto frame = test::hex(kRequest4);
  SECTION("a reply") {
    CHECK(reply_to(test::hex(kReply4)).empty());
  }
  SECTION("a wrong checksum") {
    frame[48] ^= std::byte{1};
    CHECK(reply_to(frame).empty());
  }
  SECTION("a broadcast frame") {
    for (std::size_t i = 0; i < 6; ++i) frame[i] = std::byte{0xff};
    CHECK(reply_to(frame).empty());
  }
  SECTION("an IPv4 address that is no node's") {
    for (const std::uint8_t byte : {std::uint8_t{0}, std::uint8_t{255}}) {
      Ipv4 ip = parse_at<Ipv4>(frame.data() + Ether::kSize);
      ip.src.fill(byte);
      emit_at(frame.data() + Ether::kSize, ip.with_checksum());
      CHECK(reply_to(frame).empty());
    }
  }
  SECTION("a wrong checksum over IPv6") {
    auto v6 = test::hex(kRequest6);
    v6.back() ^= std::byte{1};
    CHECK(reply_to(v6).empty());
  }
}

}  // namespace uroce::wire
