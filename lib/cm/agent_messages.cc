// What the agent does with each message.
#include <algorithm>

#include "cm/agent.h"
#include "cm/ip_header.h"

namespace uroce::cm {

namespace {

using wire::CmAttribute;

constexpr std::uint8_t kBusyTimeout = 20;                  // MRA: 4.3 s
constexpr std::uint64_t kMostPatienceNs = 60'000'000'000;  // that an MRA can ask for
constexpr std::uint8_t kKernelAckTimeout = 16;  // at most, for peers that only know RDMA-CM's 2 seconds
constexpr std::uint8_t kNoSuchService = 1;

/// What a peer wants of us, said from our side.
CmTerms mirrored(const CmTerms& theirs, Psn psn) noexcept {
  CmTerms mine;
  mine.psn = psn;
  mine.type = theirs.type;
  mine.responder_resources = theirs.initiator_depth;
  mine.initiator_depth = theirs.responder_resources;
  return mine;
}

CmTerms terms_of(const wire::CmReq& req, std::uint32_t options) noexcept {
  CmTerms terms;
  terms.type = req.service == 0 ? QpType::kRc : req.service == 1 ? QpType::kUc : QpType::kXrcSend;
  terms.qpn = req.qpn;
  terms.psn = req.psn;
  terms.responder_resources = req.responder_resources;
  terms.initiator_depth = req.initiator_depth;
  terms.retry_cnt = req.retry_cnt;
  terms.rnr_retry = req.rnr_retry;
  terms.srq = req.srq;
  terms.flow_control = req.flow_control;
  terms.qkey = req.qkey;
  terms.vendor_id = req.vendor_id;
  terms.options = options;
  return terms;
}

CmTerms terms_of(const wire::CmRep& rep, QpType type) noexcept {
  CmTerms terms;
  terms.type = type;
  terms.qpn = type == QpType::kXrcSend ? Qpn{rep.eecn} : rep.qpn;
  terms.psn = rep.psn;
  terms.responder_resources = rep.responder_resources;
  terms.initiator_depth = rep.initiator_depth;
  terms.rnr_retry = rep.rnr_retry;
  terms.srq = rep.srq;
  terms.flow_control = rep.flow_control;
  terms.qkey = rep.qkey;
  terms.vendor_id = rep.vendor_id;
  return terms;
}

template <std::size_t N>
void set_private(CmEvent& event, const std::array<std::byte, N>& bytes, std::size_t from = 0) noexcept {
  const auto used = std::span{bytes}.subspan(from);
  std::copy(used.begin(), used.end(), event.private_bytes.begin());
  event.private_len = static_cast<std::uint8_t>(used.size());
}

constexpr std::uint64_t service_ns(std::uint8_t code) noexcept {
  return std::min(std::uint64_t{4096} << code, kMostPatienceNs);
}

}  // namespace

void Agent::on_mad(const AhAttr& from, std::span<const std::byte, wire::kMadBytes> bytes, Ticks now) {
  ++counters_.received;
  const auto header = wire::MadHeader::parse(bytes.first<wire::MadHeader::kSize>());
  const Received in{from, header, wire::cm_body(bytes), now};
  const bool is_cm = header.base_version == 1 && header.mgmt_class == wire::kCmClass &&
                     header.class_version == wire::kCmVersion && header.method == wire::kCmSend;
  if (!is_cm) {
    ++counters_.malformed;
    return;
  }
  switch (static_cast<CmAttribute>(header.attribute_id)) {
    case CmAttribute::kReq:
      return on_req(in);
    case CmAttribute::kRep:
      return on_rep(in);
    case CmAttribute::kRtu:
      return on_rtu(in);
    case CmAttribute::kRej:
      return on_rej(in);
    case CmAttribute::kMra:
      return on_mra(in);
    case CmAttribute::kDreq:
      return on_dreq(in);
    case CmAttribute::kDrep:
      return on_drep(in);
    case CmAttribute::kLap:
      return on_lap(in);
    case CmAttribute::kSidrReq:
      return on_sidr_req(in);
    case CmAttribute::kSidrRep:
      return on_sidr_rep(in);
    default:
      ++counters_.malformed;
  }
}

Conversation* Agent::addressed(std::uint32_t id, const AhAttr& from) {
  Conversation* c = get(CmId{id});
  if (c != nullptr && c->path.dgid == from.dgid) return c;
  return nullptr;
}

// REQ

/// Why a request cannot be served, whoever listens.
CmReject Agent::judge(const wire::CmReq& req, const AhAttr& from) const {
  if (req.service == 2 || (req.service == 3 && req.extended_transport != 1))
    return CmReject::kInvalidTransport;
  if (req.local_gid != from.dgid) return CmReject::kInvalidGid;  // nobody is sent what he did not ask for
  if (req.path_mtu < raw(PathMtu::k256) || req.path_mtu > raw(config_.path_mtu))
    return CmReject::kInvalidPathMtu;
  if (!IpHeader::parse(std::span{req.private_data}.first<IpHeader::kSize>())) return CmReject::kUnsupported;
  return CmReject::kNone;
}

CmId Agent::listener_of(std::uint64_t service, const Gid& destination, bool is_datagram) {
  if (service >> 32 != 0) return CmId{};
  const auto space = static_cast<PortSpace>(service >> 16);
  const bool is_of_datagrams = space == PortSpace::kUdp || space == PortSpace::kIpoib;
  if (is_of_datagrams != is_datagram && space != PortSpace::kIb) return CmId{};
  return bindings_.find(space, static_cast<std::uint16_t>(service), [&](CmId id) {
    const Conversation* c = find(id);
    if (c == nullptr || c->state != State::kListen) return false;
    if (c->local.ip.is_zero()) return !c->port_use.is_v6_only || !destination.is_v4();
    return c->local.ip == destination || (c->local.ip.is_unspecified() && destination.is_v4());
  });
}

void Agent::refuse(const Received& in, const wire::CmReq& req, CmReject reason) {
  ++counters_.rejected;
  wire::CmRej rej{.remote_comm_id = req.local_comm_id, .reason = static_cast<std::uint16_t>(reason)};
  if (reason == CmReject::kInvalidPathMtu) {
    rej.info_len = 1;
    rej.info[0] = std::byte{raw(config_.path_mtu)};  // one that would do; IBA 12.6.7.2
  }
  ++counters_.sent;
  host_.send(in.from, wire::make_cm_mad(in.header.transaction_id, rej));
}

/// The peer uses its QP for something new: what we know of it is over. IBA 12.9.8.3.1 ?
/// @return whether there was a connection.
bool Agent::end_stale(const Remote& qp, Ticks now) {
  const auto found = by_remote_qpn_.find(qp);
  if (found == by_remote_qpn_.end()) return false;
  Conversation& stale = *get(found->second);
  if (stale.state == State::kReqRcvd) {  // it has given up, and its REJ was lost
    CmEvent event = event_of(stale, CmEventType::kRejected);
    event.reason = CmReject::kTimeout;
    tell(stale, std::move(event));
    enter_timewait(stale, now);
  }
  if (!is_connected(stale.state)) return false;
  on_failure(stale.id, "the peer uses its QP for another connection", now);
  return true;
}

template <std::size_t N, typename Index>
void Agent::announce(Conversation& c, CmEventType type, const std::array<std::byte, N>& private_data,
                     Index&& index) {
  try {
    index();
    CmEvent event = event_of(c, type);
    set_private(event, private_data, IpHeader::kSize);
    tell(c, std::move(event));
  } catch (const std::bad_alloc&) {
    c.closed = true;
    finish(c);
    throw;
  }
}

void Agent::on_req(const Received& in) {
  const auto req = wire::CmReq::parse(in.body);
  const Remote id{req.ca_guid, req.local_comm_id, in.from.dgid};
  const auto known = by_remote_id_.find(id);
  if (known != by_remote_id_.end()) return on_duplicate_req(*get(known->second), in.now);
  const Remote qp{req.ca_guid, raw(req.qpn), in.from.dgid};
  if (end_stale(qp, in.now)) return refuse(in, req, CmReject::kStaleConnection);
  if (const CmReject why = judge(req, in.from); why != CmReject::kNone) return refuse(in, req, why);
  const auto ip = *IpHeader::parse(std::span{req.private_data}.first<IpHeader::kSize>());
  const CmId listener = listener_of(req.service_id, ip.destination, false);
  if (listener == CmId{}) return refuse(in, req, CmReject::kInvalidServiceId);
  Conversation& at = *get(listener);
  Conversation* c = at.waiting < at.backlog ? make(at.space) : nullptr;
  if (c == nullptr) return refuse(in, req, CmReject::kNoResources);

  ++at.waiting;
  c->state = State::kReqRcvd;
  c->listener = listener;
  c->local = {ip.destination, static_cast<std::uint16_t>(req.service_id)};
  c->remote = {ip.source, ip.source_port};
  c->transaction = in.header.transaction_id;
  c->remote_id = req.local_comm_id;
  c->remote_guid = req.ca_guid;
  c->path = {.dgid = req.local_gid,
             .sgid_index = in.from.sgid_index,
             .traffic_class = req.traffic_class,
             .hop_limit = req.hop_limit,
             .flow_label = req.flow_label,
             .sl = static_cast<std::uint8_t>(req.sl & 7)};
  c->theirs = terms_of(req, in.header.attribute_modifier);
  c->mine = mirrored(c->theirs, c->mine.psn);
  c->path_mtu = PathMtu{req.path_mtu};
  c->is_uroce = req.vendor_id == ece::kVendor;
  c->ack_timeout = c->is_uroce ? req.ack_timeout : std::min(req.ack_timeout, kKernelAckTimeout);
  announce(*c, CmEventType::kConnectRequest, req.private_data, [&] {
    by_remote_id_[id] = c->id;
    by_remote_qpn_[qp] = c->id;
  });
}

/// IBA 12.9.8.3.1 ?: what was said is said again. The REP also where only the QP is known to have heard
/// something: a peer that still asks may not have it.
void Agent::on_duplicate_req(Conversation& c, Ticks) {
  ++counters_.duplicates;
  const bool is_unconfirmed = c.state == State::kEstablished && !c.is_active && !c.has_rtu;
  if (c.state == State::kReqRcvd) {
    say(c, wire::make_cm_mad(c.transaction, wire::CmMra{.local_comm_id = raw(c.id),
                                                        .remote_comm_id = c.remote_id,
                                                        .about = wire::CmAbout::kReq,
                                                        .service_timeout = kBusyTimeout}));
  } else if (c.state == State::kRepSent || is_unconfirmed || (c.state == State::kTimewait && c.refused)) {
    repeat(c);
  }
}

// REP, RTU

void Agent::on_rep(const Received& in) {
  const auto rep = wire::CmRep::parse(in.body);
  Conversation* c = addressed(rep.remote_comm_id, in.from);
  if (c == nullptr || c->state == State::kDone) {  // it need not wait for an RTU
    ++counters_.unexpected;
    ++counters_.sent;
    const wire::CmRej rej{.remote_comm_id = rep.local_comm_id,
                          .about = wire::CmAbout::kRep,
                          .reason = static_cast<std::uint16_t>(CmReject::kInvalidCommId)};
    return host_.send(in.from, wire::make_cm_mad(in.header.transaction_id, rej));
  }
  if (c->state == State::kEstablished && c->is_active && c->remote_id == rep.local_comm_id) {
    ++counters_.duplicates;
    return repeat(*c);  // the RTU
  }
  if (c->state == State::kTimewait && c->refused && c->remote_id == rep.local_comm_id) {
    ++counters_.duplicates;
    return repeat(*c);  // the REJ
  }
  if (c->state == State::kRepRcvd && c->remote_id == rep.local_comm_id) {
    ++counters_.duplicates;
    return say(*c, wire::make_cm_mad(c->transaction, wire::CmMra{.local_comm_id = raw(c->id),
                                                                 .remote_comm_id = c->remote_id,
                                                                 .about = wire::CmAbout::kRep,
                                                                 .service_timeout = kBusyTimeout}));
  }
  if (c->state != State::kReqSent || in.header.transaction_id != c->transaction) {
    ++counters_.unexpected;
    return;
  }
  disarm(*c);
  c->state = State::kRepRcvd;
  c->remote_id = rep.local_comm_id;
  c->remote_guid = rep.ca_guid;
  c->theirs = terms_of(rep, c->mine.type);
  const std::uint32_t options = in.header.attribute_modifier;
  const bool is_of_ours = rep.vendor_id == ece::kVendor;
  c->is_uroce = is_of_ours && (options & kAnsweredByUroce) != 0;
  c->theirs.options = is_of_ours && !c->is_uroce ? 0 : options & ~kAnsweredByUroce;
  try {
    by_remote_id_[{c->remote_guid, c->remote_id, c->path.dgid}] = c->id;
    const Remote qp{c->remote_guid, raw(c->theirs.qpn), c->path.dgid};
    end_stale(qp, in.now);
    by_remote_qpn_[qp] = c->id;
    CmEvent event = event_of(*c, CmEventType::kConnectReply);
    set_private(event, rep.private_data);
    tell(*c, std::move(event));
  } catch (const std::bad_alloc&) {  // asked for again
    unindex(*c);
    c->remote_id = 0;
    c->remote_guid = 0;
    c->theirs = {};
    c->state = State::kReqSent;
    arm(*c, std::min(in.now + c->interval_ns, c->give_up));
    throw;
  }
}

void Agent::on_rtu(const Received& in) {
  const auto rtu = wire::CmRtu::parse(in.body);
  Conversation* c = addressed(rtu.remote_comm_id, in.from);
  const bool is_peer = c != nullptr && c->remote_id == rtu.local_comm_id;
  if (is_peer) c->has_rtu = true;
  if (!is_peer || c->state != State::kRepSent) {
    ++(c != nullptr && c->state == State::kEstablished ? counters_.duplicates : counters_.unexpected);
    return;
  }
  (void)notify_established(c->id);
}

// REJ, MRA

void Agent::on_rej(const Received& in) {
  const auto rej = wire::CmRej::parse(in.body);
  const auto reason = static_cast<CmReject>(rej.reason);
  Conversation* c = addressed(rej.remote_comm_id, in.from);
  if (c == nullptr && reason == CmReject::kTimeout && rej.info_len >= 8) {
    const auto guid = load_be<0, 8>(std::span{rej.info}.first<8>());
    const auto known = by_remote_id_.find({guid, rej.local_comm_id, in.from.dgid});
    if (known != by_remote_id_.end()) c = get(known->second);
  }
  using enum State;
  const bool is_open =
      c != nullptr && (c->state == kReqSent || c->state == kReqRcvd || c->state == kRepSent ||
                       c->state == kRepRcvd || c->state == kEstablished);
  const bool is_late =  // about a REQ that has been answered since
      is_open && c->is_active && c->state != kReqSent && rej.about == wire::CmAbout::kReq;
  const bool is_known = is_open && !is_late &&
                        (c->state == kReqSent || c->remote_id == rej.local_comm_id || rej.local_comm_id == 0);
  if (!is_known) {
    ++counters_.unexpected;
    return;
  }
  if (c->state == kReqSent && in.header.transaction_id != c->transaction) {  // of the path MTU before
    ++counters_.duplicates;
    return;
  }
  if (c->state == kReqSent && on_rejected_request(*c, rej, in.now)) return;
  CmEvent event =
      event_of(*c, c->state == kEstablished ? CmEventType::kDisconnected : CmEventType::kRejected);
  event.reason = reason;
  set_private(event, rej.private_data);
  tell(*c, std::move(event));
  if (c->is_active) return finish(*c);
  enter_timewait(*c, in.now);  // repetitions of the request are no new one
}

/// A smaller path MTU, or patience, may help. @return whether the request goes on.
bool Agent::on_rejected_request(Conversation& c, const wire::CmRej& rej, Ticks now) {
  const auto reason = static_cast<CmReject>(rej.reason);
  const auto mtu = std::to_integer<std::uint8_t>(rej.info[0]);
  if (reason == CmReject::kInvalidPathMtu && rej.info_len >= 1 && mtu >= raw(PathMtu::k256) &&
      mtu < raw(c.path_mtu)) {
    c.path_mtu = PathMtu{mtu};
    auto req = wire::CmReq::parse(wire::cm_body(c.last));
    req.path_mtu = mtu;
    c.transaction = random_.next();
    c.last = wire::make_cm_mad(c.transaction, req, c.mine.options);
    arm(c, std::min(now + c.interval_ns, c.give_up));
    say(c, c.last);
    return true;
  }
  // Asked again when the next repetition is due; after the last one a refusal is the answer.
  return reason == CmReject::kInvalidServiceId && c.patience.is_set() && now < c.patience &&
         c.due < c.give_up;
}

void Agent::on_mra(const Received& in) {
  const auto mra = wire::CmMra::parse(in.body);
  Conversation* c = addressed(mra.remote_comm_id, in.from);
  const bool is_due = c != nullptr && ((c->state == State::kReqSent && mra.about == wire::CmAbout::kReq) ||
                                       (c->state == State::kRepSent && mra.about == wire::CmAbout::kRep));
  if (!is_due) {
    ++counters_.unexpected;
    return;
  }
  const Ticks patience = in.now + service_ns(mra.service_timeout);
  c->give_up = std::max(c->give_up, patience);
  c->interval_ns = config_.times.last_repeat;
  arm(*c, std::min(in.now + c->interval_ns, c->give_up));
}

// DREQ, DREP

/// Answered last: after that it does not come again.
void Agent::on_dreq(const Received& in) {
  const auto dreq = wire::CmDreq::parse(in.body);
  end_by_peer(dreq, in);
  ++counters_.sent;
  host_.send(in.from,
             wire::make_cm_mad(in.header.transaction_id, wire::CmDrep{.local_comm_id = dreq.remote_comm_id,
                                                                      .remote_comm_id = dreq.local_comm_id}));
}

void Agent::end_by_peer(const wire::CmDreq& dreq, const Received& in) {
  Conversation* c = addressed(dreq.remote_comm_id, in.from);
  using enum State;
  const bool is_asking =  // its REP was lost
      c != nullptr && c->state == kReqSent && dreq.remote_qpn == c->mine.qpn;
  const bool is_open =
      c != nullptr && c->remote_id == dreq.local_comm_id && dreq.remote_qpn == c->mine.qpn &&
      (c->state == kRepSent || c->state == kRepRcvd || c->state == kEstablished || c->state == kDreqSent);
  if (!is_open && !is_asking) {
    ++counters_.unexpected;
    return;
  }
  if (is_asking) {  // no connection that could end
    CmEvent event = event_of(*c, CmEventType::kRejected);
    event.reason = CmReject::kTimeout;
    tell(*c, std::move(event));
    return finish(*c);
  }
  if (c->state == kRepRcvd) {  // told once the application knows of a connection
    c->left = in.now;
    return;
  }
  tell(*c, CmEventType::kDisconnected);
  enter_timewait(*c, in.now);
}

void Agent::on_drep(const Received& in) {
  const auto drep = wire::CmDrep::parse(in.body);
  Conversation* c = addressed(drep.remote_comm_id, in.from);
  if (c == nullptr || c->state != State::kDreqSent || c->remote_id != drep.local_comm_id) {
    ++counters_.unexpected;
    return;
  }
  tell(*c, CmEventType::kDisconnected);
  enter_timewait(*c, in.now);
}

/// There are no alternate paths.
void Agent::on_lap(const Received& in) {
  const auto lap = wire::CmLap::parse(in.body);
  if (addressed(lap.remote_comm_id, in.from) == nullptr) {
    ++counters_.unexpected;
    return;
  }
  ++counters_.sent;
  host_.send(in.from,
             wire::make_cm_mad(in.header.transaction_id, wire::CmApr{.local_comm_id = lap.remote_comm_id,
                                                                     .remote_comm_id = lap.local_comm_id,
                                                                     .status = wire::CmApr::kUnsupported}));
}

// SIDR

void Agent::on_sidr_req(const Received& in) {
  const auto req = wire::SidrReq::parse(in.body);
  const auto known = by_sidr_.find({in.from.dgid, req.request_id});
  if (known != by_sidr_.end()) {
    Conversation& c = *get(known->second);
    ++counters_.duplicates;
    if (c.state == State::kTimewait) repeat(c);
    return;
  }
  const auto ip = IpHeader::parse(std::span{req.private_data}.first<IpHeader::kSize>());
  const CmId listener = ip.has_value() ? listener_of(req.service_id, ip->destination, true) : CmId{};
  Conversation* at = get(listener);
  Conversation* c = at != nullptr && at->waiting < at->backlog ? make(at->space) : nullptr;
  if (c == nullptr) {
    ++counters_.rejected;
    ++counters_.sent;
    const wire::SidrRep rep{
        .request_id = req.request_id, .status = kNoSuchService, .service_id = req.service_id};
    return host_.send(in.from, wire::make_cm_mad(in.header.transaction_id, rep));
  }
  ++at->waiting;
  c->state = State::kSidrReqRcvd;
  c->listener = listener;
  c->local = {ip->destination, static_cast<std::uint16_t>(req.service_id)};
  c->remote = {ip->source, ip->source_port};
  c->transaction = in.header.transaction_id;
  c->remote_id = req.request_id;
  c->path = in.from;
  announce(*c, CmEventType::kServiceRequest, req.private_data, [&] {
    by_sidr_[{in.from.dgid, req.request_id}] = c->id;
  });
}

void Agent::on_sidr_rep(const Received& in) {
  const auto rep = wire::SidrRep::parse(in.body);
  Conversation* c = addressed(rep.request_id, in.from);
  if (c == nullptr || c->state != State::kSidrReqSent || in.header.transaction_id != c->transaction) {
    ++counters_.unexpected;
    return;
  }
  // Asked again when the next repetition is due; after the last one a refusal is the answer.
  const bool is_patient = c->patience.is_set() && in.now < c->patience && c->due < c->give_up;
  if (rep.status == kNoSuchService && is_patient) return;
  CmEvent event = event_of(*c, CmEventType::kServiceReply);
  event.service_status = rep.status;
  event.peer.type = QpType::kUd;
  event.peer.qpn = rep.qpn;
  event.peer.qkey = rep.qkey;
  set_private(event, rep.private_data);
  tell(*c, std::move(event));
  c->ended = true;
  finish(*c);
}

}  // namespace uroce::cm
