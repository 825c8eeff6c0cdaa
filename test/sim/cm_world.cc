#include "sim/cm_world.h"

#include <algorithm>
#include <cstdio>
#include <stdexcept>

namespace uroce::sim {

namespace {

constexpr std::uint64_t kMs = 1'000'000;
constexpr std::uint64_t kSecond = 1000 * kMs;
constexpr std::uint64_t kAsk = 6 * kSecond;     // connections are asked for
constexpr std::uint64_t kAct = 12 * kSecond;    // applications change their minds
constexpr std::uint64_t kHeal = 24 * kSecond;   // a harsh network is whole again
constexpr std::uint64_t kJudge = 90 * kSecond;  // everything has come to rest
constexpr std::uint64_t kEnd = 120 * kSecond;   // all that was closed is forgotten
constexpr std::uint16_t kFirstPort = 7000;
constexpr unsigned kPorts = 2;

Gid gid_of(unsigned node) {
  return Gid::from_v4({10, 0, 0, static_cast<std::uint8_t>(node + 1)});
}

/// Byte `i` of the private data of an attempt; the number itself comes first.
std::byte private_byte(unsigned attempt, bool is_reply, std::size_t i) {
  if (i == 0) return static_cast<std::byte>(attempt);
  return static_cast<std::byte>(attempt * 31 + i * 7 + (is_reply ? 99 : 0));
}

std::vector<std::byte> private_data(unsigned attempt, bool is_reply, std::size_t size) {
  std::vector<std::byte> bytes(size);
  for (std::size_t i = 0; i < size; ++i) bytes[i] = private_byte(attempt, is_reply, i);
  return bytes;
}

const char* name_of(const wire::Mad& mad) {
  constexpr std::array kNames{"REQ",  "MRA",      "REJ",      "REP", "RTU", "DREQ",
                              "DREP", "SIDR_REQ", "SIDR_REP", "LAP", "APR"};
  const auto index = std::to_integer<std::size_t>(mad[17]) - 0x10;
  return index < kNames.size() ? kNames[index] : "?";
}

}  // namespace

struct CmWorld::Node final : cm::AgentHost {
  Node(CmWorld& owner, unsigned number) : world(owner), index(number) {}
  void send(const AhAttr& to, const wire::Mad& mad) override { world.carry(index, to, mad); }
  void on_event(CmEvent&& event) override { world.on_event(*this, std::move(event)); }
  [[nodiscard]] bool is_own(const Gid& gid) const override { return gid == gid_of(index); }
  [[nodiscard]] bool has_heard(CmId id) override { return sides.contains(id) && sides.at(id)->has_heard; }

  CmWorld& world;
  unsigned index;
  unsigned life = 0;
  std::uint64_t guid = 0;
  std::unique_ptr<cm::Agent> agent;
  std::map<CmId, Side*> sides;
  std::map<std::uint16_t, CmId> listeners;
};

CmPlan make_cm_plan(std::uint64_t seed) {
  Random random(seed);
  const auto pick = [&](auto... values) {
    const std::array options{values...};
    return options[random.below(options.size())];
  };
  CmPlan plan{.seed = seed};
  plan.nodes = pick(2U, 2U, 3U);
  plan.attempts = 2 + static_cast<unsigned>(random.below(14));
  plan.qpns = pick(2U, 4U, 16U);
  plan.loss = pick(0.0, 0.05, 0.2, 0.4, 0.7);
  plan.duplicate = pick(0.0, 0.1, 0.5);
  plan.delay_ns = pick(10'000ULL, 1'000'000ULL, 20'000'000ULL);
  plan.jitter_ns = pick(0ULL, 2'000'000ULL, 60'000'000ULL, 400'000'000ULL);
  plan.is_harsh = random.below(3) == 0;
  if (plan.is_harsh) {
    plan.most_kills = 0;
    plan.cut_at_ns = random.below(10) * kSecond;
    plan.cut_ns = random.below(2) == 0 ? 0 : random.below(12 * kSecond);
    plan.restarts = static_cast<unsigned>(random.below(3));
  }
  return plan;
}

CmWorld::CmWorld(const CmPlan& plan, bool trace) : plan_(plan), trace_(trace), random_(plan.seed + 0x5eed) {}
CmWorld::~CmWorld() = default;

// The clock.

void CmWorld::at(std::uint64_t ns, std::function<void()> what) {
  agenda_.emplace(std::pair{std::max(ns, now_.ns()), ++order_}, std::move(what));
}

void CmWorld::after(std::uint64_t most_ns, std::function<void()> what) {
  at(now_.ns() + below(most_ns + 1), std::move(what));
}

bool CmWorld::chance(double p) {
  return static_cast<double>(random_.next() >> 11) * 0x1p-53 < p;
}

void CmWorld::run_until(std::uint64_t ns) {
  for (;;) {
    Ticks next{ns};
    Node* due = nullptr;
    for (const auto& node : nodes_) {
      const Ticks deadline = node->agent->deadline();
      if (!deadline.is_set() || deadline >= next) continue;
      next = deadline;
      due = node.get();
    }
    if (!agenda_.empty() && agenda_.begin()->first.first <= next.ns()) {
      const auto first = agenda_.begin();
      now_ = Ticks{first->first.first};
      const auto what = std::move(first->second);
      agenda_.erase(first);
      what();
    } else if (due != nullptr) {
      now_ = std::max(now_, next);
      due->agent->on_time(now_);
    } else {
      break;
    }
  }
  now_ = Ticks{ns};
}

// The network.

bool CmWorld::is_lost(const wire::Mad& mad, unsigned to) {
  if (is_whole_) return false;
  if (plan_.is_harsh && now_.ns() >= plan_.cut_at_ns && now_.ns() < plan_.cut_at_ns + plan_.cut_ns)
    return true;
  if (plan_.most_kills == 0) return chance(plan_.loss);
  std::string key(1, static_cast<char>(to));
  for (const std::byte byte : mad) key += static_cast<char>(byte);
  unsigned& kills = kills_[key];
  const bool lost = kills < plan_.most_kills && chance(plan_.loss);
  kills = lost ? kills + 1 : 0;
  return lost;
}

void CmWorld::carry(unsigned from, const AhAttr& to, const wire::Mad& mad) {
  ++totals_.mads;
  unsigned target = 0;
  while (target < nodes_.size() && gid_of(target) != to.dgid) ++target;
  require(target < nodes_.size(), "a MAD to nobody");
  const unsigned copies = chance(plan_.duplicate) ? 2 : 1;
  for (unsigned i = 0; i < copies; ++i) {
    const bool lost = is_lost(mad, target);
    if (trace_) {
      say(std::string(name_of(mad)) + " " + std::to_string(from) + " -> " + std::to_string(target) +
          (lost ? " lost" : ""));
    }
    if (lost) {
      ++totals_.lost;
      continue;
    }
    const std::uint64_t late = plan_.delay_ns + below(plan_.jitter_ns + 1);
    at(now_.ns() + late, [this, from, target, mad] { deliver(from, target, mad); });
  }
}

void CmWorld::deliver(unsigned from, unsigned to, const wire::Mad& mad) {
  AhAttr path;
  path.dgid = gid_of(from);
  nodes_[to]->agent->on_mad(path, mad, now_);
}

/// A packet of the connection itself. Whoever gets no answer to it fails, where the network is harsh.
void CmWorld::send_data(Side& side) {
  if (!is_alive(side) || side.is_closed || !side.is_established || side.ends != 0) return;
  const Attempt& attempt = *attempts_[side.attempt];
  const unsigned to = side.is_active ? attempt.to : attempt.from;
  const QpAttr attr = *side.attr;
  const Qpn from_qpn = *side.qpn;
  at(now_.ns() + plan_.delay_ns, [this, &side, to, attr, from_qpn] {
    for (const auto& other : sides_) {
      const bool is_peer = other->node == to && is_alive(*other) && other->qpn == attr.dest_qpn &&
                           other->attr->dest_qpn == from_qpn && other->attr->rq_psn == attr.sq_psn;
      if (!is_peer) continue;
      other->has_heard = true;
      if (!other->is_active && chance(0.5)) (void)agent(*other).notify_established(other->id);
      return;
    }
    if (!is_whole_) return;
    at(now_.ns() + 200 * kMs, [this, &side] {
      if (is_alive(side) && !side.is_closed) agent(side).on_failure(side.id, "no answer", now_);
    });
  });
}

// The applications.

bool CmWorld::is_alive(const Side& side) const {
  return nodes_[side.node]->life == side.life;
}

cm::Agent& CmWorld::agent(const Side& side) {
  return *nodes_[side.node]->agent;
}

void CmWorld::start(unsigned index) {
  Node& node = *nodes_[index];
  constexpr std::array kMtus{PathMtu::k1024, PathMtu::k2048, PathMtu::k4096};
  cm::AgentConfig config{.ca_guid = node.guid, .seed = random_.next(), .path_mtu = kMtus[below(3)]};
  node.agent = std::make_unique<cm::Agent>(config, node);
  node.sides.clear();
  node.listeners.clear();
  for (unsigned i = 0; i < kPorts; ++i) {
    const auto port = static_cast<std::uint16_t>(kFirstPort + i);
    if (chance(0.2)) {
      at(now_.ns() + below(2 * kSecond), [this, index, port, life = node.life] {
        if (nodes_[index]->life == life) listen(index, port);
      });
    } else {
      listen(index, port);
    }
  }
}

void CmWorld::listen(unsigned index, std::uint16_t port) {
  Node& node = *nodes_[index];
  const auto id = node.agent->create(PortSpace::kTcp);
  require(id.has_value(), "no id for a listener");
  CmAddress address;
  address.port = port;
  require(node.agent->bind(*id, address).has_value(), "no port for a listener");
  require(node.agent->listen(*id, 1 + static_cast<unsigned>(below(4))).has_value(), "cannot listen");
  node.listeners[port] = *id;
  if (!chance(0.15)) return;
  after(kAct, [this, &node, port, id = *id, life = node.life] {
    if (node.life != life) return;
    node.agent->close(id, now_);
    node.listeners.erase(port);
  });
}

/// What it knew is gone. Its GUID may be a new one, or not.
void CmWorld::restart(unsigned index) {
  Node& node = *nodes_[index];
  say("restart of " + std::to_string(index));
  ++node.life;
  ++totals_.restarts;
  if (chance(0.5)) node.guid = random_.next();
  start(index);
}

/// QPs are used again as soon as nobody has them.
std::optional<Qpn> CmWorld::free_qpn(unsigned node) {
  const std::uint64_t first = below(plan_.qpns);
  for (unsigned i = 0; i < plan_.qpns; ++i) {
    const Qpn qpn{static_cast<std::uint32_t>(0x100 + (first + i) % plan_.qpns)};
    const bool is_used = std::any_of(sides_.begin(), sides_.end(), [&](const auto& side) {
      return side->node == node && is_alive(*side) && side->qpn == qpn;
    });
    if (!is_used) return qpn;
  }
  return std::nullopt;
}

void CmWorld::begin_attempt() {
  const auto from = static_cast<unsigned>(below(nodes_.size()));
  const auto distance = chance(0.1) ? 0 : 1 + below(nodes_.size() - 1);  // 0: to itself
  const auto to = static_cast<unsigned>((from + distance) % nodes_.size());
  const auto qpn = free_qpn(from);
  if (!qpn) return;
  Node& node = *nodes_[from];
  const auto number = static_cast<unsigned>(attempts_.size());
  const auto id = node.agent->create(PortSpace::kTcp);
  require(id.has_value(), "no id");
  Side& side = *sides_.emplace_back(std::make_unique<Side>());
  side = {.attempt = number,
          .node = from,
          .life = node.life,
          .id = *id,
          .is_active = true,
          .qpn = qpn,
          .attr = {}};
  node.sides[*id] = &side;
  attempts_.push_back(std::make_unique<Attempt>());
  Attempt& attempt = *attempts_.back();
  attempt.from = from;
  attempt.to = to;
  attempt.active = &side;
  constexpr std::array<std::int64_t, 4> kTimeouts{100, 1000, 5000, 5000};
  const auto data = private_data(number, false, 1 + below(kCmConnectBytes));
  CmConnect ask{.private_data = data, .timeout = std::chrono::milliseconds(kTimeouts[below(4)])};
  ask.to = {gid_of(to), static_cast<std::uint16_t>(kFirstPort + below(kPorts))};
  ask.terms.qpn = *qpn;
  if (chance(0.3)) ask.patience = std::chrono::milliseconds(2000);
  AhAttr path;
  path.dgid = gid_of(to);
  require(node.agent->connect(*id, ask, path, gid_of(from), now_).has_value(), "connect() failed");
  if (chance(0.15)) after(3 * kSecond, [this, &side] { close(side); });
}

CmWorld::Side& CmWorld::side_of(Node& node, const CmEvent& event) {
  if (event.type != CmEventType::kConnectRequest) {
    require(node.sides.contains(event.id), "an event of an id that nobody has");
    return *node.sides.at(event.id);
  }
  const auto number = std::to_integer<unsigned>(event.private_data()[0]);
  require(number < attempts_.size(), "a request that nobody has made");
  Attempt& attempt = *attempts_[number];
  require(attempt.to == node.index, "a request for somebody else");
  if (!attempt.passive.empty()) ++totals_.again;
  require(!node.sides.contains(event.id), "an id that is in use");
  Side& side = *sides_.emplace_back(std::make_unique<Side>());
  side.attempt = number;
  side.node = node.index;
  side.life = node.life;
  side.id = event.id;
  attempt.passive.push_back(&side);
  return *(node.sides[event.id] = &side);
}

void CmWorld::on_event(Node& node, CmEvent&& event) {
  Side& side = side_of(node, event);
  if (trace_) say("    " + name(side) + ": " + std::string(to_string(event.type)));
  require(!side.is_closed, "an event after close()");
  const bool is_last = event.type == CmEventType::kTimewaitExit;
  require(side.ends == 0 || is_last, "an event after the last one: " + std::string(to_string(event.type)));
  switch (event.type) {
    case CmEventType::kConnectRequest:
      check_private(event.private_data(), side.attempt, false);
      after(chance(0.2) ? 3 * kSecond : 20 * kMs, [this, &side] { answer(side); });
      break;
    case CmEventType::kConnectReply:
      require(side.is_active && !side.has_replied, "a second reply");
      side.has_replied = true;
      check_private(event.private_data(), side.attempt, true);
      side.attr = *node.agent->qp_attr(side.id);
      after(chance(0.2) ? 2 * kSecond : 20 * kMs, [this, &side] { take_reply(side); });
      break;
    case CmEventType::kEstablished:
      require(!side.is_active && !side.is_established, "established twice");
      side.is_established = true;
      live(side);
      break;
    case CmEventType::kTimewaitExit:
      require(++side.exits == 1, "two ends of timewait");
      break;
    case CmEventType::kRejected:
    case CmEventType::kUnreachable:
    case CmEventType::kDisconnected:
      on_end(side, event);
      break;
    default:
      require(false, "an event of a service");
  }
}

void CmWorld::on_end(Side& side, const CmEvent& event) {
  if (event.text.starts_with("the peer uses its QP")) attempts_[side.attempt]->is_disturbed = true;
  ++side.ends;
  ++totals_.ended;
  require(!side.is_let_go, "an end that was known already");
  side.qpn.reset();  // the application destroys its QP
  after(5 * kSecond, [this, &side] {
    if (chance(0.7)) close(side);
  });
}

/// The application at the listener.
void CmWorld::answer(Side& side) {
  if (!is_alive(side) || side.ends != 0 || side.is_closed) return;
  const std::uint64_t what = below(20);
  const auto qpn = free_qpn(side.node);
  if (what == 0 || !qpn) {
    side.is_let_go = agent(side).reject(side.id, {}, now_).has_value();
    return;
  }
  if (what == 1) return close(side);
  if (what == 2) return after(4 * kSecond, [this, &side] { close(side); });
  const auto data = private_data(side.attempt, true, 1 + below(kCmAcceptBytes));
  CmAccept take{.private_data = data};
  take.terms.qpn = *qpn;
  require(agent(side).accept(side.id, take, now_).has_value(), "accept() failed");
  side.qpn = qpn;
  side.attr = *agent(side).qp_attr(side.id);
  if (chance(0.1)) after(500 * kMs, [this, &side] { disconnect(side); });
  if (chance(0.1)) after(500 * kMs, [this, &side] { close(side); });
}

/// The application that has asked.
void CmWorld::take_reply(Side& side) {
  if (!is_alive(side) || side.ends != 0 || side.is_closed) return;
  const std::uint64_t what = below(20);
  if (what == 0) {
    side.is_let_go = agent(side).reject(side.id, {}, now_).has_value();
    side.qpn.reset();
    return;
  }
  if (what == 1) return close(side);
  if (what == 2) return disconnect(side);
  require(agent(side).establish(side.id).has_value(), "establish() failed");
  side.is_established = true;
  if (chance(0.5)) send_data(side);
  live(side);
}

/// A connection's life: for a while, or for ever. Both ends draw alike now and then.
void CmWorld::live(Side& side) {
  const std::uint64_t common = attempts_[side.attempt]->from + side.attempt;
  const std::uint64_t soon = now_.ns() + kSecond - now_.ns() % kSecond;
  if (common % 4 == 0) at(soon, [this, &side] { disconnect(side); });
  if (common % 4 == 1) after(kAct / 2, [this, &side] { chance(0.5) ? close(side) : disconnect(side); });
}

void CmWorld::disconnect(Side& side) {
  if (!is_alive(side) || side.is_closed) return;
  if (side.ends == 0) attempts_[side.attempt]->is_disturbed = true;
  (void)agent(side).disconnect(side.id, now_);
}

void CmWorld::close(Side& side) {
  if (!is_alive(side) || side.is_closed) return;
  say("    " + name(side) + ": close()");
  if (side.ends == 0) attempts_[side.attempt]->is_disturbed = true;
  side.is_closed = side.is_let_go = true;
  side.qpn.reset();
  agent(side).close(side.id, now_);
  nodes_[side.node]->sides.erase(side.id);
}

// The promises.

std::string CmWorld::name(const Side& side) const {
  return "attempt " + std::to_string(side.attempt) + (side.is_active ? " active" : " passive") + " at " +
         std::to_string(side.node);
}

void CmWorld::say(const std::string& text) const {
  if (trace_) std::fprintf(stderr, "%10.3f ms  %s\n", static_cast<double>(now_.ns()) / 1e6, text.c_str());
}

void CmWorld::require(bool holds, const std::string& what) const {
  if (!holds) throw std::runtime_error(what);
}

void CmWorld::check_private(std::span<const std::byte> bytes, unsigned attempt, bool is_reply) const {
  std::size_t used = bytes.size();
  while (used > 0 && bytes[used - 1] == std::byte{0}) --used;
  for (std::size_t i = 0; i < used; ++i) {
    require(bytes[i] == private_byte(attempt, is_reply, i), "private data of something else");
  }
}

void CmWorld::check_side(const Side& side) {
  if (!is_alive(side)) return;
  if (side.is_let_go) return require(side.ends == 0 || side.is_closed, name(side) + ": let go, then ended");
  const cm::Conversation* c = agent(side).find(side.id);
  require(c != nullptr, name(side) + ": its id is gone");
  const bool is_open = c->state == cm::State::kEstablished && side.is_established;
  require(is_open ? side.ends == 0 : side.ends == 1,
          name(side) + ": " + std::to_string(side.ends) + " ends in state " + std::to_string(raw(c->state)));
}

void CmWorld::check_attempt(const Attempt& attempt) {
  const auto is_up = [this](const Side* side) {
    return is_alive(*side) && side->is_established && side->ends == 0 && !side->is_let_go;
  };
  const auto up = std::count_if(attempt.passive.begin(), attempt.passive.end(), is_up);
  const std::string which = name(*attempt.active);
  require(up == (is_up(attempt.active) ? 1 : 0), which + ": " + std::to_string(up) +
                                                     " passive ends are up, the active one is " +
                                                     (is_up(attempt.active) ? "up" : "not"));
  const bool is_wanted = attempt.active->is_established && !attempt.is_disturbed && !plan_.is_harsh;
  require(up == 1 || !is_wanted, which + ": both ends want it, and it is not there");
  if (up == 0) return;
  ++totals_.established;
  const QpAttr& a = *attempt.active->attr;
  const Side& peer = **std::find_if(attempt.passive.begin(), attempt.passive.end(), is_up);
  const QpAttr& p = *peer.attr;
  require(a.dest_qpn == peer.qpn && p.dest_qpn == attempt.active->qpn, which + ": QPNs");
  require(a.sq_psn == p.rq_psn && a.rq_psn == p.sq_psn, which + ": PSNs");
  require(a.path_mtu == p.path_mtu, which + ": path MTUs");
  require(a.max_rd_atomic <= p.max_dest_rd_atomic && p.max_rd_atomic <= a.max_dest_rd_atomic,
          which + ": depths");
}

void CmWorld::check_all() {
  for (const auto& side : sides_) check_side(*side);
  for (const auto& attempt : attempts_) check_attempt(*attempt);
  for (const auto& side : sides_) close(*side);
  run_until(kEnd);
  for (const auto& node : nodes_) {
    require(node->agent->size() == node->listeners.size(), "ids are left at " + std::to_string(node->index));
    for (const auto& [port, id] : node->listeners) {
      require(node->agent->find(id)->waiting == 0, "a listener still has somebody waiting");
      node->agent->close(id, now_);
    }
    require(node->agent->size() == 0 && !node->agent->deadline().is_set(), "something is left");
    totals_.repeated += node->agent->counters().repeated;
  }
}

void CmWorld::run() {
  for (unsigned i = 0; i < plan_.nodes; ++i) {
    nodes_.push_back(std::make_unique<Node>(*this, i));
    nodes_.back()->guid = random_.next();
    start(i);
  }
  for (unsigned i = 0; i < plan_.attempts; ++i) after(kAsk, [this] { begin_attempt(); });
  for (unsigned i = 0; i < plan_.restarts; ++i) {
    after(kAct, [this] { restart(static_cast<unsigned>(below(nodes_.size()))); });
  }
  if (plan_.is_harsh) {
    at(kHeal, [this] { is_whole_ = true; });
    for (std::uint64_t ns = kHeal; ns < kJudge - 10 * kSecond; ns += 5 * kSecond) {
      at(ns, [this] {
        for (const auto& side : sides_) send_data(*side);
      });
    }
  }
  run_until(kJudge);
  check_all();
}

void CmWorld::add_to(CmTotals& totals) const {
  ++totals.schedules;
  totals.harsh += plan_.is_harsh ? 1 : 0;
  totals.attempts += attempts_.size();
  totals.established += totals_.established;
  totals.ended += totals_.ended;
  totals.mads += totals_.mads;
  totals.lost += totals_.lost;
  totals.repeated += totals_.repeated;
  totals.restarts += totals_.restarts;
  totals.again += totals_.again;
}

}  // namespace uroce::sim
