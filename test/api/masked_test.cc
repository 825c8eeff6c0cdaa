// Masked atomics between two devices, and how their QPs agree on them.
#include <cstring>

#include "api/side.h"

namespace uroce::api {

namespace {

constexpr Ece kMasked{.vendor_id = ece::kVendor, .options = ece::kMaskedAtomics};

/// One masked atomic of `a` at the first word of `b`, with its completion.
Wc ask(Side& a, Side& b, SendWr wr) {
  const Sge sge = a.memory.sge(0, 8);
  const AtomicMasks neutral;
  wr.wr_id = 7;
  wr.sges = {&sge, 1};
  wr.flags = send_flag::kSignaled;
  wr.remote_addr = b.memory.addr();
  wr.rkey = b.memory.rkey();
  if (wr.masks == nullptr) wr.masks = &neutral;
  REQUIRE(a.qp.post_send(wr));
  Wc wc{.status = WcStatus::kGeneralErr};
  REQUIRE(within(5s, [&] {
    b.end.device.progress();
    return a.cq.poll({&wc, 1}) == 1;
  }));
  return wc;
}

std::uint64_t word(Side& side) {
  std::uint64_t value = 0;
  std::memcpy(&value, side.memory.memory().data(), sizeof value);
  return value;
}
void set_word(Side& side, std::uint64_t value) {
  std::memcpy(side.memory.memory().data(), &value, sizeof value);
}

}  // namespace

TEST_CASE("QPs that agreed to masked atomics have them", "[masked]") {
  Joined link(GENERATE(Mode::kApp, Mode::kAuto));
  Side a(link.a, QpType::kRc);
  Side b(link.b, QpType::kRc);
  REQUIRE(a.qp.set_ece(kMasked));
  REQUIRE(b.qp.set_ece(a.qp.query_ece()));
  REQUIRE(a.qp.set_ece(b.qp.query_ece()));
  REQUIRE(join(link.a, a.qp, link.b, b.qp));
  set_word(b, 0x1234);

  const AtomicMasks low{.compare = 0xff, .swap = 0xff00};
  Wc wc =
      ask(a, b, {.opcode = WrOpcode::kMaskedCmpAndSwp, .compare_add = 0x34, .swap = 0xabcd, .masks = &low});
  CHECK((wc.ok() && wc.opcode == WcOpcode::kMaskedCompSwap && wc.byte_len == 8));
  CHECK((word(a) == 0x1234 && word(b) == 0xab34));
  const AtomicMasks bytes{.boundary = 0x80};
  wc = ask(a, b, {.opcode = WrOpcode::kMaskedFetchAndAdd, .compare_add = 0xff, .masks = &bytes});
  CHECK((wc.ok() && wc.opcode == WcOpcode::kMaskedFetchAdd));
  CHECK((word(a) == 0xab34 && word(b) == 0xab33));
  wc = ask(a, b, {.opcode = WrOpcode::kMaskedFetchAndAdd, .compare_add = 0xff});  // as the plain one
  CHECK((wc.ok() && word(b) == 0xac32));
}

TEST_CASE("a QP that did not agree to masked atomics refuses them", "[masked]") {
  Joined link(Mode::kApp);
  Side a(link.a, QpType::kRc);
  Side b(link.b, QpType::kRc);
  REQUIRE(a.qp.set_ece(kMasked));
  REQUIRE(join(link.a, a.qp, link.b, b.qp));
  set_word(b, 1);
  CHECK(ask(a, b, {.opcode = WrOpcode::kMaskedFetchAndAdd, .compare_add = 1}).status ==
        WcStatus::kRemInvReqErr);
  CHECK(word(b) == 1);
  CHECK(a.qp.query().state == QpState::kError);
}

TEST_CASE("a QP without masked atomics sends none", "[masked]") {
  Joined link(Mode::kApp);
  Side a(link.a, QpType::kRc);
  Side b(link.b, QpType::kRc);
  SECTION("never asked for") {}
  SECTION("taken back") {
    REQUIRE(a.qp.set_ece(kMasked));
    REQUIRE(a.qp.set_ece({.vendor_id = ece::kVendor, .options = 0}));
  }
  REQUIRE(b.qp.set_ece(kMasked));
  REQUIRE(join(link.a, a.qp, link.b, b.qp));
  const std::uint64_t sent = counter(link.a.device, "tx_roce");
  CHECK(ask(a, b, {.opcode = WrOpcode::kMaskedFetchAndAdd, .compare_add = 1}).status ==
        WcStatus::kLocQpOpErr);
  CHECK(counter(link.a.device, "tx_roce") == sent);
}

TEST_CASE("what is granted depends on the type of the QP and on what there is", "[masked][ece]") {
  Joined link(Mode::kApp);
  const auto [type, granted] = GENERATE(table<QpType, std::uint32_t>(
      {{QpType::kRc, ece::kAll}, {QpType::kXrcSend, ece::kAll}, {QpType::kUc, 0}, {QpType::kUd, 0}}));
  Side a(link.a, type);
  CHECK((a.qp.query_ece().vendor_id == 0 && a.qp.query_ece().options == 0));
  REQUIRE(a.qp.set_ece({.vendor_id = ece::kVendor, .options = 0xffff'ffff}));
  CHECK((a.qp.query_ece().vendor_id == ece::kVendor && a.qp.query_ece().options == granted));
}

}  // namespace uroce::api
