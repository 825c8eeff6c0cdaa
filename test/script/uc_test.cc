// Unreliable connections: a message arrives whole or not at all, and nobody is told. IBA 9.8.2.
#include <catch2/catch.hpp>

#include "base/endian.h"
#include "support/rc_script.h"

namespace uroce::test {
namespace {

using namespace std::chrono_literals;
using enum wire::Opcode;

ScriptConfig uc(ScriptConfig config = {}) {
  config.type = QpType::kUc;
  return config;
}

Packet message_packet(wire::Opcode opcode, std::uint32_t psn, std::uint32_t payload,
                      std::uint64_t offset = 0) {
  return {.opcode = opcode, .psn = psn, .payload = payload, .data = Pattern{1, offset}};
}

Packet write_packet(RcScript& qp, wire::Opcode opcode, std::uint32_t psn, std::uint32_t payload,
                    std::uint32_t length) {
  Packet packet = message_packet(opcode, psn, payload);
  if (wire::info(opcode).has_reth) packet.reth = wire::Reth{qp.target.addr(), qp.target.rkey(), length};
  return packet;
}

}  // namespace

TEST_CASE("UC cuts messages like RC, asks for no ACK and completes what has left", "[uc][segmentation]") {
  RcScript qp{uc({.mtu = 1024, .first_psn = 0xff'fffe})};
  qp.at(0us).post_send(2148);
  qp.out({.opcode = kUcSendFirst, .psn = 0xff'fffe, .payload = 1024, .data = qp.source.initial()});
  qp.out({.opcode = kUcSendMiddle, .psn = 0xff'ffff, .payload = 1024});
  qp.out({.opcode = kUcSendLast, .psn = 0, .payload = 100}).completes(1);
  qp.at(1us).post_write(8, send_flag::kSignaled);
  qp.out({.opcode = kUcWriteOnly,
          .psn = 1,
          .payload = 8,
          .reth = wire::Reth{RcScript::kRemoteVa, RcScript::kRemoteKey, 8}});
  qp.completes(2).quiet();
}

TEST_CASE("UC carries immediate data with the last packet", "[uc][imm]") {
  RcScript qp{uc()};
  const Sge sge = qp.source.sge(0, 4);
  qp.at(0us).post({.sges = {&sge, 1},
                   .opcode = WrOpcode::kSendWithImm,
                   .flags = send_flag::kSolicited,
                   .imm_data = 0x0403'0201});
  qp.out({.opcode = kUcSendOnlyImm, .psn = 0, .payload = 4, .solicited = true, .imm = 0x0102'0304})
      .completes(1);
  qp.post_recv(64).in({.opcode = kUcSendOnlyImm, .psn = 0, .payload = 4, .imm = 7});
  qp.receives({.wr_id = 1,
               .byte_len = 4,
               .imm_data = network_order(std::uint32_t{7}),
               .opcode = WcOpcode::kRecv,
               .flags = wc_flag::kWithImm})
      .quiet();
}

TEST_CASE("UC sends do not wait for anything: a thousand packets leave at once", "[uc][window]") {
  RcScript qp{uc({.mtu = 256, .max_unacked = 8})};
  qp.at(0us).post_send(60'000);
  for (std::uint32_t i = 0; i < 235; ++i) (void)qp.take_frame();
  qp.completes(1).quiet();
}

TEST_CASE("UC delivers a message whole", "[uc][segmentation]") {
  RcScript qp{uc({.expected_psn = 5})};
  qp.post_recv(4096);
  qp.in({message_packet(kUcSendFirst, 5, 1024), message_packet(kUcSendMiddle, 6, 1024, 1024),
         message_packet(kUcSendLast, 7, 10, 2048)});
  qp.receives(1, 2058).quiet();
  CHECK(qp.inbox.holds(0, 2058, Pattern{1, 0}));
}

TEST_CASE("UC drops the message that lost a packet, whichever, and takes the next one", "[uc][loss][T18]") {
  const std::uint32_t lost = GENERATE(0U, 1U, 2U, 3U);
  RcScript qp{uc()};
  qp.post_recv(8192).post_recv(8192);
  constexpr wire::Opcode kOpcodes[] = {kUcSendFirst, kUcSendMiddle, kUcSendMiddle, kUcSendLast};
  for (std::uint32_t i = 0; i < 4; ++i) {
    if (i != lost) qp.in(message_packet(kOpcodes[i], i, i == 3 ? 8 : 1024, i * 1024));
  }
  qp.quiet();
  qp.in({message_packet(kUcSendFirst, 4, 1024), message_packet(kUcSendLast, 5, 1024, 1024)});
  qp.receives(1, 2048).quiet();  // the first receive: it is used again
  CHECK(qp.inbox.holds(0, 2048, Pattern{1, 0}));
  qp.counted(Count::kResponderMessages, 1);
}

TEST_CASE("UC does not mix a message with the rest of one before", "[uc][loss][T18]") {
  RcScript qp{uc()};
  qp.post_recv(8192);
  qp.in({message_packet(kUcSendFirst, 0, 1024), message_packet(kUcSendLast, 3, 8)}).quiet();
  qp.in(message_packet(kUcSendLast, 4, 8)).quiet();
  qp.in(message_packet(kUcSendOnly, 9, 16)).receives(1, 16).quiet();
}

TEST_CASE("UC drops silently what RC refuses with a NAK", "[uc][fault]") {
  RcScript qp{uc({.access_flags = access::kLocalWrite | access::kRemoteWrite})};
  SECTION("no receive") {
    qp.in(message_packet(kUcSendOnly, 0, 16)).counted(Count::kDropNoReceive, 1);
  }
  SECTION("a receive that is too small keeps its place") {
    qp.post_recv(8).in(message_packet(kUcSendOnly, 0, 16)).quiet();
    qp.in(message_packet(kUcSendOnly, 1, 8)).receives(1, 8);
  }
  SECTION("a key that is none") {
    Packet packet = write_packet(qp, kUcWriteOnly, 0, 16, 16);
    packet.reth->rkey = Rkey{0x1234'5678};
    qp.in(packet);
  }
  SECTION("a range that is too long") {
    Packet packet = write_packet(qp, kUcWriteOnly, 0, 16, 16);
    packet.reth->va += qp.target.bytes().size() - 8;
    qp.in(packet);
  }
  SECTION("lengths that do not add up") {
    qp.in(write_packet(qp, kUcWriteOnly, 0, 16, 20));
  }
  SECTION("the middle of nothing") {
    qp.in(message_packet(kUcSendMiddle, 0, 1024));
  }
  qp.quiet().is_in(QpState::kRts);
}

TEST_CASE("UC writes what the peer may write", "[uc][write]") {
  RcScript qp{uc()};
  qp.in({write_packet(qp, kUcWriteFirst, 0, 1024, 1034), write_packet(qp, kUcWriteLast, 1, 10, 0)}).quiet();
  CHECK(qp.target.holds(0, 1024, Pattern{1, 0}));
  Packet packet = write_packet(qp, kUcWriteOnlyImm, 2, 4, 4);
  packet.imm = 9;
  qp.post_recv(0).in(packet).receives({.wr_id = 1,
                                       .byte_len = 4,
                                       .imm_data = network_order(std::uint32_t{9}),
                                       .opcode = WcOpcode::kRecvRdmaWithImm,
                                       .flags = wc_flag::kWithImm});
}

TEST_CASE("a UC send that cannot be sent stops the send queue, and only that", "[uc][sqe]") {
  RcScript qp{uc()};
  qp.post_recv(64);
  qp.together([](RcScript& script) { script.post_read(8).post_send(4).post_send(4); });
  qp.completes(1, WcStatus::kLocQpOpErr)
      .completes(2, WcStatus::kWrFlushErr)
      .completes(3, WcStatus::kWrFlushErr);
  qp.is_in(QpState::kSqe);
  qp.in(message_packet(kUcSendOnly, 0, 16)).receives(1, 16);
  qp.post_send(4).completes(4, WcStatus::kWrFlushErr);
  qp.move_to(QpState::kRts).post_send(4);
  qp.out({.opcode = kUcSendOnly, .psn = 0, .payload = 4}).completes(5).quiet();
}

TEST_CASE("a UC send from memory that is not registered fails", "[uc][sqe][key]") {
  RcScript qp{uc()};
  const Sge sge{qp.source.addr(), 16, Lkey{0x4242}};
  qp.at(0us).post({.sges = {&sge, 1}, .opcode = WrOpcode::kSend}).completes(1, WcStatus::kLocProtErr);
  qp.is_in(QpState::kSqe).quiet();
}

TEST_CASE("a UC QP takes packets of its peer and its transport only", "[uc][address]") {
  RcScript qp{uc()};
  qp.in_refused({.opcode = kRcSendOnly, .psn = 0}, Count::kDropWrongTransport);
  wire::FrameAddress stranger = qp.peer_address();
  stranger.sgid = Gid::from_v4({10, 9, 9, 9});
  qp.in_from(stranger, message_packet(kUcSendOnly, 0, 4), Count::kDropWrongAddress);
}

TEST_CASE("UC messages to a peer whose Ethernet address nobody tells are lost after a second",
          "[uc][timeout]") {
  RcScript qp{uc({.resolved = false})};
  qp.at(0us).post_send(4).quiet();
  qp.at(999ms).quiet();
  qp.at(1001ms).completes(1).counted(Count::kRequesterUnresolved, 1).quiet();
}

TEST_CASE("UC messages to another peer wait for its Ethernet address as those to the first did",
          "[uc][sqd][timeout]") {
  // IBA 10.3.1.6 ?: the address may change in SQD
  RcScript qp{uc({.resolved = false})};
  qp.at(0us).post_send(4).at(1001ms).completes(1);
  qp.move_to(QpState::kSqd).raises(AsyncEventType::kSqDrained);
  REQUIRE(qp.modify({.state = QpState::kSqd, .dgid = Gid::from_v4({10, 0, 0, 9}), .sgid_index = 0},
                    qp_attr::kState | qp_attr::kAv));
  qp.move_to(QpState::kRts).post_send(4).post_send(4).at(2000ms).quiet();
  qp.at(2002ms).completes(2).completes(3);
}

}  // namespace uroce::test
