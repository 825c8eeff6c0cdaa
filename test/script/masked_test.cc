// Masked compare-and-swap and fetch-and-add: an extension that both ends must have switched on.
#include <catch2/catch.hpp>
#include <cstring>

#include "script/remote.h"
#include "uroce/ece.h"

using namespace uroce;
using namespace uroce::test;

namespace {

constexpr std::uint64_t kTop = std::uint64_t{1} << 63;
constexpr std::uint64_t kAll = ~std::uint64_t{0};

const ScriptConfig kOn{.ece = ece::kMaskedAtomics};

std::uint64_t word(RcScript& qp, std::uint64_t at = 0) {
  std::uint64_t value = 0;
  std::memcpy(&value, qp.target.bytes().data() + at, sizeof value);
  return value;
}
void set_word(RcScript& qp, std::uint64_t value) {
  std::memcpy(qp.target.bytes().data(), &value, sizeof value);
}

Packet swap(RcScript& qp, std::uint32_t psn, std::uint64_t compare, std::uint64_t value,
            const wire::AtomicMaskEth& masks) {
  return {.opcode = kRcMaskedCompareSwap,
          .psn = psn,
          .ack_req = true,
          .atomic =
              wire::AtomicEth{
                  .va = qp.target.addr(), .rkey = qp.target.rkey(), .swap_add = value, .compare = compare},
          .masks = masks};
}
Packet add(RcScript& qp, std::uint32_t psn, std::uint64_t addend, std::uint64_t boundary) {
  return {.opcode = kRcMaskedFetchAdd,
          .psn = psn,
          .ack_req = true,
          .atomic = wire::AtomicEth{.va = qp.target.addr(), .rkey = qp.target.rkey(), .swap_add = addend},
          .masks = wire::AtomicMaskEth{.compare = boundary}};
}
Packet original(std::uint32_t psn, std::uint64_t value) {
  return {.opcode = kRcAtomicAck, .psn = psn, .original = value};
}

/// Bit by bit, as ConnectX's documentation has it.
std::uint64_t added(std::uint64_t word, std::uint64_t addend, std::uint64_t boundary) {
  std::uint64_t sum = 0;
  unsigned carry = 0;
  for (unsigned bit = 0; bit < 64; ++bit) {
    const auto digits = static_cast<unsigned>((word >> bit & 1) + (addend >> bit & 1)) + carry;
    sum |= std::uint64_t{digits & 1} << bit;
    carry = (boundary >> bit & 1) != 0 ? 0 : digits >> 1;
  }
  return sum;
}

}  // namespace

TEST_CASE("responder compares and replaces only the bits of the masks", "[rc][masked][atomic]") {
  struct Row {
    std::uint64_t before, compare, swap, compare_mask, swap_mask, after;
  };
  const auto row = GENERATE(values<Row>({
      {5, 5, 9, kAll, kAll, 9},                      // as the plain one
      {5, 6, 9, kAll, kAll, 5},                      // likewise, unequal
      {5, 6, 9, 0, kAll, 9},                         // nothing to compare: a swap
      {5, 5, 9, kAll, 0, 5},                         // nothing to replace
      {5, 6, 9, 4, kAll, 9},                         // equal in the bits that count
      {0x1122, 0x22, 0xff00, 0xff, 0xff00, 0xff22},  // compares one byte, replaces another
      {0x1122, 0x23, 0xff00, 0xff, 0xff00, 0x1122},  //
      {kTop | 1, kTop, 0, kTop, kTop, 1},            // bit 63 alone
      {1, kTop, 0, kTop, kTop, 1},                   //
      {0, 0, kAll, kTop | 1, kTop | 1, kTop | 1},    // both ends of the word
      {7, kAll, 0, 1, 2, 5},                         //
  }));
  RcScript qp{kOn};
  set_word(qp, row.before);
  qp.in(swap(qp, 0, row.compare, row.swap, {.compare = row.compare_mask, .swap = row.swap_mask}));
  qp.out(original(0, row.before));
  CHECK(word(qp) == row.after);
}

TEST_CASE("responder adds fields apart from each other", "[rc][masked][atomic]") {
  const std::uint64_t before =
      GENERATE(0U, 1U, 0xffU, 0x7fff'ffff'ffff'ffffU, 0xffff'ffff'ffff'ffffU, 0x80ff'7f01'00ff'ff80U);
  const std::uint64_t addend = GENERATE(0U, 1U, 0x0101'0101'0101'0101U, 0xffff'ffff'ffff'ffffU, kTop);
  const std::uint64_t boundary =
      GENERATE(0U, kTop, 1U, 0x80U, 0x8000'0000U, 0x8080'8080'8080'8080U, 0xffff'ffff'ffff'ffffU);
  CAPTURE(before, addend, boundary);
  RcScript qp{kOn};
  set_word(qp, before);
  qp.in(add(qp, 0, addend, boundary)).out(original(0, before));
  CHECK(word(qp) == added(before, addend, boundary));
  if (boundary == 0 || boundary == kTop) CHECK(word(qp) == before + addend);  // as the plain one
}

TEST_CASE("responder replays a masked atomic's stored result and does not execute it again",
          "[rc][masked][atomic][duplicate][T7]") {
  RcScript qp{kOn};
  set_word(qp, 0x00ff);
  const Packet first = add(qp, 0, 1, 0x80);
  const Packet second = swap(qp, 1, 0, 0x7700, {.compare = 0xff, .swap = 0xff00});
  qp.in(first).out(original(0, 0xff)).in(second).out(original(1, 0));
  CHECK(word(qp) == 0x7700);
  for (int i = 0; i < 3; ++i) qp.in(first).out(original(0, 0xff)).in(second).out(original(1, 0));
  CHECK(word(qp) == 0x7700);
  qp.counted(Count::kResponderReplayedAtomics, 6).counted(Count::kResponderMessages, 2);
  Packet other = first;  // the plain one with that PSN is another request
  other.opcode = kRcFetchAdd;
  other.masks.reset();
  qp.in(other).quiet().counted(Count::kResponderForgottenDuplicates, 1);
}

TEST_CASE("responder forgets a masked atomic after max_dest_rd_atomic newer ones",
          "[rc][masked][atomic][duplicate]") {
  RcScript qp{{.max_dest_rd_atomic = 2, .ece = ece::kMaskedAtomics}};
  set_word(qp, 0);
  for (std::uint32_t psn = 0; psn < 3; ++psn) qp.in(add(qp, psn, 1, 0)).out(original(psn, psn));
  qp.in(add(qp, 0, 1, 0)).quiet().counted(Count::kResponderForgottenDuplicates, 1);
  CHECK(word(qp) == 3);
}

TEST_CASE("responder that did not agree to masked atomics refuses them as invalid", "[rc][masked][fault]") {
  RcScript qp;
  const bool adds = GENERATE(true, false);
  qp.in(adds ? add(qp, 0, 1, 0) : swap(qp, 0, 0, 1, {.compare = kAll, .swap = kAll}));
  qp.out(Nak{0, 0x61, 0}).raises(AsyncEventType::kQpReqErr).is_in(QpState::kError);
  CHECK(qp.target.is_untouched());
}

TEST_CASE("QPs of other types hear no masked atomics", "[masked][transport]") {
  RcScript qp{{.type = GENERATE(QpType::kUc, QpType::kUd), .ece = ece::kMaskedAtomics}};
  CHECK(qp.context().ece == 0);
  qp.in_refused(add(qp, 0, 1, 0), Count::kDropWrongTransport);
}

TEST_CASE("requester sends masked atomics with their masks", "[rc][masked][atomic]") {
  RcScript qp{kOn};
  AtomicMasks masks{.compare = 0xf0, .swap = 0x0f, .boundary = kTop | 1};
  qp.post_masked(WrOpcode::kMaskedCmpAndSwp, 3, 4, masks);
  qp.out({.opcode = kRcMaskedCompareSwap,
          .psn = 0,
          .ack_req = true,
          .atomic =
              wire::AtomicEth{
                  .va = RcScript::kRemoteVa, .rkey = RcScript::kRemoteKey, .swap_add = 4, .compare = 3},
          .masks = wire::AtomicMaskEth{.compare = 0xf0, .swap = 0x0f}});
  qp.post_masked(WrOpcode::kMaskedFetchAndAdd, 5, 6, masks);
  const Packet sum{
      .opcode = kRcMaskedFetchAdd,
      .psn = 1,
      .ack_req = true,
      .atomic =
          wire::AtomicEth{
              .va = RcScript::kRemoteVa, .rkey = RcScript::kRemoteKey, .swap_add = 5, .compare = 0},
      .masks = wire::AtomicMaskEth{.compare = kTop | 1, .swap = 0}};
  qp.out(sum);
  masks = {};  // they were copied
  qp.in({.opcode = kRcAtomicAck, .psn = 0, .original = 0x1122'3344'5566'7788});
  qp.completes({.wr_id = 1, .byte_len = 8, .opcode = WcOpcode::kMaskedCompSwap});
  std::uint64_t before = 0;
  std::memcpy(&before, qp.sink.bytes().data(), sizeof before);
  CHECK(before == 0x1122'3344'5566'7788);
  qp.at(68ms).out(sum);  // lost: with its masks again
  qp.in({.opcode = kRcAtomicAck, .psn = 1, .original = 9});
  qp.completes({.wr_id = 2, .byte_len = 8, .opcode = WcOpcode::kMaskedFetchAdd});
}

TEST_CASE("masked atomics on the wire: two golden packets", "[rc][masked][wire]") {
  // Laid out by hand from wire/atomic_mask_eth.h: BTH, AtomicETH, masks.
  RcScript qp{kOn};
  const AtomicMasks masks{.compare = 0x8000'0000'0000'0001, .swap = 0xff, .boundary = 0x80};
  qp.post_masked(WrOpcode::kMaskedCmpAndSwp, 0x0102, 0x0304, masks);
  qp.post_masked(WrOpcode::kMaskedFetchAndAdd, 0x0506, 0, masks);
  const auto roce = [&qp] {
    const Bytes frame = qp.take_frame();
    return Bytes(frame.begin() + 14 + 20 + 8, frame.end() - 4);
  };
  CHECK(roce() == hex("d340ffff00000022 80000000"
                      "0000000010000000 00abcd01 0000000000000304 0000000000000102"
                      "8000000000000001 00000000000000ff"));
  CHECK(roce() == hex("d440ffff00000022 80000001"
                      "0000000010000000 00abcd01 0000000000000506 0000000000000000"
                      "0000000000000080 0000000000000000"));
  qp.forget();
}

TEST_CASE("requester completes a masked atomic that is not switched on here, and sends nothing",
          "[rc][masked][fault]") {
  const auto opcode = GENERATE(WrOpcode::kMaskedCmpAndSwp, WrOpcode::kMaskedFetchAndAdd);
  RcScript qp{{.type = GENERATE(QpType::kRc, QpType::kXrcSend)}};
  qp.post_masked(opcode, 1, 2, {}).completes(1, WcStatus::kLocQpOpErr).is_in(QpState::kError);
  qp.at(1s).quiet();
}

TEST_CASE("requester completes a masked atomic without masks, or of another length, as too long or short",
          "[rc][masked][fault]") {
  RcScript qp{kOn};
  const Sge sge = qp.sink.sge(0, GENERATE(8U, 4U, 16U));
  const AtomicMasks masks;
  qp.post({.sges = {&sge, 1},
           .opcode = WrOpcode::kMaskedFetchAndAdd,
           .remote_addr = RcScript::kRemoteVa,
           .rkey = RcScript::kRemoteKey,
           .masks = sge.length == 8 ? nullptr : &masks});
  qp.completes(1, WcStatus::kLocLenErr).is_in(QpState::kError).quiet();
}

TEST_CASE("requester reports that the peer did not agree to masked atomics", "[rc][masked][fault]") {
  RcScript qp{kOn};
  qp.post_masked(WrOpcode::kMaskedFetchAndAdd, 1, 0, {}).forget();
  qp.in(Nak{0, 0x61, 0}).completes(1, WcStatus::kRemInvReqErr).is_in(QpState::kError);
}

TEST_CASE("requester counts masked atomics among those in flight, and fences wait for them",
          "[rc][masked][read]") {
  RcScript qp{{.max_rd_atomic = 1, .ece = ece::kMaskedAtomics}};
  qp.together([](RcScript& script) {
    script.post_masked(WrOpcode::kMaskedFetchAndAdd, 1, 0, {})
        .post_masked(WrOpcode::kMaskedFetchAndAdd, 1, 0, {});
    script.post_write(4, send_flag::kFence);
  });
  qp.out({.opcode = kRcMaskedFetchAdd, .psn = 0, .ack_req = true}).quiet();
  qp.in({.opcode = kRcAtomicAck, .psn = 0}).completes(1);
  qp.out({.opcode = kRcMaskedFetchAdd, .psn = 1, .ack_req = true}).quiet();
  qp.in({.opcode = kRcAtomicAck, .psn = 1}).completes(2);
  qp.out({.opcode = kRcWriteOnly, .psn = 2, .payload = 4, .ack_req = true}).in(Ack{2}).completes(3);
}

TEST_CASE("XRC has masked atomics too", "[xrc][masked][atomic]") {
  SECTION("initiator") {
    RcScript qp{{.type = QpType::kXrcSend, .ece = ece::kMaskedAtomics}};
    qp.post_masked(WrOpcode::kMaskedFetchAndAdd, 1, 0, {.boundary = 2});
    qp.out({.opcode = kRcMaskedFetchAdd,
            .psn = 0,
            .ack_req = true,
            .srq = 0,
            .masks = wire::AtomicMaskEth{.compare = 2}});
    qp.in({.opcode = kRcAtomicAck, .psn = 0}).completes(1);
  }
  SECTION("target") {
    RcScript qp{{.type = QpType::kXrcRecv, .ece = ece::kMaskedAtomics, .shared_wrs = 8}};
    set_word(qp, 3);
    qp.in(add(qp, 0, 1, 1)).out(original(0, 3));
    CHECK(word(qp) == 2);
    qp.in(swap(qp, 1, 0, 8, {.compare = 1, .swap = 8})).out(original(1, 2));
    CHECK(word(qp) == 10);
  }
}
