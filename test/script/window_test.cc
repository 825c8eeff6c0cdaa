// Memory windows and local invalidates: in the send queue, and as what a peer names. IBA 10.6.5, 10.6.7.
#include <catch2/catch.hpp>

#include "script/remote.h"

using namespace uroce;
using namespace uroce::test;

namespace {

constexpr Pattern kData{0x42, 1};

/// An RC QP with a region that windows may be bound to.
struct Windows {
  explicit Windows(const ScriptConfig& config = {}, MwType window_type = MwType::kType2B)
      : qp(config),
        type(window_type),
        region(qp.keys()
                   .insert({.addr = qp.target.addr(),
                            .length = 4096,
                            .pd = RcScript::kPd,
                            .access = kAllRights | access::kMwBind | access::kInvalidatable})
                   .value()),
        window(qp.keys().insert_window(type, RcScript::kPd).value()) {}

  Windows& bind(std::uint32_t low, std::uint8_t flags = 0) {
    const MwBind to{.mr = Lkey{region},
                    .addr = qp.target.addr(64),
                    .length = 64,
                    .access = access::kRemoteWrite | access::kRemoteRead | access::kFlushGlobal};
    qp.post({.opcode = WrOpcode::kBindMw, .flags = flags, .rkey = Rkey{window + low}, .bind = &to});
    return *this;
  }
  Windows& invalidate(std::uint32_t key, std::uint8_t flags = 0) {
    qp.post({.opcode = WrOpcode::kLocalInv, .flags = flags, .invalidate_rkey = Rkey{key}});
    return *this;
  }
  /// Whether the peer could read through the window now.
  [[nodiscard]] bool gives(std::uint32_t low, std::uint64_t at = 64) {
    mem::KeyFault fault{};
    return qp.keys().resolve_remote(window + low, {.pd = RcScript::kPd, .qpn = RcScript::kLocal},
                                    access::kRemoteRead, qp.target.addr(at), 1, fault) != nullptr;
  }
  [[nodiscard]] Packet write(std::uint32_t psn, std::uint32_t low, std::uint64_t at = 64) {
    return {.opcode = kRcWriteOnly,
            .psn = psn,
            .payload = 8,
            .ack_req = true,
            .reth = wire::Reth{.va = qp.target.addr(at), .rkey = Rkey{window + low}, .length = 8},
            .data = kData};
  }

  RcScript qp;
  MwType type;
  std::uint32_t region;
  std::uint32_t window;
};

}  // namespace

TEST_CASE("a bind and a local invalidate send nothing and complete", "[rc][window]") {
  Windows it;
  it.bind(1);
  it.qp.completes({.wr_id = 1, .opcode = WcOpcode::kBindMw}).quiet();
  CHECK(it.gives(1));
  it.invalidate(it.window + 1);
  it.qp.completes({.wr_id = 2, .opcode = WcOpcode::kLocalInv}).quiet();
  CHECK_FALSE(it.gives(1));
  it.bind(1);
  it.qp.completes(3);
  it.qp.post_write(4).out({kRcWriteOnly, 0, 4, true}).in(Ack{0}).completes(4);  // they own no PSN
  it.qp.at(1s).quiet();
}

TEST_CASE("they complete only if they are signaled", "[rc][window][signaling]") {
  Windows it({.sig_all = false});
  it.bind(1).invalidate(it.window + 1).bind(2, send_flag::kSignaled);
  it.qp.completes(3).quiet();
}

TEST_CASE("a bind is done before what is posted later, and completes in its turn", "[rc][window]") {
  Windows it;
  it.qp.together([&](RcScript& s) {
    s.post_write(4);
    it.bind(1);
    s.post_send(4);
    it.bind(2);  // refused: the window is bound
  });
  it.qp.out({kRcWriteOnly, 0, 4, true}).out({kRcSendOnly, 1, 4, true}).quiet();
  CHECK(it.gives(1));
  it.qp.in(Ack{0}).completes(1).completes(2).quiet();
  it.qp.in(Ack{1}).completes(3).completes(4, WcStatus::kMwBindErr).is_in(QpState::kError);
}

TEST_CASE("one ACK completes messages and binds between them in order", "[rc][window]") {
  Windows it({}, MwType::kType1);
  it.qp.together([&](RcScript& s) {
    it.bind(1).bind(2);
    s.post_write(4);
    it.bind(3).bind(4);
    s.post_write(4);
    it.bind(5);
  });
  it.qp.out({kRcWriteOnly, 0, 4, true}).out({kRcWriteOnly, 1, 4, true});
  it.qp.completes(1).completes(2).quiet();
  it.qp.in(Ack{1});
  for (std::uint64_t id = 3; id <= 7; ++id) it.qp.completes(id);
  CHECK(it.gives(5));
  it.qp.quiet().at(1s).quiet();
}

TEST_CASE("a local invalidate waits for all that was posted before it", "[rc][window][fence]") {
  // IBA 10.6.5.1 ?
  Windows it;
  it.bind(1);
  it.qp.completes(1);
  it.qp.together([&](RcScript& s) {
    s.post_send(4).post_read(4);
    it.invalidate(it.window + 1);
    s.post_send(4);
  });
  it.qp.out({kRcSendOnly, 0, 4, true}).out({kRcReadRequest, 1, 0, true}).quiet();
  CHECK(it.gives(1));
  it.qp.in(Ack{0}).completes(2).quiet();
  CHECK(it.gives(1));
  it.qp.in({.opcode = kRcReadResponseOnly, .psn = 1, .payload = 4}).completes(3).completes(4);
  CHECK_FALSE(it.gives(1));
  it.qp.out({kRcSendOnly, 2, 4, true}).in(Ack{2}).completes(5);
}

TEST_CASE("a bind with a fence waits for READs, and one without does not", "[rc][window][fence]") {
  const bool fenced = GENERATE(true, false);
  Windows it;
  it.qp.together([&](RcScript& s) {
    s.post_read(4);
    it.bind(1, fenced ? send_flag::kFence : 0);
  });
  it.qp.out({kRcReadRequest, 0, 0, true});
  CHECK(it.gives(1) == !fenced);
  it.qp.in({.opcode = kRcReadResponseOnly, .psn = 0, .payload = 4}).completes(1).completes(2);
  CHECK(it.gives(1));
}

TEST_CASE("going back does no bind twice", "[rc][window][go-back-n]") {
  // Bound twice, a window of type 2 would be refused; invalidated twice, its key too.
  Windows it({.first_psn = 0xff'fffe});
  it.qp.together([&](RcScript& s) {
    s.post_write(4);
    it.bind(1);
    s.post_write(2048);
    s.post_read(4);
  });
  const auto again = [&](bool whole) {
    if (whole) it.qp.out({kRcWriteOnly, 0xff'fffe, 4, true});
    it.qp.out({kRcWriteFirst, 0xff'ffff, 1024})
        .out({kRcWriteLast, 0, 1024, true})
        .out({kRcReadRequest, 1, 0, true});
  };
  again(true);
  bool first_done = false;
  SECTION("the first packet was lost") {
    it.qp.in(NakSequence{0xff'fffe});
    again(true);
  }
  SECTION("one behind the bind was lost") {
    it.qp.in(NakSequence{0xff'ffff}).completes(1).completes(2);
    again(false);
    first_done = true;
  }
  SECTION("nothing arrived") {
    it.qp.at(100ms);
    again(true);
    it.qp.at(200ms);
    again(true);
  }
  SECTION("the receiver was not ready for the first, then for the next") {
    it.qp.in(RnrNak{0xff'fffe, 1}).at(1ms);
    again(true);
    it.qp.in(RnrNak{0xff'ffff, 1}).completes(1).completes(2).at(2ms);
    again(false);
    first_done = true;
  }
  SECTION("an ACK of what is behind the READ") {
    it.qp.in(Ack{1}).completes(1).completes(2).completes(3).out({kRcReadRequest, 1, 0, true});
    it.qp.in({.opcode = kRcReadResponseOnly, .psn = 1, .payload = 4}).completes(4);
    CHECK(it.gives(1));
    return;
  }
  it.qp.in(Ack{0});
  if (!first_done) it.qp.completes(1).completes(2);
  it.qp.completes(3).in({.opcode = kRcReadResponseOnly, .psn = 1, .payload = 4}).completes(4);
  CHECK(it.gives(1));
  it.qp.counted(Count::kRequesterLocalErrors, 0).at(5s).quiet();
}

TEST_CASE("a part of a message behind a bind is sent again from where it was acknowledged",
          "[rc][window][go-back-n]") {
  Windows it({.mtu = 256});
  it.qp.together([&](RcScript& s) {
    it.bind(1);
    s.post_write(1024);
    it.invalidate(it.window + 1);
  });
  it.qp.completes(1);
  it.qp.out({kRcWriteFirst, 0, 256}).out({kRcWriteMiddle, 1, 256}).out({kRcWriteMiddle, 2, 256});
  it.qp.out({kRcWriteLast, 3, 256, true});
  it.qp.in(NakSequence{2}).out({kRcWriteMiddle, 2, 256}).out({kRcWriteLast, 3, 256, true});
  CHECK(it.gives(1));
  it.qp.in(Ack{3}).completes(2).completes(3);
  CHECK_FALSE(it.gives(1));
}

TEST_CASE("a refused bind or invalidate ends the QP in its turn, with its own status",
          "[rc][window][fault]") {
  Windows it;
  const bool is_bind = GENERATE(true, false);
  it.bind(1);
  it.qp.completes(1);
  it.qp.together([&](RcScript& s) {
    s.post_write(4);
    is_bind ? it.bind(2) : it.invalidate(it.window + 2);
    s.post_write(4);
  });
  it.qp.out({kRcWriteOnly, 0, 4, true}).quiet();
  it.qp.in(Ack{0}).completes(2).completes(3, WcStatus::kMwBindErr).completes(4, WcStatus::kWrFlushErr);
  it.qp.is_in(QpState::kError).counted(Count::kRequesterLocalErrors, 1);
}

TEST_CASE("a bind without parameters or with data is malformed", "[rc][window][fault]") {
  Windows it;
  const Sge sge = it.qp.source.sge(0, 4);
  const MwBind to{.mr = Lkey{it.region}, .addr = it.qp.target.addr(), .length = 8};
  SECTION("without parameters") {
    it.qp.post({.opcode = WrOpcode::kBindMw, .rkey = Rkey{it.window}});
  }
  SECTION("with data") {
    it.qp.post({.sges = {&sge, 1}, .opcode = WrOpcode::kBindMw, .rkey = Rkey{it.window}, .bind = &to});
  }
  SECTION("an invalidate with data") {
    it.qp.post({.sges = {&sge, 1}, .opcode = WrOpcode::kLocalInv, .invalidate_rkey = Rkey{it.region}});
  }
  it.qp.completes(1, WcStatus::kLocLenErr).is_in(QpState::kError);
}

TEST_CASE("binds that were done are flushed behind a message that fails", "[rc][window][flush]") {
  Windows it({.retry_cnt = 0});
  it.qp.together([&](RcScript& s) {
    s.post_write(4);
    it.bind(1);
    s.post_write(4);
  });
  it.qp.forget().at(1s);
  it.qp.completes(1, WcStatus::kRetryExcErr).completes(2, WcStatus::kWrFlushErr);
  it.qp.completes(3, WcStatus::kWrFlushErr).is_in(QpState::kError);
  it.bind(2);
  it.qp.completes(4, WcStatus::kWrFlushErr);
}

TEST_CASE("what is local need not wait for the peer's address", "[rc][window]") {
  Windows it({.resolved = false});
  it.bind(1).invalidate(it.window + 1);
  it.qp.completes(1).completes(2).quiet();
}

TEST_CASE("SQD starts no bind, and RTS again does", "[rc][window][sqd]") {
  Windows it;
  it.qp.together([&](RcScript& s) {
    s.post_write(4);
    it.bind(1);
  });
  it.qp.out({kRcWriteOnly, 0, 4, true}).move_to(QpState::kSqd);
  it.bind(2);
  it.qp.in(Ack{0}).completes(1).completes(2).raises(AsyncEventType::kSqDrained).quiet();
  it.qp.move_to(QpState::kRts).completes(3, WcStatus::kMwBindErr);  // it is bound already
}

TEST_CASE("the peer writes, reads and flushes through a window", "[rc][window][responder]") {
  Windows it({}, GENERATE(MwType::kType1, MwType::kType2A, MwType::kType2B));
  it.bind(7);
  it.qp.completes(1);
  it.qp.in(it.write(0, 7)).out(Ack{0, 1});
  CHECK(it.qp.target.holds(64, 8, kData));
  const wire::Reth reth{.va = it.qp.target.addr(64), .rkey = Rkey{it.window + 7}, .length = 64};
  it.qp.in({.opcode = kRcReadRequest, .psn = 1, .ack_req = true, .reth = reth});
  it.qp.out({.opcode = kRcReadResponseOnly, .psn = 1, .payload = 64});
  const wire::Feth feth{.placement = wire::Feth::kGlobal, .selectivity = wire::Feth::kWholeMr};
  it.qp.in({.opcode = kRcFlush, .psn = 2, .ack_req = true, .feth = feth, .reth = reth});
  it.qp.out({.opcode = kRcReadResponseOnly, .psn = 2});
  it.qp.in({.opcode = kRcAtomicWrite,
            .psn = 3,
            .payload = 8,
            .ack_req = true,
            .reth = wire::Reth{.va = reth.va, .rkey = reth.rkey, .length = 8}});
  it.qp.out({.opcode = kRcReadResponseOnly, .psn = 3});
}

TEST_CASE("the peer gets nothing else through a window", "[rc][window][responder][fault][S7]") {
  Windows it;
  it.bind(7);
  it.qp.completes(1);
  Packet packet = it.write(0, 7);
  SECTION("outside of it, though in the region") {
    packet = it.write(0, 7, GENERATE(0U, 56U, 60U, 124U, 128U));
    if (packet.reth->va == it.qp.target.addr(56)) packet.reth->va = it.qp.target.addr(57);
  }
  SECTION("under another of its keys") {
    packet = it.write(0, GENERATE(0U, 6U, 255U));
  }
  SECTION("without the right") {
    packet = {.opcode = kRcFetchAdd,
              .psn = 0,
              .ack_req = true,
              .atomic = wire::AtomicEth{.va = it.qp.target.addr(64), .rkey = Rkey{it.window + 7}}};
  }
  SECTION("after it was invalidated") {
    it.invalidate(it.window + 7);
    it.qp.completes(2);
  }
  SECTION("after it went") {
    it.qp.keys().remove_window(it.window);
  }
  SECTION("after its region went") {
    it.qp.keys().remove(it.region);
  }
  it.qp.in(packet).out(Nak{0, 0x62, 0}).raises(AsyncEventType::kQpAccessErr).is_in(QpState::kError);
  CHECK(it.qp.target.is_untouched());
}

TEST_CASE("a window of another QP or protection domain gives nothing", "[rc][window][responder][fault][S7]") {
  Windows it({}, GENERATE(MwType::kType1, MwType::kType2A, MwType::kType2B));
  const bool same_pd = GENERATE(true, false);
  const std::uint32_t pd = same_pd ? RcScript::kPd : RcScript::kPd + 1;
  const std::uint32_t mr = it.qp.keys()
                               .insert({.addr = it.qp.target.addr(),
                                        .length = 256,
                                        .pd = pd,
                                        .access = access::kAll | access::kMwBind})
                               .value();
  it.window = it.qp.keys().insert_window(it.type, pd).value();
  const MwBind to{.mr = Lkey{mr}, .addr = it.qp.target.addr(64), .length = 8, .access = access::kRemoteWrite};
  REQUIRE(it.qp.keys().bind(it.window, {.pd = pd, .qpn = Qpn{0x99}}, to) == mem::BindResult::kDone);
  it.qp.in(it.write(0, 0));
  if (it.type == MwType::kType1 && same_pd) {
    it.qp.out(Ack{0, 1});
  } else {
    it.qp.out(Nak{0, 0x62, 0}).raises(AsyncEventType::kQpAccessErr);
    CHECK(it.qp.target.is_untouched());
  }
}

TEST_CASE("a window that is invalidated in the middle of a WRITE or READ ends it",
          "[rc][window][responder][S7]") {
  Windows it({.mtu = 256});
  const MwBind to{.mr = Lkey{it.region},
                  .addr = it.qp.target.addr(),
                  .length = 1024,
                  .access = access::kRemoteWrite | access::kRemoteRead};
  it.qp.post({.opcode = WrOpcode::kBindMw, .rkey = Rkey{it.window}, .bind = &to}).completes(1);
  const wire::Reth reth{.va = it.qp.target.addr(), .rkey = Rkey{it.window}, .length = 512};
  SECTION("a WRITE") {
    it.qp.in({.opcode = kRcWriteFirst, .psn = 0, .payload = 256, .reth = reth, .data = kData});
    it.invalidate(it.window);
    it.qp.completes(2);
    it.qp.in({.opcode = kRcWriteLast, .psn = 1, .payload = 256, .ack_req = true, .data = from(kData, 256)});
    it.qp.out(Nak{1, 0x62, 0});
    CHECK(it.qp.target.is_untouched_but(0, 256));
  }
  SECTION("a READ") {
    it.qp.port().room = 1;
    it.qp.in({.opcode = kRcReadRequest, .psn = 0, .ack_req = true, .reth = reth});
    it.qp.out({kRcReadResponseFirst, 0, 256});
    REQUIRE(it.qp.keys().invalidate(it.window, it.qp.qp().context().user()));
    it.qp.port().room = 10;
    it.qp.transmit().out(Nak{1, 0x62, 1});
  }
  it.qp.raises(AsyncEventType::kQpAccessErr).is_in(QpState::kError);
}

TEST_CASE("the peer invalidates a window of type 2 by a SEND, and no other", "[rc][window][inv]") {
  Windows it({}, GENERATE(MwType::kType1, MwType::kType2A, MwType::kType2B));
  it.bind(3);
  it.qp.completes(1).post_recv(8);
  const Packet send{.opcode = kRcSendOnlyInv, .psn = 0, .payload = 4, .ack_req = true, .ieth = it.window + 3};
  it.qp.in(send);
  if (it.type == MwType::kType1) {
    it.qp.out(Nak{0, 0x62, 0}).receives(1, WcStatus::kRemAccessErr).is_in(QpState::kError);
    CHECK(it.gives(3));
    return;
  }
  it.qp.out(Ack{0, 1}).receives({.wr_id = 1,
                                 .byte_len = 4,
                                 .imm_data = it.window + 3,
                                 .opcode = WcOpcode::kRecv,
                                 .flags = wc_flag::kWithInv});
  CHECK_FALSE(it.gives(3));
  it.qp.in(send).out(Ack{0, 1});  // a duplicate does not invalidate what is bound anew
  it.bind(3);
  it.qp.completes(2).in(send).out(Ack{0, 1});
  CHECK(it.gives(3));
}

TEST_CASE("a SEND cannot invalidate a key that the window does not have, or a region with windows",
          "[rc][window][inv][fault]") {
  Windows it;
  it.bind(3);
  it.qp.completes(1).post_recv(8);
  const std::uint32_t which = GENERATE(0U, 1U, 2U);
  const std::uint32_t key = which == 0 ? it.region : it.window + 4 * which;
  it.qp.in({.opcode = kRcSendOnlyInv, .psn = 0, .payload = 4, .ack_req = true, .ieth = key});
  it.qp.out(Nak{0, 0x62, 0}).receives(1, WcStatus::kRemAccessErr).is_in(QpState::kError);
  CHECK(it.gives(3));
  CHECK(it.qp.inbox.is_untouched());
}

TEST_CASE("a region that is marked can be invalidated locally", "[rc][window][inv]") {
  Windows it;
  it.invalidate(it.region);
  it.qp.completes(1);
  it.qp.in({.opcode = kRcWriteOnly,
            .psn = 0,
            .payload = 4,
            .ack_req = true,
            .reth = wire::Reth{.va = it.qp.target.addr(), .rkey = Rkey{it.region}, .length = 4}});
  it.qp.out(Nak{0, 0x62, 0}).raises(AsyncEventType::kQpAccessErr);
}

TEST_CASE("binds and local invalidates are done on UC, in their turn", "[uc][window]") {
  Windows it({.type = QpType::kUc});
  it.bind(1);
  it.qp.completes({.wr_id = 1, .opcode = WcOpcode::kBindMw}).quiet();
  CHECK(it.gives(1));
  Packet packet = it.write(0, 1);
  packet.opcode = wire::Opcode::kUcWriteOnly;
  packet.ack_req = false;
  it.qp.in(packet).quiet();
  CHECK(it.qp.target.holds(64, 8, kData));
  it.qp.together([&](RcScript& s) {
    s.post_send(4);
    it.invalidate(it.window + 1);
    s.post_send(4);
  });
  it.qp.out({.opcode = wire::Opcode::kUcSendOnly, .psn = 0, .payload = 4}).completes(2);
  it.qp.completes({.wr_id = 3, .opcode = WcOpcode::kLocalInv});
  it.qp.out({.opcode = wire::Opcode::kUcSendOnly, .psn = 1, .payload = 4}).completes(4).quiet();
  CHECK_FALSE(it.gives(1));
  it.qp.counted(Count::kRequesterMessages, 2);
}

TEST_CASE("a bind on UC that is refused stops the send queue, and only that", "[uc][window][sqe]") {
  Windows it({.type = QpType::kUc});
  it.bind(1).bind(2);
  it.qp.completes(1).completes(2, WcStatus::kMwBindErr).is_in(QpState::kSqe).quiet();
  CHECK(it.gives(1));
}

TEST_CASE("UC binds need no Ethernet address of the peer", "[uc][window]") {
  Windows it({.type = QpType::kUc, .resolved = false});
  it.bind(1);
  it.qp.completes(1).quiet();
}

TEST_CASE("datagram QPs bind and invalidate nothing", "[ud][window]") {
  Windows it({.type = QpType::kUd});
  GENERATE(true, false) ? it.bind(1) : it.invalidate(it.region);
  it.qp.completes(1, WcStatus::kLocQpOpErr).is_in(QpState::kSqe);
  CHECK_FALSE(it.gives(1));
}

TEST_CASE("WRITEs, READs and atomics name bytes of a zero-based region by their place", "[rc][zero-based]") {
  RcScript qp;
  const auto region = [&](std::size_t at) {
    return Rkey{qp.keys()
                    .insert({.addr = qp.target.addr(at),
                             .length = 256,
                             .pd = RcScript::kPd,
                             .access = kAllRights | access::kZeroBased})
                    .value()};
  };
  const Rkey key = region(1024);
  qp.in({.opcode = kRcWriteOnly,
         .psn = 0,
         .payload = 8,
         .ack_req = true,
         .reth = wire::Reth{.va = 248, .rkey = key, .length = 8},
         .data = kData});
  qp.out(Ack{0, 1});
  CHECK(qp.target.holds(1024 + 248, 8, kData));
  qp.in({.opcode = kRcReadRequest, .psn = 1, .reth = wire::Reth{.va = 248, .rkey = key, .length = 8}});
  qp.out({.opcode = kRcReadResponseOnly, .psn = 1, .payload = 8, .data = kData});
  const Rkey odd = region(1025);  // place 7 of it is a word, place 8 is not
  qp.in({.opcode = kRcFetchAdd, .psn = 2, .atomic = wire::AtomicEth{.va = 0, .rkey = key, .swap_add = 1}});
  qp.out({.opcode = kRcAtomicAck, .psn = 2});
  qp.in({.opcode = kRcFetchAdd, .psn = 3, .atomic = wire::AtomicEth{.va = 8, .rkey = odd, .swap_add = 1}});
  qp.out({.opcode = kRcAck, .psn = 3, .aeth = wire::Aeth{.syndrome = 0x61, .msn = 3}});
  qp.raises(AsyncEventType::kQpReqErr);
}

TEST_CASE("the byte behind a zero-based region is refused", "[rc][zero-based][T9]") {
  const int which = GENERATE(0, 1, 2);
  RcScript qp;
  const Rkey key{qp.keys()
                     .insert({.addr = qp.target.addr(),
                              .length = 256,
                              .pd = RcScript::kPd,
                              .access = kAllRights | access::kZeroBased})
                     .value()};
  const std::uint64_t va = which == 0 ? 249 : which == 1 ? qp.target.addr() : ~std::uint64_t{0};
  qp.in({.opcode = kRcWriteOnly,
         .psn = 0,
         .payload = 8,
         .ack_req = true,
         .reth = wire::Reth{.va = va, .rkey = key, .length = 8}});
  qp.out({.opcode = kRcAck, .psn = 0, .aeth = wire::Aeth{.syndrome = 0x62, .msn = 0}}).forget();
  CHECK(qp.target.is_untouched());
}
