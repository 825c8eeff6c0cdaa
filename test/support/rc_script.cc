#include "support/rc_script.h"

#include <catch2/catch.hpp>
#include <type_traits>

#include "support/frames.h"
#include "wire/describe.h"

namespace uroce::test {

namespace {

constexpr std::uint64_t kStartNs = 1'000'000'000;  // of the script's clock; 0 would mean "never"

QpInitAttr capacities(const ScriptConfig& config) {
  return {.type = config.type,
          .max_send_wr = config.send_wrs,
          .max_recv_wr = config.recv_wrs,
          .max_send_sge = config.sges,
          .max_recv_sge = config.sges,
          .max_inline_data = config.inline_bytes,
          .sq_sig_all = config.sig_all};
}

std::string in_words(const Bytes& frame) {
  return wire::describe_frame(frame);
}

std::string in_words(const Wc& wc) {
  return "wr " + std::to_string(wc.wr_id) + " status " + std::to_string(raw(wc.status)) + " (" +
         std::string(transport::row(transport::Fault{wc.vendor_err}).text) + "), " +
         std::to_string(wc.byte_len) + " bytes, opcode " + std::to_string(raw(wc.opcode));
}

std::string in_words(std::chrono::nanoseconds time) {
  return std::to_string(static_cast<double>(time.count()) / 1000) + " us";
}

constexpr std::uint32_t rtr_mask(QpType type) noexcept {
  if (type == QpType::kUd) return qp_attr::kState;
  const bool responds = type == QpType::kRc || type == QpType::kXrcRecv;
  return responds ? qp_attr::kRtrMask : qp_attr::kUcRtrMask;
}

constexpr std::uint32_t rts_mask(QpType type) noexcept {
  if (type == QpType::kXrcRecv) return qp_attr::kXrcRecvRtsMask;
  const bool requests = type == QpType::kRc || type == QpType::kXrcSend;
  return requests ? qp_attr::kRtsMask : qp_attr::kUnreliableRtsMask;
}

}  // namespace

RcScript::RcScript(const ScriptConfig& config)
    : keys_(1, [] {}),
      send_cq_(config.cqes),
      recv_cq_(config.cqes),
      shared_(config.shared_wrs == 0
                  ? nullptr
                  : std::make_unique<transport::SharedReceives>(1, kPd, config.shared_wrs, config.sges)),
      xrc_(config.type == QpType::kXrcRecv ? std::make_unique<XrcSide>(kOtherPd) : nullptr),
      qp_(make_qp(config)),
      bounds_{.active_mtu = PathMtu::k4096,
              .gid_count = 2,
              .max_rd_atomic = 128,
              .max_unacked = config.max_unacked,
              .hardened = config.hardened,
              .rnr_cap_ns = config.rnr_cap_ns,
              .probe_floor_ns = config.probe_floor_ns,
              .credits = config.credits,
              .congestion = config.congestion},
      v6_(config.v6),
      source(keys_, kPd, config.area_bytes, 0, 0x10),
      sink(keys_, kPd, config.area_bytes, access::kLocalWrite, 0x50),
      inbox(keys_, kPd, config.area_bytes, access::kLocalWrite, 0x90),
      target(keys_, kPd, config.area_bytes, kAllRights, 0xd0) {
  connect(config);
}

std::unique_ptr<transport::QueuePair> RcScript::make_qp(const ScriptConfig& config) {
  const auto a = [&]<typename Type>(std::type_identity<Type>) -> std::unique_ptr<transport::QueuePair> {
    return std::make_unique<Type>(kLocal, kPd, capacities(config), keys_, counters_, send_cq_, recv_cq_,
                                  xrc_ == nullptr ? shared_.get() : nullptr);
  };
  if (xrc_ != nullptr) {
    auto made = a(std::type_identity<transport::XrcRecvQp>{});
    xrc_->domain.add(*shared_, recv_cq_);
    xrc_->domain.add(xrc_->other, xrc_->other_cq);
    xrc_->domain.add_target(made->context());
    return made;
  }
  if (shared_ != nullptr) shared_->add_user();
  if (config.type == QpType::kXrcSend) return a(std::type_identity<transport::XrcSendQp>{});
  if (config.type == QpType::kUc) return a(std::type_identity<transport::UcQp>{});
  if (config.type == QpType::kUd) return a(std::type_identity<transport::UdQp>{});
  return a(std::type_identity<transport::RcQp>{});
}

RcScript::~RcScript() {
  const std::string surprise = surprises();
  INFO("at the end of the script");
  CHECK(surprise == "");
  CHECK(source.is_untouched());
  for (Area* area : {&sink, &inbox, &target}) CHECK(area->is_untouched_but(0, area->bytes().size()));
}

void RcScript::connect(const ScriptConfig& config) {
  QpAttr attr{.path_mtu = path_mtu_from_bytes(config.mtu).value(),
              .dest_qpn = kPeer,
              .rq_psn = Psn{config.expected_psn},
              .sq_psn = Psn{config.first_psn},
              .access_flags = config.access_flags,
              .dgid = peer_address().sgid,
              .max_rd_atomic = config.max_rd_atomic,
              .max_dest_rd_atomic = config.max_dest_rd_atomic,
              .min_rnr_timer = config.min_rnr_timer,
              .timeout = config.timeout,
              .retry_cnt = config.retry_cnt,
              .rnr_retry = config.rnr_retry,
              .qkey = config.qkey};
  const auto step = [&](QpState state, std::uint32_t mask) {
    if (raw(config.state) < raw(state)) return;
    attr.state = state;
    const Status moved = modify(attr, mask);
    INFO((moved ? "" : moved.error().text));
    REQUIRE(moved.has_value());
  };
  qp_->grant(config.ece);
  const bool ud = config.type == QpType::kUd;
  wire::FrameAddress address = peer_address();
  std::swap(address.src_mac, address.dst_mac);
  std::swap(address.sgid, address.dgid);
  path_.to.dgid = address.dgid;
  qp_->lead(path_);
  qp_->context().handles = &handles_;
  for (const auto& [handle, pd] : {std::pair{kPeerHandle, kPd}, {kForeignHandle, kPd + 1}}) {
    transport::AddressHandle& made = handles_.insert(handle, pd, {.dgid = address.dgid});
    made.head = wire::FrameTemplate{address};
    made.resolved = config.resolved;
  }
  step(QpState::kInit, ud ? qp_attr::kUdInitMask : qp_attr::kInitMask);
  step(QpState::kRtr, rtr_mask(config.type));
  if (config.resolved && !ud && raw(config.state) >= raw(QpState::kRtr)) {
    path_.head = wire::FrameTemplate{address};
    qp_->set_resolved();
    if (qp_->context().congestion != nullptr) {
      address.traffic_class = config.congestion.cnp_traffic_class;
      qp_->context().congestion->cnp_head = wire::FrameTemplate{address};
    }
  }
  step(QpState::kRts, rts_mask(config.type));
}

wire::FrameAddress RcScript::peer_address() const {
  wire::FrameAddress address = v6_ ? v6_address() : v4_address();
  std::swap(address.src_mac, address.dst_mac);
  std::swap(address.sgid, address.dgid);
  return address;
}

Ticks RcScript::ticks() const noexcept {
  return Ticks{kStartNs + static_cast<std::uint64_t>(now_.count())};
}

RcScript& RcScript::at(std::chrono::nanoseconds time) {
  INFO("script time " << in_words(time));
  REQUIRE(time >= now_);
  REQUIRE(surprises() == "");
  run_timers(time);
  now_ = time;
  return *this;
}

RcScript& RcScript::late_at(std::chrono::nanoseconds time) {
  REQUIRE(time >= now_);
  REQUIRE(surprises() == "");
  now_ = time;
  return *this;
}

void RcScript::run_timers(std::chrono::nanoseconds until) {
  for (int fired = 0; fired < 10'000; ++fired) {
    const Ticks due = qp_->deadline();
    if (!due.is_set()) return;
    const auto time =
        std::chrono::nanoseconds(static_cast<std::int64_t>(due.ns() - std::min(due.ns(), kStartNs)));
    if (time > until) return;
    now_ = std::max(now_, time);
    qp_->on_timer(ticks());
    if (qp_->take_keepalive()) {
      transport::TxContext tx{.port = port_, .bulk = port_, .now = ticks(), .budget = 1};
      qp_->send_keepalive(tx);
    }
    collect();
    if (qp_->wants_transmit(ticks())) pump();
  }
  FAIL("timers fire without end");
}

RcScript& RcScript::keep_alive(std::chrono::nanoseconds silence) {
  qp_->keep_alive(static_cast<std::uint64_t>(silence.count()), ticks());
  return *this;
}

RcScript& RcScript::post(SendWr wr) {
  if (wr.wr_id == 0) wr.wr_id = next_send_id_++;
  transport::SendQueue& sq = qp_->context().sq;
  REQUIRE(sq.put(wr, 0));
  sq.publish(1);
  return ring();
}

RcScript& RcScript::post_send(std::uint32_t bytes, std::uint8_t flags) {
  const Sge sge = source.sge(0, bytes);
  return post({.sges = {&sge, 1}, .opcode = WrOpcode::kSend, .flags = flags});
}

RcScript& RcScript::post_write(std::uint32_t bytes, std::uint8_t flags) {
  const Sge sge = source.sge(0, bytes);
  return post({.sges = {&sge, 1},
               .opcode = WrOpcode::kRdmaWrite,
               .flags = flags,
               .remote_addr = kRemoteVa,
               .rkey = kRemoteKey});
}

RcScript& RcScript::post_read(std::uint32_t bytes, std::uint8_t flags) {
  const Sge sge = sink.sge(0, bytes);
  return post({.sges = {&sge, 1},
               .opcode = WrOpcode::kRdmaRead,
               .flags = flags,
               .remote_addr = kRemoteVa,
               .rkey = kRemoteKey});
}

RcScript& RcScript::post_swap(std::uint64_t compare, std::uint64_t swap, std::uint8_t flags) {
  const Sge sge = sink.sge(0, 8);
  return post({.sges = {&sge, 1},
               .opcode = WrOpcode::kAtomicCmpAndSwp,
               .flags = flags,
               .remote_addr = kRemoteVa,
               .rkey = kRemoteKey,
               .compare_add = compare,
               .swap = swap});
}

RcScript& RcScript::post_add(std::uint64_t addend, std::uint8_t flags) {
  const Sge sge = sink.sge(0, 8);
  return post({.sges = {&sge, 1},
               .opcode = WrOpcode::kAtomicFetchAndAdd,
               .flags = flags,
               .remote_addr = kRemoteVa,
               .rkey = kRemoteKey,
               .compare_add = addend});
}

RcScript& RcScript::post_masked(WrOpcode opcode, std::uint64_t compare_add, std::uint64_t swap,
                                const AtomicMasks& masks) {
  const Sge sge = sink.sge(0, 8);
  return post({.sges = {&sge, 1},
               .opcode = opcode,
               .remote_addr = kRemoteVa,
               .rkey = kRemoteKey,
               .compare_add = compare_add,
               .swap = swap,
               .masks = &masks});
}

RcScript& RcScript::post_atomic_write(std::uint8_t flags) {
  const Sge sge = source.sge(0, 8);
  return post({.sges = {&sge, 1},
               .opcode = WrOpcode::kAtomicWrite,
               .flags = flags,
               .remote_addr = kRemoteVa,
               .rkey = kRemoteKey});
}

RcScript& RcScript::post_flush(const FlushWr& flush, std::uint8_t flags) {
  return post({.opcode = WrOpcode::kFlush,
               .flags = flags,
               .remote_addr = kRemoteVa,
               .rkey = kRemoteKey,
               .flush = flush});
}

RcScript& RcScript::post_datagram(std::uint32_t bytes, std::uint32_t qkey, std::uint8_t flags) {
  const Sge sge = source.sge(0, bytes);
  return post({.sges = {&sge, 1},
               .opcode = WrOpcode::kSend,
               .flags = flags,
               .ah = kPeerHandle,
               .remote_qpn = kPeer,
               .remote_qkey = qkey});
}

RcScript& RcScript::post_recv(std::uint32_t bytes) {
  const Sge sge = inbox.sge(recv_at_, bytes);
  recv_at_ += bytes;
  return post_recv({&sge, 1});
}

RcScript& RcScript::post_recv(std::span<const Sge> sges) {
  transport::RecvQueue& rq = qp_->context().receives.own;
  REQUIRE(rq.put({.wr_id = next_recv_id_++, .sges = sges}, 0));
  rq.publish(1);
  if (qp_->must_ring_for_receives()) ring();
  return *this;
}

RcScript& RcScript::post_shared(std::uint32_t bytes) {
  const Sge sge = inbox.sge(recv_at_, bytes);
  recv_at_ += bytes;
  REQUIRE(shared_->ring.put({.wr_id = next_recv_id_++, .sges = {&sge, 1}}, 0));
  shared_->ring.publish(1);
  return *this;
}

RcScript& RcScript::ring() {
  if (is_held_) return *this;
  static_cast<void>(qp_->on_doorbell());
  return transmit();
}

RcScript& RcScript::transmit() {
  pump();
  return *this;
}

Status RcScript::modify(const QpAttr& attr, std::uint32_t mask) {
  Status status = qp_->modify(attr, mask, bounds_);
  collect();
  if (status && qp_->wants_transmit(ticks())) pump();
  return status;
}

RcScript& RcScript::move_to(QpState state) {
  QpAttr attr;
  attr.state = state;
  const bool drains = state == QpState::kSqd;
  const Status moved = modify(attr, qp_attr::kState | (drains ? qp_attr::kEnSqdAsyncNotify : 0));
  INFO((moved ? "" : moved.error().text));
  REQUIRE(moved.has_value());
  return *this;
}

void RcScript::pump() {
  for (int turn = 0; turn < 1'000'000; ++turn) {
    transport::TxContext tx{.port = port_, .bulk = port_, .now = ticks(), .budget = 16};
    const bool more = qp_->transmit(tx);
    collect();
    if (!more || tx.no_room) return;
  }
  FAIL("it sends without end");
}

/// Takes note of what has happened at this time.
void RcScript::collect() {
  for (; !port_.frames.empty(); port_.frames.pop_front()) {
    wire::PacketView view;
    INFO(in_words(port_.frames.front()));
    REQUIRE(wire::parse_packet(port_.frames.front(), view) == wire::ParseResult::kRoce);
    REQUIRE(wire::icrc_ok(view));
    REQUIRE(view.bth.mig_req == (view.op->transport != wire::Transport::kCnp));
    REQUIRE(view.bth.dest_qpn == kPeer);
    sent_.push_back({std::move(port_.frames.front()), now_});
  }
  notes_ = qp_->take_events();
  const std::uint32_t events = notes_ & ~(transport::QueuePair::kHasFailed |
                                          transport::QpContext::kManyQueues | transport::QpContext::kHasNews);
  for (std::uint8_t type = 0; type < 32; ++type) {
    if ((events >> type & 1U) != 0) events_.push_back({AsyncEventType{type}, now_});
  }
}

RcScript& RcScript::in(std::initializer_list<Packet> packets) {
  for (const Packet& packet : packets) {
    const Bytes frame = frame_of(spoken(packet), peer_address(), kLocal);
    wire::PacketView view;
    REQUIRE(wire::parse_packet(frame, view) == wire::ParseResult::kRoce);
    REQUIRE(qp_->on_packet(view, peer_address().dgid, ticks()) == Count::kRxRoce);
  }
  collect();
  if (qp_->wants_transmit(ticks())) pump();
  return *this;
}

RcScript& RcScript::in_refused(const Packet& packet, Count reason) {
  return in_from(peer_address(), packet, reason);
}

RcScript& RcScript::in_from(const wire::FrameAddress& address, const Packet& packet, Count reason) {
  const Bytes frame = frame_of(packet, address, kLocal);
  wire::PacketView view;
  REQUIRE(wire::parse_packet(frame, view) == wire::ParseResult::kRoce);
  CHECK(qp_->on_packet(view, peer_address().dgid, ticks()) == reason);
  collect();
  if (qp_->wants_transmit(ticks())) pump();
  return *this;
}

/// In the opcodes of the QP's transport.
Packet RcScript::spoken(Packet packet) const {
  const QpType type = qp_->context().init.type;
  if (type != QpType::kXrcSend && type != QpType::kXrcRecv) return packet;
  packet.opcode = wire::xrc(packet.opcode);
  if (wire::info(packet.opcode).has_xrceth() && !packet.srq) packet.srq = 1;
  return packet;
}

RcScript& RcScript::out(const Packet& written) {
  const Packet packet = spoken(written);
  INFO("expected to leave: " << to_string(packet));
  REQUIRE(!sent_.empty());
  const Sent sent = std::move(sent_.front());
  sent_.pop_front();
  left_at_ = sent.time;
  wire::PacketView view;
  REQUIRE(wire::parse_packet(sent.frame, view) == wire::ParseResult::kRoce);
  INFO("what left at " << in_words(sent.time) << ": " << wire::describe(view));
  REQUIRE(difference(packet, view) == "");
  return *this;
}

Bytes RcScript::take_frame() {
  REQUIRE(!sent_.empty());
  Bytes frame = std::move(sent_.front().frame);
  left_at_ = sent_.front().time;
  sent_.pop_front();
  return frame;
}

Wc RcScript::next_completion(transport::CqRing& cq, std::deque<Wc>& taken, const char* kind) {
  Wc wc;
  while (cq.poll({&wc, 1}) == 1) taken.push_back(wc);
  INFO("expected " << kind);
  REQUIRE(!taken.empty());
  wc = taken.front();
  taken.pop_front();
  return wc;
}

RcScript& RcScript::completes(std::uint64_t wr_id, WcStatus status) {
  const Wc wc = next_completion(send_cq_, sends_done_, "a send completion");
  INFO("completed: " << in_words(wc));
  REQUIRE(wc.wr_id == wr_id);
  REQUIRE(wc.status == status);
  REQUIRE(wc.qpn == kLocal);
  return *this;
}

RcScript& RcScript::completes(const Wc& expected) {
  const Wc wc = next_completion(send_cq_, sends_done_, "a send completion");
  INFO("completed: " << in_words(wc));
  REQUIRE(wc.wr_id == expected.wr_id);
  REQUIRE(wc.status == expected.status);
  REQUIRE(wc.byte_len == expected.byte_len);
  REQUIRE(wc.opcode == expected.opcode);
  REQUIRE(wc.flags == expected.flags);
  return *this;
}

RcScript& RcScript::receives(std::uint64_t wr_id, std::uint32_t bytes) {
  return receives({.wr_id = wr_id,
                   .byte_len = bytes,
                   .opcode = WcOpcode::kRecv,
                   .flags = qp_->context().init.type == QpType::kUd ? wc_flag::kGrh : std::uint8_t{0}});
}

RcScript& RcScript::receives(std::uint64_t wr_id, WcStatus status) {
  const Wc wc = next_completion(recv_cq_, receives_done_, "a receive completion");
  INFO("received: " << in_words(wc));
  REQUIRE(wc.wr_id == wr_id);
  REQUIRE(wc.status == status);
  return *this;
}

RcScript& RcScript::receives(const Wc& expected) {
  const Wc wc = next_completion(recv_cq_, receives_done_, "a receive completion");
  INFO("received: " << in_words(wc));
  REQUIRE(wc.wr_id == expected.wr_id);
  REQUIRE(wc.status == expected.status);
  REQUIRE(wc.byte_len == expected.byte_len);
  REQUIRE(wc.opcode == expected.opcode);
  REQUIRE(wc.flags == expected.flags);
  REQUIRE(wc.imm_data == expected.imm_data);
  REQUIRE(wc.qpn == kLocal);
  REQUIRE(wc.src_qpn == kPeer);
  return *this;
}

RcScript& RcScript::raises(AsyncEventType event) {
  REQUIRE(!events_.empty());
  REQUIRE(raw(events_.front().type) == raw(event));
  events_.pop_front();
  return *this;
}

RcScript& RcScript::quiet() {
  REQUIRE(surprises() == "");
  return *this;
}

RcScript& RcScript::is_in(QpState state) {
  REQUIRE(to_string(qp_->state()) == to_string(state));
  return *this;
}

RcScript& RcScript::counted(Count what, std::uint64_t times) {
  INFO(kCounterNames[static_cast<std::size_t>(what)]);
  REQUIRE(counters_.get(what) == times);
  using Own = transport::QpCounters;
  if (Own::has(what)) REQUIRE(context().own_counters.get(Own::place_of(what)) == times);
  return *this;
}

RcScript& RcScript::forget() {
  static_cast<void>(surprises());
  sent_.clear();
  sends_done_.clear();
  receives_done_.clear();
  events_.clear();
  return *this;
}

/// All that has happened and was not asked for, in words.
std::string RcScript::surprises() {
  Wc wc;
  while (send_cq_.poll({&wc, 1}) == 1) sends_done_.push_back(wc);
  while (recv_cq_.poll({&wc, 1}) == 1) receives_done_.push_back(wc);
  std::string text;
  for (const Sent& sent : sent_)
    text += "left at " + in_words(sent.time) + ": " + in_words(sent.frame) + "; ";
  for (const Wc& done : sends_done_) text += "completed: " + in_words(done) + "; ";
  for (const Wc& done : receives_done_) text += "received: " + in_words(done) + "; ";
  for (const Event& event : events_) text += "event " + std::to_string(raw(event.type)) + "; ";
  return text;
}

}  // namespace uroce::test
