// Selective repeat in whole loops: everything is mended, and what is sent again is what was lost.
#include <catch2/catch.hpp>
#include <set>

#include "sim/conversation.h"

using namespace uroce;
using namespace uroce::sim;

namespace {

using Fates = std::vector<std::pair<std::uint64_t, Fate>>;  // number of the packet in the order of sending

struct Outcome {
  std::uint64_t packets = 0;  // that left, of both sides
  Totals totals;
};

Outcome run(const Conversation& conversation, const Fates& fates) {
  World world(conversation.plan());
  Outcome outcome;
  world.net().set_judge([&](unsigned, const wire::PacketView&) -> std::optional<Fate> {
    const std::uint64_t number = outcome.packets++;
    for (const auto& [which, fate] : fates) {
      if (which == number) return fate;
    }
    return Fate::kDeliver;
  });
  world.run();
  world.add_to(outcome.totals);
  return outcome;
}

/// With selective repeat.
Conversation selective(Conversation conversation) {
  conversation.repeat_selectively();
  return conversation;
}

/// What a network takes and what comes again, in bytes of payload.
struct Traffic {
  std::uint64_t lost = 0;
  std::uint64_t repeated = 0;
};

/// Loses each packet, of requests and answers, with a probability of 1 %.
Traffic lose_one_percent(const Conversation& conversation, std::uint64_t seed) {
  World world(conversation.plan());
  Random random(seed);
  Traffic traffic;
  std::set<std::pair<bool, std::uint32_t>> seen;
  world.net().set_judge([&](unsigned, const wire::PacketView& packet) -> std::optional<Fate> {
    const std::size_t bytes = packet.payload.size();
    const bool is_new = seen.emplace(packet.op->is_request, packet.bth.psn.value()).second;
    if (!is_new) traffic.repeated += bytes;
    if (random.below(100) != 0) return Fate::kDeliver;
    traffic.lost += bytes;
    return Fate::kDrop;
  });
  world.run();
  return traffic;
}

}  // namespace

TEST_CASE("one disturbed packet of a conversation is mended by repeating selectively",
          "[sim][selective][T4]") {
  const auto make = GENERATE(
      +[] { return selective(one_message(WrOpcode::kSend, 16)); },
      +[] { return selective(one_message(WrOpcode::kRdmaWriteWithImm, 16)); },
      +[] { return selective(one_message(WrOpcode::kRdmaRead, 16)); }, +[] { return selective(mixed()); });
  const Conversation conversation = make();
  const Outcome undisturbed = run(conversation, {});
  REQUIRE(undisturbed.totals.go_backs + undisturbed.totals.repeated + undisturbed.totals.held == 0);
  for (std::uint64_t number = 0; number < undisturbed.packets; ++number) {
    for (const Fate fate : {Fate::kDrop, Fate::kCorrupt, Fate::kTruncate, Fate::kDuplicate, Fate::kReorder}) {
      INFO("packet " << number << " of " << undisturbed.packets << " meets " << int{raw(fate)});
      Outcome outcome;
      REQUIRE_NOTHROW(outcome = run(conversation, {{number, fate}}));
      REQUIRE(outcome.totals.timeouts <= 1);
      REQUIRE(outcome.totals.go_backs == outcome.totals.timeouts);  // the last packet, of which nothing tells
      if (outcome.totals.timeouts == 0) REQUIRE(outcome.totals.repeated <= 1);
    }
  }
}

TEST_CASE("two disturbed packets of a conversation are mended by repeating selectively",
          "[sim][selective][T5]") {
  const Conversation conversation = selective(mixed());
  const Fate fate = GENERATE(Fate::kDrop, Fate::kDuplicate, Fate::kReorder);
  const std::uint64_t count = run(conversation, {}).packets;
  for (std::uint64_t first = 0; first < count; ++first) {
    const std::uint64_t more = run(conversation, {{first, Fate::kDrop}}).packets;
    for (std::uint64_t second = first + 1; second < more; ++second) {
      INFO("packet " << first << " is lost, packet " << second << " meets " << int{raw(fate)});
      Outcome outcome;
      REQUIRE_NOTHROW(outcome = run(conversation, {{first, Fate::kDrop}, {second, fate}}));
      REQUIRE(outcome.totals.timeouts <= 2);
    }
  }
}

TEST_CASE("any packet lost while a peer that repeats selectively is not ready is mended",
          "[sim][selective][T5]") {
  const Conversation conversation = selective(unready(20'000));
  const std::uint64_t count = run(conversation, {}).packets;
  for (std::uint64_t first = 0; first < count; ++first) {
    for (const Fate fate : {Fate::kDrop, Fate::kDuplicate, Fate::kReorder}) {
      INFO("packet " << first << " of " << count << " meets " << int{raw(fate)});
      REQUIRE_NOTHROW(run(conversation, {{first, fate}}));
      REQUIRE_NOTHROW(run(conversation, {{first, fate}, {first + 3, Fate::kDrop}}));
    }
  }
}

/// Over several runs. In one of a hundred a READ request and what tells of its loss are lost both, and then
/// the one behind it is asked for again, too, although the peer has it: with seed 64 that is 1.75 of what was
/// lost.
TEST_CASE("at 1 % loss little more is sent again than was lost", "[sim][selective][T30]") {
  const WrOpcode opcode = GENERATE(WrOpcode::kRdmaWrite, WrOpcode::kSend, WrOpcode::kRdmaRead);
  constexpr std::uint32_t kBytes = 1 << 20;
  CAPTURE(raw(opcode));
  Traffic of_all;
  for (const std::uint64_t seed : {1U, 2U, 3U, 17U, 19U}) {
    CAPTURE(seed);
    Conversation conversation;
    for (int i = 0; i < 16; ++i) conversation.add(opcode, kBytes);
    conversation.run_fast(PathMtu::k1024);
    const Traffic all_again = lose_one_percent(conversation, seed);
    conversation.repeat_selectively();
    const Traffic traffic = lose_one_percent(conversation, seed);
    CAPTURE(traffic.lost, traffic.repeated, all_again.lost, all_again.repeated);
    REQUIRE(traffic.lost > 100 * 1024);
    CHECK(traffic.repeated >= traffic.lost);
    CHECK(all_again.repeated > 5 * traffic.repeated);
    of_all.lost += traffic.lost;
    of_all.repeated += traffic.repeated;
  }
  CHECK(of_all.repeated <= of_all.lost * 11 / 10);
}
