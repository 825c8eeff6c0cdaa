// MADs of the communication manager: against captures, and against what tshark reads in them. IBA 12.6, A11.
#include <catch2/catch.hpp>
#include <map>
#include <string>

#include "captures.h"
#include "cm/ip_header.h"
#include "support/hex.h"

namespace uroce::test {
namespace {

using namespace uroce::wire;

MadHeader header_of(const Mad& mad) {
  return MadHeader::parse(std::span{mad}.first<MadHeader::kSize>());
}

template <typename Message>
Mad again(const Mad& mad) {
  const auto header = header_of(mad);
  return make_cm_mad(header.transaction_id, Message::parse(cm_body(mad)), header.attribute_modifier);
}

Mad written_again(const Mad& mad) {
  switch (static_cast<CmAttribute>(header_of(mad).attribute_id)) {
    case CmAttribute::kReq:
      return again<CmReq>(mad);
    case CmAttribute::kMra:
      return again<CmMra>(mad);
    case CmAttribute::kRej:
      return again<CmRej>(mad);
    case CmAttribute::kRep:
      return again<CmRep>(mad);
    case CmAttribute::kRtu:
      return again<CmRtu>(mad);
    case CmAttribute::kDreq:
      return again<CmDreq>(mad);
    case CmAttribute::kDrep:
      return again<CmDrep>(mad);
    case CmAttribute::kSidrReq:
      return again<SidrReq>(mad);
    case CmAttribute::kSidrRep:
      return again<SidrRep>(mad);
    default:
      return {};
  }
}

/// MAD `number`, from 1, of the worked handshake.
Mad worked(std::size_t number) {
  return mads_of(kCaptures / "vectors/cm.pcap").at(number - 1);
}

template <std::size_t N>
std::string text_of(const std::array<std::byte, N>& bytes, std::size_t from = 0) {
  std::string text;
  for (std::size_t i = from; i < N && bytes[i] != std::byte{0}; ++i) text += static_cast<char>(bytes[i]);
  return text;
}

cm::IpHeader ip_of(const CmReq& req) {
  const auto ip = cm::IpHeader::parse(std::span{req.private_data}.first<cm::IpHeader::kSize>());
  REQUIRE(ip.has_value());
  return *ip;
}

/// Bytes that all differ from their neighbours and from zero.
template <std::size_t N>
std::array<std::byte, N> pattern(std::size_t used = N) {
  std::array<std::byte, N> bytes{};
  for (std::size_t i = 0; i < used; ++i) bytes[i] = static_cast<std::byte>(i % 255 + 1);
  return bytes;
}

}  // namespace

TEST_CASE("every MAD of the captures is read and written again, byte for byte", "[cm][captures][T26]") {
  std::map<std::uint16_t, unsigned> seen;
  for (const auto* folder : {"rxe", "vectors"}) {
    for (const auto& file : pcap_files(kCaptures / folder)) {
      for (const Mad& mad : mads_of(file)) {
        CAPTURE(file.filename().string(), to_hex(mad));
        ++seen[header_of(mad).attribute_id];
        CHECK((written_again(mad) == mad));
      }
    }
  }
  // As tshark counts them.
  const std::map<std::uint16_t, unsigned> expected{{0x10, 21}, {0x12, 2},  {0x13, 19}, {0x14, 19},
                                                   {0x15, 21}, {0x16, 21}, {0x17, 2},  {0x18, 2}};
  CHECK(seen == expected);
}

TEST_CASE("the worked REQ says what tshark reads in it", "[cm][T26]") {
  const Mad mad = worked(1);
  const MadHeader header = header_of(mad);
  CHECK(header == MadHeader{.base_version = 1,
                            .mgmt_class = 7,
                            .class_version = 2,
                            .method = 3,
                            .transaction_id = 0x1122'3344'0000'0001,
                            .attribute_id = 0x10});
  const CmReq req = CmReq::parse(cm_body(mad));
  CHECK(req.local_comm_id == 0x1122'3344);
  CHECK(req.service_id == 0x0000'0000'0106'1d2f);
  CHECK(req.ca_guid == 0x0200'00ff'fe00'0001);
  CHECK(req.qkey == 0);
  CHECK(raw(req.qpn) == 0x123);
  CHECK(req.responder_resources == 4);
  CHECK(req.initiator_depth == 4);
  CHECK(req.remote_cm_timeout == 20);
  CHECK(req.service == 0);
  CHECK(req.flow_control);
  CHECK(req.psn == Psn{0xab'cdef});
  CHECK(req.local_cm_timeout == 20);
  CHECK(req.retry_cnt == 7);
  CHECK(req.pkey == 0xffff);
  CHECK(req.path_mtu == 3);
  CHECK(req.rnr_retry == 7);
  CHECK(req.max_cm_retries == 15);
  CHECK_FALSE(req.srq);
  CHECK(req.extended_transport == 0);
  CHECK(req.local_lid == 0xffff);
  CHECK(req.remote_lid == 0xffff);
  CHECK(req.local_gid == Gid::from_v4({10, 0, 0, 1}));
  CHECK(req.remote_gid == Gid::from_v4({10, 0, 0, 2}));
  CHECK(req.flow_label == 0x1'2345);  // tshark 4.0 reads these two one byte too early
  CHECK(req.packet_rate == 2);
  CHECK(req.traffic_class == 0);
  CHECK(req.hop_limit == 64);
  CHECK(req.sl == 0);
  CHECK(req.ack_timeout == 19);
  const auto ip = ip_of(req);
  CHECK(ip == cm::IpHeader{.source_port = 0x9c41,
                           .source = Gid::from_v4({10, 0, 0, 1}),
                           .destination = Gid::from_v4({10, 0, 0, 2})});
  CHECK(text_of(req.private_data, cm::IpHeader::kSize) == "hello");
}

TEST_CASE("the worked REP, RTU, REJ, DREQ and DREP say what tshark reads in them", "[cm][T26]") {
  const CmRep rep = CmRep::parse(cm_body(worked(2)));
  CHECK(rep.local_comm_id == 0x5566'7788);
  CHECK(rep.remote_comm_id == 0x1122'3344);
  CHECK(raw(rep.qpn) == 0x456);
  CHECK(rep.eecn == 0);
  CHECK(rep.psn == Psn{0xbeef});
  CHECK(rep.responder_resources == 4);
  CHECK(rep.initiator_depth == 4);
  CHECK(rep.target_ack_delay == 15);
  CHECK(rep.failover == 0);
  CHECK(rep.flow_control);
  CHECK(rep.rnr_retry == 7);
  CHECK_FALSE(rep.srq);
  CHECK(rep.ca_guid == 0x0200'00ff'fe00'0002);
  CHECK(text_of(rep.private_data) == "reply");

  const CmRtu rtu = CmRtu::parse(cm_body(worked(3)));
  CHECK(rtu.local_comm_id == 0x1122'3344);
  CHECK(rtu.remote_comm_id == 0x5566'7788);

  const CmRej rej = CmRej::parse(cm_body(worked(4)));
  CHECK(rej.local_comm_id == 0x5566'7788);
  CHECK(rej.remote_comm_id == 0x1122'3344);
  CHECK(rej.about == CmAbout::kReq);
  CHECK(rej.info_len == 0);
  CHECK(rej.reason == 28);

  const CmDreq dreq = CmDreq::parse(cm_body(worked(5)));
  CHECK(dreq.local_comm_id == 0x1122'3344);
  CHECK(dreq.remote_comm_id == 0x5566'7788);
  CHECK(raw(dreq.remote_qpn) == 0x456);
  CHECK(header_of(worked(5)).transaction_id == 0x1122'3344'0000'0002);

  const CmDrep drep = CmDrep::parse(cm_body(worked(6)));
  CHECK(drep.local_comm_id == 0x5566'7788);
  CHECK(drep.remote_comm_id == 0x1122'3344);
}

TEST_CASE("the worked SIDR_REQ and SIDR_REP say what was put into them", "[cm][sidr][T26]") {
  const SidrReq req = SidrReq::parse(cm_body(worked(7)));
  CHECK(req.request_id == 0xa1b2'c3d4);
  CHECK(req.pkey == 0xffff);
  CHECK(req.service_id == 0x0000'0000'0111'1b58);
  const auto ip = cm::IpHeader::parse(std::span{req.private_data}.first<cm::IpHeader::kSize>());
  CHECK(ip == cm::IpHeader{.source_port = 0x9c41,
                           .source = Gid::from_v4({10, 0, 0, 1}),
                           .destination = Gid::from_v4({10, 0, 0, 2})});
  CHECK(text_of(req.private_data, cm::IpHeader::kSize) == "sidr");

  const SidrRep rep = SidrRep::parse(cm_body(worked(8)));
  CHECK(rep.request_id == 0xa1b2'c3d4);
  CHECK(rep.status == 0);
  CHECK(raw(rep.qpn) == 0x789);
  CHECK(rep.service_id == 0x0000'0000'0111'1b58);
  CHECK(rep.qkey == kCmQkey);
}

TEST_CASE("the kernel's REQ over IPv6 carries whole addresses", "[cm][captures][T26]") {
  const CmReq req = CmReq::parse(cm_body(mads_of(kCaptures / "rxe/cm-rping-ipv6.pcap").front()));
  CHECK(req.local_gid == *Gid::parse("fd99::2"));
  CHECK(req.remote_gid == *Gid::parse("fd99::3"));
  CHECK(req.service_id == cm::service_id(PortSpace::kTcp, 7174));
  const auto ip = ip_of(req);
  CHECK(ip.source == *Gid::parse("fd99::2"));
  CHECK(ip.destination == *Gid::parse("fd99::3"));
  CHECK(req.packet_rate == 0);  // that of the port
}

TEST_CASE("a repeated REQ of the kernel is the same to the last bit", "[cm][captures]") {
  const auto mads = mads_of(kCaptures / "rxe/cm-request-lost.pcap");
  CHECK((mads.at(0) == mads.at(1)));
}

TEST_CASE("each field of MRA, REJ, LAP and APR has its place", "[cm][T26]") {
  // Bytes laid out by hand from IBA 12.6.6, 12.6.7, 12.8.1 and 12.8.2.
  const auto starts_with = [](const Mad& mad, std::size_t at, std::string_view expected) {
    const auto bytes = hex(expected);
    return to_hex(std::span{mad}.subspan(at, bytes.size())) == to_hex(bytes);
  };
  const Mad mra = make_cm_mad(0x0102'0304'0506'0708, CmMra{.local_comm_id = 0xa1a2'a3a4,
                                                           .remote_comm_id = 0xb1b2'b3b4,
                                                           .about = CmAbout::kRep,
                                                           .service_timeout = 24,
                                                           .private_data = pattern<222>()});
  CHECK(starts_with(mra, 0, "01070203 00000000 0102030405060708 00110000 00000000"));
  CHECK(starts_with(mra, 24, "a1a2a3a4 b1b2b3b4 40c0 0102"));
  CHECK(mra.back() == std::byte{222});

  CmRej reject{.local_comm_id = 0xa1a2'a3a4,
               .remote_comm_id = 0xb1b2'b3b4,
               .about = CmAbout::kOther,
               .info_len = 8,
               .reason = 0x1a,
               .private_data = pattern<148>()};
  reject.info[0] = std::byte{0x55};
  reject.info[71] = std::byte{0x66};
  const Mad rej = make_cm_mad(9, reject);
  CHECK(starts_with(rej, 24, "a1a2a3a4 b1b2b3b4 8010 001a 5500"));
  CHECK(starts_with(rej, 24 + 83, "66 0102"));
  CHECK(rej.back() == std::byte{148});

  const Mad lap = make_cm_mad(9, CmLap{.local_comm_id = 0xa1a2'a3a4, .remote_comm_id = 0xb1b2'b3b4});
  CHECK(starts_with(lap, 16, "00190000 00000000 a1a2a3a4 b1b2b3b4 00000000"));
  const Mad apr =
      make_cm_mad(9, CmApr{.local_comm_id = 0xa1a2'a3a4, .remote_comm_id = 0xb1b2'b3b4, .status = 1});
  CHECK(starts_with(apr, 16, "001a0000 00000000 a1a2a3a4 b1b2b3b4 0001 0000"));
}

TEST_CASE("fields of the REQ that the captures leave at one value", "[cm][T26]") {
  const CmReq req{.vendor_id = 0x01'0203,
                  .qkey = 0x1122'3344,
                  .remote_cm_timeout = 31,
                  .service = 3,
                  .local_cm_timeout = 1,
                  .retry_cnt = 5,
                  .pkey = 0x8001,
                  .path_mtu = 5,
                  .rnr_retry = 6,
                  .max_cm_retries = 9,
                  .srq = true,
                  .extended_transport = 1,
                  .local_lid = 0x1112,
                  .remote_lid = 0x1314,
                  .flow_label = 0xa'bcde,
                  .packet_rate = 0x3f,
                  .traffic_class = 0x68,
                  .hop_limit = 3,
                  .sl = 7,
                  .subnet_local = true,
                  .ack_timeout = 31};
  const Mad mad = make_cm_mad(1, req, 0xcafe'f00d);
  CHECK(to_hex(std::span{mad}.subspan(20, 12)) ==
        "cafef00d"
        "0000000000010203");
  CHECK(to_hex(std::span{mad}.subspan(24 + 28, 4)) == "11223344");
  CHECK(to_hex(std::span{mad}.subspan(24 + 40, 16)) ==
        "000000fe"
        "0000000d"
        "80015699"
        "11121314");
  CHECK(to_hex(std::span{mad}.subspan(24 + 88, 8)) ==
        "abcde03f"
        "680378f8");
  CHECK(CmReq::parse(cm_body(mad)) == req);
  CHECK(MadHeader::parse(std::span{mad}.first<24>()).attribute_modifier == 0xcafe'f00d);
}

TEST_CASE("fields of the REP that the captures leave at one value", "[cm][T26]") {
  const CmRep rep{.qkey = 0x1122'3344,
                  .vendor_id = 0x01'0203,
                  .eecn = 0xab'cdef,
                  .psn = Psn{0x12'3456},
                  .responder_resources = 200,
                  .initiator_depth = 100,
                  .target_ack_delay = 31,
                  .failover = 2,
                  .rnr_retry = 5,
                  .srq = true};
  const Mad mad = make_cm_mad(1, rep);
  CHECK(to_hex(std::span{mad}.subspan(24 + 8, 20)) ==
        "11223344"
        "00000001"
        "abcdef02"
        "12345603"
        "c864fcb0");
  CHECK(CmRep::parse(cm_body(mad)) == rep);
}

TEST_CASE("private data of every length keeps its place", "[cm][T26]") {
  const auto check = [](auto message, std::size_t offset) {
    using Message = decltype(message);
    constexpr std::size_t kMost = Message::kPrivateBytes;
    CHECK(offset + kMost == kMadBytes - MadHeader::kSize);
    for (std::size_t used = 0; used <= kMost; ++used) {
      message.private_data = pattern<kMost>(used);
      const Mad mad = make_cm_mad(used, message);
      const auto expected = pattern<kMost>(used);
      const auto found = std::span{mad}.subspan(MadHeader::kSize + offset, kMost);
      if (!std::equal(expected.begin(), expected.end(), found.begin())) FAIL("length " << used);
      if (Message::parse(cm_body(mad)) != message) FAIL("length " << used);
    }
  };
  check(CmReq{}, 140);
  check(CmRep{}, 36);
  check(CmRtu{}, 8);
  check(CmDreq{}, 12);
  check(CmDrep{}, 8);
  check(CmRej{}, 84);
  check(CmMra{}, 10);
  check(SidrReq{}, 16);
  check(SidrRep{}, 96);
}

TEST_CASE("service ids of the port spaces", "[cm][T26]") {
  CHECK(cm::service_id(PortSpace::kTcp, 7471) == 0x0000'0000'0106'1d2f);
  CHECK(cm::service_id(PortSpace::kUdp, 0) == 0x0000'0000'0111'0000);
  CHECK(cm::service_id(PortSpace::kIb, 0xffff) == 0x0000'0000'013f'ffff);
  CHECK(cm::service_id(PortSpace::kIpoib, 1) == 0x0000'0000'0002'0001);
}

TEST_CASE("addresses in front of the private data", "[cm][T26]") {
  std::array<std::byte, cm::IpHeader::kSize> bytes{};
  const cm::IpHeader v4{.source_port = 0x1234,
                        .source = Gid::from_v4({10, 1, 2, 3}),
                        .destination = Gid::from_v4({10, 4, 5, 6})};
  v4.emit(bytes);
  CHECK(to_hex(bytes) ==
        "00401234"
        "000000000000000000000000"
        "0a010203"
        "000000000000000000000000"
        "0a040506");
  CHECK(cm::IpHeader::parse(bytes) == v4);

  const cm::IpHeader v6{
      .source_port = 0xffff, .source = *Gid::parse("fd99::1"), .destination = *Gid::parse("fe80::2")};
  v6.emit(bytes);
  CHECK(to_hex(bytes) ==
        "0060ffff"
        "fd990000000000000000000000000001"
        "fe800000000000000000000000000002");
  CHECK(cm::IpHeader::parse(bytes) == v6);

  // Reserved bits of the second byte say nothing; the first twelve bytes before an IPv4 address neither.
  v4.emit(bytes);
  bytes[1] = std::byte{0x4f};
  bytes[4] = std::byte{0xff};
  CHECK(cm::IpHeader::parse(bytes) == v4);
  for (const unsigned version : {0x00U, 0x30U, 0x50U, 0x70U, 0xf0U}) {
    bytes[1] = static_cast<std::byte>(version);
    CHECK_FALSE(cm::IpHeader::parse(bytes).has_value());
  }
  bytes[1] = std::byte{0x40};
  bytes[0] = std::byte{0x10};
  CHECK_FALSE(cm::IpHeader::parse(bytes).has_value());
}

}  // namespace uroce::test
