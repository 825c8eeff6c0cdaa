// What the requester does when packets are lost: NAKs, implied NAKs, timeouts.
#include <catch2/catch.hpp>

#include "script/remote.h"

using namespace uroce;
using namespace uroce::test;

namespace {

constexpr Pattern kData{0x3c, 0};

Packet write_only(std::uint32_t psn, std::uint32_t bytes = 4) {
  return {.opcode = kRcWriteOnly, .psn = psn, .payload = bytes, .ack_req = true};
}

Packet read_request(std::uint32_t psn, std::uint32_t bytes, std::uint64_t at = 0) {
  return {.opcode = kRcReadRequest, .psn = psn, .ack_req = true, .reth = remote(bytes, at)};
}

/// Response `index` of a READ of `packets` full packets that was first asked at PSN 0. Path MTU 256.
Packet response(std::uint32_t index, std::uint32_t packets) {
  const bool first = index == 0;
  const bool last = index + 1 == packets;
  return {.opcode = first ? (last ? kRcReadResponseOnly : kRcReadResponseFirst)
                          : (last ? kRcReadResponseLast : kRcReadResponseMiddle),
          .psn = index,
          .payload = 256,
          .data = from(kData, std::uint64_t{index} * 256)};
}

constexpr std::chrono::nanoseconds timeout_of(unsigned code) {
  return std::chrono::nanoseconds{std::int64_t{4096} << code};
}

}  // namespace

TEST_CASE("requester goes back to the NAKed PSN, across the PSN wrap", "[rc][go-back-n]") {
  // IBA 9.7.5.1.2
  RcScript qp{{.mtu = 1024, .first_psn = 0xff'fffe}};

  qp.at(0us).post_write(2148);
  qp.out({.opcode = kRcWriteFirst, .psn = 0xff'fffe, .payload = 1024, .reth = remote(2148)});
  qp.out({kRcWriteMiddle, 0xff'ffff, 1024});
  qp.out({kRcWriteLast, 0x00'0000, 100, true});

  qp.at(5us).in(NakSequence{0xff'ffff});  // the second packet was lost
  qp.out({.opcode = kRcWriteMiddle, .psn = 0xff'ffff, .payload = 1024, .data = qp.source.initial(1024)});
  qp.out(
      {.opcode = kRcWriteLast, .psn = 0, .payload = 100, .ack_req = true, .data = qp.source.initial(2048)});

  qp.at(9us).in(Ack{0x00'0000}).completes(1);
  qp.at(1s).quiet();  // nothing is left to time out
}

TEST_CASE("requester sends again from any packet of a message", "[rc][go-back-n][T4]") {
  // T4: each packet index of a 16-packet message
  const std::uint32_t lost = GENERATE(range(0U, 16U));
  const std::uint32_t start = GENERATE(0U, 0xff'fff8U);
  RcScript qp{{.mtu = 256, .first_psn = start}};
  qp.post_write(16 * 256).forget();
  qp.in(NakSequence{(start + lost) & 0xff'ffff});
  for (std::uint32_t i = lost; i < 16; ++i) {
    qp.out({.opcode = i == 0    ? kRcWriteFirst
                      : i == 15 ? kRcWriteLast
                                : kRcWriteMiddle,
            .psn = start + i,
            .payload = 256,
            .ack_req = i == 15,
            .reth = i == 0 ? std::optional{remote(16 * 256)} : std::nullopt,
            .data = qp.source.initial(i * 256)});
  }
  qp.in(Ack{(start + 15) & 0xff'ffff}).completes(1);
  qp.counted(Count::kRequesterGoBacks, 1);
}

TEST_CASE("requester goes back once per NAK, however often it comes", "[rc][go-back-n]") {
  // IBA 9.7.5.1.2 ?
  RcScript qp;
  qp.together([](RcScript& script) { script.post_write(4).post_write(4).post_write(4); });
  qp.forget();
  qp.in(NakSequence{1}).completes(1).out(write_only(1)).out(write_only(2));
  qp.in({NakSequence{1}, NakSequence{1}}).quiet();
  qp.in(Ack{1}).completes(2);
  qp.in(NakSequence{2}).out(write_only(2));  // a new loss
  qp.in(Ack{2}).completes(3);
}

TEST_CASE("requester goes back again for the same NAK after a timeout", "[rc][go-back-n]") {
  RcScript qp{{.timeout = 1}};
  qp.together([](RcScript& script) { script.post_write(4).post_write(4); });
  qp.forget();
  qp.in(NakSequence{0}).out(write_only(0)).out(write_only(1));
  qp.at(timeout_of(1)).out(write_only(0)).out(write_only(1));
  qp.in(NakSequence{0}).out(write_only(0)).out(write_only(1));
  qp.in(Ack{1}).completes(1).completes(2);
}

// What was sent once may be acknowledged although it cannot be sent again: its memory is gone by then.
TEST_CASE("requester completes what an ACK covers although it could not be sent again",
          "[rc][go-back-n][key]") {
  RcScript qp{{.mtu = 256, .timeout = 10}};
  const std::uint32_t first_packets = GENERATE(1U, 3U);  // of what cannot be sent again
  qp.at(0us).post_send(4).out({.opcode = kRcSendOnly, .psn = 0, .payload = 4, .ack_req = true});
  const Sge fleeting = qp.target.sge(0, 256 * first_packets);
  qp.post({.sges = {&fleeting, 1}, .opcode = WrOpcode::kSend});
  for (std::uint32_t i = 0; i < first_packets; ++i) (void)qp.take_frame();
  qp.keys().remove(qp.target.key());
  qp.at(5ms).out({.opcode = kRcSendOnly, .psn = 0, .payload = 4, .ack_req = true});  // and no more
  SECTION("all of it") {
    qp.at(6ms).in(Ack{first_packets, 2}).completes(1).completes(2).quiet();
    qp.post_send(8).out({.opcode = kRcSendOnly, .psn = first_packets + 1, .payload = 8, .ack_req = true});
    qp.in(Ack{first_packets + 1, 3}).completes(3).quiet();
  }
  SECTION("only what came before") {
    qp.at(6ms).in(Ack{0, 1}).completes(1).completes(2, WcStatus::kLocProtErr).is_in(QpState::kError).quiet();
  }
}

TEST_CASE("requester does not send again what an ACK covers that comes while it goes back",
          "[rc][go-back-n]") {
  RcScript qp{{.mtu = 256}};
  qp.post_write(8 * 256).forget();
  qp.port().room = 0;
  qp.in(NakSequence{2}).in(Ack{4});  // the packets were late, not lost
  qp.port().room = 100;
  qp.transmit().out({.opcode = kRcWriteMiddle, .psn = 5, .payload = 256, .data = qp.source.initial(5 * 256)});
  qp.out({kRcWriteMiddle, 6, 256}).out({kRcWriteLast, 7, 256, true});
  qp.in(Ack{7}).completes(1);
}

TEST_CASE("requester sends again after the ack timeout, for each code", "[rc][timeout][T11]") {
  // IBA 9.7.6.1.3: the period lies in [T, 4 T]
  const unsigned code = GENERATE(range(1U, 32U));
  RcScript qp{{.timeout = static_cast<std::uint8_t>(code), .retry_cnt = 1}};
  const auto period = timeout_of(code);
  qp.post_write(4).out(write_only(0));
  qp.at(period - 1ns).quiet();
  qp.at(4 * period - 1ns).out(write_only(0));
  CHECK(qp.left_at() >= period);
  CHECK(qp.left_at() <= 4 * period);
  qp.forget();
}

TEST_CASE("requester with timeout 0 waits for ever, whatever its retry_cnt", "[rc][timeout][T11]") {
  // IBA 9.9.2.1 ?
  RcScript qp{{.timeout = 0, .retry_cnt = static_cast<std::uint8_t>(GENERATE(range(0, 8)))}};
  qp.post_write(4).out(write_only(0));
  qp.at(24h).quiet();
  qp.in(Ack{0}).completes(1);
}

TEST_CASE("requester reports a dead peer after retry_cnt + 1 periods", "[rc][timeout][T11]") {
  // IBA 9.9.2.4.1 ?; each retry_cnt with each code. 7 is seven tries here, not for ever
  const unsigned retry_cnt = GENERATE(range(0U, 8U));
  const unsigned code = GENERATE(range(1U, 32U));
  RcScript qp{{.timeout = static_cast<std::uint8_t>(code),
               .retry_cnt = static_cast<std::uint8_t>(retry_cnt),
               .area_bytes = 256}};
  qp.together([](RcScript& script) { script.post_write(4).post_read(8); });
  for (unsigned i = 0; i <= retry_cnt; ++i) {
    if (i > 0) qp.at(i * timeout_of(code));
    qp.out(write_only(0)).out(read_request(1, 8));
  }
  qp.at((retry_cnt + 1) * timeout_of(code) - 1ns).quiet();
  qp.at((retry_cnt + 1) * timeout_of(code));
  qp.completes(1, WcStatus::kRetryExcErr).completes(2, WcStatus::kWrFlushErr).is_in(QpState::kError);
  qp.counted(Count::kRequesterTimeouts, retry_cnt + 1).counted(Count::kRequesterRetryExceeded, 1);
  qp.at(qp.now() + 24h).quiet();
}

TEST_CASE("requester's retries start anew with progress", "[rc][timeout]") {
  // IBA 9.7.6.1.3 ?
  RcScript qp{{.timeout = 1, .retry_cnt = 1}};
  const auto period = timeout_of(1);
  qp.together([](RcScript& script) { script.post_write(4).post_write(4); });
  qp.forget().at(period).forget();
  qp.in(Ack{0}).completes(1);
  qp.at(2 * period).out(write_only(1));
  qp.at(3 * period).completes(2, WcStatus::kRetryExcErr);
}

TEST_CASE("requester's ack timer starts anew with progress", "[rc][timeout]") {
  RcScript qp{{.timeout = 1}};
  const auto period = timeout_of(1);
  qp.together([](RcScript& script) { script.post_write(4).post_write(4); });
  qp.forget();
  qp.at(period - 1ns).in(Ack{0}).completes(1);
  qp.at(2 * period - 2ns).quiet();
  qp.at(2 * period - 1ns).out(write_only(1)).in(Ack{1}).completes(2);
}

TEST_CASE("requester spends a retry on each sequence NAK that brings no progress", "[rc][timeout]") {
  RcScript qp{{.timeout = 1, .retry_cnt = 2}};
  qp.post_write(4).forget();
  qp.in(NakSequence{0}).out(write_only(0));
  qp.at(timeout_of(1)).out(write_only(0));
  qp.in(NakSequence{0}).completes(1, WcStatus::kRetryExcErr);
}

TEST_CASE("requester asks for a READ of 64 KiB from its first missing response on",
          "[rc][read][go-back-n][T13]") {
  // IBA 9.7.6 ?
  constexpr std::uint32_t kPackets = 256;
  const bool by_timeout = GENERATE(true, false);
  for (std::uint32_t got = 0; got < kPackets; ++got) {
    CAPTURE(got);
    RcScript qp{{.mtu = 256, .max_unacked = 2 * kPackets}};  // asked for at once
    qp.post_read(kPackets * 256).out(read_request(0, kPackets * 256));
    for (std::uint32_t i = 0; i < got; ++i) qp.in(response(i, kPackets));
    if (by_timeout || got + 1 == kPackets) {
      qp.at(100ms);
    } else {
      qp.in(response(got + 1, kPackets));  // one is missing before it: an implied NAK
    }
    qp.out(read_request(got, (kPackets - got) * 256, got * 256));
    for (std::uint32_t i = got; i < kPackets; ++i) qp.in(response(i, kPackets));
    qp.completes({.wr_id = 1, .byte_len = kPackets * 256, .opcode = WcOpcode::kRdmaRead});
    REQUIRE(qp.sink.holds(0, kPackets * 256, kData));
    REQUIRE(qp.sink.is_untouched_but(0, kPackets * 256));
  }
}

TEST_CASE("requester takes READ responses that come late, after it has asked again",
          "[rc][read][go-back-n]") {
  RcScript qp{{.mtu = 256}};
  qp.post_read(4 * 256).out(read_request(0, 4 * 256));
  qp.in(response(0, 4)).in(response(2, 4)).out(read_request(1, 3 * 256, 256));
  qp.in({response(1, 4), response(2, 4), response(3, 4)}).completes(1);
  qp.in({response(1, 4), response(2, 4), response(3, 4)}).quiet();  // answers to the second request
  qp.counted(Count::kRequesterGhostResponses, 3);
  CHECK(qp.sink.holds(0, 4 * 256, kData));
}

TEST_CASE("requester takes an ACK behind a READ without its responses for a NAK", "[rc][implied-nak][T12]") {
  // IBA 9.7.5.1.4 ?
  RcScript qp{{.mtu = 256}};
  qp.together([](RcScript& script) { script.post_write(4).post_read(512).post_write(4).post_add(1); });
  qp.out(write_only(0)).out(read_request(1, 512)).out(write_only(3)).out({kRcFetchAdd, 4, 0, true});

  SECTION("what is before the READ completes, what is behind is sent again") {
    qp.in(Ack{3}).completes(1).out(read_request(1, 512)).out(write_only(3)).out({kRcFetchAdd, 4, 0, true});
  }
  SECTION("an atomic response does the same") {
    qp.in({.opcode = kRcAtomicAck, .psn = 4});
    qp.completes(1).out(read_request(1, 512)).out(write_only(3)).out({kRcFetchAdd, 4, 0, true});
  }
  SECTION("an ACK with the READ's own PSN does the same: it carries no data") {
    qp.in(Ack{2}).completes(1).out(read_request(1, 512)).out(write_only(3)).out({kRcFetchAdd, 4, 0, true});
  }
  SECTION("a NAK behind the READ does the same") {
    qp.in(NakSequence{3})
        .completes(1)
        .out(read_request(1, 512))
        .out(write_only(3))
        .out({kRcFetchAdd, 4, 0, true});
  }
  SECTION("half of the READ need not be asked for again") {
    qp.in({.opcode = kRcReadResponseFirst, .psn = 1, .payload = 256}).completes(1);
    qp.in(Ack{3}).out(read_request(2, 256, 256)).out(write_only(3)).out({kRcFetchAdd, 4, 0, true});
    qp.in({.opcode = kRcReadResponseLast, .psn = 2, .payload = 256}).completes(2);
    qp.in({.opcode = kRcAtomicAck, .psn = 4, .original = 5}).completes(3).completes(4);
    return;
  }
  qp.counted(Count::kRequesterImpliedNaks, 1);
  qp.in({.opcode = kRcReadResponseFirst, .psn = 1, .payload = 256});
  qp.in({.opcode = kRcReadResponseLast, .psn = 2, .payload = 256}).completes(2);
  qp.in(Ack{3}).completes(3);
  qp.in({.opcode = kRcAtomicAck, .psn = 4, .original = 5}).completes(4);
}

TEST_CASE("requester asks for a chunk of a READ again within its own borders", "[rc][read][go-back-n]") {
  // A responder finds what it remembers only if the request lies in one that it has answered.
  RcScript qp{{.mtu = 256, .max_unacked = 8}};
  qp.post_read(10 * 256).out(read_request(0, 1024)).out(read_request(4, 1024, 1024));
  const auto part = [](std::uint32_t psn, wire::Opcode opcode) {
    return Packet{.opcode = opcode, .psn = psn, .payload = 256, .data = from(kData, psn * 256)};
  };
  qp.in({part(0, kRcReadResponseFirst), part(1, kRcReadResponseMiddle)});
  qp.out(read_request(8, 512, 2048));
  qp.at(100ms)
      .out(read_request(2, 512, 512))
      .out(read_request(4, 1024, 1024))
      .out(read_request(8, 512, 2048));
  for (std::uint32_t psn = 2; psn < 10; ++psn) qp.in(part(psn, kRcReadResponseMiddle));
  qp.completes(1);
  CHECK(qp.sink.holds(0, 10 * 256, kData));
}

TEST_CASE("requester sends an atomic again with the same PSN", "[rc][atomic][go-back-n]") {
  RcScript qp;
  qp.post_add(7).out({.opcode = kRcFetchAdd, .psn = 0, .ack_req = true});
  qp.at(68ms).out(
      {.opcode = kRcFetchAdd,
       .psn = 0,
       .ack_req = true,
       .atomic = wire::AtomicEth{
           .va = RcScript::kRemoteVa, .rkey = RcScript::kRemoteKey, .swap_add = 7, .compare = 0}});
  qp.in({.opcode = kRcAtomicAck, .psn = 0, .original = 1}).completes(1);
  qp.in({.opcode = kRcAtomicAck, .psn = 0, .original = 2}).quiet();
  std::uint64_t value = 0;
  std::memcpy(&value, qp.sink.bytes().data(), 8);
  CHECK(value == 1);
}

TEST_CASE("requester gives up on a peer whose Ethernet address nobody tells", "[rc][timeout]") {
  RcScript qp{{.timeout = 8, .retry_cnt = 2, .resolved = false}};
  qp.post_write(4).quiet();
  qp.at(3 * timeout_of(8) - 1ns).quiet();
  qp.at(3 * timeout_of(8)).completes(1, WcStatus::kRetryExcErr).is_in(QpState::kError);
}

TEST_CASE("requester sends what was posted once the peer's Ethernet address is known", "[rc][timeout]") {
  RcScript qp{{.timeout = 8, .retry_cnt = 2, .resolved = false}};
  qp.post_write(4).at(2 * timeout_of(8)).quiet();
  wire::FrameAddress address = qp.peer_address();
  std::swap(address.src_mac, address.dst_mac);
  std::swap(address.sgid, address.dgid);
  qp.qp().context().path->head = wire::FrameTemplate{address};
  qp.qp().set_resolved();
  const auto start = qp.now();
  qp.transmit().out(write_only(0));
  // The time of waiting for the address has not used up retries.
  qp.at(start + timeout_of(8)).out(write_only(0));
  qp.at(start + 2 * timeout_of(8)).out(write_only(0));
  qp.at(start + 3 * timeout_of(8)).completes(1, WcStatus::kRetryExcErr);
}
