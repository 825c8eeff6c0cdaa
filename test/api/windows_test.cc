// Memory windows, regions that change, ATOMIC WRITE and FLUSH through the public API, between two devices.
#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

#include "api/ends.h"
#include "uroce/mw.h"

namespace uroce::api {
namespace {

constexpr std::uint32_t kRights =
    access::kAll | access::kMwBind | access::kFlushGlobal | access::kFlushPersistent;

/// Memory at b that a writes to and reads from, by a connection that can be made again.
struct Peers {
  explicit Peers(Joined& joined)
      : link(joined),
        cq_a(must(Cq::create(link.a.device, 256))),
        cq_b(must(Cq::create(link.b.device, 256))),
        local(must(Mr::alloc(link.a.pd, 4096, access::kAll))),
        memory(must(Mr::alloc(link.b.pd, 8192, kRights))) {
    connect();
  }

  void connect() {
    qp_a.clear();
    qp_b.clear();
    qp_a.push_back(must(Qp::create(link.a.pd, cq_a, cq_a, {.max_inline_data = 64})));
    qp_b.push_back(must(Qp::create(link.b.pd, cq_b, cq_b, {.max_inline_data = 64})));
    QpAttr to_a = towards(link.a, qp_a[0]);
    QpAttr to_b = towards(link.b, qp_b[0]);
    to_a.access_flags = to_b.access_flags = kRights & ~access::kMwBind;
    REQUIRE(qp_a[0].connect(to_b));
    REQUIRE(qp_b[0].connect(to_a));
  }
  Qp& a() { return qp_a[0]; }
  Qp& b() { return qp_b[0]; }

  /// The next completion at `cq` while both sides run.
  Wc next(Cq& cq) {
    Wc wc{.status = WcStatus::kGeneralErr};
    REQUIRE(within(5s, [&] {
      link.a.device.progress();
      link.b.device.progress();
      return cq.poll({&wc, 1}) == 1;
    }));
    return wc;
  }
  WcStatus run_a(SendWr wr) {
    wr.flags |= send_flag::kSignaled;
    REQUIRE(a().post_send(wr));
    return next(cq_a).status;
  }
  WcStatus run_b(SendWr wr) {
    wr.flags |= send_flag::kSignaled;
    REQUIRE(b().post_send(wr));
    return next(cq_b).status;
  }
  /// a writes 8 bytes to b.
  WcStatus write(Rkey key, std::uint64_t addr, std::uint64_t value) {
    const Sge sge{std::bit_cast<std::uint64_t>(&value), 8, Lkey{}};
    return run_a({.sges = {&sge, 1},
                  .opcode = WrOpcode::kRdmaWrite,
                  .flags = send_flag::kInline,
                  .remote_addr = addr,
                  .rkey = key});
  }
  [[nodiscard]] std::uint64_t word(std::size_t at) const {
    std::uint64_t value = 0;
    std::memcpy(&value, memory.memory().data() + at, 8);
    return value;
  }
  [[nodiscard]] MwBind part(std::size_t at, std::uint64_t length) const {
    return {.mr = memory.lkey(),
            .addr = memory.addr() + at,
            .length = length,
            .access = access::kRemoteWrite | access::kRemoteRead};
  }
  [[nodiscard]] WcStatus bind(Mw& window, Rkey key, const MwBind& to) {
    static_cast<void>(window);
    return run_b({.opcode = WrOpcode::kBindMw, .rkey = key, .bind = &to});
  }

  Joined& link;
  Cq cq_a;
  Cq cq_b;
  Mr local;
  Mr memory;
  std::vector<Qp> qp_a;  // one
  std::vector<Qp> qp_b;
};

}  // namespace

TEST_CASE("a window of type 1 moves, and each place has its own key", "[api][window]") {
  Joined link(Mode::kAuto);
  Peers peers(link);
  Mw window = must(Mw::create(link.b.pd, MwType::kType1));
  Rkey last = window.rkey();
  for (std::uint64_t i = 0; i < 300; ++i) {  // more than a window has keys
    const Rkey key = must(peers.b().bind_mw(window, peers.part(i * 16, 8), i, send_flag::kSignaled));
    REQUIRE(key == window.rkey());
    REQUIRE(key != last);
    last = key;
    const Wc wc = peers.next(peers.cq_b);
    REQUIRE((wc.ok() && wc.wr_id == i && wc.opcode == WcOpcode::kBindMw));
    REQUIRE(peers.write(key, peers.memory.addr() + i * 16, i + 1) == WcStatus::kSuccess);
    REQUIRE(peers.word(i * 16) == i + 1);
  }
  CHECK(peers.memory.dereg().error().code == Errc::kBusy);
  static_cast<void>(must(peers.b().bind_mw(window, {}, 1, send_flag::kSignaled)));
  CHECK(peers.next(peers.cq_b).ok());
  CHECK(peers.write(last, peers.memory.addr(), 7) == WcStatus::kRemAccessErr);
  CHECK(peers.memory.dereg());
}

TEST_CASE("a window of type 2 serves its QP until somebody invalidates it", "[api][window]") {
  Joined link(Mode::kAuto);
  Peers peers(link);
  const MwType type = GENERATE(MwType::kType2A, MwType::kType2B);
  Mw window = must(Mw::create(link.b.pd, type));
  CHECK(peers.b().bind_mw(window, peers.part(0, 8), 1).error().code == Errc::kInvalid);
  REQUIRE(peers.bind(window, window.rkey(9), peers.part(64, 8)) == WcStatus::kSuccess);
  const std::uint64_t addr = peers.memory.addr() + 64;
  REQUIRE(peers.write(window.rkey(9), addr, 1) == WcStatus::kSuccess);
  CHECK(peers.memory.rereg(mr_change::kAccess, link.b.pd, {}, kRights).error().code == Errc::kBusy);
  SECTION("the QP") {
    REQUIRE(peers.run_b({.opcode = WrOpcode::kLocalInv, .invalidate_rkey = window.rkey(9)}) ==
            WcStatus::kSuccess);
  }
  SECTION("its peer") {
    REQUIRE(peers.b().post_recv({.wr_id = 77}));
    REQUIRE(peers.run_a({.opcode = WrOpcode::kSendWithInv, .invalidate_rkey = window.rkey(9)}) ==
            WcStatus::kSuccess);
    const Wc wc = peers.next(peers.cq_b);
    CHECK((wc.wr_id == 77 && wc.flags == wc_flag::kWithInv && wc.imm_data == raw(window.rkey(9))));
  }
  SECTION("the end of the QP") {
    peers.connect();
  }
  CHECK(peers.memory.rereg(mr_change::kAccess, link.b.pd, {}, kRights));
  CHECK(peers.write(window.rkey(9), addr, 2) == WcStatus::kRemAccessErr);
  CHECK(peers.word(64) == 1);
  peers.connect();
  REQUIRE(peers.bind(window, window.rkey(9), peers.part(64, 8)) == WcStatus::kSuccess);  // it is free again
  CHECK(peers.write(window.rkey(9), addr, 3) == WcStatus::kSuccess);
  CHECK(peers.bind(window, window.rkey(10), peers.part(64, 8)) == WcStatus::kMwBindErr);
  CHECK(peers.b().error_text().find("window") != std::string::npos);
}

TEST_CASE("a window or region that is destroyed gives nothing", "[api][window][S7]") {
  Joined link(Mode::kAuto);
  Peers peers(link);
  std::vector<Mw> window;
  window.push_back(must(Mw::create(link.b.pd, GENERATE(MwType::kType1, MwType::kType2B))));
  const Rkey key = window[0].rkey(1);
  const std::uint64_t addr = peers.memory.addr();
  REQUIRE(peers.bind(window[0], key, peers.part(0, 8)) == WcStatus::kSuccess);
  REQUIRE(peers.write(key, addr, 1) == WcStatus::kSuccess);
  SECTION("the window") {
    window.clear();
    CHECK(peers.memory.dereg());
  }
  SECTION("the region, although the window is bound") {
    peers.memory = must(Mr::alloc(link.b.pd, 64, kRights));
  }
  CHECK(peers.write(key, addr, 2) == WcStatus::kRemAccessErr);
}

TEST_CASE("a region changes under its key", "[api][rereg]") {
  Joined link(Mode::kAuto);
  Peers peers(link);
  alignas(8) std::array<std::byte, 64> other{};
  Pd foreign = must(Pd::create(link.b.device));
  const Rkey key = peers.memory.rkey();
  const std::uint64_t addr = peers.memory.addr();
  REQUIRE(peers.write(key, addr, 1) == WcStatus::kSuccess);
  SECTION("its memory") {
    REQUIRE(peers.memory.rereg(mr_change::kTranslation, link.b.pd, other, 0));
    CHECK(peers.memory.addr() == std::bit_cast<std::uint64_t>(other.data()));
    CHECK(peers.write(key, peers.memory.addr() + 56, 2) == WcStatus::kSuccess);
    CHECK(other[56] == std::byte{2});
    CHECK(peers.write(key, addr, 2) == WcStatus::kRemAccessErr);
  }
  SECTION("its access") {
    REQUIRE(peers.memory.rereg(mr_change::kAccess, link.b.pd, {}, access::kRemoteRead));
    CHECK(peers.write(key, addr, 2) == WcStatus::kRemAccessErr);
    CHECK(peers.word(0) == 1);
  }
  SECTION("its protection domain, and back") {
    REQUIRE(peers.memory.rereg(mr_change::kPd, foreign, {}, 0));
    CHECK(peers.write(key, addr, 2) == WcStatus::kRemAccessErr);
    REQUIRE(peers.memory.rereg(mr_change::kPd, link.b.pd, {}, 0));
    peers.connect();
    CHECK(peers.write(key, addr, 3) == WcStatus::kSuccess);
  }
  SECTION("not to what is wrong") {
    CHECK(peers.memory.rereg(0, link.b.pd, {}, 0).error().code == Errc::kInvalid);
    CHECK(peers.memory.rereg(8, link.b.pd, {}, 0).error().code == Errc::kInvalid);
    CHECK(peers.memory.rereg(mr_change::kPd, link.a.pd, {}, 0).error().code == Errc::kInvalid);
    CHECK(peers.memory.rereg(mr_change::kAccess, link.b.pd, {}, access::kRemoteWrite).error().code ==
          Errc::kInvalid);
    CHECK(peers.memory.rereg(mr_change::kAccess, link.b.pd, {}, 1U << 6).error().code == Errc::kInvalid);
    CHECK(peers.write(key, addr, 2) == WcStatus::kSuccess);
  }
  CHECK(peers.memory.rkey() == key);
}

TEST_CASE("a peer that writes meanwhile meets the old region or the new one", "[api][rereg]") {
  Joined link(Mode::kLcore);
  Peers peers(link);
  // The same address, now with 64 and now with 4096 bytes: what is allowed by both never fails.
  const Rkey key = peers.memory.rkey();
  const std::span<std::byte> all = peers.memory.memory();
  std::atomic<bool> stop{false};
  std::atomic<unsigned> changes{0};
  std::atomic<unsigned> failed{0};
  std::thread control([&] {
    while (!stop) {
      const std::span<std::byte> bytes = all.first(changes++ % 2 == 0 ? 64 : 4096);
      if (!peers.memory.rereg(mr_change::kTranslation, link.b.pd, bytes, 0)) ++failed;
    }
  });
  std::uint64_t i = 0;
  while (i < 300 || changes < 5) {
    if (peers.write(key, peers.memory.addr() + 56, ++i) != WcStatus::kSuccess) break;
  }
  stop = true;
  control.join();
  CHECK(i >= 300);
  CHECK(failed == 0);
  CHECK(peers.word(56) == i);
}

TEST_CASE("ATOMIC WRITE and FLUSH, inline and from memory", "[api][placement]") {
  Joined link(Mode::kAuto);
  Peers peers(link);
  const std::uint64_t addr = peers.memory.addr();
  for (std::uint64_t i = 1; i <= 100; ++i) {
    std::memcpy(peers.local.memory().data(), &i, 8);
    const Sge sge = i % 2 == 0 ? peers.local.sge(0, 8) : Sge{std::bit_cast<std::uint64_t>(&i), 8, Lkey{}};
    REQUIRE(peers.a().post_send(
        {.wr_id = i,
         .sges = {&sge, 1},
         .opcode = WrOpcode::kAtomicWrite,
         .flags = static_cast<std::uint8_t>(send_flag::kSignaled | (i % 2 == 0 ? 0 : send_flag::kInline)),
         .remote_addr = addr + 8 * i,
         .rkey = peers.memory.rkey()}));
    const FlushWr flush{.length = 64,
                        .placement = static_cast<std::uint8_t>(1 + i % 3),
                        .scope = i % 4 == 0 ? FlushScope::kMr : FlushScope::kRange};
    REQUIRE(peers.run_a({.wr_id = i,
                         .opcode = WrOpcode::kFlush,
                         .remote_addr = addr,
                         .rkey = peers.memory.rkey(),
                         .flush = flush}) == WcStatus::kSuccess);
    REQUIRE(peers.word(8 * i) == i);
    const Wc wc = peers.next(peers.cq_a);
    REQUIRE((wc.ok() && wc.opcode == WcOpcode::kFlush));
  }
}

TEST_CASE("what is no window type, and no access", "[api][window]") {
  Joined link(Mode::kAuto);
  CHECK(Mw::create(link.b.pd, MwType{0}).error().code == Errc::kInvalid);
  CHECK(Mw::create(link.b.pd, MwType{4}).error().code == Errc::kInvalid);
  Mw one = must(Mw::create(link.b.pd, MwType::kType1));
  Mw two = must(Mw::create(link.b.pd, MwType::kType2A));
  const Rkey key = two.rkey();
  one = std::move(two);
  CHECK((one.rkey() == key && one.type() == MwType::kType2A));
  Cq cq = must(Cq::create(link.b.device, 4));
  Qp qp = must(Qp::create(link.b.pd, cq, cq, {}));
  Mw fresh = must(Mw::create(link.b.pd, MwType::kType1));
  CHECK(qp.bind_mw(fresh, {}, 1).error().code == Errc::kBadState);
}

TEST_CASE("zero-based regions and windows are named by places", "[mr][mw][zero-based]") {
  Joined link(GENERATE(Mode::kApp, Mode::kAuto));
  Peers peers(link);
  std::vector<std::byte> bytes(4096);
  Mr region = must(Mr::reg(link.b.pd, bytes, (kRights & ~access::kFlushPersistent) | access::kZeroBased));
  CHECK(region.addr() == 0);
  CHECK(region.sge(100, 8).addr == 100);
  const auto word_at = [&](std::size_t at) {
    std::uint64_t word = 0;
    std::memcpy(&word, &bytes[at], 8);
    return word;
  };
  CHECK(peers.write(region.rkey(), 100, 0x1122) == WcStatus::kSuccess);
  CHECK(word_at(100) == 0x1122);
  // Receives and sends too.
  const Sge taken = region.sge(200, 8);
  REQUIRE(peers.b().post_recv({.wr_id = 5, .sges = {&taken, 1}}));
  const std::uint64_t value = 0x77;
  const Sge inline_value{std::bit_cast<std::uint64_t>(&value), 8, Lkey{}};
  REQUIRE(peers.run_a({.sges = {&inline_value, 1}, .flags = send_flag::kInline}) == WcStatus::kSuccess);
  REQUIRE(peers.next(peers.cq_b).ok());
  CHECK(word_at(200) == 0x77);
  // A window that counts from its own first byte.
  Mw window = must(Mw::create(link.b.pd, MwType::kType2B));
  const MwBind bind{
      .mr = region.lkey(), .addr = 300, .length = 8, .access = access::kRemoteWrite | access::kZeroBased};
  const Rkey key = window.rkey(1);
  REQUIRE(peers.run_b({.opcode = WrOpcode::kBindMw, .rkey = key, .bind = &bind}) == WcStatus::kSuccess);
  CHECK(peers.write(key, 0, 0x3344) == WcStatus::kSuccess);
  CHECK(word_at(300) == 0x3344);
  CHECK(peers.write(key, 1, 0x5566) == WcStatus::kRemAccessErr);
}

TEST_CASE("a region becomes zero-based, and is named by addresses again", "[mr][rereg][zero-based]") {
  Joined link(Mode::kApp);
  Peers peers(link);
  std::vector<std::byte> bytes(512);
  Mr region = must(Mr::reg(link.b.pd, bytes, access::kAll));
  const auto address = std::bit_cast<std::uint64_t>(bytes.data());
  REQUIRE(region.rereg(mr_change::kAccess, link.b.pd, {}, access::kAll | access::kZeroBased));
  CHECK(region.addr() == 0);
  CHECK(peers.write(region.rkey(), 8, 1) == WcStatus::kSuccess);
  REQUIRE(region.rereg(mr_change::kAccess, link.b.pd, {}, access::kAll));
  CHECK(region.addr() == address);
  CHECK(peers.write(region.rkey(), address + 8, 2) == WcStatus::kSuccess);
  CHECK(bytes[8] == std::byte{2});
  CHECK(peers.write(region.rkey(), 8, 1) == WcStatus::kRemAccessErr);
}

}  // namespace uroce::api
