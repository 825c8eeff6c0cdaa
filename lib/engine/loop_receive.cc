// What a loop does with the frames that come in.
#include <algorithm>
#include <cstring>

#include "base/prefetch.h"
#include "engine/as_rc.h"
#include "engine/poll_loop.h"
#include "wire/icmp.h"
#include "wire/igmp.h"
#include "wire/mld.h"

namespace uroce::engine {

using transport::QueuePair;

namespace {

constexpr unsigned kMostPostponed = 4;  // iterations

/// The counter of a frame that parse_packet() did not take.
constexpr Count drop_counter(wire::ParseResult result) noexcept {
  using enum wire::ParseResult;
  switch (result) {
    case kTooShort:
      return Count::kDropTooShort;
    case kBadEthertype:
    case kNotUdp:
    case kNotRocePort:
      return Count::kDropNotRoce;
    case kFragment:
      return Count::kDropFragment;
    case kUnknownOpcode:
      return Count::kDropUnknownOpcode;
    case kBadVersion:
      return Count::kDropBadVersion;
    default:
      return Count::kDropMalformed;
  }
}

/// Why a packet cannot have been sent to `local`, whatever its addresses: each GID has one VLAN and one kind
/// of frames. kRxRoce if it can.
Count refuse_underlay(const Address& local, const wire::PacketView& packet) noexcept {
  if (packet.vlan_id() != local.vlan) return Count::kDropWrongVlan;
  return packet.gid_type == local.type ? Count::kRxRoce : Count::kDropWrongGidType;
}

/// Likewise of a datagram, which may be for any address of the port.
/// @param is_to_group  it is for no address, but for any VLAN that the port is in, in the frames it has there
Count refuse(const std::vector<Address>& own, const wire::PacketView& packet, bool is_to_group) noexcept {
  const Gid destination = packet.dst_gid();
  Count why = is_to_group ? Count::kDropWrongVlan : Count::kDropWrongAddress;
  for (const Address& address : own) {
    if ((address.gid != destination && !is_to_group) || address.removed) continue;
    const Count verdict = refuse_underlay(address, packet);
    if (verdict == Count::kRxRoce) return verdict;
    if (why != Count::kDropWrongGidType) why = verdict;
  }
  return why;
}

std::span<const std::byte> span_of(const port::RxFrame& frame) noexcept {
  return {frame.data, frame.len};
}

}  // namespace

unsigned PollLoop::receive(Ticks now) noexcept {
  constexpr unsigned kAhead = 8;
  give_back_frames();
  const unsigned count = port_.rx_burst(burst_);
  holds_frames_ = count > 0;
  const bool has_many_regions = keys_ != nullptr && keys_->is_large();
  const bool foresees = count > 1 && (has_many_qps() || has_many_regions);
  if (foresees) foresee_frames(count, has_many_regions);
  unsigned foreseen = foresees ? 0 : count;
  for (unsigned i = 0; i < count; ++i) {
    if (i + 1 < count) prefetch(burst_[i + 1].data);
    for (; foreseen < std::min(count, i + kAhead); ++foreseen) foresee_qp(destinations_[foreseen]);
    const bool is_long = burst_[i].len >= wire::IcrcAhead::kShortest;
    if (is_long) icrc_ahead_.begin(i + 1 < count ? span_of(burst_[i + 1]) : port_.next_frame());
    on_frame(span_of(burst_[i]), now);
    if (is_long) icrc_ahead_.end();
    ahead_.fetch_rest();
    handled_ += burst_[i].len + 64;
  }
  if (owing_ != nullptr) [[unlikely]]
    look_at_postponed();
  return count;
}

/// In the iteration after the one that they came in: what the application answers does not wait for it.
void PollLoop::give_back_frames() noexcept {
  if (holds_frames_) port_.rx_release();
  holds_frames_ = false;
}

/// What the frames of a burst need first: the places where their QPs are looked up, and the memory's.
[[gnu::noinline]] void PollLoop::foresee_frames(unsigned count, bool has_many_regions) noexcept {
  for (unsigned i = 0; i < count; ++i) {
    const auto guess = wire::guess({burst_[i].data, burst_[i].len});
    destinations_[i] = {};
    if (!guess.has_value()) continue;
    destinations_[i] = {guess->qpn, guess->is_response};
    qps_.prefetch(guess->qpn);
    if (guess->reth.has_value() && has_many_regions) keys_->prefetch(raw(guess->reth->rkey), guess->reth->va);
  }
}

/// A packet for that QP comes soon.
void PollLoop::foresee_qp(const Destination& of) const noexcept {
  if (last_qp_ != nullptr && last_qp_->context().qpn == of.qpn) return;
  const QueuePair* const qp = qps_.find(of.qpn);
  if (qp == nullptr) return;
  of.is_response ? transport::RcQp::prefetch_sender(*qp) : transport::RcQp::prefetch_receiver(*qp);
}

unsigned PollLoop::receive_handed_over(Ticks now) noexcept {
  unsigned count = 0;
  was_handed_over_ = true;
  for (auto& ring : inbox_) count += take_frames(*ring, now);
  was_handed_over_ = false;
  return count;
}

unsigned PollLoop::take_frames(FrameRing& ring, Ticks now) noexcept {
  unsigned count = 0;
  for (auto frame = ring.front(); !frame.empty() && count < port::kBurst; frame = ring.front()) {
    on_frame(frame, now);
    handled_ += frame.size() + 64;
    ring.pop();
    ++count;
  }
  return count;
}

void PollLoop::on_frame(std::span<const std::byte> frame, Ticks now) noexcept {
  KnownPackets::Kind& known = known_.of(frame);
  const wire::PacketView* const like = known.pattern.show(frame);
  if (like != nullptr) [[likely]] {
    QueuePair* const qp = find_again(like->bth.dest_qpn);
    if (qp != nullptr && known.is_for(qp->context())) [[likely]]
      return on_known(*qp, *like, now);
  }
  wire::PacketView parsed{.ahead = &icrc_ahead_};
  const wire::ParseResult result =
      like != nullptr ? wire::ParseResult::kRoce : wire::parse_packet(frame, parsed);
  const wire::PacketView& view = like != nullptr ? *like : parsed;
  if (!wire::is_drop(result) && view.vlan_id() != 0 && !addresses_.is_in_vlan(view.vlan_id())) [[unlikely]] {
    counters_.add(Count::kDropWrongVlan);
    return;
  }
  switch (result) {
    case wire::ParseResult::kRoce:
      on_roce(view, now);
      break;
    case wire::ParseResult::kArp:
      on_arp(frame, view, now);
      break;
    case wire::ParseResult::kIcmp:
    case wire::ParseResult::kIcmp6:
      on_icmp(view, now);
      break;
    case wire::ParseResult::kIgmp:
    case wire::ParseResult::kMld:
      on_group_message(frame, view, result == wire::ParseResult::kIgmp, now);
      break;
    default:
      counters_.add(drop_counter(result));
      break;
  }
}

/// The QP with that number, which is often that of the packet before.
[[gnu::always_inline]] inline QueuePair* PollLoop::find_again(Qpn qpn) noexcept {
  if (last_qp_ != nullptr && last_qp_->context().qpn == qpn) [[likely]]
    return last_qp_;
  QueuePair* const found = qps_.find(qpn);
  if (found != nullptr) last_qp_ = found;
  return found;
}

/// A packet like one that a QP on the same path took.
[[gnu::always_inline]] inline void PollLoop::on_known(QueuePair& qp, const wire::PacketView& packet,
                                                      Ticks now) noexcept {
  if (!is_intact(packet)) return;
  auto& rc = static_cast<transport::RcQp&>(qp);  // KnownPackets knows of no others
  const bool is_taken = deliver(qp, packet, now, [&](auto&) { return rc.on_known_packet(packet, now); });
  if (is_taken && has_lanes()) note_come(qp, packet, now);
}

/// Before anything acts on it. IBA A17.3.3 ?
[[gnu::always_inline]] inline bool PollLoop::is_intact(const wire::PacketView& packet) noexcept {
  counters_.add(Count::kRxRoce);
  if (!wire::icrc_ok(packet, &ahead_)) {
    counters_.add(Count::kDropBadIcrc);
    return false;
  }
  ahead_.fetch(FetchAhead::kFew);
  return true;
}

/// Gives a packet to its QP. @return whether it was taken.
/// @param take  how
template <typename Take>
[[gnu::always_inline]] inline bool PollLoop::deliver(QueuePair& qp, const wire::PacketView& packet, Ticks now,
                                                     Take&& take) noexcept {
  // A request brings about responses, a response requests. Which half has nothing to do with it is not looked
  // at: it may be in no cache.
  const bool is_request = packet.op->is_request;
  bool wants = false;
  const Count verdict = as_rc(qp, [&](auto& one) {
    const Count taken = take(one);
    const transport::QpContext& ctx = one.context();
    const bool is_ready = ctx.is_ready && (is_request || !ctx.only_answers);
    const bool owes_cnp = ctx.is_controlled && one.owes_cnp() && !tell_of_mark(one, now);
    if (taken != Count::kRxRoce || is_ready) return taken;
    wants = owes_cnp || (is_request ? one.wants_to_answer(now) : one.wants_to_send(now));
    return taken;
  });
  if (verdict != Count::kRxRoce) {
    count_refused(packet, verdict);
    return false;
  }
  if (wants && is_request && qp.context().recv_cq->has_news()) [[unlikely]]
    wants = !answer_first(qp, now);
  if (wants && !postpones_ack(qp, packet.frame_len, now)) {
    is_request ? make_ready_to_answer(qp) : make_ready(qp);
    answers_now_ |= qp.context().is_signaling() && answers_first_;
  }
  is_request ? after_request(qp, now) : after_step(qp, now);
  return true;
}

/// A CNP leaves at once: the QP's turn may be that of bulk, which waits for others.
/// @return false if there was no room for the one that is due
[[gnu::noinline]] bool PollLoop::tell_of_mark(QueuePair& qp, Ticks now) noexcept {
  transport::TxContext tx = turn(qp, now);
  qp.send_cnp(tx);
  return !qp.owes_cnp();
}

/// An application that sleeps until a completion takes long to wake up, and may have the core of this loop
/// then: the peer has its ACK before that, and before the reply, which some programs rely on (perftest before
/// 23.07 with events). @return whether all is answered
[[gnu::noinline]] bool PollLoop::answer_first(QueuePair& qp, Ticks now) noexcept {
  answer_last(qp, now);
  return as_rc(qp, [now](auto& one) { return !one.wants_to_answer(now); });
}

/// Where a burst shows one frame of many that have come, the ACK of the next one answers for this one, too.
/// Not for long: the peer may wait for it. Measured: 4 KiB WRITEs, all signaled, 97 -> 112 Gb/s; with twice
/// as many iterations 114, but with 16 in flight 96 instead of 104.
[[gnu::always_inline]] inline bool PollLoop::postpones_ack(QueuePair& qp, std::uint32_t frame_len,
                                                           Ticks now) noexcept {
  if (frame_len <= kShortFrame || !port_.shows_more()) return false;
  if (owing_ != nullptr && owing_ != &qp) make_ready_to_answer(*owing_);
  owing_ = as_rc(qp, [now](auto& one) { return one.owes_only_ack(now); }) ? &qp : nullptr;
  return owing_ != nullptr;
}

void PollLoop::look_at_postponed() noexcept {
  if (++postponed_ < kMostPostponed && port_.shows_more()) return;
  make_ready_to_answer(*owing_);
  owing_ = nullptr;
  postponed_ = 0;
}

[[gnu::noinline]] void PollLoop::on_roce(const wire::PacketView& packet, Ticks now) noexcept {
  if (packet.op->is_joint_ack()) [[unlikely]]
    return on_joint_ack(packet, now);
  const Qpn qpn = packet.bth.dest_qpn;
  const unsigned owner = owner_of(qpn);
  if (owner != place_.index && qpn != kMulticastQpn) {
    hand_over(owner, {packet.frame, packet.frame_len});
    return;
  }
  if (!is_intact(packet)) return;
  QueuePair* const qp = find_again(qpn);
  if (qp == nullptr) {
    if (qpn == kMulticastQpn) return on_multicast(packet, now);
    return count_unknown(packet);
  }
  if (!judge(*qp, packet, now)) return;
  known_.learn(packet, qp->context());
  if (has_lanes()) note_come(*qp, packet, now);
}

/// Gives a packet of which nothing is known to the QP that it names, if it can have been sent to that.
/// @return whether it was taken
bool PollLoop::judge(QueuePair& qp, const wire::PacketView& packet, Ticks now) noexcept {
  const Address& local = address_of(qp);
  const bool is_datagram = packet.op->transport == wire::Transport::kUd;
  const Count refusal =
      is_datagram ? refuse(addresses_.own(), packet, false) : refuse_underlay(local, packet);
  if (refusal != Count::kRxRoce) [[unlikely]] {
    count_refused(packet, refusal);
    return false;
  }
  return deliver(qp, packet, now, [&](auto& one) { return one.on_packet(packet, local.gid, now); });
}

/// Each loop takes those that are for QPs of its own.
[[gnu::noinline]] void PollLoop::on_joint_ack(const wire::PacketView& packet, Ticks now) noexcept {
  const std::size_t count = packet.joint_acks();
  if (count == 0) return counters_.add(Count::kDropMalformed);
  if (place_.count > 1 && !was_handed_over_) share_joint_ack(packet);
  if (!is_intact(packet)) return;
  const transport::Path* judged = nullptr;
  QueuePair* last = nullptr;
  wire::PacketView ack = packet.first_of_joint_acks();
  for (std::size_t i = 0; i < count; ++i) {
    const wire::AckEth one = packet.joint_ack(i);
    QueuePair* const qp = find_behind(last, one.dest_qpn);
    if (qp != nullptr) last = qp;
    if (judged != nullptr && qp != nullptr && qp->context().path == judged && take_last_ack(*qp, one, now))
      continue;
    if (i > 0) packet.show_joint_ack(i, ack);
    if (owner_of(ack.bth.dest_qpn) != place_.index) continue;
    if (qp == nullptr) {
      count_unknown(ack);
    } else if (take_joint_ack(*qp, ack, judged, now)) {
      judged = qp->context().path;
    }
  }
}

/// The QP with that number, which mostly is the one that was behind `last` before. Measured, 10 000 QPs with
/// one WRITE of 64 B each in turns: 7.3 -> 7.8 million/s.
[[gnu::always_inline]] inline QueuePair* PollLoop::find_behind(QueuePair* last, Qpn qpn) const noexcept {
  QueuePair* const guess = last == nullptr ? nullptr : order_.behind(*last);
  if (guess != nullptr && guess->context().qpn == qpn) [[likely]]
    return guess;
  QueuePair* const found = qps_.find(qpn);
  if (found != nullptr && last != nullptr) order_.learn(*last, *found);
  return found;
}

/// One that comes with no more than the end of a message, to a QP on a path of which it is known that the
/// packet may be for it. @return false if it is not that; nothing has happened then
[[gnu::always_inline]] inline bool PollLoop::take_last_ack(QueuePair& qp, const wire::AckEth& ack,
                                                           Ticks now) noexcept {
  const transport::QpContext& ctx = qp.context();
  if (ctx.type != QpType::kRc || !ctx.joins_acks) [[unlikely]]
    return false;
  auto& rc = static_cast<transport::RcQp&>(qp);
  if (!rc.take_last_ack(ack.psn, ack.aeth.syndrome, now)) return false;
  const bool may_want = !ctx.is_ready || ctx.only_answers;
  if (may_want && !rc.requester().is_idle() && rc.wants_to_send(now)) [[unlikely]] {
    make_ready(qp);
    answers_now_ |= ctx.is_signaling() && answers_first_;
  }
  set_timer(qp, rc.deadline(), now);  // what after_step() does besides has no part in this
  wake(ctx.send_cq);
  report_events(qp);
  return true;
}

/// @param judged  of RC QPs on that path it is known that the packet may be for them; nullptr: of none
/// @return whether it is known of the QP's path now
bool PollLoop::take_joint_ack(QueuePair& qp, const wire::PacketView& ack, const transport::Path* judged,
                              Ticks now) noexcept {
  if (!qp.context().joins_acks) {
    counters_.add(Count::kDropUnknownOpcode);
    return false;
  }
  const bool is_rc = qp.context().type == QpType::kRc;
  if (is_rc && qp.context().path == judged) {
    auto& rc = static_cast<transport::RcQp&>(qp);
    static_cast<void>(deliver(qp, ack, now, [&](auto&) { return rc.on_known_packet(ack, now); }));
    return true;
  }
  return judge(qp, ack, now) && is_rc;
}

/// Gives it to the other loops that have QPs among those that it is for.
[[gnu::cold]] void PollLoop::share_joint_ack(const wire::PacketView& packet) noexcept {
  for (unsigned to = 0; to < place_.count; ++to) {
    bool concerns = false;
    for (std::size_t i = 0; i < packet.joint_acks(); ++i)
      concerns |= owner_of(packet.joint_ack(i).dest_qpn) == to;
    if (concerns && to != place_.index) hand_over(to, {packet.frame, packet.frame_len});
  }
}

/// The port may be one of several on an interface, whose frames it hears.
void PollLoop::count_unknown(const wire::PacketView& packet) noexcept {
  const bool is_for_us = addresses_.is_own(packet.dst_gid(), packet.vlan_id());
  counters_.add(is_for_us ? Count::kDropUnknownQpn : Count::kDropWrongAddress);
}

/// Only QPN 0xffffff is for groups.
void PollLoop::count_refused(const wire::PacketView& packet, Count why) noexcept {
  const bool is_to_group = why == Count::kDropWrongAddress && packet.dst_gid().is_multicast();
  counters_.add(is_to_group ? Count::kDropGroupToUnicastQpn : why);
}

/// Every attached QP gets a copy, whoever sent it: another node, another QP of the device, or itself unless
/// it does not want that. IBA 10.5.2 ?
[[gnu::cold]] void PollLoop::on_multicast(const wire::PacketView& packet, Ticks now) noexcept {
  const Gid gid = packet.dst_gid();
  const Group* group = groups_.find(gid);
  if (packet.op->transport != wire::Transport::kUd) return counters_.add(Count::kDropWrongTransport);
  if (!gid.is_multicast()) return counters_.add(Count::kDropUnicastToGroupQpn);
  if (group == nullptr) return counters_.add(Count::kDropNoGroupMember);
  const Count refusal = refuse(addresses_.own(), packet, true);
  if (refusal != Count::kRxRoce) return counters_.add(refusal);
  for (unsigned to = 0; to < place_.count && !was_handed_over_; ++to) {
    if (to != place_.index && group->attached[to] > 0) hand_over(to, {packet.frame, packet.frame_len});
  }
  const Qpn sender = packet.deth().src_qpn;
  for (QueuePair* member : group->members) {
    const transport::QpContext& ctx = member->context();
    const Gid& local = address_of(*member).gid;
    const bool is_own = ctx.qpn == sender && addresses_.is_own(packet.src_gid(), packet.vlan_id());
    if (is_own && ctx.init.block_own_multicast) {
      counters_.add(Count::kDropOwnMulticast);
    } else if (deliver(*member, packet, now, [&](auto& one) { return one.on_packet(packet, local, now); })) {
      counters_.add(Count::kMulticastCopies);
    }
  }
}

void PollLoop::on_arp(std::span<const std::byte> frame, const wire::PacketView& view, Ticks now) noexcept {
  if (const auto change = neighbours_.on_arp(frame, view, !was_handed_over_, now)) on_neighbour(*change, now);
  pass_on(frame);
}

/// Tells the other loops, which have neighbour caches of their own, what this one had from the port.
void PollLoop::pass_on(std::span<const std::byte> frame) noexcept {
  if (was_handed_over_) return;
  for (unsigned to = 0; to < place_.count; ++to) {
    if (to != place_.index) hand_over(to, frame);
  }
}

/// The first loop speaks for the device.
[[gnu::cold]] void PollLoop::on_group_message(std::span<const std::byte> frame, const wire::PacketView& view,
                                              bool is_v4, Ticks now) noexcept {
  if (listener_ == nullptr) return hand_over(0, frame);
  const auto message =
      is_v4 ? wire::parse_igmp(frame, view.l3_offset) : wire::parse_mld(frame, view.l3_offset);
  if (message.has_value()) {
    listener_->on_message(view.vlan_id(), is_v4, *message, now);
  } else {
    counters_.add(Count::kDropMalformed);
  }
}

void PollLoop::on_icmp(const wire::PacketView& view, Ticks now) noexcept {
  if (!wire::is_sound_icmp(view)) return counters_.add(Count::kDropMalformed);
  if (view.is_v6) {
    if (const auto change = neighbours_.on_icmp6(view, !was_handed_over_, now)) on_neighbour(*change, now);
    pass_on({view.frame, view.frame_len});
  }
  if (was_handed_over_) return;
  if (!addresses_.is_own(view.dst_gid(), view.vlan_id())) return;
  const std::uint32_t len = wire::echo_reply_len(view);
  if (len > longest_frame()) return counters_.add(Count::kDropMalformed);  // came through, but cannot go back
  std::byte* reply = len == 0 ? nullptr : port_.tx_claim(len);
  if (reply == nullptr) return;
  counters_.add(Count::kRxEcho);
  wire::emit_echo_reply(view, reply);
  port_.tx_commit();
}

void PollLoop::hand_over(unsigned to, std::span<const std::byte> frame) noexcept {
  std::byte* room = outbox_[to].ring->claim(static_cast<std::uint32_t>(frame.size()));
  if (room == nullptr) {
    counters_.add(Count::kDropHandOverFull);
    return;
  }
  std::memcpy(room, frame.data(), frame.size());
  outbox_[to].ring->publish();
  counters_.add(Count::kHandedOver);
  Sleeper* const sleeper = outbox_[to].loop->sleeper_;
  if (sleeper != nullptr) sleeper->wake();
}

}  // namespace uroce::engine
