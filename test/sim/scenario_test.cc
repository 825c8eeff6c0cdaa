// Fixed scenarios at length: atomics of many QPs at one word, and PSNs at the wrap.
#include <catch2/catch.hpp>

#include "sim/world.h"
#include "uroce/ece.h"

using namespace uroce;
using namespace uroce::sim;

namespace {

constexpr std::size_t kAtomics = 100'000;

/// All QPs repeat selectively.
Plan selective(Plan plan) {
  for (FlowPlan& flow : plan.flows) flow.ece |= ece::kSelectiveRepeat;
  return plan;
}

/// Clients that use one word of endpoint 0, over a network with 5 % loss and 5 % duplication both ways.
class Clients {
 public:
  Clients(unsigned endpoints, unsigned qps_each, std::size_t messages, Sharing sharing) {
    plan_.seed = 11;
    plan_.mtu = PathMtu::k1024;
    plan_.timeout = 5;  // 131 us
    plan_.net.loss = plan_.net.duplicate = 0.05;
    plan_.net.jitter_ns = 2000;
    plan_.endpoints.resize(1 + endpoints);
    for (std::size_t i = 0; i < plan_.endpoints.size(); ++i) {
      EndpointPlan& endpoint = plan_.endpoints[i];
      endpoint.gid = Gid::from_v4({10, 0, 0, static_cast<std::uint8_t>(i + 1)});
      endpoint.ticket_at = endpoint.remote.reserve_aligned(8);
      endpoint.lock_at = endpoint.remote.reserve_aligned(8);
    }
    const std::size_t qps = std::size_t{endpoints} * qps_each;
    for (unsigned client = 1; client <= endpoints; ++client) {
      for (unsigned i = 0; i < qps_each; ++i) connect(client, messages / qps, sharing);
    }
  }

  [[nodiscard]] const Plan& plan() const noexcept { return plan_; }

 private:
  void connect(unsigned client, std::size_t messages, Sharing sharing) {
    const auto number = static_cast<std::uint32_t>(plan_.flows.size());
    FlowPlan there = flow(client, 0, number);
    FlowPlan back = flow(0, client, number + 1);
    there.dest_qpn = back.qpn;
    back.dest_qpn = there.qpn;
    there.outstanding = 16;
    EndpointPlan& to = plan_.endpoints[0];
    for (std::size_t i = 0; i < messages; ++i) {
      Message message;
      const bool adds = sharing == Sharing::kTicket;
      message.opcode = adds ? WrOpcode::kAtomicFetchAndAdd : WrOpcode::kAtomicCmpAndSwp;
      message.flags = send_flag::kSignaled;
      message.length = 8;
      message.local = {{plan_.endpoints[client].sink.reserve_aligned(8), 8}};
      message.remote_at = adds ? to.ticket_at : to.lock_at;
      message.compare_add = 1;
      message.swap = std::uint64_t{number + 1} << 32 | (i + 1);
      message.sharing = sharing;
      there.messages.push_back(std::move(message));
    }
    plan_.flows.push_back(std::move(there));
    plan_.flows.push_back(std::move(back));
  }

  static FlowPlan flow(unsigned from, unsigned to, std::uint32_t number) {
    FlowPlan flow;
    flow.from = from;
    flow.to = to;
    flow.qpn = Qpn{0x100 + number};
    flow.first_psn = Psn{0xff'ff00 + number};
    flow.max_rd_atomic = flow.max_dest_rd_atomic = 16;
    return flow;
  }

  Plan plan_;
};

Totals run(const Plan& plan, World& world) {
  INFO("seed " << plan.seed);
  REQUIRE_NOTHROW(world.run());
  Totals totals;
  world.add_to(totals);
  const bool is_selective = (plan.flows[0].ece & ece::kSelectiveRepeat) != 0;
  CHECK((is_selective ? totals.repeated : totals.go_backs) > plan.messages() / 100);  // the faults were there
  CHECK((totals.held > 0) == is_selective);
  CHECK(totals.replays > plan.messages() / 100);
  return totals;
}

}  // namespace

TEST_CASE("additions by 8 QPs take effect exactly once at 5 % loss and duplication both ways",
          "[sim][atomic][T2][T30]") {
  const bool is_selective = GENERATE(false, true);
  const Clients clients(4, 2, kAtomics, Sharing::kTicket);
  const Plan plan = is_selective ? selective(clients.plan()) : clients.plan();
  World world(plan);
  run(plan, world);
  // The world has checked that no original value came twice, that none is missing and what the word holds.
  CHECK(world.endpoint(0).tickets.size() == kAtomics);
  CHECK(world.endpoint(0).loop.counters().get(Count::kResponderMessages) == kAtomics);
}

TEST_CASE("swaps by 16 QPs have a linear history at 5 % loss and duplication both ways",
          "[sim][atomic][T3]") {
  const Clients clients(4, 4, kAtomics, Sharing::kLock);
  World world(clients.plan());
  run(clients.plan(), world);  // checks the history
  const auto& swaps = world.endpoint(0).lock_swaps;
  CHECK(swaps.size() == kAtomics);
  std::size_t done = 0;
  for (const auto& swap : swaps) done += swap.original == swap.compare ? 1 : 0;
  CHECK(done > kAtomics / 100);
  CHECK(done < kAtomics);
}

namespace {

/// SENDs to an application that posts its few receives slowly.
Plan slow_receiver(bool credits) {
  Plan plan;
  plan.seed = 5;
  plan.net.delay_ns = 1000;
  plan.timeout = 14;
  plan.endpoints.resize(2);
  for (unsigned i = 0; i < 2; ++i) {
    EndpointPlan& endpoint = plan.endpoints[i];
    endpoint.gid = Gid::from_v4({10, 0, 0, static_cast<std::uint8_t>(i + 1)});
    endpoint.ticket_at = endpoint.remote.reserve_aligned(8);
    endpoint.lock_at = endpoint.remote.reserve_aligned(8);
    FlowPlan flow;
    flow.from = i;
    flow.to = 1 - i;
    flow.qpn = Qpn{0x100 + i};
    flow.dest_qpn = Qpn{0x101 - i};
    flow.credits = credits;
    plan.flows.push_back(flow);
  }
  FlowPlan& flow = plan.flows[0];
  flow.outstanding = 32;
  flow.receives = 4;
  flow.receive_pause_ns = 50'000;
  for (int i = 0; i < 5000; ++i) {
    Message message;
    message.opcode = WrOpcode::kSend;
    message.flags = send_flag::kSignaled;
    message.length = 8;
    message.local = {{plan.endpoints[0].source.reserve_aligned(8), 8}};
    message.receive = {{plan.endpoints[1].inbox.reserve_aligned(8), 8}};
    flow.messages.push_back(std::move(message));
  }
  return plan;
}

}  // namespace

TEST_CASE("a slow receiver causes RNR NAKs, and none with credits", "[sim][credits]") {
  const bool credits = GENERATE(false, true);
  const std::uint64_t probe_ns = GENERATE(0U, 20'000U);  // shorter than the receiver's pauses
  Plan plan = slow_receiver(credits);
  plan.probe_floor_ns = probe_ns;
  World world(plan);
  REQUIRE_NOTHROW(world.run());
  Totals totals;
  world.add_to(totals);
  CHECK((totals.rnr_naks == 0) == credits);
  CHECK((totals.credit_updates > 1000) == credits);
  CHECK((totals.credit_questions > 100) == (credits && probe_ns != 0));
  CHECK(totals.limited == (credits ? 1 : 0));  // the first
  CHECK(totals.timeouts == 0);
}

TEST_CASE("credits end and come again under losses of any ACK", "[sim][credits]") {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    Plan plan = slow_receiver(true);
    plan.seed = seed;
    plan.timeout = 8;
    plan.net.loss = 0.1;
    if (seed % 2 == 0) plan.probe_floor_ns = 20'000;
    plan.flows[0].messages.resize(1000);
    INFO("seed " << seed);
    World world(plan);
    REQUIRE_NOTHROW(world.run());
    Totals totals;
    world.add_to(totals);
    CHECK(totals.credit_updates > 100);
    CHECK((seed % 2 == 0 ? totals.credit_questions : totals.limited - 1) > 0);
  }
}

TEST_CASE("all kinds of messages survive losses at the PSN wrap of both directions", "[sim][wrap][T6][T30]") {
  const bool is_selective = GENERATE(false, true);
  constexpr std::uint32_t kNear = 16;  // PSNs before the wrap, for send and receive queue each
  constexpr std::size_t kMessages = 60;
  std::size_t wrapped = 0;
  std::size_t flows = 0;
  for (std::uint32_t start = 0; start < 2 * kNear * kNear; ++start) {
    Plan plan = make_plan(10'000 + start, kMessages);
    if (plan.net.loss == 0) plan.net.loss = 0.05;
    if (is_selective) plan = selective(std::move(plan));
    for (std::size_t i = 0; i < plan.flows.size(); ++i) {
      plan.flows[i].first_psn = Psn{0xff'fff0 + (i % 2 == 0 ? start % kNear : start / kNear % kNear)};
    }
    INFO("seed " << plan.seed << (is_selective ? ", selective" : ""));
    World world(plan);
    REQUIRE_NOTHROW(world.run());
    for (std::size_t i = 0; i < plan.flows.size(); ++i) {
      ++flows;
      wrapped += before(plan.flows[i].first_psn, Psn{0}) &&
                         !before(world.flow(i).qp().requester().next_psn(), Psn{0})
                     ? 1
                     : 0;
    }
  }
  CHECK(wrapped > flows / 2);
}
