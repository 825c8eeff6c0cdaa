// What verbs offer besides RC, each between two processes.
#include <catch2/catch.hpp>
#include <optional>
#include <vector>

#include "process/counters.h"
#include "process/plays.h"
#include "uroce/ah.h"
#include "uroce/mw.h"
#include "uroce/srq.h"
#include "uroce/xrcd.h"

namespace uroce::test {
namespace {

/// Where the peer's Ethernet address is not told within a second, what no ACK is asked for is lost, and
/// counted: the system may keep the peer waiting for as long.
void send_until_sent(Side& side, Qp& qp, const SendWr& wr, std::size_t at, std::uint32_t bytes) {
  constexpr auto kLost = "requester_unresolved_messages";
  std::optional<std::uint64_t> lost;
  do {
    lost = counter(side.device, kLost);
    send(side, qp, wr, at, bytes);
    side.succeed();
  } while (counter(side.device, kLost) != lost);
}

void play_uc(Side& side) {
  constexpr std::uint32_t kLong = 100'000;
  Qp qp = connected(side, {.type = QpType::kUc});
  if (!side.is_first()) {
    receive(side, qp, 1, 0, kLong);
    receive(side, qp, 2, 0, 0);
  }
  side.meet();
  if (side.is_first()) {
    side.fill(0, kLong, 1);
    send_until_sent(side, qp, {.opcode = WrOpcode::kSend}, 0, kLong);
    send(side, qp,
         {.opcode = WrOpcode::kRdmaWriteWithImm,
          .imm_data = 77,
          .remote_addr = side.peer().addr + 128 * 1024,
          .rkey = side.peer().rkey},
         0, kLong);
    side.succeed();
  } else {
    require(side.succeed().byte_len == kLong, "length of the SEND");
    side.require_filled(0, kLong, 1);
    const Wc wc = side.succeed();
    require(wc.imm_data == 77 && wc.byte_len == kLong, "immediate data of the WRITE");
    side.require_filled(128 * 1024, kLong, 1);
  }
  side.meet();
}

void play_ud(Side& side) {
  constexpr std::uint32_t kText = 900;
  Qp qp = connected(side, {.type = QpType::kUd});
  receive(side, qp, 1, 0, kGrhBytes + kText);
  side.meet();
  side.fill(8192, kText, side.index);
  const auto send_to = [&](const Ah& there, Qpn qpn) {
    const SendWr wr{.opcode = WrOpcode::kSend, .ah = there.id(), .remote_qpn = qpn, .remote_qkey = 0x1234};
    send_until_sent(side, qp, wr, 8192, kText);
  };
  const auto take = [&] {
    const Wc wc = side.succeed();
    require(wc.opcode == WcOpcode::kRecv, "a datagram");
    side.require_filled(kGrhBytes, kText, 1 - side.index);
    return wc;
  };
  if (side.is_first()) {
    const Ah there = must(Ah::create(side.pd, {.dgid = side.peer().gid}));
    send_to(there, side.peer().qpns[0]);
    take();
  } else {
    const Wc wc = take();
    const std::span<const std::byte> head = side.memory.memory().first(kGrhBytes);
    const Ah back = must(Ah::from_wc(side.pd, wc, head.first<kGrhBytes>()));
    send_to(back, wc.src_qpn);
  }
  side.meet();
}

void play_srq(Side& side) {
  constexpr unsigned kQps = 4;
  Srq srq = must(Srq::create(side.pd, {.max_wr = 16}));
  std::vector<Qp> qps;
  for (unsigned i = 0; i < kQps; ++i) {
    qps.push_back(must(Qp::create(side.pd, side.cq, side.cq, srq, {})));
    side.own().qpns[i] = qps[i].qpn();
  }
  side.meet();
  for (unsigned i = 0; i < kQps; ++i) must(qps[i].connect(side.towards_peer(i)));
  for (unsigned i = 0; i < 2 * kQps; ++i) {
    const Sge sge = side.memory.sge(i * 64, 64);
    require(srq.post_recv({.wr_id = 100 + i, .sges = {&sge, 1}}), "a receive was not taken");
  }
  side.meet();
  for (unsigned i = 0; i < kQps; ++i) {
    side.fill(4096 + i * 64, 64, i);
    send(side, qps[i], {.wr_id = i}, 4096 + i * 64, 64);
  }
  unsigned from[kQps] = {};
  for (unsigned i = 0; i < 2 * kQps; ++i) {
    const Wc wc = side.succeed();
    if (wc.opcode != WcOpcode::kRecv) continue;
    unsigned qp = 0;
    while (qp < kQps && qps[qp].qpn() != wc.qpn) ++qp;
    require(qp < kQps, "a receive of an unknown QP");
    ++from[qp];
    side.require_filled((wc.wr_id - 100) * 64, 64, qp);
  }
  for (const unsigned count : from) require(count == 1, "each QP takes one receive");
  side.meet();
}

/// The first side asks, the second one has a connection and two queues.
void play_xrc(Side& side) {
  constexpr std::uint32_t kLong = 5000;
  Cq second_cq = must(Cq::create(side.device, 16));
  Xrcd domain = must(Xrcd::create(side.device));
  Srq one = must(Srq::create(side.pd, domain, side.cq, {}));
  Srq two = must(Srq::create(side.pd, domain, second_cq, {}));
  Qp qp = side.is_first() ? must(Qp::create(side.pd, side.cq, side.cq, {.type = QpType::kXrcSend}))
                          : must(Qp::create(domain, {.type = QpType::kXrcRecv}));
  side.own().qpns[0] = qp.qpn();
  side.own().numbers[0] = one.number();
  side.own().numbers[1] = two.number();
  for (Srq* srq : {&one, &two}) {
    const Sge sge = side.memory.sge(srq == &one ? 0 : 64 * 1024, kLong);
    require(srq->post_recv({.wr_id = srq == &one ? 1U : 2U, .sges = {&sge, 1}}), "a receive was not taken");
  }
  side.meet();
  must(qp.connect(side.towards_peer()));
  side.meet();
  if (side.is_first()) {
    side.fill(0, kLong, 3);
    for (const unsigned queue : {1U, 0U}) {
      send(side, qp, {.remote_srq = side.peer().numbers[queue]}, 0, kLong);
      side.succeed();
    }
  } else {
    require(side.succeed().wr_id == 1, "the first queue's receive");
    require(side.next(second_cq).wr_id == 2, "the second queue's receive");
    side.require_filled(0, kLong, 3);
    side.require_filled(64 * 1024, kLong, 3);
  }
  side.meet();
}

void play_placement(Side& side) {
  Qp qp = connected(side, {});
  if (side.is_first()) {
    side.fill(0, 64, 9);
    const auto& peer = side.peer();
    send(side, qp, {.opcode = WrOpcode::kRdmaWrite, .remote_addr = peer.addr + 64, .rkey = peer.rkey}, 0, 56);
    require(qp.post_send({.opcode = WrOpcode::kFlush,
                          .flags = send_flag::kSignaled,
                          .remote_addr = peer.addr + 64,
                          .rkey = peer.rkey,
                          .flush = {.length = 56}}),
            "a FLUSH was not taken");
    send(side, qp, {.opcode = WrOpcode::kAtomicWrite, .remote_addr = peer.addr + 120, .rkey = peer.rkey}, 56,
         8);
    require(side.succeed().opcode == WcOpcode::kRdmaWrite, "the WRITE completes first");
    require(side.succeed().opcode == WcOpcode::kFlush, "then the FLUSH");
    require(side.succeed().opcode == WcOpcode::kAtomicWrite, "then the ATOMIC WRITE");
  }
  side.meet();
  if (!side.is_first()) side.require_filled(64, 64, 9);
}

/// The second side opens a window into its memory, and takes it back.
void play_windows(Side& side) {
  constexpr std::size_t kAt = 1024;
  constexpr std::uint32_t kBytes = 600;
  Qp qp = connected(side, {});
  Mw mw = must(Mw::create(side.pd, MwType::kType2B));
  const Rkey key = side.is_first() ? Rkey{side.peer().numbers[0]} : mw.rkey(7);
  const auto write = [&] {
    send(side, qp,
         {.opcode = WrOpcode::kRdmaWrite,
          .remote_addr = side.peer().addr + kAt,
          .rkey = Rkey{side.peer().numbers[0]}},
         0, kBytes);
  };
  if (!side.is_first()) {
    const MwBind bind{.mr = side.memory.lkey(),
                      .addr = side.memory.addr() + kAt,
                      .length = kBytes,
                      .access = access::kRemoteWrite};
    require(qp.post_send(
                {.opcode = WrOpcode::kBindMw, .flags = send_flag::kSignaled, .rkey = key, .bind = &bind}),
            "a bind was not taken");
    require(side.succeed().opcode == WcOpcode::kBindMw, "the bind");
    side.own().numbers[0] = raw(key);
  }
  side.meet();
  if (side.is_first()) {
    side.fill(0, kBytes, 5);
    write();
    side.succeed();
  }
  side.meet();
  if (!side.is_first()) {
    side.require_filled(kAt, kBytes, 5);
    require(
        qp.post_send({.opcode = WrOpcode::kLocalInv, .flags = send_flag::kSignaled, .invalidate_rkey = key}),
        "an invalidate was not taken");
    require(side.succeed().opcode == WcOpcode::kLocalInv, "the invalidate");
  }
  side.meet();
  if (side.is_first()) {
    write();
    require(side.next().status == WcStatus::kRemAccessErr, "the window is gone");
  }
  side.meet();
}

/// The first side sends more than the second one has receives for.
void play_credits(Side& side) {
  constexpr std::uint32_t kMessages = 300;
  constexpr std::uint32_t kDepth = 4;
  constexpr std::uint32_t kLong = 3000;
  Qp qp = must(Qp::create(side.pd, side.cq, side.cq, {.max_send_wr = kMessages}));
  side.own().qpns[0] = qp.qpn();
  side.meet();
  QpAttr attr = side.towards_peer();
  attr.timeout = 22;  // 17 s: nothing goes without credit for a peer that the system keeps waiting
  must(qp.connect(attr));
  if (!side.is_first()) receive(side, qp, 1, 0, kLong);
  side.meet();
  if (side.is_first()) {
    side.fill(0, kLong, 5);
    for (std::uint32_t i = 0; i < kMessages; ++i) send(side, qp, {.wr_id = i}, 0, kLong);
    for (std::uint32_t i = 0; i < kMessages; ++i) require(side.succeed().wr_id == i, "the order");
  } else {
    std::uint32_t posted = 1;
    for (std::uint32_t i = 0; i < kMessages; ++i) {
      require(side.succeed().byte_len == kLong, "length of the SEND");
      side.require_filled(0, kLong, 5);
      const std::uint32_t more = 1 + i % kDepth;  // now and then some at once
      while (posted < kMessages && posted < i + 1 + more) receive(side, qp, ++posted, 0, kLong);
    }
  }
  side.meet();
  for (const char* const naks : {"requester_rnr_naks", "responder_rnr_naks"})
    require(counter(side.device, naks) == 0, "an RNR NAK");
  require(counter(side.device, "requester_limited_messages") == (side.is_first() ? 1 : 0),
          "messages without credit");
}

/// Both sides count in the fields of one word of the second one's memory.
void play_masked(Side& side) {
  constexpr std::uint64_t kRounds = 200;
  constexpr std::size_t kWord = 1024;
  Qp qp = must(Qp::create(side.pd, side.cq, side.cq, {}));
  must(qp.set_ece({.vendor_id = ece::kVendor, .options = ece::kMaskedAtomics}));
  require(qp.query_ece().options == ece::kMaskedAtomics, "the option is granted");
  side.own().qpns[0] = qp.qpn();
  side.meet();
  must(qp.connect(side.towards_peer()));
  side.meet();
  const AtomicMasks fields{
      .compare = 0xff, .swap = std::uint64_t{0xff} << 56, .boundary = 0x8080'8080'8080'8080};
  const auto ask = [&](SendWr wr) {
    wr.remote_addr = side.peer().addr + kWord;
    wr.rkey = side.peer().rkey;
    wr.masks = &fields;
    send(side, qp, wr, 0, 8);
    side.succeed();
    std::uint64_t before = 0;
    std::memcpy(&before, side.memory.memory().data(), 8);
    return before;
  };
  for (std::uint64_t i = 0; i < kRounds; ++i) {  // bytes 0 and 2 go round, the rest stays
    const std::uint64_t was = ask({.opcode = WrOpcode::kMaskedFetchAndAdd, .compare_add = 0x03'0002});
    require(was == ((3 * i & 0xff) << 16 | (2 * i & 0xff)), "the sum of before");
  }
  const std::uint64_t low = 2 * kRounds & 0xff;
  const std::uint64_t sum = (3 * kRounds & 0xff) << 16 | low;
  require(ask({.opcode = WrOpcode::kMaskedCmpAndSwp, .compare_add = ~low, .swap = ~0ULL}) == sum, "a swap");
  require(ask({.opcode = WrOpcode::kMaskedCmpAndSwp, .compare_add = low, .swap = ~0ULL}) == sum, "another");
  require(ask({.opcode = WrOpcode::kMaskedFetchAndAdd}) == (sum | std::uint64_t{0xff} << 56), "its result");
  side.meet();
}

}  // namespace

TEST_CASE("UC carries messages between two processes", "[uc]") {
  CHECK(played(play_uc));
}

TEST_CASE("datagrams go to and fro between two processes", "[ud]") {
  CHECK(played(play_ud));
}

TEST_CASE("QPs of two processes share receives", "[srq]") {
  CHECK(played(play_srq));
}

TEST_CASE("an XRC connection reaches two queues of another process", "[xrc]") {
  CHECK(played(play_xrc));
}

TEST_CASE("with credits another process is not sent more than it has receives for", "[credits]") {
  CHECK(played(play_credits, true));
}

TEST_CASE("masked atomics work on fields of a word of another process", "[masked]") {
  CHECK(played(play_masked));
}

TEST_CASE("a window of another process opens and closes", "[mw]") {
  CHECK(played(play_windows));
}

TEST_CASE("what is flushed and what is written atomically is there in another process", "[flush]") {
  CHECK(played(play_placement));
}

}  // namespace uroce::test
