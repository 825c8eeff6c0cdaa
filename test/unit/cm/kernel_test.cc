// The agent against what the kernel's communication manager has sent, and compared with it.
#include <map>

#include "captures.h"
#include "station.h"
#include "support/hex.h"

namespace uroce::test {
namespace {

using namespace uroce::wire;

template <typename Message>
Message first(const char* capture) {
  for (const Mad& mad : mads_of(kCaptures / "rxe" / capture)) {
    if (is_a<Message>(mad)) return Message::parse(cm_body(mad));
  }
  FAIL("no such message in " << capture);
  return {};
}

AhAttr path_to(const Gid& gid) {
  AhAttr path;
  path.dgid = gid;
  return path;
}

void listen(Station& a, std::uint64_t service) {
  const CmId id = a.make();
  CmAddress address;
  address.port = static_cast<std::uint16_t>(service);
  REQUIRE(a.agent.bind(id, address));
  REQUIRE(a.agent.listen(id, 8));
}

}  // namespace

TEST_CASE("every REQ of the kernel is served as it asks", "[cm][captures]") {
  unsigned served = 0;
  for (const auto& file : pcap_files(kCaptures / "rxe")) {
    for (const Mad& mad : mads_of(file)) {
      if (!is_a<CmReq>(mad)) continue;
      CAPTURE(file.filename().string());
      const auto req = CmReq::parse(cm_body(mad));
      Station a;
      listen(a, req.service_id);
      a.agent.on_mad(path_to(req.local_gid), mad, a.now);
      const CmEvent event = a.event(CmEventType::kConnectRequest);
      CHECK(event.local == CmAddress{req.remote_gid, static_cast<std::uint16_t>(req.service_id)});
      CHECK(event.remote.ip == req.local_gid);
      CHECK(event.remote.port >= 32768);
      const auto attr = a.agent.qp_attr(event.id);
      REQUIRE(attr);
      CHECK(attr->dest_qpn == req.qpn);
      CHECK(attr->sq_psn == req.psn);  // the REQ says where the other end starts
      CHECK(raw(attr->path_mtu) == req.path_mtu);
      CHECK(attr->retry_cnt == req.retry_cnt);
      CHECK(attr->timeout <= req.ack_timeout);
      a.accept(event.id);
      a.out<CmRep>(req.local_gid);
      a.in(CmRtu{.local_comm_id = req.local_comm_id, .remote_comm_id = raw(event.id)}, 1, req.local_gid);
      a.event(CmEventType::kEstablished);
      a.quiet();
      ++served;
    }
  }
  CHECK(served == 20);
}

TEST_CASE("the kernel's QPs start at the PSN that the other end has said", "[cm][captures]") {
  std::map<Opcode, Psn> first_psn;
  for (const auto& frame : read_pcap(kCaptures / "rxe/cm-rping.pcap")) {
    PacketView packet;
    if (parse_packet(frame, packet) == ParseResult::kRoce) {
      first_psn.emplace(packet.bth.opcode, packet.bth.psn);
    }
  }
  CHECK(first_psn.at(Opcode::kRcSendOnly) == first<CmRep>("cm-rping.pcap").psn);  // the active side's
  CHECK(first_psn.at(Opcode::kRcReadRequest) == first<CmReq>("cm-rping.pcap").psn);
}

TEST_CASE("a REQ to nobody is refused by the same bytes as the kernel's", "[cm][captures]") {
  const auto mads = mads_of(kCaptures / "rxe/cm-reject-no-listener.pcap");
  REQUIRE(mads.size() == 2);
  Station a;
  a.agent.on_mad(path_to(CmReq::parse(cm_body(mads[0])).local_gid), mads[0], a.now);
  a.out<CmRej>(CmReq::parse(cm_body(mads[0])).local_gid);
  CHECK((a.last_mad == mads[1]));
}

TEST_CASE("a REQ differs from the kernel's in what is this end's alone", "[cm][captures]") {
  for (const auto* capture : {"cm-rping.pcap", "cm-rping-ipv6.pcap"}) {
    CAPTURE(capture);
    const auto theirs = first<CmReq>(capture);
    Station a;
    const auto ip = *cm::IpHeader::parse(std::span{theirs.private_data}.first<cm::IpHeader::kSize>());
    CmConnect ask{.ack_timeout = theirs.ack_timeout};
    ask.from.port = ip.source_port;
    ask.to = {ip.destination, static_cast<std::uint16_t>(theirs.service_id)};
    ask.terms.qpn = theirs.qpn;
    auto path = path_to(ip.destination);
    path.flow_label = theirs.flow_label;
    const CmId id = a.make();
    // Station::is_own() knows one address; bound to any first, the id asks from the captured one.
    CmAddress any;
    any.port = ip.source_port;
    REQUIRE(a.agent.bind(id, any));
    REQUIRE(a.agent.connect(id, ask, path, ip.source, a.now));
    auto ours = a.out<CmReq>(ip.destination);
    CHECK(ours.vendor_id == ece::kVendor);
    ours.vendor_id = theirs.vendor_id;
    ours.local_comm_id = theirs.local_comm_id;
    ours.ca_guid = theirs.ca_guid;
    ours.psn = theirs.psn;
    CHECK(to_hex(make_cm_mad(1, ours)) == to_hex(make_cm_mad(1, theirs)));
  }
}

TEST_CASE("a REP differs from the kernel's in what is this end's alone", "[cm][captures]") {
  const auto mads = mads_of(kCaptures / "rxe/cm-rping.pcap");
  const auto req = CmReq::parse(cm_body(mads.at(0)));
  const auto theirs = CmRep::parse(cm_body(mads.at(1)));
  Station a;
  listen(a, req.service_id);
  a.agent.on_mad(path_to(req.local_gid), mads.at(0), a.now);
  CmAccept answer;
  answer.terms.qpn = theirs.qpn;
  REQUIRE(a.agent.accept(a.event(CmEventType::kConnectRequest).id, answer, a.now));
  auto ours = a.out<CmRep>(req.local_gid);
  ours.local_comm_id = theirs.local_comm_id;
  ours.ca_guid = theirs.ca_guid;
  ours.psn = theirs.psn;
  CHECK(to_hex(make_cm_mad(a.transaction, ours)) == to_hex(mads.at(1)));
}

TEST_CASE("the kernel's SIDR_REQ is answered as the kernel answers it", "[cm][captures][sidr]") {
  const auto mads = mads_of(kCaptures / "rxe/cm-udaddy-sidr.pcap");
  REQUIRE(mads.size() == 2);
  const auto req = SidrReq::parse(cm_body(mads[0]));
  const auto rep = SidrRep::parse(cm_body(mads[1]));
  const Gid from = Gid::from_v4({10, 99, 0, 2});
  Station a;
  const CmId id = a.make(PortSpace::kUdp);
  CmAddress address;
  address.port = static_cast<std::uint16_t>(req.service_id);
  REQUIRE(a.agent.bind(id, address));
  REQUIRE(a.agent.listen(id, 1));
  a.agent.on_mad(path_to(from), mads[0], a.now);
  CmServiceReply answer;
  answer.qpn = rep.qpn;
  REQUIRE(a.agent.reply_service(a.event(CmEventType::kServiceRequest).id, answer, a.now));
  a.out<SidrRep>(from);
  CHECK(to_hex(a.last_mad) == to_hex(mads[1]));
}

}  // namespace uroce::test
