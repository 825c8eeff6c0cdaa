// Whether ICRCs are computed ahead makes no difference to anybody.
#include <catch2/catch.hpp>

#include "base/random.h"
#include "engine/loop_fixture.h"

using namespace uroce;
using namespace uroce::test;

namespace {

constexpr std::uint32_t kPackets = 8;         // a message
constexpr std::uint32_t kPacketBytes = 4096;  // bytes

/// A loop with a QP whose peer writes long messages.
struct Target {
  /// @param burst_frames  1: the loop never knows what comes next
  explicit Target(unsigned burst_frames)
      : f({{*Gid::parse("fe80::1"), 64}, {LoopFixture::local_v4(), 24}},
          {.delay_ns = 1, .burst_frames = burst_frames}),
        qp(f.make_qp(0x10)) {
    REQUIRE(f.connect(*qp));
    f.run(1000);
  }
  ~Target() { f.loop.remove(*qp, f.now()); }
  Target(const Target&) = delete;
  Target& operator=(const Target&) = delete;

  /// The rest of a message from the packet that is expected, some of it damaged on the way.
  void write_rest(Random& random) {
    const std::uint32_t next = qp->responder().expected_psn().value();
    for (std::uint32_t psn = next; psn < next / kPackets * kPackets + kPackets; ++psn) {
      const std::uint32_t i = psn % kPackets;
      Packet packet{.opcode = i == 0              ? wire::Opcode::kRcWriteFirst
                              : i + 1 == kPackets ? wire::Opcode::kRcWriteLast
                                                  : wire::Opcode::kRcWriteMiddle,
                    .psn = psn,
                    .payload = kPacketBytes,
                    .dest_qpn = qp->context().qpn};
      if (i == 0) {
        packet.reth = wire::Reth{.va = reinterpret_cast<std::uint64_t>(memory.data()),
                                 .rkey = Rkey{raw(key)},
                                 .length = kPackets * kPacketBytes};
      }
      Bytes frame = frame_of(packet, f.from_peer(), {});
      const std::size_t at = 60 + random.below(frame.size() - 60);
      if (random.below(6) == 0) frame[at] ^= static_cast<std::byte>(1U << random.below(8));
      f.give(frame);
    }
    f.run(20'000);
    f.taken();
  }
  [[nodiscard]] std::vector<std::uint64_t> all() {
    const auto count = [this](Count what) { return f.loop.counters().get(what); };
    return {count(Count::kRxRoce),
            count(Count::kDropBadIcrc),
            count(Count::kResponderPackets),
            count(Count::kResponderOutOfSequence),
            qp->responder().expected_psn().value(),
            qp->responder().msn()};
  }

  LoopFixture f;
  std::unique_ptr<transport::RcQp> qp;
  Bytes memory = Bytes(std::size_t{kPackets} * kPacketBytes);
  Lkey key{*f.keys.insert({reinterpret_cast<std::uint64_t>(memory.data()), memory.size(), 1, access::kAll})};
};

}  // namespace

TEST_CASE("a loop that computes ICRCs ahead takes and refuses what one does that sees single frames",
          "[engine][loop][icrc]") {
  const auto seed = GENERATE(range<std::uint64_t>(1, 9));
  CAPTURE(seed);
  Random random(seed);
  Target ahead(32);
  Target single(1);
  for (int i = 0; i < 60; ++i) {
    CAPTURE(i);
    const std::uint64_t chance = random.next();
    for (Target* target : {&ahead, &single}) {
      Random one(chance);
      target->write_rest(one);
    }
    REQUIRE(ahead.all() == single.all());
    REQUIRE(ahead.memory == single.memory);
  }
  CHECK(ahead.qp->responder().msn() > 4);
  CHECK(ahead.f.loop.counters().get(Count::kDropBadIcrc) > 20);
}
