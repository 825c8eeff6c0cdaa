/// One connection whose messages a test chooses, for tests that choose what happens to its packets.
#pragma once

#include "sim/world.h"
#include "uroce/ece.h"

namespace uroce::sim {

/// Two endpoints, one connection, a network without chance.
class Conversation {
 public:
  Conversation() {
    plan_.seed = 5;
    plan_.mtu = PathMtu::k256;
    plan_.timeout = 8;  // 1 ms
    plan_.disturbed = true;
    plan_.net.reorder_ns = 3000;
    plan_.endpoints.resize(2);
    for (std::uint8_t i = 0; i < 2; ++i) {
      EndpointPlan& endpoint = plan_.endpoints[i];
      endpoint.gid = Gid::from_v4({10, 0, 0, static_cast<std::uint8_t>(i + 1)});
      endpoint.ticket_at = endpoint.remote.reserve_aligned(8);
      endpoint.lock_at = endpoint.remote.reserve_aligned(8);
    }
    plan_.flows = {flow(0, 1), flow(1, 0)};
  }
  /// With probes. It begins with a READ that all others wait for, so the round trip is known by then; these
  /// are its packets.
  static constexpr std::uint64_t kFirstPackets = 2;
  [[nodiscard]] static Conversation fast() {
    Conversation conversation;
    conversation.plan_.probe_floor_ns = 100'000;
    conversation.plan_.timeout = 12;  // 17 ms
    conversation.add(WrOpcode::kRdmaRead, 8);
    return conversation;
  }

  void add(WrOpcode opcode, std::uint32_t length) {
    EndpointPlan& from = plan_.endpoints[0];
    EndpointPlan& to = plan_.endpoints[1];
    Message message;
    message.opcode = opcode;
    message.flags = send_flag::kSignaled;
    if (plan_.probe_floor_ns != 0 && plan_.flows[0].messages.size() == 1) message.flags |= send_flag::kFence;
    message.length = message.is_atomic() ? 8 : length;
    message.imm = 0x0102'0304;
    message.seed = plan_.flows[0].messages.size();
    message.swap = message.seed + 1000;
    message.compare_add = 3;
    const bool reads = message.is_read() || message.is_atomic();
    message.local = {{(reads ? from.sink : from.source).reserve_aligned(message.length), message.length}};
    message.remote_at = message.is_atomic() ? plan_.flows[0].word_at : to.remote.reserve_aligned(length);
    if (message.takes_receive()) message.receive = {{to.inbox.reserve_aligned(length), length}};
    plan_.flows[0].messages.push_back(std::move(message));
  }

  /// The peer posts one receive at a time, with pauses.
  void receive_late(std::uint64_t pause_ns) {
    plan_.flows[0].receives = 1;
    plan_.flows[0].receive_pause_ns = pause_ns;
  }

  /// Both ends have agreed on it.
  void repeat_selectively() {
    for (FlowPlan& flow : plan_.flows) flow.ece |= ece::kSelectiveRepeat;
  }

  /// Of another size, at the full window, with probes.
  void run_fast(PathMtu mtu) {
    plan_.mtu = mtu;
    plan_.probe_floor_ns = 100'000;
    plan_.timeout = 12;  // 17 ms
    plan_.net.bandwidth_bps = 10'000'000'000;
  }

  /// The next message is posted when the one before has completed.
  void one_at_a_time() { plan_.flows[0].outstanding = 1; }

  [[nodiscard]] const Plan& plan() const noexcept { return plan_; }

 private:
  FlowPlan flow(unsigned from, unsigned to) {
    FlowPlan flow;
    flow.from = from;
    flow.to = to;
    flow.qpn = Qpn{0x10 + from};
    flow.dest_qpn = Qpn{0x10 + to};
    flow.first_psn = Psn{0xff'fffc};  // the wrap comes soon
    flow.max_rd_atomic = flow.max_dest_rd_atomic = 4;
    flow.outstanding = 32;
    flow.receives = 32;
    flow.word_at = plan_.endpoints[to].remote.reserve_aligned(8);
    return flow;
  }

  Plan plan_;
};

constexpr std::uint32_t kConversationMtu = 256;  // path MTU, unless it runs fast

/// One message of so many packets, the last of them not full.
inline Conversation one_message(WrOpcode opcode, std::uint32_t packets, Conversation conversation = {}) {
  conversation.add(opcode, packets * kConversationMtu - 3);
  return conversation;
}

/// A few of all kinds.
inline Conversation mixed(Conversation conversation = {}) {
  conversation.add(WrOpcode::kSend, 3 * kConversationMtu);
  conversation.add(WrOpcode::kRdmaRead, 3 * kConversationMtu - 1);
  conversation.add(WrOpcode::kAtomicFetchAndAdd, 8);
  conversation.add(WrOpcode::kRdmaWriteWithImm, 2 * kConversationMtu);
  conversation.add(WrOpcode::kAtomicCmpAndSwp, 8);
  conversation.add(WrOpcode::kSendWithInv, 10);
  conversation.add(WrOpcode::kRdmaRead, 5);
  return conversation;
}

/// SENDs, WRITEs with immediate data and READs by turns to a peer that posts one receive at a time, with
/// pauses.
inline Conversation unready(std::uint64_t pause_ns) {
  Conversation conversation;
  for (int i = 0; i < 6; ++i) {
    conversation.add(i % 2 == 0 ? WrOpcode::kSend : WrOpcode::kRdmaWriteWithImm, 2 * kConversationMtu);
    conversation.add(WrOpcode::kRdmaRead, kConversationMtu);
  }
  conversation.receive_late(pause_ns);
  return conversation;
}

}  // namespace uroce::sim
