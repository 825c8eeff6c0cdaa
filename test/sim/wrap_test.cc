// All 2^24 PSNs of a QP, really sent, with losses all the way; all 2^32 indices of a CQ.
#include <catch2/catch.hpp>
#include <vector>

#include "sim/pair.h"
#include "uroce/ece.h"

using namespace uroce;
using namespace uroce::test;

TEST_CASE("a QP goes through all of its PSNs", "[sim][T6][T30]") {
  const std::uint32_t options = GENERATE(std::uint32_t{0}, ece::kSelectiveRepeat);
  CAPTURE(options);
  constexpr std::uint64_t kMessages = (1U << 24) + 100'000;
  mem::KeyTable keys(1, [] {});
  alignas(8) std::uint64_t counter = 0;
  std::uint64_t original = 0;
  const Rkey rkey{
      keys.insert(
              {.addr = std::bit_cast<std::uint64_t>(&counter), .length = 8, .pd = 1, .access = access::kAll})
          .value()};
  const Sge sge{std::bit_cast<std::uint64_t>(&original), 8,
                Lkey{keys.insert({.addr = std::bit_cast<std::uint64_t>(&original),
                                  .length = 8,
                                  .pd = 1,
                                  .access = access::kLocalWrite})
                         .value()}};
  Side a({.seed = 1, .lost_one_in = 1000, .ece = options}, keys);
  Side b({.own = Qpn{2}, .peer = Qpn{1}, .is_second = true, .seed = 2, .lost_one_in = 1000, .ece = options},
         keys);
  std::uint64_t posted = 0, completed = 0, added = 0;
  Ticks now{1'000'000};
  for (std::uint64_t turns = 0; completed < kMessages; ++turns) {
    REQUIRE(turns < kMessages);             // or it hangs
    for (; posted < kMessages; ++posted) {  // empty WRITEs, now and then an atomic
      const bool atomic = posted % 997 == 0;
      const SendWr wr{
          .wr_id = posted,
          .sges = {&sge, atomic ? 1U : 0U},
          .opcode = atomic ? WrOpcode::kAtomicFetchAndAdd : WrOpcode::kRdmaWrite,
          .flags = posted % 64 == 63 || posted + 1 == kMessages ? send_flag::kSignaled : std::uint8_t{0},
          .remote_addr = std::bit_cast<std::uint64_t>(&counter),
          .rkey = rkey,
          .compare_add = 1};
      if (!a.qp.context().sq.put(wr, 0)) break;
      a.qp.context().sq.publish(1);
      added += atomic ? 1 : 0;
    }
    a.turn(b, now);
    b.turn(a, now);
    now = now + 10'000;
    Wc wc;
    while (a.cq.poll({&wc, 1}) == 1) {
      if (!wc.ok() || wc.wr_id < completed) FAIL("a completion out of order or failed");
      completed = wc.wr_id + 1;
    }
  }
  CHECK(counter == added);
  CHECK(b.counters.get(Count::kResponderMessages) == kMessages);
  CHECK(a.pipe.sent > kMessages);
  CHECK(a.qp.requester().next_psn() == Psn{0x12'3456 + static_cast<std::uint32_t>(kMessages)});
}

TEST_CASE("a CQ goes through all of its indices, and is resized before the last ones",
          "[transport][cq][T6]") {
  constexpr std::uint64_t kIndices = std::uint64_t{1} << 32;
  constexpr std::uint64_t kBefore = 128;
  transport::CqRing cq(256);
  std::vector<Wc> out(256);
  std::uint64_t pushed = 0;
  for (std::uint64_t polled = 0; polled != kIndices - kBefore; polled += cq.poll(out)) {
    for (std::uint64_t i = 0; i < kBefore; ++i) {
      if (!cq.push({.wr_id = pushed++}, false)) FAIL("the ring is full");
    }
  }
  REQUIRE(cq.resize(512));
  for (std::uint64_t i = 0; i < 2 * kBefore; ++i) {
    REQUIRE(cq.poll(out) == 0);
    REQUIRE(cq.push({.wr_id = pushed}, false));
    REQUIRE(cq.poll(out) == 1);
    REQUIRE(out[0].wr_id == pushed++);
  }
}
