#include "transport/ud_responder.h"

#include <array>

#include "base/endian.h"
#include "mem/sge_cursor.h"
#include "wire/grh.h"
#include "wire/icrc_ahead.h"

namespace uroce::transport {

namespace {

NetworkHeader network_of(const wire::PacketView& packet) noexcept {
  if (!packet.is_v6) return NetworkHeader::kIpv4;
  return packet.gid_type == GidType::kRoceV1 ? NetworkHeader::kGrh : NetworkHeader::kIpv6;
}

}  // namespace

/// A datagram that finds no receive, or one that is too small, is dropped. The receive stays, but not at the
/// head of a queue that is shared, where it would be in the way of all: it completes. IBA 9.9.3 ?
void UdResponder::on_request(const wire::PacketView& packet) noexcept {
  if (!qp_.receives.available()) {
    qp_.count(Count::kDropNoReceive);
    return;
  }
  const RecvWqe& wqe = qp_.receives.front();
  const auto length = static_cast<std::uint32_t>(kGrhBytes + packet.payload.size());
  if (wqe.length < length) {
    qp_.counters.add(Count::kDropReceiveTooSmall);
    if (qp_.receives.shared() != nullptr) qp_.fail_receive(Fault::kReceiveTooSmall);
    return;
  }
  std::array<std::byte, kGrhBytes> grh;
  wire::emit_receive_grh(packet, grh);
  mem::SgeCursor cursor;
  mem::KeyFault fault =
      cursor.scatter(wqe.sges(), qp_.keys, qp_.recv_pd, 0, grh.size(), mem::CopyFrom{grh.data()});
  if (fault == mem::KeyFault::kNone) {
    fault = cursor.scatter(wqe.sges(), qp_.keys, qp_.recv_pd, kGrhBytes, packet.payload.size(),
                           wire::PayloadCopy(packet));
  }
  if (fault != mem::KeyFault::kNone) {
    qp_.fail_receive(Fault::kReceiveKey);
    qp_.fail(Fault::kReceiveKey, true);
    return;
  }
  Wc wc{.wr_id = wqe.wr_id,
        .byte_len = length,
        .qpn = qp_.qpn,
        .src_qpn = packet.deth().src_qpn,
        .opcode = WcOpcode::kRecv,
        .flags = wc_flag::kGrh,
        .sl = packet.priority(),
        .network = network_of(packet),
        .vlan = packet.vlan_id()};
  if (packet.op->has_imm) {
    wc.imm_data = network_order(packet.imm().value);
    wc.flags |= wc_flag::kWithImm;
  }
  qp_.receives.pop();
  qp_.counters.add(Count::kResponderPackets);
  qp_.counters.add(Count::kResponderMessages);
  qp_.complete_receive(wc, packet.bth.solicited);
}

}  // namespace uroce::transport
