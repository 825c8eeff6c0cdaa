#include "cm/agent.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <string>

#include "cm/ip_header.h"
#include "uroce/access.h"

namespace uroce::cm {

namespace {

constexpr std::uint8_t kCmTimeout = 20;  // 4.3 s: what each end is given to answer in, said in the REQ
constexpr std::uint8_t kCmRetries = 15;
constexpr std::uint8_t kPacketRate = 0;     // the port's: no static limit
constexpr std::uint16_t kRoceLid = 0xffff;  // there are none
constexpr std::uint8_t kAckTimeout = 16;    // 0.27 s
constexpr std::uint8_t kMaxAckTimeout = 31;
constexpr std::uint8_t kTargetAckDelay = 15;
constexpr std::size_t kRemembered = 1024;  // requests that led to nothing, but no more than half of all ids
constexpr std::uint64_t kMemoryNs = 10'000'000;  // until what there was no memory for is tried again

/// Of a time that may have no measure.
constexpr std::uint64_t ns(std::chrono::milliseconds time) noexcept {
  constexpr std::chrono::milliseconds kMost = std::chrono::hours(24);
  const auto bounded = std::clamp(time, std::chrono::milliseconds{0}, kMost);
  return static_cast<std::uint64_t>(std::chrono::nanoseconds(bounded).count());
}

template <std::size_t N>
void put(std::array<std::byte, N>& to, std::span<const std::byte> bytes, std::size_t at = 0) noexcept {
  std::copy(bytes.begin(), bytes.end(), to.begin() + static_cast<std::ptrdiff_t>(at));
}

Error too_long(std::size_t most) {
  return Error{Errc::kInvalid,
               "private data of this message is at most " + std::to_string(most) + " bytes long"};
}

constexpr bool is_end(CmEventType type) noexcept {
  return type == CmEventType::kRejected || type == CmEventType::kUnreachable ||
         type == CmEventType::kDisconnected;
}

/// Whether a REQ can name it. IBA 12.6.5.
constexpr bool can_connect(QpType type) noexcept {
  return type == QpType::kRc || type == QpType::kUc || type == QpType::kXrcSend;
}

constexpr std::uint8_t service_code(QpType type) noexcept {
  if (type == QpType::kUc) return 1;
  return type == QpType::kRc ? 0 : 3;
}

}  // namespace

Agent::Agent(const AgentConfig& config, AgentHost& host)
    : config_(config),
      host_(host),
      random_(config.seed),
      remembered_(std::clamp<std::size_t>(config.max_ids / 2, 1, kRemembered)) {}

Conversation* Agent::get(CmId id) {
  const auto found = conversations_.find(raw(id));
  return found == conversations_.end() ? nullptr : found->second.get();
}

const Conversation* Agent::find(CmId id) const {
  const auto found = conversations_.find(raw(id));
  return found == conversations_.end() || found->second->closed ? nullptr : found->second.get();
}

/// Ids are random: a guess hits nobody, and a restart repeats none.
Conversation* Agent::make(PortSpace space) {
  if (conversations_.size() >= config_.max_ids) return nullptr;
  std::uint32_t id = 0;
  while (id == 0 || conversations_.contains(id)) id = random_.next32();
  auto made = std::make_unique<Conversation>();
  made->id = CmId{id};
  made->space = space;
  made->mine.psn = Psn{random_.next32()};
  made->path_mtu = config_.path_mtu;
  DueTimes times{{Ticks{}, made->id}};
  made->timer = times.extract(times.begin());
  return (conversations_[id] = std::move(made)).get();
}

/// The conversation of an application's call that is for one state only.
Result<Conversation*> Agent::in(CmId id, State state, const char* what) {
  Conversation* c = get(id);
  if (c == nullptr || c->closed) return Error{Errc::kInvalid, "no such connection id, or it is closed"};
  if (c->state != state) return Error{Errc::kBadState, what};
  return c;
}

Result<CmId> Agent::create(PortSpace space) {
  Conversation* c = make(space);
  if (c == nullptr) return Error{Errc::kLimit, "all connection ids are in use"};
  return c->id;
}

Status Agent::bind(CmId id, const CmAddress& address) {
  auto c = in(id, State::kIdle, "only a new id is bound to an address");
  if (!c) return c.error();
  if ((*c)->is_bound) return Error{Errc::kBadState, "the id is bound to an address already"};
  if (!address.ip.is_unspecified() && !host_.is_own(address.ip)) {
    return Error{Errc::kNotFound, to_string(address.ip) + " is no address of this port"};
  }
  auto port = bindings_.take((*c)->space, address, id, random_, (*c)->port_use);
  if (!port) return port.error();
  (*c)->local = {address.ip, *port};
  (*c)->is_bound = true;
  return {};
}

/// As rdma_set_option(3) in the kernel: whoever is bound may begin to share, but not cease to.
Status Agent::share_port(CmId id, bool shares) {
  Conversation* c = get(id);
  if (c == nullptr || c->closed) return Error{Errc::kInvalid, "no such connection id, or it is closed"};
  const bool is_new = c->state == State::kIdle && !c->is_bound;
  if (!is_new && (!shares || c->state == State::kListen))
    return Error{Errc::kBadState, "a port is shared before somebody listens there"};
  c->port_use.shares = shares;
  if (c->is_bound) bindings_.change(c->space, c->local.port, id, c->port_use);
  return {};
}

Status Agent::set_v6_only(CmId id, bool is_only) {
  auto c = in(id, State::kIdle, "which family it is for is said before somebody listens there");
  if (!c) return c.error();
  (*c)->port_use.is_v6_only = is_only;
  if ((*c)->is_bound) bindings_.change((*c)->space, (*c)->local.port, id, (*c)->port_use);
  return {};
}

Status Agent::listen(CmId id, unsigned backlog) {
  auto c = in(id, State::kIdle, "only a new id can listen");
  if (!c) return c.error();
  if (!(*c)->is_bound) {
    if (Status bound = bind(id, {}); !bound) return bound;
  }
  const std::uint16_t port = (*c)->local.port;
  if (!bindings_.claim((*c)->space, port, id))
    return Error{Errc::kNameInUse, "port " + std::to_string(port) + " is of another id, too: close that"};
  (*c)->backlog = std::max(backlog, 1U);
  (*c)->state = State::kListen;
  return {};
}

/// An id that is about to ask somebody something.
Result<Conversation*> Agent::start(CmId id, const CmAddress& from, const Gid& source) {
  auto c = in(id, State::kIdle, "only a new id can ask for a connection");
  if (!c) return c.error();
  if (!(*c)->is_bound) {
    if (Status bound = bind(id, {source, from.port}); !bound) return bound.error();
  }
  (*c)->local.ip = source;
  (*c)->is_active = true;
  (*c)->transaction = random_.next();
  return c;
}

wire::CmReq Agent::request_of(const Conversation& c, const CmConnect& ask) const {
  const bool has_options = c.mine.vendor_id != 0;
  wire::CmReq req{.local_comm_id = raw(c.id),
                  .vendor_id = has_options ? c.mine.vendor_id : ece::kVendor,
                  .service_id = service_id(c.space, c.remote.port),
                  .ca_guid = config_.ca_guid,
                  .qkey = c.mine.qkey,
                  .qpn = c.mine.qpn,
                  .responder_resources = c.mine.responder_resources,
                  .initiator_depth = c.mine.initiator_depth,
                  .remote_cm_timeout = kCmTimeout,
                  .service = service_code(c.mine.type),
                  .flow_control = c.mine.flow_control,
                  .psn = c.mine.psn,
                  .local_cm_timeout = kCmTimeout,
                  .retry_cnt = c.mine.retry_cnt,
                  .path_mtu = raw(c.path_mtu),
                  .rnr_retry = c.mine.rnr_retry,
                  .max_cm_retries = kCmRetries,
                  .srq = c.mine.srq,
                  .extended_transport = service_code(c.mine.type) == 3,
                  .local_lid = kRoceLid,
                  .remote_lid = kRoceLid,
                  .local_gid = c.local.ip,
                  .remote_gid = c.path.dgid,
                  .flow_label = c.path.flow_label,
                  .packet_rate = kPacketRate,
                  .traffic_class = c.path.traffic_class,
                  .hop_limit = c.path.hop_limit,
                  .sl = c.path.sl,
                  .ack_timeout = c.ack_timeout};
  IpHeader{.source_port = c.local.port, .source = c.local.ip, .destination = c.remote.ip}.emit(
      std::span{req.private_data}.first<IpHeader::kSize>());
  put(req.private_data, ask.private_data, IpHeader::kSize);
  return req;
}

Status Agent::connect(CmId id, const CmConnect& ask, const AhAttr& path, const Gid& source, Ticks now) {
  if (ask.private_data.size() > kCmConnectBytes) return too_long(kCmConnectBytes);
  if (!can_connect(ask.terms.type)) {
    return Error{Errc::kInvalid,
                 "RC, UC and XRC-send QPs ask for connections; of UD QPs see resolve_service()"};
  }
  if (ask.ack_timeout > kMaxAckTimeout) {
    return Error{Errc::kInvalid,
                 "ack_timeout " + std::to_string(ask.ack_timeout) + " is not a code of 0 to 31"};
  }
  auto started = start(id, ask.from, source);
  if (!started) return started.error();
  Conversation& c = **started;
  const Psn psn = c.mine.psn;
  c.mine = ask.terms;
  c.mine.psn = psn;
  c.remote = ask.to;
  c.path = path;
  c.path_mtu = std::min(ask.path_mtu, config_.path_mtu);
  c.ack_timeout = ask.ack_timeout == 0 ? kAckTimeout : ask.ack_timeout;
  if (ask.patience.count() > 0) c.patience = now + ns(ask.patience);
  const wire::Mad mad = wire::make_cm_mad(c.transaction, request_of(c, ask), c.mine.options);
  say_until(c, mad, State::kReqSent, now, ns(ask.timeout));
  return {};
}

Status Agent::may_accept(CmId id, const CmAccept& answer) {
  if (answer.private_data.size() > kCmAcceptBytes) return too_long(kCmAcceptBytes);
  auto found = in(id, State::kReqRcvd, "there is no request to accept");
  return found ? Status{} : found.error();
}

Status Agent::accept(CmId id, const CmAccept& answer, Ticks now) {
  if (Status may = may_accept(id, answer); !may) return may;
  Conversation& c = *get(id);
  const Psn psn = c.mine.psn;
  c.mine = answer.terms;
  c.mine.psn = psn;
  const bool is_xrc = c.theirs.type == QpType::kXrcSend;
  const bool may_tell = c.theirs.vendor_id != 0;
  const std::uint32_t options = (may_tell ? c.mine.options : 0) | (c.is_uroce ? kAnsweredByUroce : 0);
  wire::CmRep rep{.local_comm_id = raw(c.id),
                  .remote_comm_id = c.remote_id,
                  .qkey = c.mine.qkey,
                  .qpn = is_xrc ? Qpn{} : c.mine.qpn,
                  .vendor_id = may_tell ? c.theirs.vendor_id : 0,
                  .eecn = is_xrc ? raw(c.mine.qpn) : 0,
                  .psn = c.mine.psn,
                  .responder_resources = c.mine.responder_resources,
                  .initiator_depth = c.mine.initiator_depth,
                  .target_ack_delay = kTargetAckDelay,
                  .flow_control = c.mine.flow_control,
                  .rnr_retry = c.mine.rnr_retry,
                  .srq = c.mine.srq || is_xrc,
                  .ca_guid = config_.ca_guid};
  put(rep.private_data, answer.private_data);
  stop_waiting(c);
  say_until(c, wire::make_cm_mad(c.transaction, rep, options), State::kRepSent, now, config_.times.accept);
  return {};
}

void Agent::send_reject(const Conversation& c, wire::CmAbout about, CmReject reason,
                        std::span<const std::byte> private_data) {
  wire::CmRej rej{.local_comm_id = raw(c.id),
                  .remote_comm_id = c.remote_id,
                  .about = about,
                  .reason = static_cast<std::uint16_t>(reason)};
  put(rej.private_data, private_data);
  say(c, wire::make_cm_mad(c.transaction, rej));
}

/// What whoever has our message, and may not have been heard by us, is told: its id is not known, so ours
/// comes with our GUID. IBA 12.6.7.2.
wire::Mad Agent::timeout_reject(const Conversation& c, wire::CmAbout about) const {
  wire::CmRej rej{.local_comm_id = raw(c.id),
                  .remote_comm_id = c.remote_id,
                  .about = about,
                  .info_len = 8,
                  .reason = static_cast<std::uint16_t>(CmReject::kTimeout)};
  store_be<0, 8>(std::span{rej.info}, config_.ca_guid);
  return wire::make_cm_mad(c.transaction, rej);
}

Status Agent::reject(CmId id, std::span<const std::byte> private_data, Ticks now) {
  if (private_data.size() > kCmRejectBytes) return too_long(kCmRejectBytes);
  Conversation* c = get(id);
  const bool is_asked =
      c != nullptr && !c->closed && (c->state == State::kReqRcvd || c->state == State::kRepRcvd);
  if (!is_asked) return Error{Errc::kBadState, "there is nothing to reject"};
  wire::CmRej rej{.local_comm_id = raw(c->id),
                  .remote_comm_id = c->remote_id,
                  .about = c->state == State::kReqRcvd ? wire::CmAbout::kReq : wire::CmAbout::kRep,
                  .reason = static_cast<std::uint16_t>(CmReject::kConsumer)};
  put(rej.private_data, private_data);
  c->last = wire::make_cm_mad(c->transaction, rej);
  c->refused = true;
  c->ended = true;
  say(*c, c->last);
  enter_timewait(*c, now, config_.times.answered);
  return {};
}

Status Agent::establish(CmId id) {
  auto found = in(id, State::kRepRcvd, "there is no reply to take");
  if (!found) return found.error();
  Conversation& c = **found;
  if (c.left.is_set()) tell(c, CmEventType::kDisconnected);
  c.last = wire::make_cm_mad(c.transaction,
                             wire::CmRtu{.local_comm_id = raw(c.id), .remote_comm_id = c.remote_id});
  c.state = State::kEstablished;
  disarm(c);
  say(c, c.last);
  if (c.left.is_set()) enter_timewait(c, c.left);
  return {};
}

Status Agent::notify_established(CmId id) {
  Conversation* c = get(id);
  if (c == nullptr || c->closed) return Error{Errc::kInvalid, "no such connection id, or it is closed"};
  if (c->state != State::kRepSent) return {};  // the RTU was faster
  tell(*c, CmEventType::kEstablished);
  c->state = State::kEstablished;
  disarm(*c);
  return {};
}

void Agent::begin_disconnect(Conversation& c, Ticks now) {
  c.transaction = random_.next();
  const wire::CmDreq dreq{
      .local_comm_id = raw(c.id), .remote_comm_id = c.remote_id, .remote_qpn = c.theirs.qpn};
  say_until(c, wire::make_cm_mad(c.transaction, dreq), State::kDreqSent, now, config_.times.release);
}

Status Agent::may_disconnect(CmId id) const {
  const Conversation* c = find(id);
  if (c == nullptr) return Error{Errc::kInvalid, "no such connection id, or it is closed"};
  const bool is_ending =
      c->state == State::kDreqSent || c->state == State::kTimewait || c->state == State::kDone;
  if (!is_connected(c->state) && !is_ending) return Error{Errc::kBadState, "there is no connection to end"};
  return {};
}

Status Agent::disconnect(CmId id, Ticks now) {
  if (Status may = may_disconnect(id); !may) return may;
  Conversation& c = *get(id);
  if (is_connected(c.state)) begin_disconnect(c, now);
  return {};
}

void Agent::on_failure(CmId id, std::string text, Ticks now) {
  Conversation* c = get(id);
  if (c == nullptr || !is_connected(c->state)) return;
  CmEvent event = event_of(*c, CmEventType::kDisconnected);
  event.text = std::move(text);
  begin_disconnect(*c, now);  // the peer may be alive
  tell(*c, std::move(event));
}

Status Agent::resolve_service(CmId id, const CmServiceQuery& ask, const AhAttr& path, const Gid& source,
                              Ticks now) {
  if (ask.private_data.size() > kCmServiceRequestBytes) return too_long(kCmServiceRequestBytes);
  auto started = start(id, ask.from, source);
  if (!started) return started.error();
  Conversation& c = **started;
  c.remote = ask.to;
  c.path = path;
  if (ask.patience.count() > 0) c.patience = now + ns(ask.patience);
  wire::SidrReq req{.request_id = raw(c.id), .service_id = service_id(c.space, c.remote.port)};
  IpHeader{.source_port = c.local.port, .source = c.local.ip, .destination = c.remote.ip}.emit(
      std::span{req.private_data}.first<IpHeader::kSize>());
  put(req.private_data, ask.private_data, IpHeader::kSize);
  say_until(c, wire::make_cm_mad(c.transaction, req), State::kSidrReqSent, now, ns(ask.timeout));
  return {};
}

Status Agent::reply_service(CmId id, const CmServiceReply& answer, Ticks now) {
  if (answer.private_data.size() > kCmServiceReplyBytes) return too_long(kCmServiceReplyBytes);
  auto found = in(id, State::kSidrReqRcvd, "nobody has asked for a service");
  if (!found) return found.error();
  Conversation& c = **found;
  wire::SidrRep rep{.request_id = c.remote_id,
                    .status = answer.status,
                    .qpn = answer.qpn,
                    .service_id = service_id(c.space, c.local.port),
                    .qkey = answer.qkey};
  put(rep.private_data, answer.private_data);
  c.last = wire::make_cm_mad(c.transaction, rep);
  c.ended = true;
  say(c, c.last);
  enter_timewait(c, now, config_.times.answered);
  return {};
}

void Agent::close(CmId id, Ticks now) {
  Conversation* c = get(id);
  if (c == nullptr || c->closed) return;
  if (c->state == State::kReqRcvd || c->state == State::kRepRcvd) {
    (void)reject(id, {}, now);  // a DREQ would tell of the end of a connection that there never was
  } else if (c->state == State::kSidrReqRcvd) {
    (void)reply_service(id, {.status = 2}, now);
  }
  c->closed = true;
  release_port(*c);
  if (c->state == State::kReqSent) say(*c, timeout_reject(*c, wire::CmAbout::kReq));
  if (is_connected(c->state)) begin_disconnect(*c, now);
  const bool goes_on = c->state == State::kDreqSent || c->state == State::kTimewait;
  if (!goes_on) finish(*c);
}

void Agent::drop(CmId id, Ticks now) {
  Conversation* c = get(id);
  if (c == nullptr || c->closed || c->state != State::kReqRcvd) return close(id, now);
  c->closed = true;
  release_port(*c);
  finish(*c);
}

bool Agent::is_releasing() const noexcept {
  return std::any_of(conversations_.begin(), conversations_.end(),
                     [](const auto& entry) { return entry.second->state == State::kDreqSent; });
}

Result<QpAttr> Agent::qp_attr(CmId id) const {
  const Conversation* c = find(id);
  if (c == nullptr) return Error{Errc::kInvalid, "no such connection id, or it is closed"};
  if (c->state != State::kReqRcvd && !is_connected(c->state)) {
    return Error{Errc::kBadState, "the other end's terms are not known yet"};
  }
  const CmTerms& mine = c->mine;
  QpAttr attr{.path_mtu = c->path_mtu,
              .dest_qpn = c->theirs.qpn,
              .rq_psn = mine.psn,
              .sq_psn = c->theirs.psn,
              .access_flags = access::kRemoteWrite,
              .dgid = c->path.dgid,
              .sgid_index = c->path.sgid_index,
              .traffic_class = c->path.traffic_class,
              .hop_limit = c->path.hop_limit,
              .flow_label = c->path.flow_label,
              .sl = c->path.sl,
              .max_rd_atomic = std::min(mine.initiator_depth, c->theirs.responder_resources),
              .max_dest_rd_atomic = mine.responder_resources,
              .timeout = c->ack_timeout,
              .retry_cnt = c->is_active ? mine.retry_cnt : c->theirs.retry_cnt,
              .rnr_retry = c->theirs.rnr_retry,
              .qkey = mine.qkey};
  if (mine.responder_resources > 0) attr.access_flags |= access::kRemoteRead | access::kRemoteAtomic;
  return attr;
}

// Saying, and saying again.

void Agent::arm(Conversation& c, Ticks due) {
  if (c.due.is_set()) c.timer = due_.extract({c.due, c.id});
  c.due = due;
  if (!due.is_set()) return;
  c.timer.value() = {due, c.id};
  due_.insert(std::move(c.timer));
}

void Agent::say(const Conversation& c, const wire::Mad& mad) {
  ++counters_.sent;
  host_.send(c.path, mad);
}

void Agent::say_until(Conversation& c, const wire::Mad& mad, State state, Ticks now,
                      std::uint64_t patience_ns) {
  c.last = mad;
  c.state = state;
  c.interval_ns = config_.times.first_repeat;
  c.give_up = now + std::max<std::uint64_t>(patience_ns, 1);
  arm(c, std::min(now + c.interval_ns, c.give_up));
  say(c, c.last);
}

void Agent::repeat(Conversation& c) {
  ++counters_.repeated;
  say(c, c.last);
}

void Agent::on_time(Ticks now) {
  while (!due_.empty() && due_.begin()->first <= now) {
    Conversation& c = *get(due_.begin()->second);
    arm(c, now + kMemoryNs);  // if on_due() throws
    on_due(c, now);
  }
}

void Agent::on_due(Conversation& c, Ticks now) {
  if (c.state == State::kTimewait) {
    if (!c.refused && c.theirs.qpn != Qpn{}) tell(c, CmEventType::kTimewaitExit);
    return finish(c);
  }
  if (c.state == State::kRepSent && host_.has_heard(c.id)) return (void)notify_established(c.id);
  if (now >= c.give_up) return on_silence(c, now);
  repeat(c);
  c.interval_ns = std::min(2 * c.interval_ns, config_.times.last_repeat);
  arm(c, std::min(now + c.interval_ns, c.give_up));
}

/// Nobody has answered in time.
void Agent::on_silence(Conversation& c, Ticks now) {
  if (c.state == State::kDreqSent) {
    tell(c, CmEventType::kDisconnected);
    return enter_timewait(c, now);
  }
  CmEvent event = event_of(c, CmEventType::kUnreachable);
  event.text = to_string(c.remote) + " did not answer in time" + host_.trouble(c.path);
  tell(c, std::move(event));
  if (c.state == State::kReqSent) say(c, timeout_reject(c, wire::CmAbout::kReq));
  if (c.state != State::kRepSent) return finish(c);
  say(c, timeout_reject(c, wire::CmAbout::kRep));
  begin_disconnect(c, now);  // it may be that only its RTUs were lost
}

void Agent::enter_timewait(Conversation& c, Ticks now, std::uint64_t for_ns) {
  const bool was_asked = c.state == State::kReqRcvd || c.state == State::kSidrReqRcvd;
  stop_waiting(c);
  c.state = State::kTimewait;
  arm(c, now + for_ns);
  if (was_asked) remember(c, now);
}

/// Who asks and takes it back, or is refused, again and again, must not fill the memory: the oldest is
/// forgotten. If its peer still repeats the request, that is taken for a new one.
void Agent::remember(Conversation& c, Ticks now) {
  c.is_remembered = true;
  CmId& place = remembered_[next_remembered_++ % remembered_.size()];
  Conversation* const oldest = get(std::exchange(place, c.id));
  const bool is_left = oldest != nullptr && oldest->is_remembered && oldest->state == State::kTimewait;
  if (is_left) arm(*oldest, now);
}

void Agent::stop_waiting(Conversation& c) {
  Conversation* listener = c.listener == CmId{} ? nullptr : get(c.listener);
  if (listener != nullptr) --listener->waiting;
  c.listener = CmId{};
}

/// Nothing of it goes on. One that is closed is forgotten.
void Agent::finish(Conversation& c) {
  stop_waiting(c);
  c.state = State::kDone;
  disarm(c);
  unindex(c);
  if (c.closed) forget(c);
}

void Agent::unindex(Conversation& c) {
  const auto drop = [&c](auto& index, const auto& key) {
    const auto found = index.find(key);
    if (found != index.end() && found->second == c.id) index.erase(found);
  };
  drop(by_remote_id_, Remote{c.remote_guid, c.remote_id, c.path.dgid});
  drop(by_remote_qpn_, Remote{c.remote_guid, raw(c.theirs.qpn), c.path.dgid});
  drop(by_sidr_, SidrKey{c.path.dgid, c.remote_id});
}

/// Messages to what is left of an id name that, not its port.
void Agent::release_port(Conversation& c) {
  if (c.is_bound) bindings_.release(c.space, c.local.port, c.id);
  c.is_bound = false;
}

void Agent::forget(Conversation& c) {
  conversations_.erase(raw(c.id));
}

CmEvent Agent::event_of(const Conversation& c, CmEventType type) const {
  CmEvent event;
  event.type = type;
  event.id = c.id;
  event.listener = c.listener;
  event.local = c.local;
  event.remote = c.remote;
  event.peer = c.theirs;
  event.path = c.path;
  event.is_uroce = c.is_uroce;
  return event;
}

void Agent::tell(const Conversation& c, CmEvent&& event) {
  const bool ends = is_end(event.type);
  if (c.closed || (ends && c.ended)) return;
  host_.on_event(std::move(event));
  if (ends) get(c.id)->ended = true;
}

}  // namespace uroce::cm
