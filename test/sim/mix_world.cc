#include "sim/mix_world.h"

#include <algorithm>

#include "transport/address_handles.h"
#include "transport/rc_qp.h"
#include "transport/unreliable_qp.h"
#include "transport/xrc_qp.h"
#include "wire/timer_codes.h"

namespace uroce::sim {

namespace {

constexpr std::uint32_t kPd = 3;
constexpr std::uint64_t kStartNs = 1'000'000'000;
constexpr std::uint64_t kStepNs = 250;         // an iteration that found work takes up to this long
constexpr std::uint64_t kWheelSlackNs = 8192;  // a timer may fire that much later
constexpr std::uint32_t kOwnQkey = 0x8000'0000;

/// What must never happen, whatever the network does.
constexpr Count kNever[] = {Count::kDropBadPkey,          Count::kDropUnknownQpn,
                            Count::kDropWrongTransport,   Count::kDropQpState,
                            Count::kDropWrongAddress,     Count::kDropHandOverFull,
                            Count::kDropWrongVlan,        Count::kDropWrongGidType,
                            Count::kRequesterFatalNaks,   Count::kRequesterRetryExceeded,
                            Count::kRequesterLocalErrors, Count::kRequesterRnrRetryExceeded,
                            Count::kRequesterUnresolved,  Count::kResponderFatalNaks,
                            Count::kCqOverflows,          Count::kFlushed};

std::unique_ptr<transport::QueuePair> make_qp(const MixQp& plan, Endpoint& endpoint,
                                              transport::SharedReceives* shared) {
  const auto make = [&]<typename Type>(std::type_identity<Type>) -> std::unique_ptr<transport::QueuePair> {
    return std::make_unique<Type>(plan.qpn, kPd, plan.init, endpoint.keys, endpoint.loop.counters(),
                                  endpoint.send_cq, endpoint.recv_cq, shared);
  };
  switch (plan.init.type) {
    case QpType::kUc:
      return make(std::type_identity<transport::UcQp>{});
    case QpType::kUd:
      return make(std::type_identity<transport::UdQp>{});
    case QpType::kXrcSend:
      return make(std::type_identity<transport::XrcSendQp>{});
    case QpType::kXrcRecv:
      return make(std::type_identity<transport::XrcRecvQp>{});
    default:
      return make(std::type_identity<transport::RcQp>{});
  }
}

/// What the moves up to RTS need.
struct Masks {
  std::uint32_t init = qp_attr::kInitMask;
  std::uint32_t rtr = qp_attr::kUcRtrMask;
  std::uint32_t rts = qp_attr::kUnreliableRtsMask;
};

Masks masks_of(QpType type) noexcept {
  Masks masks;
  if (type == QpType::kUd) masks = {.init = qp_attr::kUdInitMask, .rtr = qp_attr::kState, .rts = masks.rts};
  if (type == QpType::kRc || type == QpType::kXrcRecv) masks.rtr = qp_attr::kRtrMask;
  if (type == QpType::kRc || type == QpType::kXrcSend) masks.rts = qp_attr::kRtsMask;
  if (type == QpType::kXrcRecv) masks.rts = qp_attr::kXrcRecvRtsMask;
  return masks;
}

/// The one that an endpoint has for another.
AhId handle_to(unsigned endpoint) noexcept {
  return AhId{std::uint64_t{1} << 32 | endpoint};
}

/// Calls `use` with each part of `pieces` from byte `offset` on, and what of `size` bytes goes there.
template <typename F>
void for_each_part(const std::vector<Piece>& pieces, std::size_t offset, std::size_t size, F&& use) {
  std::size_t done = 0;
  for (const Piece& piece : pieces) {
    const std::size_t skipped = std::min<std::size_t>(offset, piece.len);
    offset -= skipped;
    const std::size_t part = std::min(piece.len - skipped, size - done);
    if (part > 0) use(piece.at + skipped, done, part);
    done += part;
  }
}

std::size_t total(const std::vector<Piece>& pieces) noexcept {
  std::size_t bytes = 0;
  for (const Piece& piece : pieces) bytes += piece.len;
  return bytes;
}

/// The application uses the memory for something else.
void scribble(Bank& bank, const std::vector<Piece>& pieces) {
  for (const Piece& piece : pieces) {
    const auto image = bank.image(piece.at, piece.len);
    for (std::byte& byte : image) byte ^= std::byte{0x5a};
    std::copy(image.begin(), image.end(), bank.bytes(piece.at, piece.len).begin());
  }
}

WcOpcode sent_as(const Parcel& parcel) noexcept {
  return parcel.is_send() ? WcOpcode::kSend : WcOpcode::kRdmaWrite;
}

}  // namespace

MixWorld::MixWorld(const MixPlan& plan)
    : plan_(plan),
      random_(plan.setting.seed + 77),
      net_(plan.setting.net, static_cast<unsigned>(plan.setting.endpoints.size()), plan.setting.seed),
      ends_(plan.qps.size()),
      bad_qkeys_(plan.setting.endpoints.size()) {
  for (unsigned i = 0; i < plan.setting.endpoints.size(); ++i) {
    endpoints_.push_back(std::make_unique<Endpoint>(plan.setting, i, net_));
  }
  for (std::size_t i = 0; i < plan.queues.size(); ++i) {
    queues_.push_back(std::make_unique<MixReceives>(plan.queues[i], *endpoints_[plan.queues[i].at],
                                                    static_cast<std::uint32_t>(i + 1)));
    Endpoint& endpoint = *endpoints_[plan.queues[i].at];
    if (plan.queues[i].is_xrc) domain_.add(*queues_.back()->shared(), endpoint.recv_cq);
  }
  for (unsigned at = 0; at < endpoints_.size(); ++at) {
    for (unsigned to = 0; to < endpoints_.size(); ++to) {
      const AhAttr attr{.dgid = plan.setting.endpoints[to].gid, .sl = plan.setting.link.sl};
      if (to != at) endpoints_[at]->loop.add_handle(handle_to(to), kPd, attr, now());
    }
  }
  for (std::size_t i = 0; i < ends_.size(); ++i) open(i);
  for (std::size_t i = 0; i < ends_.size(); ++i) connect(i);
  watch();
}

void MixWorld::open(std::size_t index) {
  const MixQp& plan = plan_.qps[index];
  Endpoint& endpoint = *endpoints_[plan.at];
  MixReceives& queue = *queues_[plan.queue];
  End& end = ends_[index];
  const bool is_target = plan.init.type == QpType::kXrcRecv;
  end.qp = make_qp(plan, endpoint, is_target ? nullptr : queue.shared());
  if (is_target) {
    domain_.add_target(end.qp->context());
  } else if (queue.shared() == nullptr) {
    queue.attach(end.qp->context().receives.own);
  } else {
    queue.shared()->add_user();
  }
  endpoint.loop.add(*end.qp);
  index_of_qpn_[raw(plan.qpn)] = index;
  const std::uint32_t mtu = bytes(plan_.setting.mtu);
  end.first_packet.push_back(0);
  for (const Parcel& parcel : plan.parcels) {
    end.first_packet.push_back(end.first_packet.back() + std::max(1U, (parcel.length + mtu - 1) / mtu));
  }
}

void MixWorld::connect(std::size_t index) {
  const MixQp& plan = plan_.qps[index];
  const MixQp& peer = plan_.qps[plan.peer];
  QpAttr attr{.path_mtu = plan_.setting.mtu,
              .dest_qpn = peer.qpn,
              .rq_psn = peer.first_psn,
              .sq_psn = plan.first_psn,
              .access_flags = access::kAll,
              .dgid = plan_.setting.endpoints[peer.at].gid,
              .traffic_class = plan_.setting.traffic_class,
              .sl = plan_.setting.link.sl,
              .min_rnr_timer = plan.min_rnr_timer,
              .timeout = plan_.setting.timeout,
              .qkey = plan.qkey};
  const transport::QpBounds bounds{.active_mtu = plan_.setting.mtu,
                                   .gid_count = 2,
                                   .max_unacked = plan_.setting.max_unacked,
                                   .probe_floor_ns = plan_.setting.probe_floor_ns,
                                   .congestion = plan_.setting.congestion_at(plan.at)};
  const Masks masks = masks_of(plan.init.type);
  for (const auto& [state, mask] :
       {std::pair{QpState::kInit, masks.init}, {QpState::kRtr, masks.rtr}, {QpState::kRts, masks.rts}}) {
    attr.state = state;
    const Status moved = endpoints_[plan.at]->loop.modify(*ends_[index].qp, attr, mask, bounds, now());
    require(moved.has_value(), moved ? "" : moved.error().text);
  }
}

Ticks MixWorld::now() const noexcept {
  return Ticks{kStartNs + now_ns_};
}
std::uint64_t MixWorld::timeout_ns() const noexcept {
  return wire::ack_timeout_ns(plan_.setting.timeout);
}
std::uint64_t MixWorld::limit_ns() const {
  return 100'000'000 + plan_.parcels() * 8 * (timeout_ns() + 1'000'000);
}

std::string MixWorld::name(std::size_t index, const char* what) const {
  const MixQp& qp = plan_.qps[index];
  return std::string(to_string(qp.init.type)) + " QP " + std::to_string(raw(qp.qpn)) + " of endpoint " +
         std::to_string(qp.at) + ": " + what;
}

std::span<const std::byte> MixWorld::data_of(const Parcel& parcel) {
  scratch_.resize(parcel.length);
  fill(scratch_, parcel.seed);
  return scratch_;
}

/// Ports may not throw: what does not hold is kept for the end of the step.
void MixWorld::watch() {
  net_.set_arrival_observer([this](unsigned at, const wire::PacketView& packet) {
    try {
      on_arrival(at, packet);
    } catch (const Violation& violation) {
      if (broken_promise_.empty()) broken_promise_ = violation.what();
    }
  });
}

void MixWorld::on_arrival(unsigned at, const wire::PacketView& packet) {
  const auto found = index_of_qpn_.find(raw(packet.bth.dest_qpn));
  require(found != index_of_qpn_.end(), "a packet to nobody");
  const MixQp& qp = plan_.qps[found->second];
  require(qp.at == at, "a packet to a QP of another endpoint");
  require(plan_.setting.link.fits(packet), "a packet in a frame of another VLAN, priority or version");
  if (packet.op->transport == wire::Transport::kCnp) return;
  queues_[qp.queue]->note_packet();
  if (qp.is_ud()) return on_datagram(found->second, packet);
  if (!qp.is_rc()) on_uc_packet(found->second, packet);
}

/// Whether the packet that begins (UC: or continues) a message has somewhere to go.
bool MixWorld::has_place(const MixQp& qp, const Parcel& parcel, std::uint32_t offset, bool first) {
  MixReceives& queue = *queues_[qp.queue];
  End& end = ends_[index_of_qpn_.at(raw(qp.qpn))];
  if (first || !parcel.is_send()) {
    const MixReceives::Has has = queue.has_one();
    if (has == MixReceives::Has::kNo) return false;
    end.sure = has == MixReceives::Has::kYes;
  }
  if (queue.plan().is_shared || !parcel.is_send()) return true;  // shared receives are all large enough
  return total(queue.front()) >= offset;
}

void MixWorld::on_uc_packet(std::size_t index, const wire::PacketView& packet) {
  const MixQp& qp = plan_.qps[index];
  const MixQp& peer = plan_.qps[qp.peer];
  const End& sender = ends_[qp.peer];
  End& end = ends_[index];
  const std::uint32_t number = span_from(packet.bth.psn, peer.first_psn);
  require(number < sender.first_packet.back(), name(index, "a PSN that was never sent"));
  const auto after = std::upper_bound(sender.first_packet.begin(), sender.first_packet.end(), number);
  const auto which = static_cast<std::size_t>(after - sender.first_packet.begin()) - 1;
  const Parcel& parcel = peer.parcels[which];
  const bool first = number == sender.first_packet[which];
  const bool last = number + 1 == sender.first_packet[which + 1];
  require(packet.op->starts_message == first && packet.op->ends_message == last,
          name(index, "a packet with the opcode of another"));
  const bool follows = number == end.next_packet;
  end.next_packet = number + 1;
  end.whole = first || (end.whole && follows);
  if (!end.whole) return;
  const std::uint32_t mtu = bytes(plan_.setting.mtu);
  const std::uint32_t offset = (number - sender.first_packet[which]) * mtu;
  const std::uint32_t size = std::min(mtu, parcel.length - offset);
  const bool takes = parcel.is_send() || (last && parcel.takes_receive());
  if (first) end.sure = true;
  end.whole = !takes || has_place(qp, parcel, offset + size, first);
  if (!end.whole) return;
  if (end.sure || !takes) place(index, parcel, offset, size);
  if (!last || !parcel.takes_receive()) return;
  end.expected.push_back({qp.peer, which, end.sure});
  if (!queues_[qp.queue]->plan().is_shared) queues_[qp.queue]->take();
}

/// What a UC packet leaves in memory: WRITEs, and SENDs where it is known which receive they take.
void MixWorld::place(std::size_t to, const Parcel& parcel, std::uint32_t offset, std::uint32_t size) {
  const MixQp& qp = plan_.qps[to];
  EndpointPlan& memory = endpoints_[qp.at]->memory;
  const auto data = data_of(parcel).subspan(offset, size);
  if (!parcel.is_send()) {
    std::copy(data.begin(), data.end(), memory.remote.image(parcel.remote_at + offset, size).begin());
  } else if (!queues_[qp.queue]->plan().is_shared) {
    for_each_part(queues_[qp.queue]->front(), offset, size,
                  [&](std::size_t at, std::size_t from, std::size_t part) {
                    const auto bytes = data.subspan(from, part);
                    std::copy(bytes.begin(), bytes.end(), memory.inbox.image(at, part).begin());
                  });
  }
}

void MixWorld::on_datagram(std::size_t index, const wire::PacketView& packet) {
  const MixQp& qp = plan_.qps[index];
  const auto from = index_of_qpn_.find(raw(packet.deth().src_qpn));
  require(from != index_of_qpn_.end(), name(index, "a datagram from nobody"));
  const MixQp& sender = plan_.qps[from->second];
  const std::uint32_t number = span_from(packet.bth.psn, sender.first_psn);
  require(number < sender.parcels.size(), name(index, "a datagram that was never sent"));
  const Parcel& parcel = sender.parcels[number];
  require(parcel.to == index, name(index, "a datagram for another QP"));
  const std::uint32_t qkey = (parcel.qkey & kOwnQkey) != 0 ? sender.qkey : parcel.qkey;
  require(packet.deth().qkey == qkey, name(index, "a datagram with the Q_Key of another"));
  if (qkey != qp.qkey) {
    ++bad_qkeys_[qp.at];
    return;
  }
  if (!has_place(qp, parcel, static_cast<std::uint32_t>(kGrhBytes) + parcel.length, true)) return;
  ends_[index].expected.push_back({from->second, number, ends_[index].sure});
  if (!queues_[qp.queue]->plan().is_shared) queues_[qp.queue]->take();
}

bool MixWorld::is_done() const {
  for (std::size_t i = 0; i < ends_.size(); ++i) {
    if (ends_[i].completed < plan_.qps[i].parcels.size()) return false;
    if (!plan_.qps[i].is_rc()) continue;
    const auto& coming = plan_.qps[plan_.qps[i].peer].parcels;
    for (std::size_t next = ends_[i].received; next < coming.size(); ++next) {
      if (coming[next].takes_receive()) return false;
    }
  }
  return true;
}

void MixWorld::run() {
  while (!is_done()) {
    require(now_ns_ <= limit_ns(), "no end in sight");
    if (!step()) jump();
  }
  const std::uint64_t done_ns = now_ns_;
  while (now_ns_ < done_ns + 3 * timeout_ns()) {
    if (!step()) jump();
  }
  check_memory();
  for (unsigned i = 0; i < endpoints_.size(); ++i) check_counters(i);
}

bool MixWorld::step() {
  bool worked = false;
  for (unsigned i = 0; i < endpoints_.size(); ++i) worked = run_endpoint(i) || worked;
  if (worked) {
    now_ns_ += 1 + random_.below(kStepNs);
    net_.advance_to(now_ns_);
  }
  return worked;
}

bool MixWorld::run_endpoint(unsigned at) {
  Endpoint& endpoint = *endpoints_[at];
  if (now_ns_ < endpoint.stalled_until_ns) return false;
  const Plan& setting = plan_.setting;
  if (setting.stall > 0 && static_cast<double>(random_.below(1000)) < setting.stall * 1000) {
    endpoint.stalled_until_ns = now_ns_ + random_.below(setting.stall_ns);
    return true;
  }
  bool worked = endpoint.loop.run_once(now()) > 0;
  require(broken_promise_.empty(), broken_promise_);
  take_completions(endpoint);
  take_events(at);
  end_burst(at);
  for (std::size_t i = 0; i < ends_.size(); ++i) {
    if (plan_.qps[i].at == at) worked = post_sends(i) || worked;
  }
  for (const auto& queue : queues_) {
    if (queue->plan().at != at) continue;
    worked = queue->post(now_ns_, random_) || worked;
    queue->change(random_);
  }
  return worked || endpoint.loop.has_work();
}

void MixWorld::take_completions(Endpoint& endpoint) {
  Wc wcs[32];
  for (transport::CqRing* cq : {&endpoint.first_cq, &endpoint.second_cq}) {
    for (std::size_t count = cq->poll(wcs); count > 0; count = cq->poll(wcs)) {
      for (const Wc& wc : std::span(wcs).first(count)) {
        ++endpoint.completions;
        const std::size_t index = index_of_qpn_.at(raw(wc.qpn));
        const bool is_receive = raw(wc.opcode) >= raw(WcOpcode::kRecv);
        require(cq == (is_receive ? &endpoint.recv_cq : &endpoint.send_cq), "a completion in the wrong CQ");
        require(wc.ok(),
                name(index, "failed: ") + std::string(transport::row(transport::Fault{wc.vendor_err}).text));
        is_receive ? on_receive_completion(index, wc) : on_send_completion(index, wc);
      }
    }
  }
}

void MixWorld::take_events(unsigned at) {
  engine::LoopEvent event;
  while (endpoints_[at]->loop.next_event(event)) {
    if (event.type == AsyncEventType::kCommEst) continue;
    require(event.type == AsyncEventType::kSrqLimitReached, "event " + std::to_string(raw(event.type)));
    require(event.srq >= 1 && event.srq <= queues_.size(), "an event of no shared receive queue");
    queues_[event.srq - 1]->on_limit_event();
  }
}

/// Whatever certainly had to complete has, and where that was not known the matter is settled.
void MixWorld::end_burst(unsigned at) {
  for (std::size_t i = 0; i < ends_.size(); ++i) {
    if (plan_.qps[i].at != at) continue;
    for (const Arrival& arrival : ends_[i].expected) {
      require(!arrival.sure, name(i, "did not deliver message ") + std::to_string(arrival.parcel));
    }
    ends_[i].expected.clear();
  }
  for (const auto& queue : queues_) {
    if (queue->plan().at == at) queue->end_burst();
  }
}

/// Moves the clock to the next thing that will happen.
void MixWorld::jump() {
  std::uint64_t next = now_ns_ + timeout_ns();
  const auto wake = [&](unsigned at, std::uint64_t time_ns) {
    next = std::min(next, std::max(time_ns, endpoints_[at]->stalled_until_ns));
  };
  for (unsigned i = 0; i < endpoints_.size(); ++i) {
    if (const auto arrival = net_.next_arrival_ns(i)) wake(i, *arrival);
    if (const Ticks due = endpoints_[i]->loop.deadline(now()); due.is_set()) wake(i, due.ns() - kStartNs);
  }
  for (std::size_t i = 0; i < ends_.size(); ++i) {
    const unsigned at = plan_.qps[i].at;
    if (const Ticks due = ends_[i].qp->deadline(); due.is_set()) {
      wake(at, std::max(due.ns() - std::min(due.ns(), kStartNs), now_ns_) + kWheelSlackNs);
    }
    if (may_post(i) && ends_[i].next_post_ns > now_ns_) wake(at, ends_[i].next_post_ns);
  }
  for (const auto& queue : queues_) {
    if (const std::uint64_t time = queue->next_post_ns(); time > now_ns_) wake(queue->plan().at, time);
  }
  now_ns_ = std::max(now_ns_ + 1, next);
  net_.advance_to(now_ns_);
}

bool MixWorld::may_post(std::size_t index) const noexcept {
  const MixQp& qp = plan_.qps[index];
  const End& end = ends_[index];
  return end.posted < qp.parcels.size() && end.posted - end.completed < qp.outstanding;
}

bool MixWorld::post_sends(std::size_t index) {
  End& end = ends_[index];
  const MixQp& plan = plan_.qps[index];
  if (now_ns_ < end.next_post_ns) return false;
  bool any = false;
  while (may_post(index) && post(index, plan.parcels[end.posted])) {
    any = true;
    if (plan.pause_ns == 0 || random_.below(2) == 0) continue;
    end.next_post_ns = now_ns_ + 1 + random_.below(plan.pause_ns);
    break;
  }
  if (any) endpoints_[plan.at]->loop.ring(*end.qp);
  return any;
}

bool MixWorld::post(std::size_t index, const Parcel& parcel) {
  End& end = ends_[index];
  const MixQp& plan = plan_.qps[index];
  const MixQp& to = plan_.qps[parcel.to];
  Bank& source = endpoints_[plan.at]->memory.source;
  Bank& remote = endpoints_[to.at]->memory.remote;
  std::vector<Sge> list;
  std::span<const std::byte> data = data_of(parcel);
  for (const Piece& piece : parcel.local) {
    source.store(piece.at, data.first(piece.len));
    data = data.subspan(piece.len);
    list.push_back({source.addr(piece.at), piece.len, Lkey{source.key()}});
  }
  const SendWr wr{.wr_id = end.posted,
                  .sges = list,
                  .opcode = parcel.opcode,
                  .flags = parcel.flags,
                  .imm_data = parcel.imm,
                  .remote_addr = remote.addr(parcel.remote_at),
                  .rkey = Rkey{remote.key()},
                  .remote_srq = static_cast<std::uint32_t>(parcel.queue + 1),
                  .ah = handle_to(to.at),
                  .remote_qpn = to.qpn,
                  .remote_qkey = parcel.qkey};
  if (!end.qp->context().sq.put(wr, 0)) return false;
  end.qp->context().sq.publish(1);
  ++end.posted;
  if (plan.is_rc() && !parcel.is_send()) {
    data = data_of(parcel);
    std::copy(data.begin(), data.end(), remote.image(parcel.remote_at, parcel.length).begin());
  }
  if ((parcel.flags & send_flag::kInline) != 0) scribble(source, parcel.local);
  return true;
}

void MixWorld::on_send_completion(std::size_t index, const Wc& wc) {
  End& end = ends_[index];
  const MixQp& plan = plan_.qps[index];
  const auto is_signaled = [&](std::size_t i) {
    return plan.init.sq_sig_all || (plan.parcels[i].flags & send_flag::kSignaled) != 0;
  };
  std::size_t expected = end.completed;
  while (expected < end.posted && !is_signaled(expected)) ++expected;
  require(expected < end.posted && wc.wr_id == expected, name(index, "another send completed"));
  require(wc.opcode == sent_as(plan.parcels[expected]), name(index, "wrong opcode in the completion"));
  for (; end.completed <= expected; ++end.completed) {
    const Parcel& parcel = plan.parcels[end.completed];
    if ((parcel.flags & send_flag::kInline) == 0) {
      scribble(endpoints_[plan.at]->memory.source, parcel.local);
    }
  }
}

bool MixWorld::matches(const Wc& wc, const Arrival& arrival) const noexcept {
  const MixQp& from = plan_.qps[arrival.from];
  const Parcel& parcel = from.parcels[arrival.parcel];
  const std::size_t header = from.is_ud() ? kGrhBytes : 0;
  const unsigned flags = (parcel.has_imm() ? wc_flag::kWithImm : 0U) | (from.is_ud() ? wc_flag::kGrh : 0U);
  const LinkPlan& link = plan_.setting.link;
  if (from.is_ud() && (wc.vlan != link.vlan || wc.sl != (link.vlan == 0 ? 0 : link.sl))) return false;
  return wc.opcode == (parcel.is_send() ? WcOpcode::kRecv : WcOpcode::kRecvRdmaWithImm) &&
         wc.src_qpn == from.qpn && wc.byte_len == header + parcel.length && wc.flags == flags &&
         (!parcel.has_imm() || wc.imm_data == parcel.imm);
}

/// Whether the memory of a receive holds that message: two may look the same in their completions.
bool MixWorld::has_data(std::size_t index, const Wc& wc, const Arrival& arrival) {
  const MixQp& plan = plan_.qps[index];
  const Parcel& parcel = plan_.qps[arrival.from].parcels[arrival.parcel];
  const auto& slots = queues_[plan.queue]->plan().slots;
  if (!parcel.is_send() || wc.wr_id >= slots.size()) return true;
  Bank& inbox = endpoints_[plan.at]->memory.inbox;
  const auto data = data_of(parcel);
  bool same = true;
  for_each_part(slots[wc.wr_id], plan.is_ud() ? kGrhBytes : 0, data.size(),
                [&](std::size_t at, std::size_t from, std::size_t part) {
                  same = same && std::ranges::equal(inbox.bytes(at, part), data.subspan(from, part));
                });
  return same;
}

/// The message that a completion must be about.
MixWorld::Arrival MixWorld::next_arrival(std::size_t index, const Wc& wc) {
  const MixQp& plan = plan_.qps[index];
  End& end = ends_[index];
  if (plan.is_rc()) {
    const auto& coming = plan_.qps[plan.peer].parcels;
    while (end.received < coming.size() && !coming[end.received].takes_receive()) ++end.received;
    require(end.received < ends_[plan.peer].posted, name(index, "received what was not sent"));
    return {plan.peer, end.received++, true};
  }
  while (!end.expected.empty()) {
    const Arrival arrival = end.expected.front();
    end.expected.pop_front();
    if (arrival.sure || (matches(wc, arrival) && has_data(index, wc, arrival))) return arrival;
  }
  throw Violation(name(index, "received what did not arrive"));
}

void MixWorld::on_receive_completion(std::size_t index, const Wc& wc) {
  const Arrival arrival = next_arrival(index, wc);
  require(matches(wc, arrival),
          name(index, "its completion does not fit message ") + std::to_string(arrival.parcel));
  check_received(index, wc, arrival);
  ++delivered_;
}

void MixWorld::check_received(std::size_t index, const Wc& wc, const Arrival& arrival) {
  const MixQp& plan = plan_.qps[index];
  const Parcel& parcel = plan_.qps[arrival.from].parcels[arrival.parcel];
  MixReceives& queue = *queues_[plan.is_xrc() ? parcel.queue : plan.queue];
  const std::vector<Piece>& pieces = queue.complete(wc.wr_id);
  Bank& inbox = endpoints_[plan.at]->memory.inbox;
  const auto accept = [&](std::size_t at, std::size_t, std::size_t part) {
    const auto bytes = inbox.bytes(at, part);
    std::copy(bytes.begin(), bytes.end(), inbox.image(at, part).begin());
  };
  // Messages that came to nothing may have begun in a receive that nobody knew of.
  if (queue.plan().is_shared && queue.plan().has_uc) for_each_part(pieces, 0, total(pieces), accept);
  std::size_t header = 0;
  if (plan.is_ud()) {
    check_network_header(arrival, index, pieces);
    header = kGrhBytes;
    for_each_part(pieces, 0, header, accept);
  }
  if (!arrival.sure && !parcel.is_send()) {  // so its last packet was placed
    const std::uint32_t mtu = bytes(plan_.setting.mtu);
    const std::uint32_t before = parcel.length == 0 ? 0 : (parcel.length - 1) / mtu * mtu;
    place(index, parcel, before, parcel.length - before);
  }
  if (parcel.is_send()) {
    const auto data = data_of(parcel);
    for_each_part(pieces, header, data.size(), [&](std::size_t at, std::size_t from, std::size_t part) {
      const auto bytes = data.subspan(from, part);
      std::copy(bytes.begin(), bytes.end(), inbox.image(at, part).begin());
    });
  }
  for (const Piece& piece : pieces) {
    require(inbox.is_right(piece.at, piece.len),
            name(index, "wrong data in message ") + std::to_string(arrival.parcel));
  }
  scribble(inbox, pieces);
}

void MixWorld::check_network_header(const Arrival& arrival, std::size_t index,
                                    const std::vector<Piece>& pieces) {
  std::array<std::byte, kGrhBytes> header{};
  Bank& inbox = endpoints_[plan_.qps[index].at]->memory.inbox;
  for_each_part(pieces, 0, header.size(), [&](std::size_t at, std::size_t from, std::size_t part) {
    const auto bytes = inbox.bytes(at, part);
    std::copy(bytes.begin(), bytes.end(), header.begin() + static_cast<std::ptrdiff_t>(from));
  });
  const transport::DatagramOrigin origin = transport::origin_of(header);
  const auto& endpoints = plan_.setting.endpoints;
  require(origin.sender.dgid == endpoints[plan_.qps[arrival.from].at].gid &&
              origin.to == endpoints[plan_.qps[index].at].gid && origin.type == plan_.setting.link.type,
          name(index, "a network header with other addresses"));
}

void MixWorld::check_memory() {
  for (const auto& queue : queues_) queue->accept_remains();
  for (unsigned i = 0; i < endpoints_.size(); ++i) {
    EndpointPlan& memory = endpoints_[i]->memory;
    const std::pair<const char*, Bank*> banks[] = {
        {"source", &memory.source}, {"inbox", &memory.inbox}, {"remote", &memory.remote}};
    for (const auto& [what, bank] : banks) {
      const std::size_t wrong = bank->first_wrong();
      require(wrong == bank->size(), "endpoint " + std::to_string(i) + ": byte " + std::to_string(wrong) +
                                         " of " + std::to_string(bank->size()) + " in " + what +
                                         " is not as it should be");
    }
  }
}

void MixWorld::check_counters(unsigned at) {
  const Counters& counters = endpoints_[at]->loop.counters();
  const NetTally& tally = net_.tally(at);
  const auto expect = [&](std::string_view what, std::uint64_t is, std::uint64_t should) {
    require(is == should, "endpoint " + std::to_string(at) + ": " + std::string(what) + " is " +
                              std::to_string(is) + ", should be " + std::to_string(should));
  };
  expect("rx_roce", counters.get(Count::kRxRoce) - counters.get(Count::kDropBadIcrc), tally.shown_clean_roce);
  expect("tx_roce", counters.get(Count::kTxRoce), tally.sent_roce);
  expect("completions", counters.get(Count::kCompletions), endpoints_[at]->completions);
  expect("cnps handled or ignored", counters.get(Count::kCnpsHandled) + counters.get(Count::kCnpsIgnored),
         tally.shown_cnps);
  expect("drop_bad_qkey", counters.get(Count::kDropBadQkey), bad_qkeys_[at]);
  for (const Count never : kNever) {
    expect(kCounterNames[static_cast<std::size_t>(never)], counters.get(never), 0);
  }
  std::uint64_t sent = 0;
  for (const MixQp& qp : plan_.qps) sent += qp.at == at ? qp.parcels.size() : 0;
  expect("requester_messages", counters.get(Count::kRequesterMessages), sent);
}

void MixWorld::add_to(Totals& totals) const {
  ++totals.schedules;
  totals.messages += plan_.parcels();
  totals.received += delivered_;
  totals.virtual_ns += now_ns_;
  for (unsigned i = 0; i < endpoints_.size(); ++i) {
    add_counters(totals, endpoints_[i]->loop.counters());
    totals.damaged += net_.tally(i).shown_damaged;
  }
  for (const auto& queue : queues_) totals.limit_events += queue->limit_events();
}

}  // namespace uroce::sim
