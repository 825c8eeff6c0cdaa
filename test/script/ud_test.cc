// Unreliable datagrams: one packet a message, to and from anybody who knows the Q_Key. IBA 9.8.3.
#include <catch2/catch.hpp>
#include <cstring>

#include "support/rc_script.h"

namespace uroce::test {
namespace {

using namespace std::chrono_literals;
using enum wire::Opcode;

constexpr std::uint32_t kQkey = 0x1111'1111;

ScriptConfig ud(ScriptConfig config = {}) {
  config.type = QpType::kUd;
  return config;
}

Packet datagram(std::uint32_t payload, std::uint32_t qkey = kQkey) {
  return {.opcode = kUdSendOnly,
          .payload = payload,
          .deth = wire::Deth{qkey, RcScript::kPeer},
          .data = Pattern{3, 0}};
}

}  // namespace

TEST_CASE("a datagram names its sender and its Q_Key and goes where its handle says", "[ud][deth]") {
  RcScript qp{ud({.first_psn = 0xff'ffff})};
  qp.at(0us).post_datagram(100, 0x2222'2222);
  qp.out({.opcode = kUdSendOnly,
          .psn = 0xff'ffff,
          .payload = 100,
          .deth = wire::Deth{0x2222'2222, RcScript::kLocal},
          .data = qp.source.initial()});
  qp.completes(1);
  const Sge sge = qp.source.sge(0, 3);
  qp.post({.sges = {&sge, 1},
           .opcode = WrOpcode::kSendWithImm,
           .flags = send_flag::kSolicited,
           .imm_data = 0x0403'0201,
           .ah = RcScript::kPeerHandle,
           .remote_qpn = RcScript::kPeer,
           .remote_qkey = 5});
  qp.out({.opcode = kUdSendOnlyImm, .psn = 0, .payload = 3, .solicited = true, .imm = 0x0102'0304});
  qp.completes(2).quiet();
}

TEST_CASE("a Q_Key with bit 31 stands for the sender's own", "[ud][qkey][T17]") {
  RcScript qp{ud({.qkey = 0x0123'4567})};
  qp.at(0us).post_datagram(4, 0x8000'0000);
  qp.out({.opcode = kUdSendOnly, .payload = 4, .deth = wire::Deth{0x0123'4567, RcScript::kLocal}})
      .completes(1);
}

TEST_CASE("a datagram is received behind the header of its network layer", "[ud][grh][T17]") {
  const bool v6 = GENERATE(false, true);
  RcScript qp{ud({.v6 = v6})};
  qp.post_recv(140).in(datagram(100));
  qp.receives({.wr_id = 1,
               .byte_len = 140,
               .qpn = RcScript::kLocal,
               .src_qpn = RcScript::kPeer,
               .opcode = WcOpcode::kRecv,
               .flags = wc_flag::kGrh});
  CHECK(qp.inbox.holds(40, 100, Pattern{3, 0}));
  const auto bytes = qp.inbox.bytes();
  const Gid source = qp.peer_address().sgid;
  if (v6) {
    CHECK(bytes[0] == std::byte{0x60});
    CHECK(std::memcmp(&bytes[8], source.raw.data(), 16) == 0);
  } else {
    for (std::size_t i = 0; i < 20; ++i) CHECK(bytes[i] == std::byte{0});
    CHECK(bytes[20] == std::byte{0x45});
    CHECK(std::memcmp(&bytes[32], &source.raw[12], 4) == 0);
  }
}

TEST_CASE("datagrams with another Q_Key are dropped", "[ud][qkey][T17]") {
  RcScript qp{ud()};
  qp.post_recv(140).in_refused(datagram(4, kQkey + 1), Count::kDropBadQkey).quiet();
  qp.in(datagram(4)).receives(1, 44);
}

TEST_CASE("datagrams without a receive, or with one that is too small, are dropped", "[ud][drop][T17]") {
  RcScript qp{ud()};
  qp.in(datagram(4)).counted(Count::kDropNoReceive, 1).quiet();
  qp.post_recv(43).in(datagram(4)).counted(Count::kDropReceiveTooSmall, 1).quiet();
  qp.in(datagram(3)).receives(1, 43).quiet();
}

TEST_CASE("a datagram comes from anybody, but for the right partition", "[ud][address][pkey][T17]") {
  RcScript qp{ud()};
  qp.post_recv(100);
  Packet stranger = datagram(4);
  stranger.pkey = 0x1234;
  qp.in_refused(stranger, Count::kDropBadPkey)
      .in_refused({.opcode = kRcSendOnly}, Count::kDropWrongTransport);
  wire::FrameAddress elsewhere = qp.peer_address();
  elsewhere.sgid = Gid::from_v4({10, 9, 9, 9});
  qp.in_from(elsewhere, datagram(4), Count::kRxRoce).receives(1, 44);
}

TEST_CASE("PSNs of datagrams mean nothing to their receiver", "[ud][psn]") {
  RcScript qp{ud()};
  qp.post_recv(100).post_recv(100).post_recv(100);
  for (const std::uint32_t psn : {7U, 7U, 0xff'0000U}) {
    Packet packet = datagram(4);
    packet.psn = psn;
    qp.in(packet);
  }
  qp.receives(1, 44).receives(2, 44).receives(3, 44).quiet();
}

TEST_CASE("a datagram that cannot be sent stops the send queue, and only that", "[ud][sqe][fault]") {
  RcScript qp{ud()};
  qp.post_recv(100);
  const Sge sge = qp.source.sge(0, 4);
  SendWr wr{
      .sges = {&sge, 1}, .ah = RcScript::kPeerHandle, .remote_qpn = RcScript::kPeer, .remote_qkey = kQkey};
  WcStatus status = WcStatus::kLocQpOpErr;
  SECTION("no handle") {
    wr.ah = AhId{};
  }
  SECTION("a handle that is gone") {
    qp.handles().erase(RcScript::kPeerHandle);
  }
  SECTION("a handle of another protection domain") {
    wr.ah = RcScript::kForeignHandle;
  }
  SECTION("an operation that is not a SEND, to whom nobody knows") {
    qp.handles().find(RcScript::kPeerHandle)->resolved = false;
    wr.opcode = WrOpcode::kRdmaWrite;
  }
  SECTION("an operation that is not a SEND") {
    wr.opcode = WrOpcode::kRdmaWrite;
  }
  const Sge large = qp.source.sge(0, 4097);
  SECTION("longer than the path MTU") {
    wr.sges = {&large, 1};
    status = WcStatus::kLocLenErr;
  }
  const Sge foreign{qp.source.addr(), 4, Lkey{0x4242}};
  SECTION("memory that is not registered") {
    wr.sges = {&foreign, 1};
    status = WcStatus::kLocProtErr;
  }
  qp.at(0us).post(wr).completes(1, status).is_in(QpState::kSqe).quiet();
  qp.in(datagram(4)).receives(1, 44);
  qp.post_datagram(4, kQkey).completes(2, WcStatus::kWrFlushErr);
}

TEST_CASE("datagrams of exactly the port's path MTU go through", "[ud][length]") {
  RcScript qp{ud()};
  qp.post_recv(4136);
  qp.at(0us).post_datagram(4096, kQkey).out({.opcode = kUdSendOnly, .payload = 4096}).completes(1);
  qp.in(datagram(4096)).receives(1, 4136).quiet();
}

TEST_CASE("a datagram waits a second for the Ethernet address of its destination", "[ud][timeout]") {
  RcScript qp{ud({.resolved = false})};
  qp.at(0us).post_datagram(4, kQkey).post_datagram(8, kQkey).quiet();
  SECTION("which comes") {
    transport::AddressHandle& handle = qp.handles().insert(RcScript::kPeerHandle, RcScript::kPd, {});
    wire::FrameAddress address = qp.peer_address();
    std::swap(address.src_mac, address.dst_mac);
    std::swap(address.sgid, address.dgid);
    handle.head = wire::FrameTemplate{address};
    handle.resolved = true;
    qp.transmit();
    qp.out({.opcode = kUdSendOnly, .psn = 0, .payload = 4})
        .out({.opcode = kUdSendOnly, .psn = 1, .payload = 8});
    qp.completes(1).completes(2);
  }
  SECTION("which does not") {
    qp.at(1001ms).completes(1).completes(2).counted(Count::kRequesterUnresolved, 2);  // one wait for both
  }
  qp.quiet();
}

TEST_CASE("a UD QP that moves to Error flushes both queues", "[ud][flush]") {
  RcScript qp{ud({.resolved = false})};
  qp.post_recv(100);
  qp.at(0us).post_datagram(4, kQkey);
  qp.move_to(QpState::kError).completes(1, WcStatus::kWrFlushErr).receives(1, WcStatus::kWrFlushErr);
  qp.in_refused(datagram(4), Count::kDropQpState).quiet();
}

}  // namespace uroce::test
