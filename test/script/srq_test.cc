// Shared receive queues: a receive belongs to the QP whose message it was taken for. IBA 10.2.9.
#include <catch2/catch.hpp>

#include "support/rc_script.h"

namespace uroce::test {
namespace {

using namespace std::chrono_literals;
using enum wire::Opcode;

Packet send_packet(wire::Opcode opcode, std::uint32_t psn, std::uint32_t payload, bool ack_req = false) {
  return {.opcode = opcode, .psn = psn, .payload = payload, .ack_req = ack_req, .data = Pattern{1, 0}};
}

}  // namespace

TEST_CASE("messages take the receives of the shared queue, oldest first", "[srq]") {
  const QpType type = GENERATE(QpType::kRc, QpType::kUc);
  RcScript qp{{.type = type, .shared_wrs = 8}};
  const auto only = type == QpType::kRc ? kRcSendOnly : kUcSendOnly;
  qp.post_shared(100).post_shared(100);
  qp.in({send_packet(only, 0, 4), send_packet(only, 1, 8)});
  qp.receives(1, 4).receives(2, 8).quiet();
  CHECK(qp.shared().is_empty());
}

TEST_CASE("datagrams take the receives of the shared queue", "[srq][ud]") {
  RcScript qp{{.type = QpType::kUd, .shared_wrs = 8}};
  qp.post_shared(100);
  const Packet datagram{
      .opcode = kUdSendOnly, .payload = 4, .deth = wire::Deth{0x1111'1111, RcScript::kPeer}};
  qp.in(datagram).receives(1, 44);
  qp.in(datagram).counted(Count::kDropNoReceive, 1).quiet();
}

TEST_CASE("an empty shared queue is not ready for any of its QPs", "[srq][rnr]") {
  RcScript qp{{.min_rnr_timer = 3, .shared_wrs = 8}};
  qp.in(send_packet(kRcSendOnly, 0, 4)).out(RnrNak{0, 3});
  qp.post_shared(10).in(send_packet(kRcSendOnly, 0, 4, true)).out(Ack{0, 1}).receives(1, 4).quiet();
}

TEST_CASE("a message in several packets keeps the receive that it took", "[srq]") {
  RcScript qp{{.mtu = 256, .shared_wrs = 8}};
  qp.post_shared(1000).post_shared(1000);
  qp.in(send_packet(kRcSendFirst, 0, 256));
  CHECK(qp.shared().count() == 1);
  qp.in(send_packet(kRcSendLast, 1, 10)).receives(1, 266).quiet();
  CHECK(qp.shared().count() == 1);
}

TEST_CASE("the limit of a shared queue is told once, when fewer are left", "[srq][limit]") {
  RcScript qp{{.shared_wrs = 8}};
  for (int i = 0; i < 6; ++i) qp.post_shared(10);
  qp.shared().arm(4);
  qp.in({send_packet(kRcSendOnly, 0, 4), send_packet(kRcSendOnly, 1, 4)})
      .receives(1, 4)
      .receives(2, 4)
      .quiet();
  qp.in(send_packet(kRcSendOnly, 2, 4)).receives(3, 4).raises(AsyncEventType::kSrqLimitReached);
  CHECK(qp.shared().limit() == 0);
  qp.in(send_packet(kRcSendOnly, 3, 4)).receives(4, 4).quiet();
}

TEST_CASE("a limit that is not kept when it is armed is told at once", "[srq][limit]") {
  RcScript qp{{.shared_wrs = 8}};
  for (int i = 0; i < 3; ++i) qp.post_shared(10);
  qp.shared().arm(3);
  CHECK_FALSE(qp.shared().take_limit_event());
  qp.shared().arm(4);
  CHECK(qp.shared().take_limit_event());
  CHECK(qp.shared().limit() == 0);
  CHECK_FALSE(qp.shared().take_limit_event());
}

TEST_CASE("a QP in Error flushes what it took and nothing else of the shared queue", "[srq][flush][T15]") {
  RcScript qp{{.mtu = 256, .shared_wrs = 8}};
  qp.post_shared(1000).post_shared(1000).post_shared(1000);
  SECTION("in the middle of a message") {
    qp.in(send_packet(kRcSendFirst, 0, 256));
    qp.move_to(QpState::kError).receives(1, WcStatus::kWrFlushErr);
    CHECK(qp.shared().count() == 2);
  }
  SECTION("between messages") {
    qp.move_to(QpState::kError);
    CHECK(qp.shared().count() == 3);
  }
  qp.raises(AsyncEventType::kQpLastWqeReached).quiet();
}

TEST_CASE("a QP that is reset gives back what it took", "[srq][reset]") {
  RcScript qp{{.mtu = 256, .shared_wrs = 8}};
  qp.post_shared(1000).in(send_packet(kRcSendFirst, 0, 256));
  CHECK(qp.shared().is_empty());
  qp.move_to(QpState::kReset);
  CHECK(qp.shared().count() == 1);
}

// As the kernel's Soft-RoCE and adapters do: at the head of the queue it would be in the way of all QPs.
TEST_CASE("a datagram longer than the shared receive completes that, and the QP goes on", "[srq][ud]") {
  RcScript qp{{.type = QpType::kUd, .shared_wrs = 8}};
  const Packet datagram{
      .opcode = kUdSendOnly, .payload = 4, .deth = wire::Deth{0x1111'1111, RcScript::kPeer}};
  qp.post_shared(43).post_shared(44);
  qp.in(datagram).receives(1, WcStatus::kLocLenErr).counted(Count::kDropReceiveTooSmall, 1).quiet();
  CHECK(qp.shared().count() == 1);
  qp.in(datagram).receives(2, 44);
}

TEST_CASE("a UC message that lost a packet leaves its receive to others", "[srq][uc]") {
  RcScript qp{{.type = QpType::kUc, .mtu = 256, .shared_wrs = 8}};
  qp.post_shared(1000).in({send_packet(kUcSendFirst, 0, 256), send_packet(kUcSendLast, 2, 4)}).quiet();
  CHECK(qp.shared().count() == 1);
  qp.in(send_packet(kUcSendOnly, 3, 4)).receives(1, 4);
}

TEST_CASE("a UC message longer than the shared receive completes that, and the next one finds another",
          "[srq][uc]") {
  RcScript qp{{.type = QpType::kUc, .mtu = 256, .shared_wrs = 8}};
  SECTION("at its first packet") {
    qp.post_shared(8).post_shared(1000);
    qp.in(send_packet(kUcSendOnly, 0, 16)).receives(1, WcStatus::kLocLenErr).quiet();
    qp.in(send_packet(kUcSendOnly, 1, 16)).receives(2, 16);
  }
  SECTION("at a later one, whose rest is nobody's") {
    qp.post_shared(300).post_shared(1000);
    qp.in({send_packet(kUcSendFirst, 0, 256), send_packet(kUcSendMiddle, 1, 256)});
    qp.receives(1, WcStatus::kLocLenErr).quiet();
    qp.in({send_packet(kUcSendLast, 2, 4), send_packet(kUcSendOnly, 3, 4)}).receives(2, 4);
  }
  qp.counted(Count::kResponderDroppedMessages, 1).is_in(QpState::kRts);
}

TEST_CASE("a message longer than the shared receive it took ends the QP", "[srq][fault]") {
  RcScript qp{{.shared_wrs = 8}};
  qp.post_shared(8).post_shared(8);
  qp.in(send_packet(kRcSendOnly, 0, 16)).out(Nak{0, 0x61}).receives(1, WcStatus::kLocLenErr);
  qp.raises(AsyncEventType::kQpLastWqeReached).is_in(QpState::kError);
  CHECK(qp.shared().count() == 1);
}

}  // namespace uroce::test
