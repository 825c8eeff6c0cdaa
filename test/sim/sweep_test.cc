// One packet lost, damaged, doubled or late, for every packet of every kind of message; and every pair of
// losses.
#include <catch2/catch.hpp>

#include "sim/conversation.h"

using namespace uroce;
using namespace uroce::sim;

namespace {

struct Outcome {
  std::uint64_t packets = 0;  // that left, of both sides
  std::uint64_t go_backs = 0;
  std::uint64_t timeouts = 0;
  std::uint64_t probes = 0;
  std::uint64_t ns = 0;  // until everything had completed
  bool was_ack = false;  // the packet that was judged
  bool was_judged = false;
};

using Fates = std::vector<std::pair<std::uint64_t, Fate>>;  // number of the packet in the order of sending

using Judge = std::function<Fate(std::uint64_t number, const wire::PacketView& packet)>;

Outcome run(const Conversation& conversation, const Judge& judge) {
  World world(conversation.plan());
  Outcome outcome;
  world.net().set_judge([&](unsigned, const wire::PacketView& packet) -> std::optional<Fate> {
    const Fate fate = judge(outcome.packets++, packet);
    if (fate != Fate::kDeliver) {
      outcome.was_judged = true;
      outcome.was_ack = packet.op->is_ack;
    }
    return fate;
  });
  world.run();
  Totals totals;
  world.add_to(totals);
  outcome.go_backs = totals.go_backs;
  outcome.timeouts = totals.timeouts;
  outcome.probes = totals.probes;
  outcome.ns = world.done_ns();
  return outcome;
}

Outcome run(const Conversation& conversation, const Fates& fates) {
  return run(conversation, [&fates](std::uint64_t number, const wire::PacketView&) {
    for (const auto& [which, fate] : fates) {
      if (which == number) return fate;
    }
    return Fate::kDeliver;
  });
}

const char* name(Fate fate) {
  constexpr const char* kNames[] = {"delivered", "lost", "doubled", "late", "corrupted", "truncated"};
  return kNames[raw(fate)];
}

/// Every packet of the undisturbed conversation, with every fate.
void sweep(const Conversation& conversation) {
  const Outcome undisturbed = run(conversation, Fates{});
  REQUIRE(undisturbed.go_backs == 0);
  REQUIRE(undisturbed.timeouts == 0);
  for (std::uint64_t number = 0; number < undisturbed.packets; ++number) {
    for (const Fate fate : {Fate::kDrop, Fate::kCorrupt, Fate::kTruncate, Fate::kDuplicate, Fate::kReorder}) {
      INFO("packet " << number << " of " << undisturbed.packets << " is " << name(fate));
      Outcome outcome;
      REQUIRE_NOTHROW(outcome = run(conversation, {{number, fate}}));
      REQUIRE(outcome.was_judged);
      const bool kills = fate == Fate::kDrop || fate == Fate::kCorrupt || fate == Fate::kTruncate;
      REQUIRE(outcome.go_backs <= 1);
      REQUIRE(outcome.timeouts <= 1);
      if (fate == Fate::kDuplicate) REQUIRE(outcome.go_backs == 0);
      if (kills && !outcome.was_ack) REQUIRE(outcome.go_backs == 1);
    }
  }
}

/// Every pair of packets lost, retransmitted ones included.
void sweep_pairs(const Conversation& conversation, Fate first_fate, Fate second_fate) {
  const std::uint64_t count = run(conversation, Fates{}).packets;
  for (std::uint64_t first = 0; first < count; ++first) {
    const std::uint64_t more = run(conversation, {{first, first_fate}}).packets;
    for (std::uint64_t second = first + 1; second < more; ++second) {
      INFO("packet " << first << " is " << name(first_fate) << ", packet " << second << " is "
                     << name(second_fate));
      Outcome outcome;
      REQUIRE_NOTHROW(outcome = run(conversation, {{first, first_fate}, {second, second_fate}}));
      REQUIRE(outcome.go_backs <= 3);
      REQUIRE(outcome.timeouts <= 2);
    }
  }
}

constexpr std::uint64_t kFastNs = 1'000'000;  // that a loss may cost between peers that probe

/// As sweep(), between peers that probe, once they know the round trip.
void sweep_fast(const Conversation& conversation) {
  const Outcome undisturbed = run(conversation, Fates{});
  REQUIRE(undisturbed.go_backs + undisturbed.timeouts + undisturbed.probes == 0);
  std::uint64_t probes = 0;
  for (std::uint64_t number = Conversation::kFirstPackets; number < undisturbed.packets; ++number) {
    for (const Fate fate : {Fate::kDrop, Fate::kCorrupt, Fate::kTruncate, Fate::kDuplicate, Fate::kReorder}) {
      INFO("packet " << number << " of " << undisturbed.packets << " is " << name(fate));
      Outcome outcome;
      REQUIRE_NOTHROW(outcome = run(conversation, {{number, fate}}));
      REQUIRE(outcome.was_judged);
      REQUIRE(outcome.timeouts == 0);
      REQUIRE(outcome.probes <= 1);
      REQUIRE(outcome.ns <= undisturbed.ns + kFastNs);
      probes += outcome.probes;
    }
  }
  REQUIRE(probes > 0);  // of the last packet nothing else tells
}

void sweep_fast_pairs(const Conversation& conversation) {
  const Outcome undisturbed = run(conversation, Fates{});
  for (std::uint64_t first = Conversation::kFirstPackets; first < undisturbed.packets; ++first) {
    const std::uint64_t more = run(conversation, {{first, Fate::kDrop}}).packets;
    for (std::uint64_t second = first + 1; second < more; ++second) {
      INFO("packets " << first << " and " << second << " are lost");
      Outcome outcome;
      REQUIRE_NOTHROW(outcome = run(conversation, {{first, Fate::kDrop}, {second, Fate::kDrop}}));
      REQUIRE(outcome.timeouts == 0);
      REQUIRE(outcome.probes <= 2);
      REQUIRE(outcome.ns <= undisturbed.ns + 2 * kFastNs);
    }
  }
}

/// Between peers that probe, with selective repeat or without.
Conversation fast(bool is_selective) {
  Conversation conversation = Conversation::fast();
  if (is_selective) conversation.repeat_selectively();
  return conversation;
}

constexpr WrOpcode kOpcodes[] = {WrOpcode::kSend,      WrOpcode::kSendWithImm,      WrOpcode::kSendWithInv,
                                 WrOpcode::kRdmaWrite, WrOpcode::kRdmaWriteWithImm, WrOpcode::kRdmaRead};

/// Calls `sweep` with a message of so many packets of each kind, and with a mixed conversation.
void with_each_fast(std::uint32_t packets, void (*sweep)(const Conversation&)) {
  const bool is_selective = GENERATE(false, true);
  CAPTURE(is_selective);
  SECTION("of one message") {
    const WrOpcode opcode = GENERATE(from_range(std::begin(kOpcodes), std::end(kOpcodes)));
    CAPTURE(raw(opcode));
    sweep(one_message(opcode, packets, fast(is_selective)));
  }
  SECTION("of a mixed conversation") {
    sweep(mixed(fast(is_selective)));
  }
}

}  // namespace

TEST_CASE("one disturbed packet of a 16-packet message is mended with one go-back", "[sim][T4][T24]") {
  const WrOpcode opcode = GENERATE(from_range(std::begin(kOpcodes), std::end(kOpcodes)));
  CAPTURE(raw(opcode));
  sweep(one_message(opcode, 16));
}

TEST_CASE("one disturbed packet among 16 atomics is mended with one go-back", "[sim][T4]") {
  const WrOpcode opcode = GENERATE(WrOpcode::kAtomicCmpAndSwp, WrOpcode::kAtomicFetchAndAdd);
  Conversation conversation;
  for (int i = 0; i < 16; ++i) conversation.add(opcode, 8);
  sweep(conversation);
}

TEST_CASE("one disturbed packet of a mixed conversation is mended with one go-back", "[sim][T4][T24]") {
  sweep(mixed());
}

TEST_CASE("two lost packets of an 8-packet message are mended", "[sim][T5]") {
  const WrOpcode opcode = GENERATE(from_range(std::begin(kOpcodes), std::end(kOpcodes)));
  CAPTURE(raw(opcode));
  sweep_pairs(one_message(opcode, 8), Fate::kDrop, Fate::kDrop);
}

TEST_CASE("a lost packet and another disturbed one of a mixed conversation are mended", "[sim][T5]") {
  const Fate second = GENERATE(Fate::kDrop, Fate::kDuplicate, Fate::kReorder);
  sweep_pairs(mixed(), Fate::kDrop, second);
  sweep_pairs(mixed(), Fate::kDuplicate, second);
}

TEST_CASE("the loss of the last packet and of its retransmission costs at most four periods each",
          "[sim][T5]") {
  const Conversation conversation = one_message(WrOpcode::kSend, 8);
  const std::uint64_t undisturbed_ns = run(conversation, Fates{}).ns;
  for (std::uint64_t lost = 1; lost <= 3; ++lost) {
    std::uint64_t seen = 0;
    const Outcome outcome = run(conversation, [&](std::uint64_t, const wire::PacketView& packet) {
      const bool is_last = packet.bth.opcode == wire::Opcode::kRcSendLast;
      return is_last && seen++ < lost ? Fate::kDrop : Fate::kDeliver;
    });
    CHECK(outcome.timeouts == lost);
    CHECK(outcome.ns <= undisturbed_ns + lost * 4 * 1'048'576);
  }
}

TEST_CASE("between peers that probe one disturbed packet costs less than 1 ms and no timeout",
          "[sim][selective][T5]") {
  with_each_fast(16, sweep_fast);
}

TEST_CASE("between peers that probe two lost packets cost less than 2 ms and no timeout",
          "[sim][selective][T5]") {
  with_each_fast(8, sweep_fast_pairs);
}

namespace {

/// Twenty messages of 16 packets, one after the other; the packet `index` of each meets `fate` once.
/// @return the counters of requester and responder, added up
std::function<std::uint64_t(Count)> disturb_each(World& world, std::uint32_t index, Fate fate) {
  auto seen = std::make_shared<std::set<std::uint32_t>>();
  world.net().set_judge([=](unsigned, const wire::PacketView& packet) -> std::optional<Fate> {
    const std::uint32_t from_start = span_from(packet.bth.psn, Psn{0xff'fffc});
    const bool hit = packet.op->is_request && from_start % 16 == index && seen->insert(from_start).second;
    return hit ? fate : Fate::kDeliver;
  });
  world.run();  // compares drops, packets, messages and completions with what the network did
  CHECK(seen->size() == 20);
  return [&world](Count what) {
    return world.endpoint(0).loop.counters().get(what) + world.endpoint(1).loop.counters().get(what);
  };
}

}  // namespace

TEST_CASE("each injected event is counted once, at the side and for the reason that it has", "[sim][T24]") {
  Conversation conversation;
  for (int i = 0; i < 20; ++i) {
    conversation.add(i % 2 == 0 ? WrOpcode::kSend : WrOpcode::kRdmaWrite, 16 * kConversationMtu);
  }
  conversation.one_at_a_time();
  World world(conversation.plan());
  SECTION("a packet in the middle is lost") {
    const auto count = disturb_each(world, 7, Fate::kDrop);
    CHECK(count(Count::kResponderSeqNaks) == 20);
    CHECK(count(Count::kRequesterSeqNaks) == 20);
    CHECK(count(Count::kRequesterGoBacks) == 20);
    CHECK(count(Count::kRequesterTimeouts) == 0);
    CHECK(count(Count::kResponderDuplicateRequests) == 0);
    CHECK(count(Count::kResponderOutOfSequence) == count(Count::kResponderAwaitingResync) + 20);
    CHECK(count(Count::kDropBadIcrc) == 0);
  }
  SECTION("a packet in the middle is damaged") {
    const auto count = disturb_each(world, 7, Fate::kTruncate);
    CHECK(count(Count::kResponderSeqNaks) == 20);
    CHECK(count(Count::kRequesterGoBacks) == 20);
    CHECK(count(Count::kRequesterTimeouts) == 0);
  }
  SECTION("the last packet is lost") {
    const auto count = disturb_each(world, 15, Fate::kDrop);
    CHECK(count(Count::kRequesterTimeouts) == 20);
    CHECK(count(Count::kRequesterGoBacks) == 20);
    CHECK(count(Count::kResponderSeqNaks) == 0);
    CHECK(count(Count::kResponderOutOfSequence) == 0);
  }
  SECTION("a packet comes twice") {
    const auto count = disturb_each(world, 3, Fate::kDuplicate);
    CHECK(count(Count::kResponderDuplicateRequests) == 20);
    CHECK(count(Count::kRequesterGoBacks) == 0);
    CHECK(count(Count::kResponderOutOfSequence) == 0);
    CHECK(count(Count::kRequesterTimeouts) == 0);
  }
  SECTION("nothing") {
    const auto count = disturb_each(world, 0, Fate::kDeliver);
    for (const Count never : {Count::kRequesterGoBacks, Count::kRequesterTimeouts, Count::kRequesterSeqNaks,
                              Count::kRequesterImpliedNaks, Count::kRequesterGhostResponses,
                              Count::kResponderDuplicateRequests, Count::kResponderOutOfSequence}) {
      CHECK(count(never) == 0);
    }
  }
}

TEST_CASE("each RNR NAK is counted at both sides", "[sim][T24]") {
  Conversation conversation;
  for (int i = 0; i < 6; ++i) conversation.add(WrOpcode::kSend, 2 * kConversationMtu);
  conversation.receive_late(100'000);
  World world(conversation.plan());
  std::uint64_t naks = 0;
  world.net().set_judge([&naks](unsigned, const wire::PacketView& packet) {
    naks += packet.op->is_ack && packet.aeth().syndrome >> 5 == 1 ? 1 : 0;
    return std::optional{Fate::kDeliver};
  });
  world.run();
  CHECK(naks > 0);
  CHECK(world.endpoint(1).loop.counters().get(Count::kResponderRnrNaks) == naks);
  CHECK(world.endpoint(0).loop.counters().get(Count::kRequesterRnrNaks) == naks);
}

TEST_CASE("any packet lost while the peer is not ready is mended", "[sim][T5]") {
  // RNR NAKs and what follows them among the lost
  const std::uint64_t pause_ns = GENERATE(std::uint64_t{20'000}, std::uint64_t{100'000});
  const Conversation conversation = unready(pause_ns);
  const std::uint64_t count = run(conversation, Fates{}).packets;
  for (std::uint64_t first = 0; first < count; ++first) {
    for (const Fate fate : {Fate::kDrop, Fate::kDuplicate, Fate::kReorder}) {
      INFO("packet " << first << " of " << count << " is " << name(fate));
      REQUIRE_NOTHROW(run(conversation, {{first, fate}}));
      REQUIRE_NOTHROW(run(conversation, {{first, fate}, {first + 3, Fate::kDrop}}));
    }
  }
}
