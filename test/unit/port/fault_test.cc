#include <catch2/catch.hpp>

#include <bit>

#include "drivers/fault/fault_port.h"
#include "drivers/loopback/loopback.h"
#include "port_helpers.h"

using namespace uroce;
using namespace uroce::drivers;
using namespace uroce::test;
using fault::Direction;

namespace {

/// A simulated link whose end 1 has faults.
struct FaultyLink {
  explicit FaultyLink(const std::string& rules, std::uint64_t seed = 1) : link({.delay_ns = 0}) {
    auto parsed = fault::parse_rules(rules);
    if (!parsed) FAIL(parsed.error().text);
    clean = link.open_end(0);
    faulty = std::make_unique<FaultPort>(link.open_end(1), *parsed, seed, [this] { return link.now_ns(); });
  }

  /// Sends RoCE frames with PSNs from `first` on, one burst each. @return the PSNs that come out.
  std::vector<unsigned> pass(port::Port& from, port::Port& to, unsigned count, unsigned first = 0) {
    std::vector<unsigned> psns;
    for (unsigned i = 0; i < count; ++i) {
      REQUIRE(send(from, roce_v4(0x07, first + i)));
      append_psns(receive(to), psns);
    }
    return psns;
  }
  std::vector<unsigned> pass_rx(unsigned count, unsigned first = 0) {
    return pass(*clean, *faulty, count, first);
  }
  std::vector<unsigned> pass_tx(unsigned count, unsigned first = 0) {
    return pass(*faulty, *clean, count, first);
  }

  static void append_psns(const std::vector<Bytes>& frames, std::vector<unsigned>& psns) {
    for (const Bytes& frame : frames) psns.push_back(find_roce(frame).value().psn);
  }

  LoopbackLink link;
  std::unique_ptr<port::Port> clean;
  std::unique_ptr<FaultPort> faulty;
};

using Psns = std::vector<unsigned>;

unsigned bits_that_differ(const Bytes& a, const Bytes& b) {
  unsigned bits = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    bits += static_cast<unsigned>(std::popcount(std::to_integer<unsigned>(a[i] ^ b[i])));
  }
  return bits;
}

}  // namespace

TEST_CASE("without rules a faulty port is transparent", "[fault]") {
  FaultyLink link("");
  CHECK(link.pass_rx(5) == Psns{0, 1, 2, 3, 4});
  CHECK(link.pass_tx(5) == Psns{0, 1, 2, 3, 4});
  CHECK(link.faulty->counters().faults_injected == 0);
}

TEST_CASE("loss by probability happens about that often, and equally for equal seeds", "[fault]") {
  const auto run = [](const char* rules, std::uint64_t seed, bool tx) {
    FaultyLink link(rules, seed);
    const auto psns = tx ? link.pass_tx(2000) : link.pass_rx(2000);
    CHECK(link.faulty->fault_counters(tx ? Direction::kTx : Direction::kRx).dropped == 2000 - psns.size());
    CHECK(link.faulty->fault_counters(tx ? Direction::kRx : Direction::kTx).dropped == 0);
    return psns;
  };
  for (const bool tx : {false, true}) {
    const char* rules = tx ? "tx.loss=10%" : "loss=0.1";
    const auto psns = run(rules, 1, tx);
    CHECK(psns.size() > 1700);
    CHECK(psns.size() < 1900);
    CHECK(run(rules, 1, tx) == psns);
    CHECK(run(rules, 2, tx) != psns);
  }
}

TEST_CASE("certain loss loses everything, and a burst of nothing needs no release", "[fault]") {
  FaultyLink link("loss=100%");
  CHECK(link.pass_rx(300).empty());  // more than the link holds: each burst must have been released
}

TEST_CASE("frames that are not RoCE survive unless the rules say all", "[fault]") {
  FaultyLink spared("loss=100%");
  REQUIRE(send(*spared.clean, arp()));
  CHECK(receive(*spared.faulty) == std::vector<Bytes>{arp()});
  FaultyLink hit("loss=100%,all");
  REQUIRE(send(*hit.clean, arp()));
  CHECK(receive(*hit.faulty).empty());
}

TEST_CASE("an event hits the nth match, each nth match, or one packet", "[fault][event]") {
  CHECK(FaultyLink("drop nth=3").pass_rx(6) == Psns{0, 1, 3, 4, 5});
  CHECK(FaultyLink("drop every=2").pass_rx(6) == Psns{0, 2, 4});
  CHECK(FaultyLink("drop psn=4").pass_rx(6) == Psns{0, 1, 2, 3, 5});
  CHECK(FaultyLink("drop psn=0x4 qpn=0x12").pass_rx(6).size() == 6);
  CHECK(FaultyLink("drop opcode=RC_WRITE_MIDDLE nth=1").pass_rx(3) == Psns{1, 2});
  CHECK(FaultyLink("drop opcode=RC_WRITE_LAST").pass_rx(3).size() == 3);
  CHECK(FaultyLink("tx.drop nth=2; drop nth=1").pass_tx(3) == Psns{0, 2});
}

TEST_CASE("an event can tell an ACK from a NAK and an RNR NAK", "[fault][event]") {
  const auto survivors = [](const char* rules) {
    FaultyLink link(rules);
    std::string names;
    for (const auto& [name, syndrome] : {std::pair{'a', 0x1f}, std::pair{'n', 0x60}, std::pair{'r', 0x2e}}) {
      Bytes frame = roce_v4(0x11);
      frame[54] = static_cast<std::byte>(syndrome);
      REQUIRE(send(*link.clean, frame));
      if (!receive(*link.faulty).empty()) names += name;
    }
    return names;
  };
  CHECK(survivors("drop aeth=ack") == "nr");
  CHECK(survivors("drop aeth=nak") == "ar");
  CHECK(survivors("drop aeth=rnr") == "an");
}

TEST_CASE("a duplicate follows its original", "[fault][event]") {
  CHECK(FaultyLink("dup nth=2").pass_rx(3) == Psns{0, 1, 1, 2});
  CHECK(FaultyLink("tx.dup nth=2").pass_tx(3) == Psns{0, 1, 1, 2});
}

TEST_CASE("duplicates of a full burst are shown in the next one", "[fault]") {
  FaultyLink link("dup=100%");
  for (unsigned psn = 0; psn < 4; ++psn) REQUIRE(send(*link.clean, roce_v4(0x07, psn)));
  Psns psns;
  for (int burst = 0; burst < 4; ++burst) {
    const auto frames = receive(*link.faulty, 3);
    CHECK(frames.size() <= 3);
    FaultyLink::append_psns(frames, psns);
  }
  CHECK(psns.size() == 8);
  std::sort(psns.begin(), psns.end());
  CHECK(psns == Psns{0, 0, 1, 1, 2, 2, 3, 3});
}

TEST_CASE("a reordered frame is overtaken by as many as asked", "[fault][event]") {
  CHECK(FaultyLink("reorder=2 nth=2").pass_rx(5) == Psns{0, 2, 3, 1, 4});
  CHECK(FaultyLink("tx.reorder=2 nth=2").pass_tx(5) == Psns{0, 2, 3, 1, 4});
}

TEST_CASE("a reordered frame is overtaken inside one burst, too", "[fault][event]") {
  FaultyLink link("reorder=1 nth=1");
  for (unsigned psn = 0; psn < 4; ++psn) REQUIRE(send(*link.clean, roce_v4(0x07, psn)));
  Psns psns;
  FaultyLink::append_psns(receive(*link.faulty), psns);
  CHECK(psns == Psns{1, 0, 2, 3});
}

TEST_CASE("a frame that is longer than any of the link is not held", "[fault]") {
  fault::HeldFrames store(1, 64);
  CHECK(store.take(random_bytes(65, 1)) == nullptr);
  CHECK(store.take(random_bytes(64, 1)) != nullptr);
}

TEST_CASE("nothing is held for ever when nothing overtakes it", "[fault][event]") {
  FaultyLink link("reorder=5 nth=1; tx.reorder=5 nth=1");
  CHECK(link.pass_rx(1).empty());
  CHECK_FALSE(link.faulty->arm_rx());
  Psns psns;
  for (unsigned poll = 0; poll < fault::HeldFrames::kMaxPolls && psns.empty(); ++poll) {
    FaultyLink::append_psns(receive(*link.faulty), psns);
  }
  CHECK(psns == Psns{0});
  CHECK(link.pass_tx(1).empty());
  CHECK_FALSE(link.faulty->arm_rx());
  for (unsigned poll = 0; poll < fault::HeldFrames::kMaxPolls; ++poll) receive(*link.faulty);
  CHECK(receive(*link.clean).size() == 1);
  CHECK(link.faulty->arm_rx());
}

TEST_CASE("a delayed frame comes when its time has come", "[fault][event]") {
  for (const bool tx : {false, true}) {
    FaultyLink link("delay=20us nth=1; tx.delay=20us nth=1");
    CHECK((tx ? link.pass_tx(3) : link.pass_rx(3)) == Psns{1, 2});
    link.link.advance_to(19'999);
    CHECK(receive(*link.faulty).empty());
    CHECK(receive(*link.clean).empty());
    link.link.advance_to(20'000);
    const auto late = receive(*link.faulty);
    Psns psns;
    FaultyLink::append_psns(tx ? receive(*link.clean) : late, psns);
    CHECK(psns == Psns{0});
  }
}

TEST_CASE("corruption flips one bit between BTH and ICRC, never in padding or the headers before",
          "[fault][event]") {
  for (const bool tx : {false, true}) {
    FaultyLink link("corrupt=100%; tx.corrupt=100%");
    Bytes frame = roce_v4();
    frame.resize(frame.size() + 6);  // Ethernet padding
    for (int i = 0; i < 200; ++i) {
      REQUIRE(send(tx ? *link.faulty : *link.clean, frame));
      const auto got = receive(tx ? *link.clean : *link.faulty);
      REQUIRE(got.size() == 1);
      REQUIRE(got[0].size() == frame.size());
      CHECK(bits_that_differ(got[0], frame) == 1);
      CHECK(std::equal(frame.begin(), frame.begin() + 42, got[0].begin()));
      CHECK(std::equal(frame.end() - 6, frame.end(), got[0].end() - 6));
    }
    CHECK(link.faulty->fault_counters(tx ? Direction::kTx : Direction::kRx).corrupted == 200);
  }
}

TEST_CASE("truncation cuts the frame inside the RoCE packet", "[fault][event]") {
  for (const bool tx : {false, true}) {
    FaultyLink link("truncate=100%; tx.truncate=100%");
    for (int i = 0; i < 100; ++i) {
      REQUIRE(send(tx ? *link.faulty : *link.clean, roce_v4()));
      const auto got = receive(tx ? *link.clean : *link.faulty);
      REQUIRE(got.size() == 1);
      CHECK(got[0].size() >= 42);
      CHECK(got[0].size() < roce_v4().size());
    }
  }
}

TEST_CASE("a congestion mark keeps the IPv4 header checksum right", "[fault][event]") {
  FaultyLink link("mark-ce nth=1; tx.ce=100%");
  REQUIRE(send(*link.clean, roce_v4()));
  REQUIRE(send(*link.faulty, roce_v4()));
  for (const Bytes& frame : {receive(*link.faulty).at(0), receive(*link.clean).at(0)}) {
    CHECK(frame[15] == std::byte{0x03});
    CHECK(to_hex(std::span(frame).subspan(24, 2)) == "1480");
  }
  CHECK(link.faulty->counters().faults_injected == 2);
}

TEST_CASE("a held frame waits for room in the link and is not lost", "[fault]") {
  LoopbackLink link({.delay_ns = 0, .queue_frames = 2});
  const auto clean = link.open_end(0);
  FaultPort faulty(link.open_end(1), fault::parse_rules("tx.dup=100%").value(), 1, [] { return 0; });
  REQUIRE(send(faulty, roce_v4(0x07, 1)));  // twice: the link is full
  CHECK(faulty.tx_claim(74) == nullptr);
  CHECK(receive(*clean).size() == 2);
  REQUIRE(send(faulty, roce_v4(0x07, 2)));
  CHECK(receive(*clean).size() == 2);
}

TEST_CASE("nothing overtakes a copy that waits for room", "[fault]") {
  LoopbackLink link({.delay_ns = 0, .queue_frames = 3});
  const auto clean = link.open_end(0);
  FaultPort faulty(link.open_end(1), fault::parse_rules("tx.dup=100%").value(), 1, [] { return 0; });
  Psns psns;
  for (unsigned psn = 1; psn <= 2; ++psn) REQUIRE(send(faulty, roce_v4(0x07, psn)));
  FaultyLink::append_psns(receive(*clean), psns);
  for (unsigned psn = 3; psn <= 4; ++psn) {
    REQUIRE(send(faulty, roce_v4(0x07, psn)));
    FaultyLink::append_psns(receive(*clean), psns);
  }
  faulty.tx_flush();
  FaultyLink::append_psns(receive(*clean), psns);
  CHECK(psns == Psns{1, 1, 2, 2, 3, 3, 4, 4});
}

TEST_CASE("many faults at once over a million bytes keep count of everything", "[fault]") {
  FaultyLink link("loss=5%,dup=5%,reorder=5%:2,corrupt=5%,truncate=2%,delay=3%:1us", 42);
  std::uint64_t received = 0;
  for (unsigned i = 0; i < 15000; ++i) {
    REQUIRE(send(*link.clean, roce_v4(0x07, i)));
    received += receive(*link.faulty).size();
    link.link.advance_to(i * 100ULL);
  }
  link.link.advance_to(1'000'000'000);
  for (unsigned poll = 0; poll < 1200; ++poll) received += receive(*link.faulty).size();
  const FaultCounters counters = link.faulty->fault_counters(Direction::kRx);
  CHECK(received == 15000 - counters.dropped + counters.duplicated);
  CHECK(counters.skipped == 0);
  for (const std::uint64_t count :
       {counters.dropped, counters.duplicated, counters.reordered, counters.corrupted}) {
    CHECK(count > 500);
    CHECK(count < 1000);
  }
}
