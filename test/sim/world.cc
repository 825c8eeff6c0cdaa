#include "sim/world.h"

#include <algorithm>

#include "uroce/ece.h"
#include "wire/timer_codes.h"

namespace uroce::sim {

namespace {

constexpr std::uint64_t kStartNs = 1'000'000'000;
constexpr std::uint64_t kStepNs = 250;         // an iteration that found work takes up to this long
constexpr std::uint64_t kWheelSlackNs = 8192;  // a timer may fire that much later

/// Everything that a loop may throw away for being damaged.
constexpr Count kDrops[] = {Count::kDropTooShort, Count::kDropNotRoce,       Count::kDropMalformed,
                            Count::kDropFragment, Count::kDropUnknownOpcode, Count::kDropBadVersion,
                            Count::kDropBadIcrc};
/// What must never happen, whatever the network does.
constexpr Count kNever[] = {Count::kDropBadPkey,
                            Count::kDropUnknownQpn,
                            Count::kDropWrongTransport,
                            Count::kDropQpState,
                            Count::kDropWrongAddress,
                            Count::kDropWrongVlan,
                            Count::kDropWrongGidType,
                            Count::kDropHandOverFull,
                            Count::kRequesterFatalNaks,
                            Count::kRequesterRetryExceeded,
                            Count::kRequesterLocalErrors,
                            Count::kRequesterRnrRetryExceeded,
                            Count::kResponderFatalNaks,
                            Count::kCqOverflows,
                            Count::kFlushed};

}  // namespace

World::World(const Plan& plan)
    : plan_(plan),
      random_(plan.seed + 77),
      net_(plan.net, static_cast<unsigned>(plan.endpoints.size()), plan.seed) {
  for (unsigned i = 0; i < plan.endpoints.size(); ++i) {
    endpoints_.push_back(std::make_unique<Endpoint>(plan, i, net_));
  }
  for (const FlowPlan& flow : plan.flows) {
    Endpoint& from = *endpoints_[flow.from];
    qps_.push_back(std::make_unique<transport::RcQp>(flow.qpn, 3, flow.init, from.keys, from.loop.counters(),
                                                     from.send_cq, from.recv_cq));
    from.loop.add(*qps_.back());
    flow_of_qpn_[raw(flow.qpn)] = rules_.size();
    rules_.emplace_back(flow.first_psn, bytes(plan.mtu), plan.max_unacked,
                        (flow.ece & ece::kSelectiveRepeat) != 0);
  }
  for (std::size_t i = 0; i < plan.flows.size(); ++i) {
    const FlowPlan& flow = plan.flows[i];
    flows_.push_back(
        std::make_unique<Flow>(flow, *endpoints_[flow.from], *endpoints_[flow.to], *qps_[i], *qps_[i ^ 1]));
    connect(flow, plan.flows[i ^ 1], *qps_[i]);
  }
  watch();
}

Ticks World::now() const noexcept {
  return Ticks{kStartNs + now_ns_};
}
std::uint64_t World::timeout_ns() const noexcept {
  return wire::ack_timeout_ns(plan_.timeout);
}

void World::connect(const FlowPlan& flow, const FlowPlan& back, transport::RcQp& qp) {
  QpAttr attr{.path_mtu = plan_.mtu,
              .dest_qpn = flow.dest_qpn,
              .rq_psn = back.first_psn,
              .sq_psn = flow.first_psn,
              .access_flags = kRemoteRights,
              .dgid = plan_.endpoints[flow.to].gid,
              .traffic_class = plan_.traffic_class,
              .sl = plan_.link.sl,
              .max_rd_atomic = flow.max_rd_atomic,
              .max_dest_rd_atomic = flow.max_dest_rd_atomic,
              .min_rnr_timer = flow.min_rnr_timer,
              .timeout = plan_.timeout};
  const transport::QpBounds bounds{.gid_count = 2,
                                   .max_unacked = plan_.max_unacked,
                                   .probe_floor_ns = plan_.probe_floor_ns,
                                   .credits = flow.credits,
                                   .congestion = plan_.congestion_at(flow.from)};
  qp.grant(flow.ece);
  for (const auto& [state, mask] : {std::pair{QpState::kInit, qp_attr::kInitMask},
                                    {QpState::kRtr, qp_attr::kRtrMask},
                                    {QpState::kRts, qp_attr::kRtsMask}}) {
    attr.state = state;
    const Status moved = endpoints_[flow.from]->loop.modify(qp, attr, mask, bounds, now());
    require(moved.has_value(), moved ? "" : moved.error().text);
  }
}

/// Ports may not throw: what the rules object to is kept for the next step.
void World::watch() {
  net_.add_observer([this](unsigned, const wire::PacketView& packet) {
    try {
      judge(packet);
    } catch (const Violation& violation) {
      if (broken_rule_.empty()) broken_rule_ = violation.what();
    }
  });
}

void World::judge(const wire::PacketView& packet) {
  require(wire::icrc_ok(packet), "a packet left with a bad ICRC");
  require(plan_.link.fits(packet), "a packet in a frame of another VLAN, priority or version");
  if (!packet.op->is_joint_ack()) return judge_alone(packet);
  require(packet.joint_acks() > 1, "a joint ACK that is none");
  wire::PacketView ack = packet.first_of_joint_acks();
  for (std::size_t i = 0; i < packet.joint_acks(); ++i) {
    if (i > 0) packet.show_joint_ack(i, ack);
    judge_alone(ack);
    const std::size_t flow = flow_of_qpn_.at(raw(ack.bth.dest_qpn));
    require((plan_.flows[flow].ece & ece::kJointAcks) != 0, "a joint ACK to who cannot read it");
  }
}

void World::judge_alone(const wire::PacketView& packet) {
  const auto qp = flow_of_qpn_.find(raw(packet.bth.dest_qpn));
  require(qp != flow_of_qpn_.end(), "a packet to nobody");
  if (packet.op->transport == wire::Transport::kCnp) return judge_cnp(qp->second, packet);
  if (packet.op->is_response) {
    rules_[qp->second].on_response(packet);  // it answers what this QP asked
  } else {
    rules_[qp->second ^ 1].on_request(packet);
  }
}

/// @param flow  that it asks to slow down
void World::judge_cnp(std::size_t flow, const wire::PacketView& packet) {
  require(plan_.endpoints[plan_.flows[flow].to].controls_rates, "a CNP from who does not look for marks");
  rules_[flow].on_cnp(packet, net_.now_ns(), plan_.congestion.cnp_gap_ns);
}

bool World::is_done() const {
  return std::all_of(flows_.begin(), flows_.end(), [](const auto& flow) { return flow->is_done(); });
}

/// Each message may need some timeouts and RNR waits; what takes longer hangs.
std::uint64_t World::limit_ns() const {
  return 100'000'000 + plan_.messages() * 8 * (timeout_ns() + 1'000'000);
}

void World::run() {
  while (!is_done()) {
    if (now_ns_ > limit_ns()) {
      std::string text = "no end in sight:";
      for (const auto& flow : flows_) text += "\n  " + flow->progress(now());
      throw Violation(text);
    }
    if (!step()) jump();
  }
  done_ns_ = now_ns_;
  while (now_ns_ < done_ns_ + 3 * timeout_ns()) {
    if (!step()) jump();
  }
  check_memory();
  for (unsigned i = 0; i < endpoints_.size(); ++i) {
    check_atomics(i);
    check_counters(i);
  }
}

bool World::step() {
  bool worked = false;
  for (unsigned i = 0; i < endpoints_.size(); ++i) worked = run_endpoint(i) || worked;
  require(broken_rule_.empty(), broken_rule_);
  if (worked) {
    now_ns_ += 1 + random_.below(kStepNs);
    net_.advance_to(now_ns_);
  }
  return worked;
}

bool World::run_endpoint(unsigned index) {
  Endpoint& endpoint = *endpoints_[index];
  endpoint.now_ns = now_ns_;
  if (now_ns_ < endpoint.stalled_until_ns) return false;
  if (plan_.stall > 0 && static_cast<double>(random_.below(1000)) < plan_.stall * 1000) {
    endpoint.stalled_until_ns = now_ns_ + random_.below(plan_.stall_ns);
    return true;
  }
  bool worked = endpoint.loop.run_once(now()) > 0;
  take_completions(endpoint);
  for (const auto& flow : flows_) {
    if (flow->plan().from == index) worked = flow->post_sends(now_ns_, random_) || worked;
    if (flow->plan().to == index) worked = flow->post_receives(now_ns_, random_) || worked;
  }
  return worked || endpoint.loop.has_work();
}

void World::take_completions(Endpoint& endpoint) {
  Wc wcs[32];
  for (transport::CqRing* cq : {&endpoint.first_cq, &endpoint.second_cq}) {
    for (std::size_t count = cq->poll(wcs); count > 0; count = cq->poll(wcs)) {
      for (const Wc& wc : std::span(wcs).first(count)) {
        const std::size_t flow = flow_of_qpn_.at(raw(wc.qpn));
        const bool is_receive = raw(wc.opcode) >= raw(WcOpcode::kRecv);
        require(cq == (is_receive ? &endpoint.recv_cq : &endpoint.send_cq), "a completion in the wrong CQ");
        is_receive ? flows_[flow ^ 1]->on_receive_completion(wc) : flows_[flow]->on_send_completion(wc);
      }
    }
  }
  engine::LoopEvent event;
  while (endpoint.loop.next_event(event)) {
    require(event.type == AsyncEventType::kCommEst, "event " + std::to_string(raw(event.type)));
  }
}

/// Moves the clock to the next thing that will happen.
void World::jump() {
  std::uint64_t next = now_ns_ + timeout_ns();
  const auto wake = [&](unsigned index, std::uint64_t time_ns) {
    next = std::min(next, std::max(time_ns, endpoints_[index]->stalled_until_ns));
  };
  for (unsigned i = 0; i < endpoints_.size(); ++i) {
    if (const auto arrival = net_.next_arrival_ns(i)) wake(i, *arrival);
    if (const Ticks due = endpoints_[i]->loop.deadline(now()); due.is_set()) wake(i, due.ns() - kStartNs);
  }
  for (std::size_t i = 0; i < flows_.size(); ++i) {
    const FlowPlan& flow = plan_.flows[i];
    if (const Ticks due = qps_[i]->deadline(); due.is_set()) {
      wake(flow.from, std::max(due.ns() - std::min(due.ns(), kStartNs), now_ns_) + kWheelSlackNs);
    }
    if (const std::uint64_t time = flows_[i]->next_send_ns(); time > now_ns_) wake(flow.from, time);
    if (const std::uint64_t time = flows_[i]->next_receive_ns(); time > now_ns_) wake(flow.to, time);
  }
  now_ns_ = std::max(now_ns_ + 1, next);
  net_.advance_to(now_ns_);
}

void World::check_memory() {
  for (unsigned i = 0; i < endpoints_.size(); ++i) {
    EndpointPlan& memory = endpoints_[i]->memory;
    for (const std::size_t word : {memory.ticket_at, memory.lock_at}) {  // checked apart
      const auto bytes = memory.remote.bytes(word, 8);
      std::copy(bytes.begin(), bytes.end(), memory.remote.image(word, 8).begin());
    }
    const std::pair<const char*, Bank*> banks[] = {{"source", &memory.source},
                                                   {"sink", &memory.sink},
                                                   {"inbox", &memory.inbox},
                                                   {"remote", &memory.remote}};
    for (const auto& [name, bank] : banks) {
      const std::size_t wrong = bank->first_wrong();
      require(wrong == bank->size(), "endpoint " + std::to_string(i) + ": byte " + std::to_string(wrong) +
                                         " of " + std::to_string(bank->size()) + " in " + name +
                                         " is not as it should be");
    }
  }
}

/// Additions to the ticket word gave each number once; swaps of the lock word have a history.
void World::check_atomics(unsigned index) {
  Endpoint& endpoint = *endpoints_[index];
  const auto word = [&](std::size_t at) {
    std::uint64_t value = 0;
    std::memcpy(&value, endpoint.memory.remote.bytes(at, 8).data(), 8);
    return value;
  };
  require(word(endpoint.memory.ticket_at) == endpoint.tickets.size(),
          "the ticket counter is not the number of draws");
  if (!endpoint.tickets.empty()) {
    require(*endpoint.tickets.rbegin() == endpoint.tickets.size() - 1, "a ticket was skipped");
  }
  check_swaps(endpoint, word(endpoint.memory.lock_at));
}

/// Successful swaps form one chain, and the place in it of what each swap saw agrees with the order of time:
/// a history that some serial order explains. `word` is what the last swap left.
void World::check_swaps(Endpoint& endpoint, std::uint64_t word) {
  std::unordered_map<std::uint64_t, std::uint64_t> next;  // value of the word -> the one that replaced it
  for (const auto& swap : endpoint.lock_swaps) {
    if (swap.original != swap.compare) continue;
    require(next.emplace(swap.compare, swap.swap).second,
            "two swaps replaced the same value of the lock word");
  }
  std::unordered_map<std::uint64_t, std::uint64_t> place{{0, 0}};  // of a value in the chain
  std::uint64_t value = 0;
  for (auto at = next.find(value); at != next.end(); at = next.find(value)) {
    value = at->second;
    require(place.emplace(value, place.size()).second, "the lock word went in a circle");
  }
  require(place.size() == next.size() + 1, "swaps of the lock word do not form one chain");
  require(value == word, "the lock word is not what the last swap left");

  struct Event {
    std::uint64_t time_ns;
    bool ends;
    std::uint64_t place;  // twice that of the value seen, one more if the swap replaced it
  };
  std::vector<Event> events;
  for (const auto& swap : endpoint.lock_swaps) {
    const auto seen = place.find(swap.original);
    require(seen != place.end(), "a swap returned a value that the lock word never had");
    const std::uint64_t at = 2 * seen->second + (swap.original == swap.compare ? 1 : 0);
    events.push_back({swap.posted_ns, false, at});
    events.push_back({swap.done_ns, true, at});
  }
  std::sort(events.begin(), events.end(), [](const Event& a, const Event& b) {
    return a.time_ns != b.time_ns ? a.time_ns < b.time_ns : a.ends < b.ends;
  });
  std::uint64_t newest = 0;  // of those that have ended
  for (const Event& event : events) {
    require(event.ends || event.place >= newest, "a swap saw a value that was replaced before it began");
    if (event.ends) newest = std::max(newest, event.place);
  }
}

void World::check_counters(unsigned index) {
  const Counters& counters = endpoints_[index]->loop.counters();
  const NetTally& tally = net_.tally(index);
  const auto expect = [&](std::string_view what, std::uint64_t is, std::uint64_t should) {
    require(is == should, "endpoint " + std::to_string(index) + ": " + std::string(what) + " is " +
                              std::to_string(is) + ", should be " + std::to_string(should));
  };
  std::uint64_t drops = 0;
  for (const Count drop : kDrops) drops += counters.get(drop);
  expect("the number of damaged packets dropped", drops, tally.shown_damaged);
  expect("rx_roce", counters.get(Count::kRxRoce) - counters.get(Count::kDropBadIcrc), tally.shown_clean_roce);
  expect("tx_roce", counters.get(Count::kTxRoce), tally.sent_roce);
  for (const Count never : kNever)
    expect(kCounterNames[static_cast<std::size_t>(never)], counters.get(never), 0);
  expect("completions", counters.get(Count::kCompletions), endpoints_[index]->completions);

  std::uint64_t sent = 0;
  std::uint64_t executed = 0;
  for (const auto& flow : flows_) {
    if (flow->plan().from == index) sent += flow->sent_messages();
    if (flow->plan().to == index) executed += flow->wire_messages(bytes(plan_.mtu), plan_.max_unacked);
  }
  expect("requester_messages", counters.get(Count::kRequesterMessages), sent);
  expect("responder_messages", counters.get(Count::kResponderMessages), executed);
  check_cnps(index);
  if (plan_.is_clean()) check_clean_counters(index);
}

/// Each one that arrived was heeded, or counted where nobody heeds them.
void World::check_cnps(unsigned index) const {
  const Counters& counters = endpoints_[index]->loop.counters();
  const bool heeds = endpoints_[index]->memory.controls_rates;
  const std::uint64_t arrived = net_.tally(index).shown_cnps;
  require(counters.get(Count::kCnpsHandled) == (heeds ? arrived : 0) &&
              counters.get(Count::kCnpsIgnored) == (heeds ? 0 : arrived),
          "endpoint " + std::to_string(index) + ": not all of " + std::to_string(arrived) +
              " CNPs were heeded, or ignored");
}

/// Without faults nothing is sent twice, but for what RNR NAKs and late answers cause.
void World::check_clean_counters(unsigned index) const {
  const Counters& counters = endpoints_[index]->loop.counters();
  const bool had_rnr = counters.get(Count::kRequesterRnrNaks) + counters.get(Count::kResponderRnrNaks) > 0;
  if (had_rnr || counters.get(Count::kRequesterTimeouts) + counters.get(Count::kRequesterProbes) > 0) return;
  for (const Count what : {Count::kRequesterGoBacks, Count::kRequesterSeqNaks, Count::kRequesterImpliedNaks,
                           Count::kDropBadIcrc}) {
    require(counters.get(what) == 0,
            "without faults: " + std::string(kCounterNames[static_cast<std::size_t>(what)]));
  }
  // A responder that counts its receives tells of new ones also a requester that does not care. A question
  // may be answered when there is nothing more to tell.
  std::uint64_t untimely = counters.get(Count::kRequesterTailQuestions);
  for (const auto& endpoint : endpoints_) {
    untimely += endpoint->loop.counters().get(Count::kResponderCreditUpdates);
  }
  require(counters.get(Count::kRequesterGhostResponses) <= untimely,
          "without faults: more ghost responses than credit updates and questions");
}

void add_counters(Totals& totals, const Counters& counters) {
  totals.packets += counters.get(Count::kTxRoce);
  totals.go_backs += counters.get(Count::kRequesterGoBacks);
  totals.timeouts += counters.get(Count::kRequesterTimeouts);
  totals.probes += counters.get(Count::kRequesterProbes);
  totals.rnr_naks += counters.get(Count::kRequesterRnrNaks);
  totals.credit_waits += counters.get(Count::kGateNoCredits);
  totals.credit_updates += counters.get(Count::kResponderCreditUpdates);
  totals.credit_questions += counters.get(Count::kRequesterCreditQuestions);
  totals.limited += counters.get(Count::kRequesterLimited);
  totals.duplicates += counters.get(Count::kResponderDuplicateRequests);
  totals.replays +=
      counters.get(Count::kResponderReplayedReads) + counters.get(Count::kResponderReplayedAtomics);
  totals.selective_naks += counters.get(Count::kRequesterSelectiveNaks);
  totals.joint_acks += counters.get(Count::kResponderJointAcks);
  totals.repeated += counters.get(Count::kRequesterRepeatedPackets);
  totals.held += counters.get(Count::kRequesterHeldResponses) + counters.get(Count::kResponderHeldRequests);
  totals.cnps_sent += counters.get(Count::kCnpsSent);
  totals.cnps_handled += counters.get(Count::kCnpsHandled);
  totals.cnps_ignored += counters.get(Count::kCnpsIgnored);
  totals.paced += counters.get(Count::kGatePaced);
  totals.implied_naks += counters.get(Count::kRequesterImpliedNaks);
  totals.lost_messages += counters.get(Count::kResponderDroppedMessages);
  totals.no_receive += counters.get(Count::kDropNoReceive) + counters.get(Count::kDropReceiveTooSmall);
  totals.bad_qkeys += counters.get(Count::kDropBadQkey);
}

void World::add_to(Totals& totals) const {
  ++totals.schedules;
  totals.messages += plan_.messages();
  totals.virtual_ns += now_ns_;
  for (unsigned i = 0; i < endpoints_.size(); ++i) {
    add_counters(totals, endpoints_[i]->loop.counters());
    totals.damaged += net_.tally(i).shown_damaged;
  }
}

}  // namespace uroce::sim
