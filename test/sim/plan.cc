#include "sim/plan.h"

#include <algorithm>
#include <array>
#include <bit>

#include "uroce/access.h"
#include "uroce/ece.h"
#include "wire/timer_codes.h"

namespace uroce::sim {

namespace {

constexpr std::size_t kMaxSges = 4;
constexpr std::uint32_t kInline = 128;

void draw_network(Plan& plan, Dice& dice) {
  NetConfig& net = plan.net;
  net.delay_ns = dice.between(0, 20) * 500;
  if (dice.chance(50)) net.jitter_ns = dice.between(1, 5000);
  if (dice.chance(30)) net.bandwidth_bps = dice.pick<std::uint64_t>({10, 25, 100}) * 1'000'000'000;
  net.reorder_ns = dice.between(100, 60'000);
  if (dice.chance(85)) {
    net.loss = dice.rate();
    net.duplicate = dice.rate();
    net.reorder = dice.rate();
    net.corrupt = dice.rate();
    net.truncate = dice.rate();
  }
  if (dice.chance(25)) net.no_room = static_cast<double>(dice.between(1, 300)) / 1000;
  plan.mtu = PathMtu{static_cast<std::uint8_t>(dice.between(1, 5))};
  plan.max_unacked = dice.chance(50) ? 256 : static_cast<std::uint32_t>(dice.between(1, 128));
  plan.timeout = static_cast<std::uint8_t>(dice.between(9, 11));
  if (dice.chance(50)) plan.probe_floor_ns = dice.between(5, 200) * 1000;
  if (dice.chance(30)) {
    plan.stall = 0.02;
    plan.stall_ns = dice.between(100, 200'000);
  }
  plan.one_cq = dice.chance(50);
  if (dice.chance(25)) net.mark = dice.rate();
  if (dice.chance(20)) net.spike = 0.01;
  if (dice.chance(15)) {  // shorter than the ack timeout, so that it costs one retry
    const std::uint64_t timeout_ns = wire::ack_timeout_ns(plan.timeout);
    net.flap_ns = dice.upto(timeout_ns / 2);
    net.flap_every_ns = timeout_ns * dice.between(20, 50);
  }
}

/// Drawn apart, so that nothing else in a schedule depends on it.
void draw_link(Plan& plan) {
  Dice dice(plan.seed ^ 0x8915'8100);
  if (dice.chance(33)) plan.link.type = GidType::kRoceV1;
  plan.link.sl = static_cast<std::uint8_t>(dice.upto(7));
  if (dice.chance(40)) plan.link.vlan = static_cast<std::uint16_t>(dice.between(1, 4094));
}

void draw_endpoints(Plan& plan, Dice& dice) {
  const bool v6 = dice.chance(40);
  plan.endpoints.resize(dice.chance(75) ? 2 : dice.between(3, 4));
  for (std::size_t i = 0; i < plan.endpoints.size(); ++i) {
    EndpointPlan& endpoint = plan.endpoints[i];
    const auto number = static_cast<std::uint8_t>(i + 1);
    if (v6) {
      endpoint.gid = Gid{{0xfd, 0x99, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, number}};
    } else {
      endpoint.gid = Gid::from_v4({10, 0, 0, number});
    }
    endpoint.ticket_at = endpoint.remote.reserve_aligned(8);
    endpoint.lock_at = endpoint.remote.reserve_aligned(8);
  }
}

/// Drawn apart, too. Of some connections one end does not know of it.
void draw_congestion(Plan& plan) {
  Dice dice(plan.seed ^ 0xdc'9c40);
  if (!dice.chance(50)) return;
  for (EndpointPlan& endpoint : plan.endpoints) endpoint.controls_rates = dice.chance(90);
  plan.congestion.line_bps = dice.pick<std::uint64_t>({1, 10, 25, 100}) * 1'000'000'000;
  plan.congestion.cnp_gap_ns = dice.between(1, 100) * 1000;
  plan.traffic_class = dice.pick<std::uint8_t>({0, wire::kEct0, 26 << 2 | 1});  // 0: made capable by the loop
  if (plan.net.mark == 0) plan.net.mark = static_cast<double>(dice.between(1, 200)) / 1000;
}

/// Draws everything from one generator, in a fixed order.
class Planner : private Dice {
 public:
  Planner(std::uint64_t seed, std::size_t messages)
      : Dice(seed),
        extras_(seed ^ 0xe87a'5000),
        modes_(seed ^ 0x5e1e'c700),
        joins_(seed ^ 0x101'0ac5),
        messages_(messages) {
    plan_.seed = seed;
  }

  Plan run() {
    draw_setting(plan_, *this);
    draw_flows();
    for (std::size_t i = 0; i < plan_.flows.size(); ++i) draw_messages(plan_.flows[i], i);
    return std::move(plan_);
  }

 private:
  Qpn draw_qpn() {
    for (;;) {
      const auto qpn = static_cast<std::uint32_t>(between(2, 0xff'fffe));
      const bool taken = std::any_of(plan_.flows.begin(), plan_.flows.end(),
                                     [&](const FlowPlan& flow) { return raw(flow.qpn) == qpn; });
      if (!taken) return Qpn{qpn};
    }
  }

  void draw_flows() {
    const std::size_t connections = between(1, 8);
    for (std::size_t i = 0; i < connections; ++i) {
      const auto a = static_cast<unsigned>(random().below(plan_.endpoints.size()));
      const auto b = static_cast<unsigned>((a + 1 + random().below(plan_.endpoints.size() - 1)) %
                                           plan_.endpoints.size());
      plan_.flows.push_back(draw_flow(a, b));
      plan_.flows.push_back(draw_flow(b, a));
      FlowPlan& there = plan_.flows[2 * i];
      FlowPlan& back = plan_.flows[2 * i + 1];
      there.dest_qpn = back.qpn;
      back.dest_qpn = there.qpn;
      there.max_rd_atomic = static_cast<std::uint8_t>(between(1, back.max_dest_rd_atomic));
      back.max_rd_atomic = static_cast<std::uint8_t>(between(1, there.max_dest_rd_atomic));
      draw_credits(there, back);
      if (extras_.chance(40)) there.ece = back.ece = ece::kMaskedAtomics;
      if (joins_.chance(60)) {
        there.ece |= ece::kJointAcks;
        back.ece |= ece::kJointAcks;
      }
      if (modes_.chance(25)) {
        there.ece |= ece::kSelectiveRepeat;
        back.ece |= ece::kSelectiveRepeat;
      }
    }
  }

  /// At both ends, at one, mostly at none.
  void draw_credits(FlowPlan& there, FlowPlan& back) {
    if (!extras_.chance(40)) return;
    there.credits = extras_.chance(80);
    back.credits = !there.credits || extras_.chance(80);
  }

  FlowPlan draw_flow(unsigned from, unsigned to) {
    FlowPlan flow;
    flow.from = from;
    flow.to = to;
    flow.qpn = draw_qpn();
    flow.first_psn = psn();
    flow.init.max_send_wr = static_cast<std::uint32_t>(1U << upto(7));
    flow.init.max_recv_wr = static_cast<std::uint32_t>(1U << upto(7));
    flow.init.max_send_sge = flow.init.max_recv_sge = kMaxSges;
    flow.init.max_inline_data = kInline;
    flow.init.sq_sig_all = chance(30);
    flow.max_dest_rd_atomic = static_cast<std::uint8_t>(between(1, 16));
    flow.min_rnr_timer = static_cast<std::uint8_t>(between(1, 12));
    flow.outstanding = static_cast<std::uint32_t>(between(1, flow.init.max_send_wr));
    flow.receives = static_cast<std::uint32_t>(between(1, 128));
    if (chance(30)) flow.pause_ns = upto(50'000);
    if (chance(40)) flow.receive_pause_ns = upto(400'000);
    flow.word_at = plan_.endpoints[to].remote.reserve_aligned(8);
    return flow;
  }

  std::uint32_t draw_length(std::uint32_t longest) {
    const std::uint32_t mtu = bytes(plan_.mtu);
    const auto dice = random().below(100);
    std::uint64_t length = 0;
    if (dice < 20)
      length = upto(64);
    else if (dice < 45)
      length = upto(mtu);
    else if (dice < 60)
      length = mtu * between(1, 4);
    else if (dice < 92)
      length = upto(8 * mtu);
    else if (dice < 99)
      length = upto(64 * 1024);
    else
      length = upto(256 * 1024);
    return static_cast<std::uint32_t>(std::min<std::uint64_t>(length, longest));
  }

  /// `length` bytes of `bank` in up to kMaxSges pieces, some of them empty.
  std::vector<Piece> draw_pieces(Bank& bank, std::uint32_t length) {
    std::vector<Piece> pieces;
    const std::size_t count = chance(60) ? 1 : between(1, kMaxSges);
    std::uint32_t left = length;
    for (std::size_t i = 0; i < count; ++i) {
      const auto len = i + 1 == count ? left : static_cast<std::uint32_t>(upto(left));
      pieces.push_back({bank.reserve(len, random()), len});
      left -= len;
    }
    return pieces;
  }

  WrOpcode draw_opcode() {
    constexpr WrOpcode kOpcodes[] = {
        WrOpcode::kRdmaWrite,   WrOpcode::kRdmaWriteWithImm, WrOpcode::kSend,
        WrOpcode::kSendWithImm, WrOpcode::kSendWithInv,      WrOpcode::kRdmaRead,
        WrOpcode::kRdmaRead,    WrOpcode::kAtomicCmpAndSwp,  WrOpcode::kAtomicFetchAndAdd,
        WrOpcode::kRdmaWrite,   WrOpcode::kAtomicWrite,      WrOpcode::kFlush,
        WrOpcode::kBindMw,      WrOpcode::kLocalInv};
    return pick(kOpcodes);
  }

  void draw_messages(FlowPlan& flow, std::size_t index) {
    const std::size_t flows = plan_.flows.size();
    const std::size_t count = messages_ / flows + (index < messages_ % flows ? 1 : 0);
    const std::uint32_t longest =
        chance(20) ? 256 * 1024 : pick<std::uint32_t>({64, 4096, 16 * 1024, 64 * 1024});
    const unsigned signaled = pick<unsigned>({5, 50, 100});
    const std::size_t slot_bytes = longest + 100;
    std::vector<std::size_t> slots;
    for (std::size_t i = between(1, 3); i > 0; --i) {
      slots.push_back(plan_.endpoints[flow.to].remote.reserve(slot_bytes, random()));
    }
    std::vector<bool> read_since_fence(slots.size(), false);
    std::uint32_t unsignaled = 0;
    for (std::size_t i = 0; i < count; ++i) {
      Message message = draw_message(flow, longest);
      if (chance(5)) message.flags |= send_flag::kFence;
      const std::size_t slot = random().below(slots.size());
      if (!message.is_send() && !message.is_atomic()) {
        message.remote_at = slots[slot] + upto(slot_bytes - message.length);
        // A READ's answer must not depend on when it is repeated: a later WRITE to the same bytes waits for
        // it.
        if (message.opcode == WrOpcode::kAtomicWrite)
          message.remote_at = (slots[slot] + 7 + upto(64)) & ~std::size_t{7};
        if (!message.is_read() && read_since_fence[slot]) message.flags |= send_flag::kFence;
      }
      if ((message.flags & send_flag::kFence) != 0) read_since_fence.assign(slots.size(), false);
      if (message.is_read()) read_since_fence[slot] = true;
      const bool must = i + 1 == count || ++unsignaled >= flow.outstanding;
      if (must || chance(signaled)) {
        message.flags |= send_flag::kSignaled;
        unsignaled = 0;
      }
      message.swap = (index + 1) << 32 | (i + 1);
      if (message.is_atomic() && (flow.ece & ece::kMaskedAtomics) != 0 && extras_.chance(60)) mask(message);
      flow.messages.push_back(std::move(message));
    }
  }

  /// Words that are shared are used as by plain atomics, which use them too.
  void mask(Message& message) {
    message.opcode = message.is_swap() ? WrOpcode::kMaskedCmpAndSwp : WrOpcode::kMaskedFetchAndAdd;
    if (message.sharing != Sharing::kNone) return;
    const auto bits = [this] {
      const std::uint64_t some = extras_.random().next();
      return extras_.chance(50) ? some & extras_.random().next() & extras_.random().next() : some;
    };
    message.masks = {.compare = bits(), .swap = bits(), .boundary = bits()};
    if (extras_.chance(30)) message.masks.compare = 0;
  }

  Message draw_message(FlowPlan& flow, std::uint32_t longest) {
    EndpointPlan& from = plan_.endpoints[flow.from];
    EndpointPlan& to = plan_.endpoints[flow.to];
    Message message;
    message.opcode = draw_opcode();
    message.seed = random().next();
    message.imm = random().next32();
    if (chance(20)) message.flags |= send_flag::kSolicited;
    if (message.is_atomic()) {
      message.length = 8;
      message.sharing = pick<Sharing>({Sharing::kNone, Sharing::kTicket, Sharing::kLock});
      if (message.sharing == Sharing::kTicket) message.opcode = WrOpcode::kAtomicFetchAndAdd;
      if (message.sharing == Sharing::kLock) message.opcode = WrOpcode::kAtomicCmpAndSwp;
      message.compare_add = message.sharing == Sharing::kTicket ? 1 : random().next();
      message.remote_at = message.sharing == Sharing::kNone     ? flow.word_at
                          : message.sharing == Sharing::kTicket ? to.ticket_at
                                                                : to.lock_at;
    } else {
      message.length = message.opcode == WrOpcode::kAtomicWrite ? 8 : draw_length(longest);
    }
    if (message.is_local()) message.length = 0;
    if (message.is_flush() || message.is_local()) return message;
    const bool reads = message.is_read() || message.is_atomic();
    message.local = draw_pieces(reads ? from.sink : from.source, message.length);
    if (!reads && message.length <= kInline && chance(30)) message.flags |= send_flag::kInline;
    if (message.is_send()) message.receive = draw_pieces(to.inbox, message.length + (chance(50) ? 0 : 20));
    if (message.opcode == WrOpcode::kRdmaWriteWithImm) {
      message.receive = draw_pieces(to.inbox, static_cast<std::uint32_t>(upto(100)));
    }
    return message;
  }

  Dice extras_;  // decides on options, so that schedules are the same with and without
  Dice modes_;
  Dice joins_;
  std::size_t messages_;
  Plan plan_;
};

}  // namespace

void draw_setting(Plan& plan, Dice& dice) {
  draw_network(plan, dice);
  draw_link(plan);
  draw_endpoints(plan, dice);
  draw_congestion(plan);
}

Plan make_plan(std::uint64_t seed, std::size_t messages) {
  return Planner(seed, messages).run();
}

}  // namespace uroce::sim
