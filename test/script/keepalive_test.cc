// A connected peer that says nothing: asked four times within the keepalive time, then given up.
#include <catch2/catch.hpp>

#include "script/remote.h"

using namespace uroce;
using namespace uroce::test;

namespace {

/// What nobody executes: the WRITE of no bytes at the PSN that is acknowledged already.
Packet question(std::uint32_t psn) {
  return {.opcode = kRcWriteOnly, .psn = psn, .payload = 0, .ack_req = true};
}

ScriptConfig patient() {
  return {.mtu = 256, .timeout = 19};
}

}  // namespace

TEST_CASE("an idle peer is asked by a duplicate, and one that answers stays connected", "[rc][keepalive]") {
  RcScript qp{patient()};
  qp.at(0us).keep_alive(300ms);
  qp.at(99ms).quiet();
  for (int look = 2; look < 20; ++look) {
    qp.at(look * 50ms);
    if (look % 2 == 0) qp.out(question(0xff'ffff)).in(Ack{0xff'ffff});
    qp.quiet();
  }
  qp.is_in(QpState::kRts);
}

TEST_CASE("an idle peer that is silent is given up after the keepalive time", "[rc][keepalive]") {
  RcScript qp{patient()};
  qp.at(0us).keep_alive(300ms);
  for (const auto asked : {100ms, 150ms, 200ms, 250ms}) qp.at(asked).out(question(0xff'ffff)).quiet();
  qp.at(300ms).raises(AsyncEventType::kQpFatal).is_in(QpState::kError);
  qp.counted(Count::kPeersSilent, 1).counted(Count::kRequesterKeepalives, 4);
}

TEST_CASE("the question repeats what is acknowledged, never what is in flight", "[rc][keepalive]") {
  RcScript qp{patient()};
  qp.at(0us).post_write(4).post_write(4);
  qp.forget();
  qp.at(1ms).in(Ack{0}).completes(1).keep_alive(300ms);
  qp.at(101ms).out(question(0)).quiet();
  qp.at(102ms).in(Ack{1}).completes(2);
  qp.at(151ms + 50ms).out(question(1)).in(Ack{1}).quiet();
}

TEST_CASE("a peer that dies with requests in flight fails the oldest within the keepalive time",
          "[rc][keepalive]") {
  RcScript qp{patient()};
  qp.at(0us).keep_alive(300ms).post_write(4).post_write(4);
  qp.forget();
  for (const auto asked : {100ms, 150ms, 200ms, 250ms}) qp.at(asked).out(question(0xff'ffff));
  qp.at(300ms).completes(1, WcStatus::kRetryExcErr).completes(2, WcStatus::kWrFlushErr);
  qp.is_in(QpState::kError);
}

TEST_CASE("requests of the peer are signs of life", "[rc][keepalive]") {
  RcScript qp{patient()};
  qp.at(0us).keep_alive(300ms);
  for (std::uint32_t psn = 0; psn < 10; ++psn) {
    qp.at(40ms + psn * 50ms).in({.opcode = kRcWriteOnly, .psn = psn, .payload = 0, .ack_req = true});
    qp.out(Ack{psn, psn + 1}).quiet();
  }
}

TEST_CASE("responder answers the question and executes nothing", "[rc][keepalive]") {
  RcScript qp{patient()};
  qp.at(0us).in(question(0xff'ffff)).out(Ack{0xff'ffff}).quiet();
  qp.is_in(QpState::kRts);
}
