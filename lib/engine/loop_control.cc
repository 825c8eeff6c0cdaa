// What control commands do to a loop: QPs and address handles come and go, and find their peers.
#include <sched.h>

#include <new>
#include <optional>
#include <utility>

#include "engine/poll_loop.h"
#include "wire/frame_template.h"
#include "wire/multicast.h"

namespace uroce::engine {

using transport::QueuePair;

/// The way to the device's own QPs, when it is first needed. Control: allocates.
void PollLoop::make_local() {
  if (own_frames_ != nullptr) return;
  auto ring = std::make_unique<FrameRing>(longest_frame());
  local_ = std::make_unique<LocalPort>(*ring, counters_);
  to_groups_ = std::make_unique<GroupPort>(port_, *ring, groups_, counters_);
  own_frames_ = std::move(ring);
}

/// Where frames to `dgid` are written. Control: may allocate.
port::FrameSink& PollLoop::sink_to(const Gid& dgid, std::uint32_t sgid_index) {
  const bool is_group = dgid.is_multicast();
  if (!is_group && !is_own(dgid, sgid_index)) return port_;
  make_local();
  if (is_group) return *to_groups_;
  return *local_;
}

void PollLoop::attach(const Gid& group, unsigned owner, QueuePair* member, Ticks now) {
  groups_.attach(group, owner, member);
  if (listener_ == nullptr) return;
  try {
    listener_->join(group, now);
  } catch (const std::bad_alloc&) {
    groups_.detach(group, owner, member);
    throw;
  }
}

void PollLoop::detach(const Gid& group, unsigned owner, QueuePair* member, Ticks now) noexcept {
  groups_.detach(group, owner, member);
  if (listener_ != nullptr) listener_->leave(group, now);
}

void PollLoop::leave_groups(Ticks now) noexcept {
  if (listener_ != nullptr) listener_->end(now);
}

/// Control: may allocate.
/// @param is_marked  by switches on the way (ECN)
transport::Path& PollLoop::path_to(const AhAttr& to, bool is_marked) {
  AhAttr spoken = to;
  if (is_marked && (to.traffic_class & wire::kEcnMask) == 0) spoken.traffic_class |= wire::kEct0;
  port::FrameSink& sink = sink_to(to.dgid, to.sgid_index);
  transport::Path& path = paths_.acquire(spoken, &sink != &port_);
  if (path.sink == nullptr) path.sink = path.bulk = &sink;  // see address()
  return path;
}

void PollLoop::lead(QueuePair& qp, transport::Path& path, Ticks now) {
  let_go_of_path(qp);
  qp.lead(path);
  if (const auto mac = mac_of(path.to.dgid, path.to.sgid_index, qp.neighbour, now)) address(qp, *mac);
}

void PollLoop::let_go_of_path(QueuePair& qp) noexcept {
  const transport::Path& path = *qp.context().path;
  if (joint_acks_.are_on(path)) {
    send_joint_acks(now_);
    port_.tx_flush();
    if (path.users == 1) joint_acks_.drop();  // as if they were lost on the way: the port had no room
  }
  if (&path != &nowhere_) paths_.release(path);
  qp.lead(nowhere_);
}

/// The Ethernet address behind which `dgid` is, if it is known or need not be asked for. A link-local GID of
/// RoCE v1 tells it, as the kernel has it.
/// @param held  the neighbour that is needed for it, instead of the one before
std::optional<MacAddress> PollLoop::mac_of(const Gid& dgid, std::uint32_t sgid_index,
                                           transport::NextHop& held, Ticks now) {
  transport::NextHop before = std::exchange(held, {});
  std::optional<MacAddress> mac;
  if (dgid.is_multicast()) {
    mac = wire::multicast_mac(dgid);
  } else if (is_own(dgid, sgid_index)) {
    mac = port_.info().mac;
  } else if (addresses_.own()[sgid_index].type == GidType::kRoceV1) {
    mac = link_local_mac(dgid);
  }
  if (!mac.has_value()) {
    held = addresses_.next_hop(dgid, sgid_index);
    mac = neighbours_.acquire(held, now);
  }
  let_go(before);
  return mac;
}

void PollLoop::let_go(transport::NextHop& held) noexcept {
  if (held.is_set()) neighbours_.release(held);
  held = {};
}

wire::FrameTemplate PollLoop::frames_to(const AhAttr& attr, const MacAddress& mac,
                                        std::uint16_t udp_src_port) const noexcept {
  constexpr std::uint8_t kDefaultHops = 64;  // applications give 0 or 1 for "do not care"
  const Address& own = addresses_.own()[attr.sgid_index];
  return wire::FrameTemplate{{.src_mac = port_.info().mac,
                              .dst_mac = mac,
                              .vlan_tci = wire::vlan_tag(own.vlan, attr.sl),
                              .type = own.type,
                              .sgid = own.gid,
                              .dgid = attr.dgid,
                              .udp_src_port = udp_src_port,
                              .traffic_class = attr.traffic_class,
                              .hop_limit = attr.hop_limit <= 1 ? kDefaultHops : attr.hop_limit,
                              .flow_label = attr.flow_label}};
}

void PollLoop::address(QueuePair& qp, const MacAddress& mac) noexcept {
  transport::QpContext& ctx = qp.context();
  transport::Path& path = *ctx.path;
  path.head = frames_to(path.to, mac);
  if (!path.is_inner) {
    port::Port& way = port_.way_to(mac);
    path.sink = &way;
    path.bulk = &way.bulk_sink();
  }
  if (ctx.is_controlled) {
    AhAttr of_cnps = path.to;
    of_cnps.traffic_class = ctx.congestion->cnp_traffic_class;
    ctx.congestion->cnp_head = frames_to(of_cnps, mac, ctx.udp_src_port);
  }
  qp.set_resolved();
}

/// One flow per handle: datagrams have no pair of QPs to make it from.
void PollLoop::address(transport::AddressHandle& handle, const MacAddress& mac) noexcept {
  const Qpn index{static_cast<std::uint32_t>(raw(handle.id)) & Psn::kMask};
  handle.head = frames_to(handle.attr, mac, wire::udp_source_port(handle.attr.flow_label, index, index));
  handle.resolved = true;
  handle.give_up = Ticks{};
}

void PollLoop::add_handle(AhId id, std::uint32_t pd, const AhAttr& attr, Ticks now) {
  neighbours_.make_room();
  transport::AddressHandle& handle = handles_.insert(id, pd, attr);
  handle.sink = &sink_to(attr.dgid, attr.sgid_index);
  if (const auto mac = mac_of(attr.dgid, attr.sgid_index, handle.held, now)) address(handle, *mac);
}

void PollLoop::remove_handle(AhId id) noexcept {
  transport::AddressHandle* handle = handles_.find(id);
  if (handle == nullptr) return;
  let_go(handle->held);
  handles_.erase(id);
}

Status PollLoop::modify(QueuePair& qp, const QpAttr& attr, std::uint32_t mask,
                        const transport::QpBounds& bounds, Ticks now) {
  advance_to(now);
  known_.forget_paths();
  if ((mask & qp_attr::kAv) != 0 && attr.sgid_index < addresses_.own().size() &&
      !can_reach(addresses_.own()[attr.sgid_index], attr.dgid)) {
    return Error{Errc::kInvalid,
                 "sgid_index and dgid are of different address families, or that GID has been removed: "
                 "choose another GID index"};
  }
  if ((mask & qp_attr::kAv) != 0 && attr.dgid.is_multicast()) {
    return Error{Errc::kInvalid, "dgid is a multicast group: only datagrams go there"};
  }
  transport::Path* path = nullptr;
  if ((mask & qp_attr::kAv) != 0 && attr.sgid_index < addresses_.own().size()) {
    neighbours_.make_room();
    path = &path_to(attr.path(), bounds.congestion.is_on && qp.context().type != QpType::kUd);
  }
  const bool is_end = attr.state == QpState::kError || attr.state == QpState::kReset;
  if ((mask & qp_attr::kState) != 0 && is_end) answer_last(qp, now);
  const bool will_receive = (mask & qp_attr::kState) != 0 && attr.state == QpState::kRtr;
  if (will_receive && qp.state() == QpState::kInit) let_pass_what_is_old(now);
  report_events(qp);  // as of the state that they happened in: a reset forgets it
  Status status;
  try {
    status = qp.modify(attr, mask, bounds);
  } catch (const std::bad_alloc&) {
    if (path != nullptr) paths_.release(*path);
    throw;
  }
  if (!status && path != nullptr) paths_.release(*path);
  if (!status) return status;
  if (path != nullptr) lead(qp, *path, now);
  if (qp.state() == QpState::kReset) {
    let_go(qp.neighbour);
    let_go_of_path(qp);
  }
  if (qp.wants_transmit(now)) make_ready(qp);
  after_step(qp, now);
  show(qp);
  return {};
}

void PollLoop::let_pass_what_is_old(Ticks now) noexcept {
  advance_to(now);
  asked_until_ = Ticks{};  // or bursts could be empty that are not the last
  if (spares_others_) spare_others(false);
  constexpr unsigned kMost = 1024;  // bursts; others may keep coming
  unsigned empty = 0;               // in a row
  for (unsigned i = 0; i < kMost && empty < port_.bursts_to_see_all(); ++i)
    empty = receive(now) > 0 ? 0 : empty + 1;
  for (unsigned i = 0; i < FrameRing::kFrames / port::kBurst && take_inner(now) > 0; ++i) {
  }
}

/// Before a QP ends: a peer whose last message was taken must not wait for its ACK, some for ever.
/// Those of others go first: one may be its own, of an earlier turn.
void PollLoop::answer_last(QueuePair& qp, Ticks now) noexcept {
  if (qp.context().path == nullptr) return;  // it was not added
  if (joint_acks_.are_on(*qp.context().path)) send_joint_acks(now);
  transport::TxContext tx = turn(qp, now);
  qp.answer(tx);
  port_.tx_flush();
}

void PollLoop::remove(QueuePair& qp, Ticks now) noexcept {
  advance_to(now);
  answer_last(qp, now);
  take_doorbells();
  // Another thread that was interrupted half-way through ring() hides what was put into the list after it.
  while (qp.doorbell.load(std::memory_order_acquire)) {
    sched_yield();
    take_doorbells();
  }
  ready_.remove(qp);
  inner_ready_.remove(qp);
  bulk_ready_.remove(qp);
  if (prompt_qp_ == &qp) prompt_qp_ = nullptr;
  if (owing_ == &qp) owing_ = nullptr;
  if (bulk_qp_ == &qp) bulk_qp_ = nullptr;
  order_.forget();
  qp.context().forget_late();
  if (display_ != nullptr) display_->hide(qp);
  wheel_.cancel(qp.context());
  qps_.erase(qp.context().qpn);
  known_.forget_paths();
  if (qps_.size() == 0) keys_ = nullptr;
  if (last_qp_ == &qp) last_qp_ = nullptr;
  let_go(qp.neighbour);
  if (qp.context().path != nullptr) let_go_of_path(qp);
}

}  // namespace uroce::engine
