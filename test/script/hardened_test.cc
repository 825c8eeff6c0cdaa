// Hardened mode: forged packets that guess a QP's numbers do not end it. Not a rule of the IBA, whose QPs go
// to Error at the first; those are the other files.
#include <catch2/catch.hpp>

#include "base/random.h"
#include "script/remote.h"

using namespace uroce;
using namespace uroce::test;

namespace {

Packet send_only(std::uint32_t psn, std::uint32_t bytes = 4) {
  return {.opcode = kRcSendOnly, .psn = psn, .payload = bytes, .ack_req = true};
}

Packet write_only(std::uint32_t psn) {
  return {.opcode = kRcWriteOnly, .psn = psn, .payload = 4, .ack_req = true, .reth = remote(4)};
}

/// Packets with the right QPN and PSN 0, each of which ends an ordinary QP that has a receive of 64 bytes.
std::vector<Packet> forgeries(RcScript& qp) {
  wire::Reth wrong_key = own(qp, 8);
  wrong_key.rkey = Rkey{raw(wrong_key.rkey) ^ 0x100};
  const wire::AtomicEth crooked{.va = qp.target.addr() + 4, .rkey = qp.target.rkey()};
  return {
      {.opcode = kRcSendLast, .psn = 0, .payload = 4},
      {.opcode = kRcSendMiddle, .psn = 0, .payload = 1024},
      {.opcode = kRcWriteLast, .psn = 0, .payload = 4},
      send_only(0, 65),
      {.opcode = kRcSendFirst, .psn = 0, .payload = 8},
      {.opcode = kRcWriteOnly, .psn = 0, .payload = 8, .reth = wrong_key},
      {.opcode = kRcWriteOnly, .psn = 0, .payload = 4, .reth = own(qp, 8)},
      {.opcode = kRcReadRequest, .psn = 0, .reth = wrong_key},
      {.opcode = kRcReadRequest, .psn = 0, .reth = own(qp, 0xffff'ffff)},
      {.opcode = kRcFetchAdd, .psn = 0, .atomic = crooked},
  };
}

}  // namespace

TEST_CASE("one forged request ends an ordinary QP and does not harm a hardened one", "[rc][hardened][S4]") {
  const std::size_t which = static_cast<std::size_t>(GENERATE(range(0, 10)));
  SECTION("ordinary") {
    RcScript qp;
    qp.post_recv(64);
    qp.in(forgeries(qp).at(which)).forget().is_in(QpState::kError);
  }
  SECTION("hardened") {
    RcScript qp{{.hardened = 1}};
    qp.post_recv(64);
    qp.in(forgeries(qp).at(which)).quiet().is_in(QpState::kRts).counted(Count::kResponderTolerated, 1);
    qp.in(send_only(0)).receives(1, 4).out(Ack{0, 1});
    CHECK(qp.target.is_untouched());
  }
}

TEST_CASE("a forged request leaves a shared receive to others", "[rc][hardened][srq][S4]") {
  const std::size_t which = static_cast<std::size_t>(GENERATE(range(0, 10)));
  RcScript qp{{.hardened = 1, .shared_wrs = 1}};
  qp.post_shared(64);
  qp.in(forgeries(qp).at(which)).quiet().counted(Count::kResponderTolerated, 1);
  CHECK_FALSE(qp.shared().is_empty());
  qp.in(send_only(0)).receives(1, 4).out(Ack{0, 1});
}

TEST_CASE("a forged SEND with invalidate changes nothing of a hardened QP", "[rc][hardened][S4][inv]") {
  RcScript qp{{.hardened = 2}};
  qp.post_recv(64);
  qp.in({.opcode = kRcSendOnlyInv, .psn = 0, .payload = 8, .ieth = 0x1234'5678, .data = Pattern{9, 0}});
  qp.quiet().is_in(QpState::kRts).counted(Count::kResponderTolerated, 1);
  CHECK(qp.inbox.is_untouched());
  qp.in({.opcode = kRcSendOnly, .psn = 0, .payload = 4, .ack_req = true}).out(Ack{0, 1}).receives(1, 4);
}

TEST_CASE("a hardened QP believes what is said once more than it tolerates", "[rc][hardened][S4]") {
  const std::uint32_t tolerated = GENERATE(1U, 3U, 100U);
  RcScript qp{{.hardened = tolerated}};
  for (std::uint32_t i = 0; i < tolerated; ++i) qp.in({.opcode = kRcSendLast, .psn = 0, .payload = 4});
  qp.quiet().is_in(QpState::kRts);
  qp.in({.opcode = kRcSendLast, .psn = 0, .payload = 4});
  qp.out(Nak{0, 0x61}).raises(AsyncEventType::kQpReqErr).is_in(QpState::kError);
}

TEST_CASE("a request that is taken makes a hardened QP patient again", "[rc][hardened][S4]") {
  RcScript qp{{.hardened = 1}};
  for (std::uint32_t psn = 0; psn < 20; ++psn) {
    qp.post_recv(64);
    qp.in({.opcode = kRcWriteLast, .psn = psn, .payload = 4}).quiet();
    qp.in(send_only(psn)).receives(psn + 1, 4).out(Ack{psn, psn + 1});
  }
  qp.counted(Count::kResponderTolerated, 20);
}

TEST_CASE("a forged packet inside a message does not spoil it", "[rc][hardened][S4]") {
  RcScript qp{{.mtu = 256, .hardened = 1}};
  qp.post_recv(1024);
  qp.in({.opcode = kRcSendFirst, .psn = 0, .payload = 256, .data = Pattern{3}});
  qp.in({.opcode = kRcWriteOnly, .psn = 1, .payload = 4, .reth = own(qp, 4)});
  qp.in({.opcode = kRcSendLast, .psn = 1, .payload = 44, .ack_req = true, .data = Pattern{3, 256}});
  qp.receives(1, 300).out(Ack{1, 1});
  CHECK(qp.target.is_untouched());
}

TEST_CASE("a NAK that an ACK contradicts was forged", "[rc][hardened][S5]") {
  const std::uint8_t syndrome = GENERATE(as<std::uint8_t>{}, 0x61, 0x62, 0x63, 0x64, 0x45, 0x7f);
  RcScript qp{{.hardened = 1}};
  qp.post_write(4).out(write_only(0));
  qp.in(Nak{0, syndrome}).quiet().is_in(QpState::kRts).counted(Count::kRequesterTolerated, 1);
  qp.in(Ack{0}).completes(1);
  qp.post_write(4).out(write_only(1));
  qp.in(Nak{1, syndrome}).quiet().in(Ack{1}).completes(2);  // patient again
}

TEST_CASE("a NAK that nothing contradicts is believed when the retries are used up", "[rc][hardened][S5]") {
  // An ordinary peer sends its NAK once and is in Error then: silent
  RcScript qp{{.timeout = 8, .retry_cnt = 1, .hardened = 1}};
  qp.post_write(4).out(write_only(0)).in(Nak{0, 0x62}).quiet();
  qp.at(1049us).out(write_only(0));
  qp.at(2098us).completes(1, WcStatus::kRemAccessErr).is_in(QpState::kError);
}

TEST_CASE("a NAK that is repeated is believed", "[rc][hardened][S5]") {
  RcScript qp{{.timeout = 8, .hardened = 1}};
  qp.post_write(4).out(write_only(0)).in(Nak{0, 0x62}).quiet();
  qp.at(1049us).out(write_only(0));
  qp.in(Nak{0, 0x62}).completes(1, WcStatus::kRemAccessErr).is_in(QpState::kError);
}

TEST_CASE("a forged READ response of the wrong length or kind is dropped", "[rc][hardened][S5]") {
  RcScript qp{{.hardened = 2}};
  qp.post_read(8).out({.opcode = kRcReadRequest, .psn = 0, .ack_req = true, .reth = remote(8)});
  qp.in({.opcode = kRcReadResponseOnly, .psn = 0, .payload = 4, .data = Pattern{9}});
  qp.in({.opcode = kRcAtomicAck, .psn = 0, .original = 5});
  qp.quiet().is_in(QpState::kRts).counted(Count::kRequesterTolerated, 2);
  CHECK(qp.sink.is_untouched());
  qp.in({.opcode = kRcReadResponseOnly, .psn = 0, .payload = 8, .data = Pattern{1}}).completes(1);
}

TEST_CASE("the wait that an RNR NAK asks for is capped where the configuration says so", "[rc][rnr][S5]") {
  RcScript qp{{.rnr_cap_ns = 1'000'000}};
  qp.post_send(4).out(send_only(0)).in(RnrNak{0, 0});  // 655 ms
  qp.at(1ms - 1ns).quiet();
  qp.at(1ms).out(send_only(0));
  qp.in(RnrNak{0, 1});  // 10 us: below the cap
  qp.at(1ms + 10us).out(send_only(0));
  qp.in(Ack{0}).completes(1);
}

TEST_CASE("packets with random numbers from the right address change nothing that counts", "[rc][S3]") {
  // Without the expected PSN (1 in 2^24) a request is a duplicate or a gap; without a PSN in flight a
  // response is nobody's.
  RcScript qp{{.first_psn = 0x100, .expected_psn = 0x900, .hardened = 1}};
  qp.post_recv(64).post_write(4).forget();
  Random random(GENERATE(range(1U, 5U)));
  for (int i = 0; i < 25'000; ++i) {
    const auto psn = static_cast<std::uint32_t>(random.below(0xff'ffff));
    const wire::Reth guess{
        .va = random.next(), .rkey = Rkey{static_cast<std::uint32_t>(random.next())}, .length = 8};
    if (psn == 0x900 || psn == 0x100) continue;
    switch (random.below(4)) {
      case 0:
        qp.in(send_only(psn));
        break;
      case 1:
        qp.in({.opcode = kRcWriteOnly, .psn = psn, .payload = 8, .reth = guess});
        break;
      case 2:
        qp.in(Ack{psn});
        break;
      default:
        qp.in(Nak{psn, 0x62});
        break;
    }
    qp.forget();
  }
  CHECK(qp.target.is_untouched());
  CHECK(qp.inbox.is_untouched());
  qp.is_in(QpState::kRts).in(Ack{0x100}).completes(1);
  qp.in(send_only(0x900)).receives(1, 4).forget();
}
