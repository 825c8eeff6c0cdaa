/// IGMP and MLD. The frames are those of Linux 6.1: a host that joins and leaves 239.1.2.3 and
/// ff1e::1234:5678, a bridge that asks. Version 3 and 2 queries are made from its older ones.
#include <catch2/catch.hpp>
#include <string>

#include "support/guarded_bytes.h"
#include "support/hex.h"
#include "wire/igmp.h"
#include "wire/mld.h"

namespace uroce::wire {
namespace {

using test::Bytes;
using test::hex;
using test::to_hex;
using Kind = GroupMessage::Kind;
using Type = GroupRecord::Type;

constexpr MacAddress kMac{{0x02, 0x99, 0, 0, 0, 3}};
const GroupReporter kFrom4{.mac = kMac, .own = *Gid::parse("10.99.0.3")};
const GroupReporter kFrom6{.mac = kMac, .own = *Gid::parse("fe80::99:ff:fe00:3")};
const Gid kGroup4 = *Gid::parse("239.1.2.3");
const Gid kGroup6 = *Gid::parse("ff1e::1234:5678");

const char* const kLinkV4 = "01005e0000160299000000030800";
const char* const kReport3 =
    "46c0002800004000"
    "0102f9930a630003"
    "e000001694040000"
    "2200e8f900000001"
    "04000000ef010203";
const char* const kReport6 =
    "333300000016029900000003"
    "86dd6000000000240001fe80000000000000009900fffe000003"
    "ff020000000000000000000000000016"
    "3a00050200000100"
    "8f0007a700000001"
    "04000000ff1e0000000000000000000012345678";
const char* const kQuery2 =
    "01005e000001029900000009080046c0002000004000"
    "0102f9aa0a630009e000000194040000"
    "1164ee9b00000000";
const char* const kQuery3 =
    "01005e000001029900000009080046c0002400004000"
    "0102f9a60a630009e000000194040000"
    "1164ec1e00000000027d0000";
const char* const kMldHead =
    "fe80000000000000009900fffe000009"
    "ff020000000000000000000000000001"
    "3a00050200000000";
const std::string kMldQuery1 = std::string("33330000000102990000000986dd6000000000200001") + kMldHead +
                               "820059762710000000000000000000000000000000000000";
Bytes igmp(IgmpType type) {
  Bytes frame(igmp_frame_len(kFrom4));
  emit_igmp_frame(frame.data(), kFrom4, type, kGroup4);
  return frame;
}
Bytes mld(MldType type) {
  Bytes frame(mld_frame_len(kFrom6));
  emit_mld_frame(frame.data(), kFrom6, type, kGroup6);
  return frame;
}

std::optional<GroupMessage> read(std::span<const std::byte> frame) {
  PacketView view;
  switch (parse_packet(frame, view)) {
    case ParseResult::kIgmp:
      return parse_igmp(frame, view.l3_offset);
    case ParseResult::kMld:
      return parse_mld(frame, view.l3_offset);
    default:
      return std::nullopt;
  }
}

/// Every cut of the frame and every damaged byte behind the Ethernet header is refused, and nothing is read
/// beyond its end.
void check_robust(const Bytes& frame) {
  test::GuardedBytes guarded(256);
  for (std::size_t size = 14; size < frame.size(); ++size) {
    INFO("cut to " << size);
    CHECK_FALSE(read(guarded.hold(std::span{frame}.first(size))).has_value());
  }
  for (std::size_t at = 14; at < frame.size(); ++at) {
    Bytes damaged = frame;
    damaged[at] ^= std::byte{0x01};
    (void)read(guarded.hold(damaged));
  }
}

}  // namespace

TEST_CASE("IGMP reports are those of Linux, byte by byte", "[wire][igmp][multicast]") {
  const GroupRecord joins{Type::kToExclude, kGroup4};
  Bytes frame(igmp_report_len(kFrom4, 1));
  emit_igmp_report(frame.data(), kFrom4, {&joins, 1});
  CHECK(to_hex(frame) == std::string(kLinkV4) + kReport3);
  CHECK(to_hex(igmp(IgmpType::kReportV2)) ==
        "01005e010203029900000003080046c00020000040000102e8ad0a630003ef010203940400001600f8faef010203");
  CHECK(to_hex(igmp(IgmpType::kLeave)) ==
        "01005e000002029900000003080046c00020000040000102f9af0a630003e0000002940400001700f7faef010203");
}

TEST_CASE("MLD reports are those of Linux, byte by byte", "[wire][mld][multicast]") {
  const GroupRecord joins{Type::kToExclude, kGroup6};
  Bytes frame(mld_report_len(kFrom6, 1));
  emit_mld_report(frame.data(), kFrom6, {&joins, 1});
  CHECK(to_hex(frame) == kReport6);
  CHECK(to_hex(mld(MldType::kReport)) ==
        "33331234567802990000000386dd6000000000200001fe80000000000000009900fffe000003"
        "ff1e00000000000000000000123456783a00050200000100"
        "8300aef900000000ff1e0000000000000000000012345678");
  CHECK(to_hex(mld(MldType::kDone)) ==
        "33330000000202990000000386dd6000000000200001fe80000000000000009900fffe000003"
        "ff0200000000000000000000000000023a00050200000100"
        "840016c000000000ff1e0000000000000000000012345678");
}

TEST_CASE("messages of a VLAN carry its tag, and nothing else is different",
          "[wire][igmp][mld][multicast][vlan]") {
  const GroupRecord joins4{Type::kToExclude, kGroup4};
  const GroupRecord joins6{Type::kToExclude, kGroup6};
  const auto messages = [&](std::uint16_t vlan) {
    GroupReporter from4 = kFrom4;
    GroupReporter from6 = kFrom6;
    from4.vlan = from6.vlan = vlan;
    std::vector<Bytes> frames{Bytes(igmp_frame_len(from4)), Bytes(igmp_report_len(from4, 1)),
                              Bytes(mld_frame_len(from6)), Bytes(mld_report_len(from6, 1))};
    emit_igmp_frame(frames[0].data(), from4, IgmpType::kReportV2, kGroup4);
    emit_igmp_report(frames[1].data(), from4, {&joins4, 1});
    emit_mld_frame(frames[2].data(), from6, MldType::kReport, kGroup6);
    emit_mld_report(frames[3].data(), from6, {&joins6, 1});
    return frames;
  };
  const auto plain = messages(0);
  const auto tagged = messages(0x123);
  for (std::size_t i = 0; i < plain.size(); ++i) {
    Bytes expected = plain[i];
    const Bytes tag = hex("81000123");
    expected.insert(expected.begin() + 12, tag.begin(), tag.end());
    CHECK(to_hex(tagged[i]) == to_hex(expected));
    CHECK(read(tagged[i]).has_value());
  }
}

TEST_CASE("a report names several groups", "[wire][igmp][mld][multicast]") {
  const GroupRecord two[] = {{Type::kIsExclude, kGroup4}, {Type::kToInclude, *Gid::parse("239.9.9.9")}};
  Bytes frame(igmp_report_len(kFrom4, 2));
  emit_igmp_report(frame.data(), kFrom4, two);
  CHECK(to_hex(std::span{frame}.subspan(42)) == "0000000202000000ef01020303000000ef090909");
  CHECK(read(frame) == GroupMessage{});  // checksums are right
  const GroupRecord both[] = {{Type::kIsExclude, kGroup6}, {Type::kToInclude, kGroup6}};
  Bytes six(mld_report_len(kFrom6, 2));
  emit_mld_report(six.data(), kFrom6, both);
  CHECK(six.size() == 62 + 8 + 40);
  CHECK(read(six) == GroupMessage{});
}

TEST_CASE("queries of each version are read with their delay", "[wire][igmp][mld][multicast]") {
  const std::uint64_t ms = 1'000'000;
  CHECK(read(hex(kQuery2)) == GroupMessage{Kind::kQuery, 2, {}, 10'000 * ms});
  CHECK(read(hex(kQuery3)) == GroupMessage{Kind::kQuery, 3, {}, 10'000 * ms});
  Bytes first = hex(kQuery2);  // version 1: no code
  first[39] = first[40] = std::byte{0};
  first[40] = std::byte{0xee};
  first[41] = std::byte{0xff};
  CHECK(read(first) == GroupMessage{Kind::kQuery, 1, {}, 10'000 * ms});
  CHECK(read(hex(kMldQuery1)) == GroupMessage{Kind::kQuery, 1, {}, 10'000 * ms});
  Bytes second = hex(kMldQuery1);
  second[19] = std::byte{0x24};
  second[64] = std::byte{0x56};  // 0x5976 - 4 bytes more - 0x027d
  second[65] = std::byte{0xf5};
  for (const auto byte : hex("027d0000")) second.push_back(byte);
  CHECK(read(second) == GroupMessage{Kind::kQuery, 2, {}, 10'000 * ms});
}

TEST_CASE("queries that are too long for one version and too short for the next are refused",
          "[wire][igmp][mld][multicast]") {
  Bytes igmp_query = hex(kQuery3);
  for (int i = 0; i < 2; ++i) igmp_query.pop_back();
  igmp_query[17] = std::byte{0x22};
  igmp_query[25] = std::byte{0xa8};
  CHECK_FALSE(read(igmp_query).has_value());
  Bytes mld_query = hex(kMldQuery1);
  mld_query[19] = std::byte{0x22};
  mld_query[64] = std::byte{0x56};  // 0x5976 - 2 bytes more - 0x027d
  mld_query[65] = std::byte{0xf7};
  for (const auto byte : hex("027d")) mld_query.push_back(byte);
  CHECK_FALSE(read(mld_query).has_value());
}

TEST_CASE("reports of other listeners in older versions are read, newer ones are for routers",
          "[wire][igmp][mld][multicast]") {
  CHECK(read(igmp(IgmpType::kReportV2)) == GroupMessage{Kind::kReport, 2, kGroup4, 0});
  CHECK(read(igmp(IgmpType::kReportV1)) == GroupMessage{Kind::kReport, 1, kGroup4, 0});
  CHECK(read(igmp(IgmpType::kLeave)) == GroupMessage{});
  CHECK(read(hex(std::string(kLinkV4) + kReport3)) == GroupMessage{});
  CHECK(read(mld(MldType::kReport)) == GroupMessage{Kind::kReport, 1, kGroup6, 0});
  CHECK(read(mld(MldType::kDone)) == GroupMessage{});
  CHECK(read(hex(kReport6)) == GroupMessage{});
}

TEST_CASE("cut or damaged messages are refused", "[wire][igmp][mld][multicast]") {
  for (const std::string& text : {std::string(kQuery2), std::string(kQuery3), kMldQuery1}) {
    check_robust(hex(text));
  }
  for (const std::size_t at : {24U, 34U, 35U, 40U, 45U}) {  // IP checksum, message, its checksum, group
    Bytes damaged = hex(kQuery2);
    damaged[at] ^= std::byte{0x01};
    CHECK_FALSE(read(damaged).has_value());
  }
  const auto refused_mld = [](std::size_t at, std::uint8_t value) {
    Bytes frame = hex(kMldQuery1);
    frame[at] = std::byte{value};
    return !read(frame).has_value();
  };
  CHECK(refused_mld(21, 64));    // came through a router
  CHECK(refused_mld(22, 0x20));  // not from a link-local address
  CHECK(refused_mld(56, 1));     // PadN where the router alert was
  CHECK(refused_mld(57, 3));     // an option that is cut
  CHECK(refused_mld(54, 17));    // not ICMPv6
  CHECK(refused_mld(55, 9));     // options beyond the end
  CHECK(refused_mld(65, 0x77));  // checksum
}

TEST_CASE("all groups are reported but all nodes and those of the node", "[wire][mld][multicast]") {
  // RFC 3810 6, RFC 2710 5; solicited-node groups are none of the exceptions
  CHECK(mld_reports(kGroup6));
  CHECK(mld_reports(*Gid::parse("ff02::123")));
  CHECK(mld_reports(*Gid::parse("ff02::1:ff12:3456")));
  for (const char* never : {"ff02::1", "ff01::5", "ff00::5"}) {
    CHECK_FALSE(mld_reports(*Gid::parse(never)));
  }
}

}  // namespace uroce::wire
