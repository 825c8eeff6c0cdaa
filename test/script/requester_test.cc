// What the requester sends for each work request.
#include <catch2/catch.hpp>

#include "script/remote.h"

using namespace uroce;
using namespace uroce::test;

TEST_CASE("requester cuts a SEND into packets of the path MTU", "[rc][segmentation]") {
  // IBA 9.2.1: n = max(1, ceil(L / PMTU)) PSNs
  const std::uint32_t mtu = GENERATE(256U, 512U, 1024U, 2048U, 4096U);
  RcScript qp{{.mtu = mtu, .first_psn = 7}};
  const Pattern data = qp.source.initial();

  SECTION("one byte short of the path MTU is one packet") {
    qp.post_send(mtu - 1).out(
        {.opcode = kRcSendOnly, .psn = 7, .payload = mtu - 1, .ack_req = true, .data = data});
    qp.in(Ack{7}).completes(1);
  }
  SECTION("exactly the path MTU is one packet") {
    qp.post_send(mtu).out({.opcode = kRcSendOnly, .psn = 7, .payload = mtu, .ack_req = true, .data = data});
    qp.in(Ack{7}).completes(1);
  }
  SECTION("one byte more needs a second packet") {
    qp.post_send(mtu + 1);
    qp.out({.opcode = kRcSendFirst, .psn = 7, .payload = mtu, .data = data});
    qp.out({.opcode = kRcSendLast, .psn = 8, .payload = 1, .ack_req = true, .data = from(data, mtu)});
    qp.in(Ack{8}).completes(1);
  }
  SECTION("four times the path MTU is four packets") {
    qp.post_send(4 * mtu);
    qp.out({.opcode = kRcSendFirst, .psn = 7, .payload = mtu, .data = data});
    qp.out({.opcode = kRcSendMiddle, .psn = 8, .payload = mtu, .data = from(data, mtu)});
    qp.out({.opcode = kRcSendMiddle, .psn = 9, .payload = mtu, .data = from(data, 2 * mtu)});
    qp.out({.opcode = kRcSendLast, .psn = 10, .payload = mtu, .ack_req = true, .data = from(data, 3 * mtu)});
    qp.in(Ack{10}).completes(1);
  }
  qp.at(1s).quiet();
}

TEST_CASE("requester cuts a WRITE into packets, the first of which names the whole range",
          "[rc][segmentation]") {
  // IBA 9.3.3, 9.7.4
  const std::uint32_t mtu = GENERATE(256U, 512U, 1024U, 2048U, 4096U);
  RcScript qp{{.mtu = mtu, .first_psn = 100}};
  const Pattern data = qp.source.initial();

  qp.post_write(3 * mtu - 1);
  qp.out({.opcode = kRcWriteFirst, .psn = 100, .payload = mtu, .reth = remote(3 * mtu - 1), .data = data});
  qp.out({.opcode = kRcWriteMiddle, .psn = 101, .payload = mtu, .data = from(data, mtu)});
  qp.out(
      {.opcode = kRcWriteLast, .psn = 102, .payload = mtu - 1, .ack_req = true, .data = from(data, 2 * mtu)});
  qp.in(Ack{102}).completes({.wr_id = 1, .opcode = WcOpcode::kRdmaWrite});
}

TEST_CASE("requester sends messages of 0 bytes as one packet without payload", "[rc][segmentation]") {
  // IBA 9.4.4 ?
  RcScript qp;
  qp.post_send(0).out({kRcSendOnly, 0, 0, true});
  qp.post_write(0).out({.opcode = kRcWriteOnly, .psn = 1, .ack_req = true, .reth = remote(0)});
  qp.post_read(0).out({.opcode = kRcReadRequest, .psn = 2, .ack_req = true, .reth = remote(0)});
  qp.in(Ack{1}).completes(1).completes(2);
  qp.in({.opcode = kRcReadResponseOnly, .psn = 2}).completes({.wr_id = 3, .opcode = WcOpcode::kRdmaRead});
  qp.post({.opcode = WrOpcode::kSend}).out({kRcSendOnly, 3, 0, true});  // no SGE at all
  qp.in(Ack{3}).completes(4);
}

TEST_CASE("requester pads payloads to a multiple of 4 with zeros", "[rc][segmentation]") {
  // IBA 9.2.4
  const std::uint32_t bytes = GENERATE(1U, 2U, 3U, 4U, 5U);
  RcScript qp;
  qp.post_send(bytes);
  const Bytes frame = qp.take_frame();
  wire::PacketView view;
  REQUIRE(wire::parse_packet(frame, view) == wire::ParseResult::kRoce);
  CHECK(view.payload.size() == bytes);
  CHECK((bytes + view.bth.pad) % 4 == 0);
  CHECK(view.bth.pad < 4);
  for (unsigned i = 0; i < view.bth.pad; ++i) CHECK(view.payload.data()[bytes + i] == std::byte{0});
}

TEST_CASE("requester puts immediate data and the key to invalidate into the last packet",
          "[rc][segmentation]") {
  // IBA 9.3.6, 9.3.7
  struct Kind {
    WrOpcode opcode;
    wire::Opcode only, first, last;
  };
  const auto kind = GENERATE(values<Kind>({
      {WrOpcode::kSendWithImm, kRcSendOnlyImm, kRcSendFirst, kRcSendLastImm},
      {WrOpcode::kSendWithInv, kRcSendOnlyInv, kRcSendFirst, kRcSendLastInv},
      {WrOpcode::kRdmaWriteWithImm, kRcWriteOnlyImm, kRcWriteFirst, kRcWriteLastImm},
  }));
  const bool has_key = kind.opcode == WrOpcode::kSendWithInv;
  RcScript qp;
  const auto post = [&](std::uint32_t bytes) {
    const Sge sge = qp.source.sge(0, bytes);
    qp.post({.sges = {&sge, 1},
             .opcode = kind.opcode,
             .imm_data = network_order(0x0102'0304),
             .invalidate_rkey = Rkey{0x0102'0304},
             .remote_addr = RcScript::kRemoteVa,
             .rkey = RcScript::kRemoteKey});
  };
  const auto value = std::optional<std::uint32_t>{0x0102'0304};
  const auto none = std::optional<std::uint32_t>{};

  post(10);
  qp.out({.opcode = kind.only,
          .payload = 10,
          .ack_req = true,
          .imm = has_key ? none : value,
          .ieth = has_key ? value : none,
          .data = qp.source.initial()});
  post(1025);
  qp.out({.opcode = kind.first, .psn = 1, .payload = 1024});
  qp.out({.opcode = kind.last,
          .psn = 2,
          .payload = 1,
          .ack_req = true,
          .imm = has_key ? none : value,
          .ieth = has_key ? value : none});
  qp.in(Ack{2}).completes(1).completes(2);
}

TEST_CASE("requester sets the solicited event bit on the last packet of what consumes a receive",
          "[rc][solicited]") {
  // IBA 9.2.3
  RcScript qp;
  qp.post_send(1025, send_flag::kSolicited);
  qp.out({.opcode = kRcSendFirst, .payload = 1024, .solicited = false});
  qp.out({.opcode = kRcSendLast, .psn = 1, .payload = 1, .ack_req = true, .solicited = true});
  qp.post_write(4, send_flag::kSolicited);
  qp.out({.opcode = kRcWriteOnly, .psn = 2, .payload = 4, .ack_req = true, .solicited = false});
  const Sge sge = qp.source.sge(0, 4);
  qp.post({.sges = {&sge, 1}, .opcode = WrOpcode::kRdmaWriteWithImm, .flags = send_flag::kSolicited});
  qp.out({.opcode = kRcWriteOnlyImm, .psn = 3, .payload = 4, .ack_req = true, .solicited = true});
  qp.post_read(4, send_flag::kSolicited).out({kRcReadRequest, 4, 0, true, false});
  qp.forget();
}

TEST_CASE("requester gathers a message from an SGE list whose borders are not packet borders", "[rc][sge]") {
  // IBA 10.8.3.2 ?
  RcScript qp{{.mtu = 256}};
  const Sge sges[] = {qp.source.sge(1000, 100), qp.source.sge(5, 0), qp.source.sge(2000, 300),
                      qp.source.sge(0, 1)};
  qp.post({.sges = sges, .opcode = WrOpcode::kSend});
  Bytes first = qp.take_frame();
  wire::PacketView view;
  REQUIRE(wire::parse_packet(first, view) == wire::ParseResult::kRoce);
  REQUIRE(view.payload.size() == 256);
  const auto source = qp.source.bytes();
  CHECK(std::equal(view.payload.begin(), view.payload.begin() + 100, source.begin() + 1000));
  CHECK(std::equal(view.payload.begin() + 100, view.payload.end(), source.begin() + 2000));
  Bytes last = qp.take_frame();
  REQUIRE(wire::parse_packet(last, view) == wire::ParseResult::kRoce);
  REQUIRE(view.payload.size() == 145);
  CHECK(std::equal(view.payload.begin(), view.payload.begin() + 144, source.begin() + 2156));
  CHECK(view.payload[144] == source[0]);
  qp.in(Ack{1}).completes(1);
}

TEST_CASE("requester copies inline data when the work request is posted", "[rc][inline]") {
  // ibv_post_send(3): the buffer may be reused at once, and its lkey is not looked at
  RcScript qp{{.inline_bytes = 64}};
  Bytes buffer(64, std::byte{0x77});
  const Sge sge{.addr = std::bit_cast<std::uint64_t>(buffer.data()), .length = 64, .lkey = Lkey{0}};
  qp.together([&](RcScript& script) {
    script.post({.sges = {&sge, 1}, .opcode = WrOpcode::kSend, .flags = send_flag::kInline});
    std::fill(buffer.begin(), buffer.end(), std::byte{0});
  });
  const Bytes frame = qp.take_frame();
  wire::PacketView view;
  REQUIRE(wire::parse_packet(frame, view) == wire::ParseResult::kRoce);
  CHECK(std::all_of(view.payload.begin(), view.payload.end(),
                    [](std::byte b) { return b == std::byte{0x77}; }));
  qp.in(Ack{0}).completes(1);

  const Sge longer{.addr = sge.addr, .length = 65, .lkey = Lkey{0}};
  CHECK_FALSE(qp.qp().context().sq.put(
      {.sges = {&longer, 1}, .opcode = WrOpcode::kSend, .flags = send_flag::kInline}, 0));
}

TEST_CASE("requester sends a READ as one request that owns the PSNs of its responses", "[rc][read]") {
  // IBA 9.7.3.1.3 ?
  const std::uint32_t mtu = GENERATE(256U, 1024U, 4096U);
  RcScript qp{{.mtu = mtu, .first_psn = 0xff'fffe}};
  const Pattern data{0x33, 0};
  qp.post_read(2 * mtu + 3)
      .out({.opcode = kRcReadRequest, .psn = 0xff'fffe, .ack_req = true, .reth = remote(2 * mtu + 3)});
  qp.post_send(1).out({kRcSendOnly, 0x00'0001, 1, true});
  qp.in({.opcode = kRcReadResponseFirst, .psn = 0xff'fffe, .payload = mtu, .data = data});
  qp.in({.opcode = kRcReadResponseMiddle, .psn = 0xff'ffff, .payload = mtu, .data = from(data, mtu)});
  qp.in({.opcode = kRcReadResponseLast, .psn = 0x00'0000, .payload = 3, .data = from(data, 2 * mtu)});
  qp.completes({.wr_id = 1, .byte_len = 2 * mtu + 3, .opcode = WcOpcode::kRdmaRead});
  CHECK(qp.sink.holds(0, 2 * mtu + 3, data));
  CHECK(qp.sink.is_untouched_but(0, 2 * mtu + 3));
  qp.in(Ack{0x00'0001}).completes(2);
}

TEST_CASE("requester scatters READ responses over an SGE list", "[rc][read][sge]") {
  RcScript qp{{.mtu = 256}};
  const Pattern data{0x44, 9};
  const Sge sges[] = {qp.sink.sge(0, 200), qp.sink.sge(1000, 200), qp.sink.sge(300, 50)};
  qp.post({.sges = sges,
           .opcode = WrOpcode::kRdmaRead,
           .remote_addr = RcScript::kRemoteVa,
           .rkey = RcScript::kRemoteKey});
  qp.out({.opcode = kRcReadRequest, .ack_req = true, .reth = remote(450)});
  qp.in({{.opcode = kRcReadResponseFirst, .payload = 256, .data = data},
         {.opcode = kRcReadResponseLast, .psn = 1, .payload = 194, .data = from(data, 256)}});
  qp.completes(1);
  CHECK(qp.sink.holds(0, 200, data));
  CHECK(qp.sink.holds(1000, 200, from(data, 200)));
  CHECK(qp.sink.holds(300, 50, from(data, 400)));
  CHECK(qp.sink.holds(350, 650, qp.sink.initial(350)));
}

TEST_CASE("requester asks for a long READ in chunks of half the window", "[rc][read]") {
  // IBA 9.4.4 ?: the responses in flight are bounded
  RcScript qp{{.mtu = 256, .max_unacked = 8}};
  qp.post_read(9 * 256);
  qp.out({.opcode = kRcReadRequest, .psn = 0, .ack_req = true, .reth = remote(4 * 256)});
  qp.out({.opcode = kRcReadRequest, .psn = 4, .ack_req = true, .reth = remote(4 * 256, 4 * 256)});
  qp.quiet();  // the window of 8 packets is full
  const Pattern data{0x21, 0};
  for (std::uint32_t psn = 0; psn < 9; ++psn) {
    const bool first = psn % 4 == 0;
    const bool last = psn % 4 == 3;
    const wire::Opcode opcode = psn == 8 ? kRcReadResponseOnly
                                : first  ? kRcReadResponseFirst
                                : last   ? kRcReadResponseLast
                                         : kRcReadResponseMiddle;
    qp.in({.opcode = opcode, .psn = psn, .payload = 256, .data = from(data, psn * 256)});
    if (psn == 0) qp.out({.opcode = kRcReadRequest, .psn = 8, .ack_req = true, .reth = remote(256, 8 * 256)});
  }
  qp.completes({.wr_id = 1, .byte_len = 9 * 256, .opcode = WcOpcode::kRdmaRead});
  CHECK(qp.sink.holds(0, 9 * 256, data));
}

TEST_CASE("requester keeps at most max_rd_atomic READs and atomics in flight", "[rc][read]") {
  // IBA 9.4.4
  RcScript qp{{.max_rd_atomic = 2}};
  qp.together([](RcScript& script) { script.post_read(8).post_add(1).post_read(8).post_send(4); });
  qp.out({kRcReadRequest, 0, 0, true}).out({kRcFetchAdd, 1, 0, true});
  qp.quiet();  // the SEND behind them waits too: work requests start in order
  qp.in({.opcode = kRcReadResponseOnly, .psn = 0, .payload = 8}).completes(1);
  qp.out({kRcReadRequest, 2, 0, true}).out({kRcSendOnly, 3, 4, true});
  qp.in({.opcode = kRcAtomicAck, .psn = 1}).completes(2);
  qp.in({.opcode = kRcReadResponseOnly, .psn = 2, .payload = 8}).completes(3);
  qp.in(Ack{3}).completes(4);
}

TEST_CASE("requester stores the original value of an atomic in host byte order", "[rc][atomic]") {
  // ibv_post_send(3); IBA 9.7.6 ?
  RcScript qp;
  const auto stored = [&qp] {
    std::uint64_t value = 0;
    std::memcpy(&value, qp.sink.bytes().data(), 8);
    return value;
  };
  qp.post_swap(0x1111, 0x2222);
  qp.out(
      {.opcode = kRcCompareSwap,
       .ack_req = true,
       .atomic = wire::AtomicEth{
           .va = RcScript::kRemoteVa, .rkey = RcScript::kRemoteKey, .swap_add = 0x2222, .compare = 0x1111}});
  qp.in({.opcode = kRcAtomicAck, .psn = 0, .original = 0x0102'0304'0506'0708});
  qp.completes({.wr_id = 1, .byte_len = 8, .opcode = WcOpcode::kCompSwap});
  CHECK(stored() == 0x0102'0304'0506'0708);
  qp.post_add(0x55);
  qp.out({.opcode = kRcFetchAdd,
          .psn = 1,
          .ack_req = true,
          .atomic = wire::AtomicEth{
              .va = RcScript::kRemoteVa, .rkey = RcScript::kRemoteKey, .swap_add = 0x55, .compare = 0}});
  qp.in({.opcode = kRcAtomicAck, .psn = 1, .original = 9});
  qp.completes({.wr_id = 2, .byte_len = 8, .opcode = WcOpcode::kFetchAdd});
  CHECK(stored() == 9);
  CHECK(qp.sink.is_untouched_but(0, 8));
}

TEST_CASE("requester holds a fenced work request until all READs and atomics before it are done",
          "[rc][fence]") {
  // IBA 10.8.3.3
  RcScript qp;
  qp.together(
      [](RcScript& script) { script.post_read(8).post_add(1).post_send(4, send_flag::kFence).post_send(4); });
  qp.out({kRcReadRequest, 0, 0, true}).out({kRcFetchAdd, 1, 0, true});
  qp.in({.opcode = kRcReadResponseOnly, .psn = 0, .payload = 8}).completes(1);
  qp.at(1us).quiet();
  qp.in({.opcode = kRcAtomicAck, .psn = 1}).completes(2);
  qp.out({kRcSendOnly, 2, 4, true}).out({kRcSendOnly, 3, 4, true});
  qp.in(Ack{3}).completes(3).completes(4);
  qp.post_send(4, send_flag::kFence).out({kRcSendOnly, 4, 4, true});  // nothing to wait for
  qp.in(Ack{4}).completes(5);
}

TEST_CASE("requester completes only what is signaled, and errors always", "[rc][signaling]") {
  // IBA 10.7.3.1 ?
  RcScript qp{{.sig_all = false}};
  qp.together(
      [](RcScript& s) { s.post_send(1).post_send(1, send_flag::kSignaled).post_write(1).post_send(1); });
  for (std::uint32_t psn = 0; psn < 4; ++psn) qp.out({psn == 2 ? kRcWriteOnly : kRcSendOnly, psn, 1, true});
  qp.in(Ack{1}).completes(2);
  qp.in(Nak{2, 0x62}).completes(3, WcStatus::kRemAccessErr).completes(4, WcStatus::kWrFlushErr);
  qp.is_in(QpState::kError);
}

TEST_CASE("requester keeps at most max_unacked packets in flight and asks for an ACK before it has to stop",
          "[rc][window]") {
  // IBA 9.9.2, 9.4.4 ?
  RcScript qp{{.mtu = 256, .first_psn = 0xff'fffa, .max_unacked = 8}};
  qp.post_send(20 * 256);
  std::uint32_t asked = 0;
  wire::PacketView view;
  Bytes frame;
  for (int i = 0; i < 8; ++i) {
    frame = qp.take_frame();
    REQUIRE(wire::parse_packet(frame, view) == wire::ParseResult::kRoce);
    if (view.bth.ack_req) ++asked;
  }
  CHECK(view.bth.psn == Psn{0x00'0001});
  CHECK(view.bth.ack_req);
  CHECK(asked == 4);  // four times per window
  qp.quiet();
  qp.in(Ack{0xff'fffb});
  qp.out({kRcSendMiddle, 2, 256, false}).out({kRcSendMiddle, 3, 256, true}).quiet();
  qp.in(Ack{3}).forget();
  qp.in(Ack{11}).forget();
  qp.in(Ack{13}).completes(1);
}

TEST_CASE("requester goes on where it stopped when the port had no room", "[rc][window]") {
  RcScript qp{{.mtu = 256}};
  qp.port().room = 0;
  qp.post_write(600).quiet();
  qp.port().room = 1;
  const Pattern data = qp.source.initial();
  qp.transmit().out({.opcode = kRcWriteFirst, .payload = 256, .data = data}).quiet();
  qp.transmit().out({.opcode = kRcWriteMiddle, .psn = 1, .payload = 256, .data = from(data, 256)}).quiet();
  qp.transmit().out(
      {.opcode = kRcWriteLast, .psn = 2, .payload = 88, .ack_req = true, .data = from(data, 512)});
  qp.in(Ack{2}).completes(1);
}

TEST_CASE("requester speaks IPv6 as it speaks IPv4", "[rc][v6]") {
  RcScript qp{{.mtu = 256, .v6 = true}};
  qp.post_send(300).out({kRcSendFirst, 0, 256}).out({kRcSendLast, 1, 44, true});
  qp.in(Ack{1}).completes(1);
}

TEST_CASE("a READ of which a part has come is refused by the PSN of its request, too", "[rc][read][fault]") {
  // As Soft-RoCE does when the region goes meanwhile. The peer is in Error then, and says no more.
  const std::uint32_t request =
      GENERATE(0U, 1U);  // of all of it, of what was missing behind the first packet
  RcScript qp{{.mtu = 256}};
  qp.post_read(1024).forget();
  qp.in({kRcReadResponseFirst, 0, 256}).in({kRcReadResponseMiddle, 1, 256}).in(Nak{request, 0x62});
  qp.completes(1, WcStatus::kRemAccessErr).is_in(QpState::kError);
}

TEST_CASE("other NAKs of what has been answered say nothing", "[rc][read][fault]") {
  RcScript qp{{.mtu = 256}};
  qp.post_write(4).post_read(1024).forget();
  qp.in(Ack{0}).completes(1).in({kRcReadResponseFirst, 1, 256});
  qp.in(Nak{0, 0x62}).in(NakSequence{1}).quiet().is_in(QpState::kRts);
  qp.counted(Count::kRequesterGhostResponses, 2);
  qp.forget();
}
