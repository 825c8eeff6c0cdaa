#include "sim/multicast_world.h"

#include <algorithm>

#include "transport/address_handles.h"
#include "uroce/ah_attr.h"

namespace uroce::sim {

namespace {

constexpr std::uint32_t kPd = 3;
constexpr std::uint64_t kStartNs = 1'000'000'000;
constexpr std::uint64_t kStepNs = 250;  // an iteration that found work takes up to this long
constexpr std::size_t kSlots = 8;       // receives of a QP
constexpr std::uint32_t kMostUnsent = 8;
constexpr std::uint32_t kQkey = 0x1111'1111;
constexpr std::uint64_t kSettleNs = 2'000'000;

/// What must never happen, whatever the network does.
constexpr Count kNever[] = {Count::kDropUnknownQpn,
                            Count::kDropWrongTransport,
                            Count::kDropQpState,
                            Count::kDropWrongAddress,
                            Count::kDropWrongVlan,
                            Count::kDropWrongGidType,
                            Count::kDropReceiveTooSmall,
                            Count::kDropGroupToUnicastQpn,
                            Count::kDropUnicastToGroupQpn,
                            Count::kRequesterLocalErrors,
                            Count::kRequesterUnresolved,
                            Count::kCqOverflows,
                            Count::kFlushed};

AhId handle_to(std::size_t group) noexcept {
  return AhId{std::uint64_t{1} << 32 | group};
}

Plan make_setting(std::uint64_t seed) {
  Dice dice(seed);
  Plan plan;
  plan.seed = seed;
  draw_setting(plan, dice);
  return plan;
}

}  // namespace

MulticastWorld::MulticastWorld(std::uint64_t seed, std::size_t messages)
    : setting_(make_setting(seed)),
      random_(seed + 78),
      net_(setting_.net, static_cast<unsigned>(setting_.endpoints.size()), seed),
      shown_(setting_.endpoints.size()),
      local_(setting_.endpoints.size()),
      tallies_(setting_.endpoints.size()) {
  Dice dice(seed + 79);
  const bool is_v4 = setting_.endpoints[0].gid.is_v4();
  for (std::size_t i = 0; i < kGroups; ++i) {
    const auto number = static_cast<std::uint8_t>(i + 1);
    groups_[i] = is_v4 ? Gid::from_v4({239, 1, 2, number})
                       : Gid{{0xff, 0x1e, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, number}};
  }
  draw_members(dice, messages);
  for (unsigned at = 0; at < setting_.endpoints.size(); ++at) {
    endpoints_.push_back(std::make_unique<Endpoint>(setting_, at, net_));
    for (std::size_t i = 0; i < kGroups; ++i) {
      endpoints_[at]->loop.add_handle(handle_to(i), kPd, {.dgid = groups_[i], .sl = setting_.link.sl}, now());
    }
  }
  for (const auto& member : members_) open(*member);
  watch();
}

void MulticastWorld::draw_members(Dice& dice, std::size_t messages) {
  const std::uint32_t mtu = bytes(setting_.mtu);
  const std::uint32_t first_qpn = static_cast<std::uint32_t>(dice.between(2, 1000));
  for (unsigned at = 0; at < setting_.endpoints.size(); ++at) {
    EndpointPlan& memory = setting_.endpoints[at];
    for (std::uint64_t i = 0, count = dice.between(1, 5); i < count; ++i) {
      auto member = std::make_unique<Member>();
      member->at = at;
      member->qpn = Qpn{first_qpn + static_cast<std::uint32_t>(i)};
      member->first_psn = dice.psn();
      member->qkey = dice.chance(80) ? kQkey : kQkey + 1;
      member->blocks_own = dice.chance(30);
      member->pause_ns = dice.upto(20'000);
      for (std::size_t slot = 0; slot < kSlots; ++slot) {
        member->slots_at.push_back(memory.inbox.reserve(kGrhBytes + mtu, dice.random()));
        member->free.push_back(slot);
      }
      members_.push_back(std::move(member));
    }
  }
  for (std::size_t i = 0; i < messages; ++i) {
    Member& from = *members_[dice.upto(members_.size() - 1)];
    const auto length = static_cast<std::uint32_t>(dice.upto(dice.chance(50) ? 64 : mtu));
    from.datagrams.push_back(
        {.group = dice.upto(kGroups - 1),
         .length = length,
         .qkey = dice.chance(90) ? kQkey : kQkey + 1,
         .seed = dice.random().next(),
         .source_at = setting_.endpoints[from.at].source.reserve(length, dice.random())});
  }
}

void MulticastWorld::open(Member& member) {
  Endpoint& endpoint = *endpoints_[member.at];
  const QpInitAttr init{.type = QpType::kUd,
                        .max_send_wr = kMostUnsent,
                        .max_recv_wr = kSlots,
                        .sq_sig_all = true,
                        .block_own_multicast = member.blocks_own};
  member.qp = std::make_unique<transport::UdQp>(member.qpn, kPd, init, endpoint.keys,
                                                endpoint.loop.counters(), endpoint.send_cq, endpoint.recv_cq);
  endpoint.loop.add(*member.qp);
  QpAttr attr{.sq_psn = member.first_psn, .qkey = member.qkey};
  for (const auto& [state, mask] : {std::pair{QpState::kInit, qp_attr::kUdInitMask},
                                    {QpState::kRtr, qp_attr::kState},
                                    {QpState::kRts, qp_attr::kUnreliableRtsMask}}) {
    attr.state = state;
    const Status moved =
        endpoint.loop.modify(*member.qp, attr, mask, {.active_mtu = setting_.mtu, .gid_count = 2}, now());
    require(moved.has_value(), moved ? "" : moved.error().text);
  }
  for (std::size_t group = 0; group < kGroups; ++group) {
    if (random_.below(2) == 0) change_group(member, group);
  }
}

Ticks MulticastWorld::now() const noexcept {
  return Ticks{kStartNs + now_ns_};
}

/// Ports may not throw: what does not hold is kept for the end of the step.
void MulticastWorld::watch() {
  const auto keep = [this](const auto& look) {
    try {
      look();
    } catch (const Violation& violation) {
      if (broken_promise_.empty()) broken_promise_ = violation.what();
    }
  };
  net_.add_observer([this, keep](unsigned from, const wire::PacketView& packet) {
    keep([&] {
      require(wire::icrc_ok(packet), "a packet left with a bad ICRC");
      require(setting_.link.fits(packet), "a packet in a frame of another VLAN, priority or version");
      const Frame frame = frame_of(packet);
      const Member& sender = *members_[frame.from];
      require(sender.at == from, "a datagram in the name of another device");
      if (has_member(from, sender.datagrams[frame.datagram].group)) local_[from].push_back(frame);
    });
  });
  net_.set_arrival_observer([this, keep](unsigned at, const wire::PacketView& packet) {
    keep([&] { shown_[at].push_back(frame_of(packet)); });
  });
}

MulticastWorld::Frame MulticastWorld::frame_of(const wire::PacketView& packet) const {
  const auto sender = std::find_if(members_.begin(), members_.end(), [&](const auto& member) {
    return member->qpn == packet.deth().src_qpn && setting_.endpoints[member->at].gid == packet.src_gid();
  });
  require(sender != members_.end(), "a datagram from nobody");
  const auto number = span_from(packet.bth.psn, (*sender)->first_psn);
  require(number < (*sender)->datagrams.size(), "a datagram that was never sent");
  const Datagram& datagram = (*sender)->datagrams[number];
  require(packet.bth.dest_qpn == Qpn{0xff'ffff} && packet.dst_gid() == groups_[datagram.group] &&
              packet.deth().qkey == datagram.qkey,
          "a datagram to another group, QP or Q_Key");
  return {static_cast<std::size_t>(sender - members_.begin()), number};
}

bool MulticastWorld::has_member(unsigned at, std::size_t group) const {
  return std::any_of(members_.begin(), members_.end(),
                     [&](const auto& member) { return member->at == at && member->groups[group]; });
}

/// Foretells what a datagram completes.
void MulticastWorld::deliver(unsigned at, const Frame& frame) {
  const Member& sender = *members_[frame.from];
  const Datagram& datagram = sender.datagrams[frame.datagram];
  Tally& tally = tallies_[at];
  if (!has_member(at, datagram.group)) {
    ++tally.no_member;
    return;
  }
  for (const auto& member : members_) {
    if (member->at != at || !member->groups[datagram.group]) continue;
    if (member.get() == &sender && member->blocks_own) {
      ++tally.own;
    } else if (member->qkey != datagram.qkey) {
      ++tally.bad_qkeys;
    } else if (member->receives.empty()) {
      ++tally.no_receive;
    } else {
      ++tally.copies;
      member->expected.push_back({frame.from, frame.datagram, member->receives.front()});
      member->receives.pop_front();
    }
  }
}

void MulticastWorld::run() {
  const std::uint64_t limit_ns = 1'000'000'000;
  while (!is_done()) {
    require(now_ns_ <= limit_ns, "no end in sight");
    if (!step()) jump();
  }
  const std::uint64_t done_ns = now_ns_;
  while (now_ns_ < done_ns + kSettleNs) {
    if (!step()) jump();
  }
  check_end();
}

bool MulticastWorld::is_done() const {
  return std::all_of(members_.begin(), members_.end(),
                     [](const auto& member) { return member->completed == member->datagrams.size(); });
}

bool MulticastWorld::step() {
  bool worked = false;
  for (unsigned at = 0; at < endpoints_.size(); ++at) worked = run_endpoint(at) || worked;
  if (worked) {
    now_ns_ += 1 + random_.below(kStepNs);
    net_.advance_to(now_ns_);
  }
  return worked;
}

/// Moves the clock to the next thing that will happen.
void MulticastWorld::jump() {
  std::uint64_t next = now_ns_ + 10'000;
  for (unsigned at = 0; at < endpoints_.size(); ++at) {
    const auto arrival = net_.next_arrival_ns(at);
    if (arrival) next = std::min(next, std::max(*arrival, endpoints_[at]->stalled_until_ns));
  }
  now_ns_ = std::max(now_ns_ + 1, next);
  net_.advance_to(now_ns_);
}

bool MulticastWorld::run_endpoint(unsigned at) {
  Endpoint& endpoint = *endpoints_[at];
  if (now_ns_ < endpoint.stalled_until_ns) return false;
  if (setting_.stall > 0 && static_cast<double>(random_.below(1000)) < setting_.stall * 1000) {
    endpoint.stalled_until_ns = now_ns_ + random_.below(setting_.stall_ns);
    return true;
  }
  bool worked = endpoint.loop.run_once(now()) > 0;
  require(broken_promise_.empty(), broken_promise_);
  for (const Frame& frame : shown_[at]) deliver(at, frame);
  shown_[at].clear();
  for (unsigned i = 0; i < port::kBurst && !local_[at].empty(); ++i) {
    deliver(at, local_[at].front());
    local_[at].pop_front();
  }
  take_completions(endpoint, at);
  end_burst(at);
  for (const auto& member : members_) {
    if (member->at != at) continue;
    worked = post(*member) || worked;
    worked = post_receives(*member) || worked;
    if (random_.below(50) == 0) change_group(*member, random_.below(kGroups));
  }
  return worked || endpoint.loop.has_work();
}

void MulticastWorld::take_completions(Endpoint& endpoint, unsigned at) {
  Wc wcs[32];
  for (transport::CqRing* cq : {&endpoint.first_cq, &endpoint.second_cq}) {
    for (std::size_t count = cq->poll(wcs); count > 0; count = cq->poll(wcs)) {
      for (const Wc& wc : std::span(wcs).first(count)) {
        ++endpoint.completions;
        require(wc.ok(), "a work request failed");
        const auto owner = std::find_if(members_.begin(), members_.end(), [&](const auto& member) {
          return member->at == at && member->qpn == wc.qpn;
        });
        require(owner != members_.end(), "a completion of nobody");
        if (wc.opcode == WcOpcode::kRecv) {
          on_receive(**owner, wc);
        } else {
          require(wc.wr_id == (*owner)->completed++, "sends complete out of order");
        }
      }
    }
  }
}

void MulticastWorld::on_receive(Member& member, const Wc& wc) {
  require(!member.expected.empty(), "a datagram was received that did not arrive");
  const Member::Copy copy = member.expected.front();
  member.expected.pop_front();
  const Member& sender = *members_[copy.from];
  const Datagram& datagram = sender.datagrams[copy.datagram];
  const LinkPlan& link = setting_.link;
  require(wc.wr_id == copy.slot && wc.byte_len == kGrhBytes + datagram.length && wc.src_qpn == sender.qpn &&
              wc.flags == wc_flag::kGrh && wc.vlan == link.vlan && wc.sl == (link.vlan == 0 ? 0 : link.sl),
          "a completion does not fit its datagram");
  const bool is_new = member.seen.emplace(copy.from, copy.datagram).second;
  require(is_new || setting_.net.duplicate > 0, "a QP has received a datagram twice");

  Bank& inbox = endpoints_[member.at]->memory.inbox;
  const std::size_t slot_at = member.slots_at[copy.slot];
  const auto header = inbox.bytes(slot_at, kGrhBytes).first<kGrhBytes>();
  const transport::DatagramOrigin origin = transport::origin_of(header);
  require(origin.sender.dgid == setting_.endpoints[sender.at].gid && origin.to == groups_[datagram.group] &&
              origin.type == link.type,
          "a network header with other addresses");
  std::copy(header.begin(), header.end(), inbox.image(slot_at, kGrhBytes).begin());
  fill(inbox.image(slot_at + kGrhBytes, datagram.length), datagram.seed);
  require(inbox.is_right(slot_at, kGrhBytes + bytes(setting_.mtu)), "a datagram with wrong data");
  member.free.push_back(copy.slot);
}

/// Whatever had to complete has.
void MulticastWorld::end_burst(unsigned at) const {
  for (const auto& member : members_) {
    require(member->at != at || member->expected.empty(), "a QP has not received a datagram that arrived");
  }
}

bool MulticastWorld::post(Member& member) {
  if (now_ns_ < member.next_post_ns || member.posted == member.datagrams.size()) return false;
  if (member.posted - member.completed == kMostUnsent) return false;
  const Datagram& datagram = member.datagrams[member.posted];
  Endpoint& endpoint = *endpoints_[member.at];
  Bank& source = endpoint.memory.source;
  std::vector<std::byte> data(datagram.length);
  fill(data, datagram.seed);
  source.store(datagram.source_at, data);
  const Sge sge{source.addr(datagram.source_at), datagram.length, Lkey{source.key()}};
  const SendWr wr{.wr_id = member.posted,
                  .sges = {&sge, 1},
                  .ah = handle_to(datagram.group),
                  .remote_qpn = Qpn{0xff'ffff},
                  .remote_qkey = datagram.qkey};
  if (!member.qp->context().sq.put(wr, 0)) return false;
  member.qp->context().sq.publish(1);
  endpoint.loop.ring(*member.qp);
  ++member.posted;
  member.next_post_ns = now_ns_ + random_.below(member.pause_ns + 1);
  return true;
}

bool MulticastWorld::post_receives(Member& member) {
  if (now_ns_ < member.next_receive_ns || member.free.empty()) return false;
  Bank& inbox = endpoints_[member.at]->memory.inbox;
  transport::RecvQueue& ring = member.qp->context().receives.own;
  const std::uint32_t room = static_cast<std::uint32_t>(kGrhBytes) + bytes(setting_.mtu);
  while (!member.free.empty()) {
    const std::size_t slot = member.free.front();
    const Sge sge{inbox.addr(member.slots_at[slot]), room, Lkey{inbox.key()}};
    require(ring.put({.wr_id = slot, .sges = {&sge, 1}}, 0), "a receive is refused that there is room for");
    ring.publish(1);
    member.receives.push_back(slot);
    member.free.pop_front();
  }
  member.next_receive_ns = now_ns_ + random_.below(member.pause_ns + 1);
  return true;
}

/// Attaches to a group, or detaches.
void MulticastWorld::change_group(Member& member, std::size_t group) {
  engine::PollLoop& loop = endpoints_[member.at]->loop;
  bool& is_in = member.groups[group];
  if (is_in) {
    loop.detach(groups_[group], 0, member.qp.get(), now());
  } else {
    loop.attach(groups_[group], 0, member.qp.get(), now());
  }
  is_in = !is_in;
}

void MulticastWorld::check_end() {
  for (unsigned at = 0; at < endpoints_.size(); ++at) {
    const Counters& counters = endpoints_[at]->loop.counters();
    const Tally& tally = tallies_[at];
    const auto expect = [&](std::string_view what, std::uint64_t is, std::uint64_t should) {
      require(is == should, "endpoint " + std::to_string(at) + ": " + std::string(what) + " is " +
                                std::to_string(is) + ", should be " + std::to_string(should));
    };
    expect("multicast_copies", counters.get(Count::kMulticastCopies), tally.copies + tally.no_receive);
    expect("drop_bad_qkey", counters.get(Count::kDropBadQkey), tally.bad_qkeys);
    expect("drop_no_receive", counters.get(Count::kDropNoReceive), tally.no_receive);
    expect("drop_own_multicast", counters.get(Count::kDropOwnMulticast), tally.own);
    expect("drop_no_group_member", counters.get(Count::kDropNoGroupMember), tally.no_member);
    expect("completions", counters.get(Count::kCompletions), endpoints_[at]->completions);
    expect("tx_roce", counters.get(Count::kTxRoce), net_.tally(at).sent_roce);
    for (const Count never : kNever)
      expect(kCounterNames[static_cast<std::size_t>(never)], counters.get(never), 0);
    EndpointPlan& memory = endpoints_[at]->memory;
    require(memory.source.first_wrong() == memory.source.size(), "memory that is only sent from was written");
    require(memory.inbox.first_wrong() == memory.inbox.size(), "memory of no receive was written");
  }
}

void MulticastWorld::add_to(Totals& totals) const {
  ++totals.schedules;
  totals.virtual_ns += now_ns_;
  for (const auto& member : members_) totals.messages += member->datagrams.size();
  for (unsigned at = 0; at < endpoints_.size(); ++at) {
    add_counters(totals, endpoints_[at]->loop.counters());
    totals.damaged += net_.tally(at).shown_damaged;
    totals.received += tallies_[at].copies;
  }
}

}  // namespace uroce::sim
