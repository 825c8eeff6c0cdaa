// Steps that post, poll and wait.
#include <poll.h>

#include <algorithm>

#include "api/fuzz_world.h"
#include "support/completion_opcode.h"

namespace uroce::api {

namespace {

using namespace std::chrono_literals;

constexpr std::uint8_t kNotInline = send_flag::kFence | send_flag::kSignaled | send_flag::kSolicited;

bool is_atomic(WrOpcode opcode) noexcept {
  return opcode == WrOpcode::kAtomicCmpAndSwp || opcode == WrOpcode::kAtomicFetchAndAdd ||
         opcode == WrOpcode::kMaskedCmpAndSwp || opcode == WrOpcode::kMaskedFetchAndAdd;
}

std::uint64_t total(std::span<const Sge> sges) noexcept {
  std::uint64_t bytes = 0;
  for (const Sge& sge : sges) bytes += sge.length;
  return bytes;
}

bool is_readable(int fd) {
  pollfd wanted{.fd = fd, .events = POLLIN, .revents = 0};
  return poll(&wanted, 1, 0) == 1;
}

}  // namespace

/// A key that never was, or is no more.
std::uint32_t World::wrong_key(const Side& of) {
  if (of.stale_keys.empty() || chance(2)) return random_.next32();
  return of.stale_keys[random_.below(of.stale_keys.size())];
}

/// Mostly within a region, else with a wrong key, range or both.
Sge World::random_sge(Side& on) {
  MrObject* mr = pick(on.mrs, random_);
  if (mr == nullptr || wrong(24)) {
    const std::uint32_t key = wrong_key(on);
    return {on.arena.address(random_), chance(8) ? UINT32_MAX : below(5000), Lkey{key}};
  }
  const auto size = static_cast<std::uint32_t>(mr->mr.memory().size());
  const std::uint32_t offset = below(size + 1);
  std::uint32_t length = wrong(2) ? below(size - offset + 1) : std::min(size - offset, below(64));
  if (wrong(32)) length += 1 + below(300);
  return mr->mr.sge(offset, length);
}

/// What a peer takes that expects nothing in particular.
void World::calm(QpType type, SendWr& wr) {
  const bool has_imm = wr.opcode == WrOpcode::kSendWithImm || wr.opcode == WrOpcode::kRdmaWriteWithImm;
  if (type == QpType::kUd) wr.opcode = has_imm ? WrOpcode::kSendWithImm : WrOpcode::kSend;
  if (type == QpType::kUc && !has_imm && wr.opcode != WrOpcode::kRdmaWrite) wr.opcode = WrOpcode::kSend;
  if (wr.opcode == WrOpcode::kSendWithInv || wr.opcode == WrOpcode::kLocalInv ||
      wr.opcode == WrOpcode::kFlush)
    wr.opcode = WrOpcode::kSend;
  const bool reads = wr.opcode == WrOpcode::kRdmaRead || is_atomic(wr.opcode);
  if (reads) wr.flags &= kNotInline;
}

SendWr World::random_send(Side& on, QpType type, std::span<Sge> sges) {
  constexpr std::array kOpcodes{
      WrOpcode::kRdmaWrite,       WrOpcode::kRdmaWriteWithImm,  WrOpcode::kSend,
      WrOpcode::kSendWithImm,     WrOpcode::kRdmaRead,          WrOpcode::kSend,
      WrOpcode::kAtomicCmpAndSwp, WrOpcode::kAtomicFetchAndAdd, WrOpcode::kSendWithInv,
      WrOpcode::kFlush,           WrOpcode::kAtomicWrite,       WrOpcode::kBindMw,
      WrOpcode::kLocalInv,        WrOpcode::kMaskedCmpAndSwp,   WrOpcode::kMaskedFetchAndAdd};
  static const AtomicMasks masks{.compare = 0xff, .swap = ~std::uint64_t{0xff00}, .boundary = 0x8000};
  SendWr wr{.wr_id = next_wr_ += 2,
            .opcode = kOpcodes[below(kOpcodes.size())],
            .flags = static_cast<std::uint8_t>(below(16) & kNotInline)};
  if (wrong(64)) wr.opcode = WrOpcode{static_cast<std::uint8_t>(random_.next32())};
  if (chance(6)) wr.flags |= send_flag::kInline;
  if (is_tame_ && !wrong(1)) calm(type, wr);
  const bool is_word = is_atomic(wr.opcode) || wr.opcode == WrOpcode::kAtomicWrite;
  if (!wrong(16)) wr.masks = &masks;
  const bool has_data =
      wr.opcode != WrOpcode::kFlush && wr.opcode != WrOpcode::kBindMw && wr.opcode != WrOpcode::kLocalInv;
  if (!has_data && !wrong(16)) sges = {};
  for (Sge& sge : sges) sge = random_sge(on);
  if ((wr.flags & send_flag::kInline) != 0) {
    for (Sge& sge : sges) sge = {on.arena.readable(200, random_), below(chance(8) ? 200 : 30), Lkey{}};
  } else if (is_word && !wrong(8)) {
    if (sges.empty()) wr.opcode = WrOpcode::kRdmaWrite;
    sges = sges.first(std::min<std::size_t>(sges.size(), 1));
    for (Sge& sge : sges) sge.length = 8;
  }
  if (type == QpType::kUd && !wrong(16)) {  // a datagram is one packet
    for (Sge& sge : sges) sge.length %= 64;
  }
  wr.sges = sges;
  MrObject* target = pick(other(on).mrs, random_);
  if (target == nullptr || wrong(16)) {
    wr.remote_addr = chance(4) ? ~std::uint64_t{0} - below(64) : other(on).arena.address(random_);
    wr.rkey = Rkey{wrong_key(other(on))};
  } else {
    const std::uint64_t room =
        target->mr.memory().size() - std::min<std::uint64_t>(target->mr.memory().size(), total(sges));
    wr.remote_addr = target->mr.addr() + below(static_cast<std::uint32_t>(room) + 1 + (wrong(16) ? 9 : 0));
    if (is_word && !wrong(8)) wr.remote_addr &= ~std::uint64_t{7};
    wr.rkey = target->mr.rkey();
  }
  wr.invalidate_rkey = !wrong(2) ? wr.rkey : Rkey{random_.next32()};
  wr.imm_data = wr.rkey == Rkey{} ? 1 : raw(wr.rkey);
  if (MwObject* window = pick(other(on).mws, random_); window != nullptr && chance(is_tame_ ? 20 : 5)) {
    wr.rkey = wr.invalidate_rkey = window->key;
    wr.remote_addr = window->bound.addr + below(wrong(4) ? 64 : 1);
  }
  wr.flush = {.length = below(wrong(16) ? 9000 : 64),
              .placement = static_cast<std::uint8_t>(wrong(16) ? below(256) : 1 + below(3)),
              .scope = FlushScope{static_cast<std::uint8_t>(wrong(16) ? below(256) : below(2))}};
  if (wr.opcode == WrOpcode::kBindMw) aim_bind(on, wr);
  if (wr.opcode == WrOpcode::kLocalInv) aim_invalidate(on, wr);
  if (type == QpType::kUd || wrong(32)) aim_datagram(on, wr);
  if (type == QpType::kXrcSend || wrong(32)) aim_xrc(on, wr);
  wr.compare_add = random_.next();
  wr.swap = random_.next();
  return wr;
}

void World::post_send(Side& on) {
  QpObject* object = pick(on.qps, random_);
  if (object == nullptr) return;
  Qp& qp = object->qp;
  std::array<std::array<Sge, kMostSges>, kMostWrs> sges;
  std::array<SendWr, kMostWrs> wrs;
  const std::uint32_t count = below(kMostWrs + 1);
  const std::uint32_t limit = wrong(12) ? kMostSges : qp.attr().max_send_sge;
  for (std::uint32_t i = 0; i < count; ++i) {
    wrs[i] = random_send(on, object->type(), std::span(sges[i]).first(below(std::min(limit, kMostSges) + 1)));
  }
  // What must be taken: those before the first that is too large, as far as the ring surely has room.
  const QpState state = qp.query().state;
  const bool takes = state >= QpState::kRts && object->has_sends();
  std::size_t right = 0;
  for (; right < count; ++right) {
    const bool is_inline = (wrs[right].flags & send_flag::kInline) != 0;
    if (is_inline ? total(wrs[right].sges) > qp.attr().max_inline_data
                  : wrs[right].sges.size() > qp.attr().max_send_sge)
      break;
  }
  const std::size_t room =
      qp.attr().max_send_wr - std::min<std::size_t>(qp.attr().max_send_wr, object->sends.size());
  const std::size_t taken = qp.post_send(std::span(wrs).first(count));
  expect(takes || taken == 0, "sends were taken in a state that takes none");
  expect(taken <= right, "a send beyond the QP's capacities was taken");
  expect(!takes || taken >= std::min(right, room), "a send was refused that there is room for");
  totals_.posted += taken;
  if (taken < count) ++totals_.errors;
  for (std::size_t i = 0; i < taken; ++i) {
    const bool signaled = qp.attr().sq_sig_all || (wrs[i].flags & send_flag::kSignaled) != 0;
    object->sends.push_back(
        {wrs[i].wr_id, signaled, test::completion_opcode(wrs[i].opcode), total(wrs[i].sges)});
  }
  if (object->has_sends()) object->uses.send_cq->add(static_cast<std::uint32_t>(taken));
  if (is_tame_ && taken > 0) progress(on);
}

/// Receives with at most `max_sge` elements each, mostly.
void World::random_receives(Side& on, std::uint32_t max_sge, RecvBatch& batch) {
  const std::uint32_t limit = wrong(12) ? kMostSges : max_sge;
  bool all_right = true;
  batch.count = below(kMostWrs + 1);
  for (std::uint32_t i = 0; i < batch.count; ++i) {
    const auto list = std::span(batch.sges[i]).first(below(std::min(limit, kMostSges) + 1));
    for (Sge& sge : list) sge = random_sge(on);
    MrObject* whole = pick(on.mrs, random_);
    if (whole != nullptr && !list.empty() && !wrong(2)) {
      list[0] = whole->mr.sge(0, static_cast<std::uint32_t>(whole->mr.memory().size()));
    }
    batch.wrs[i] = {.wr_id = (next_wr_ += 2) + 1, .sges = list};
    all_right = all_right && list.size() <= max_sge;
    if (all_right) ++batch.right;
  }
}

void World::post_recv(Side& on) {
  QpObject* object = pick(on.qps, random_);
  if (object == nullptr) return;
  Qp& qp = object->qp;
  RecvBatch batch;
  random_receives(on, qp.attr().max_recv_sge, batch);
  const bool takes = qp.query().state != QpState::kReset && object->has_receives();
  const std::size_t room =
      qp.attr().max_recv_wr - std::min<std::size_t>(qp.attr().max_recv_wr, object->recvs.size());
  const std::size_t taken = qp.post_recv(std::span(batch.wrs).first(batch.count));
  expect(takes || taken == 0, "receives were taken by a QP that takes none, or in Reset");
  expect(taken <= batch.right, "a receive beyond the QP's capacities was taken");
  expect(!takes || taken >= std::min<std::size_t>(batch.right, room),
         "a receive was refused that there is room for");
  totals_.posted += taken;
  if (taken < batch.count) ++totals_.errors;
  for (std::size_t i = 0; i < taken; ++i) {
    object->recvs.push_back({batch.wrs[i].wr_id, true, WcOpcode::kRecv, total(batch.wrs[i].sges)});
  }
  if (taken > 0) object->uses.recv_cq->add(static_cast<std::uint32_t>(taken));
}

void World::poll(Side& on) {
  CqObject* cq = pick(on.cqs, random_);
  if (cq != nullptr) poll_cq(on, *cq, below(17));
}

void World::poll_cq(Side& on, CqObject& cq, std::size_t most) {
  std::array<Wc, 16> wcs;
  const bool was_armed = cq.armed_empty;
  const std::size_t count = cq.cq.poll(std::span(wcs).first(most));
  expect(count <= most, "more completions were given than there was room for");
  if (count > 0 && was_armed)
    expect(is_readable(cq.cq.fd()), "completions came to an armed CQ without an event");
  if (count > 0) cq.armed_empty = false;
  for (const Wc& wc : std::span(wcs).first(count)) {
    ++(wc.ok() ? totals_.completions : totals_.failures);
    on_completion(on, cq, wc);
    const bool in_time = wc.timestamp_ns > 0 && wc.timestamp_ns <= on.device.now_ns();
    expect(cq.has_timestamps ? in_time : wc.timestamp_ns == 0, "a completion has a wrong timestamp");
  }
  if (count == most) return;
  cq.ghosts = 0;
  for (const auto& qp : on.qps) {
    if (qp->qp.query().state == QpState::kError) qp->check_flushed(cq);
  }
}

void World::on_completion(Side& on, CqObject& cq, const Wc& wc) {
  QpObject* owner = on.find(wc.qpn);
  const bool is_recv = (wc.wr_id & 1) != 0;
  if (SrqObject* srq = is_recv ? on.owner_of(wc.wr_id) : nullptr) {
    if (wc.ok()) ++totals_.shared;
    return srq->on_completion(cq, owner, wc);
  }
  if (is_recv && on.orphans.erase(wc.wr_id) != 0) return;
  expect(owner != nullptr, "a completion is of a QP that does not exist");
  owner->on_completion(cq, wc);
  if (wc.ok() && is_recv && owner->type() == QpType::kUd) ++totals_.datagrams;
}

void World::events(Side& on) {
  CqObject* cq = pick(on.cqs, random_);
  if (cq == nullptr) return;
  switch (below(4)) {
    case 0: {
      Wc none;
      const bool is_empty = cq->cq.poll({&none, 0}) == 0 && !cq->cq.wait(0ns);
      cq->cq.clear_event();
      cq->cq.arm();
      cq->armed_empty = is_empty && !cq->is_moderated;
      break;
    }
    case 1:
      cq->cq.arm(true);
      cq->armed_empty = false;
      break;
    case 2:
      if (cq->cq.wait(std::chrono::nanoseconds(below(2000)))) {
        if (cq->armed_empty) expect(is_readable(cq->cq.fd()), "an armed CQ has completions and no event");
      }
      break;
    default:
      cq->cq.clear_event();
      cq->armed_empty = false;
      break;
  }
}

void World::async_events(Side& on) {
  AsyncEvent event;
  while (on.device.next_async_event(event)) {
    ++totals_.events;
    expect(!event.text.empty(), "an asynchronous event has no text");
    if (event.type == AsyncEventType::kPortActive || event.type == AsyncEventType::kPortErr) continue;
    if (event.type == AsyncEventType::kGidChange) continue;
    if (event.type == AsyncEventType::kSrqLimitReached) {
      const bool was =
          std::find(on.srq_numbers.begin(), on.srq_numbers.end(), event.srq) != on.srq_numbers.end();
      expect(was, "an asynchronous event is of an SRQ that never was");
      continue;
    }
    const bool is_type =
        event.type <= AsyncEventType::kSqDrained || event.type == AsyncEventType::kQpLastWqeReached;
    expect(is_type, "an asynchronous event is of an unknown type");
    const bool is_known = std::find(on.qpns.begin(), on.qpns.end(), raw(event.qpn)) != on.qpns.end();
    expect(is_known, "an asynchronous event is of a QP that never was");
  }
  expect(!is_readable(on.device.async_fd()), "async_fd is readable without an event");
}

void World::progress(Side& on) {
  for (std::uint32_t left = 1 + below(4); left > 0; --left) {
    on.device.progress();
    other(on).device.progress();
  }
}

}  // namespace uroce::api
