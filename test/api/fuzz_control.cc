// Steps that create, change and destroy.
#include <algorithm>
#include <bit>
#include <chrono>

#include "api/fuzz_world.h"

namespace uroce::api {

namespace {

bool same(const QpAttr& a, const QpAttr& b) {
  return a.state == b.state && a.path_mtu == b.path_mtu && a.dest_qpn == b.dest_qpn && a.rq_psn == b.rq_psn &&
         a.sq_psn == b.sq_psn && a.access_flags == b.access_flags && a.dgid == b.dgid &&
         a.sgid_index == b.sgid_index && a.timeout == b.timeout && a.retry_cnt == b.retry_cnt &&
         a.rnr_retry == b.rnr_retry && a.max_rd_atomic == b.max_rd_atomic &&
         a.max_dest_rd_atomic == b.max_dest_rd_atomic && a.min_rnr_timer == b.min_rnr_timer;
}

bool is_within(const QpInitAttr& attr, bool has_receives, const Limits& limits) {
  return attr.max_send_wr <= limits.max_qp_wr && attr.max_send_sge <= limits.max_sge &&
         (!has_receives || (attr.max_recv_wr <= limits.max_qp_wr && attr.max_recv_sge <= limits.max_sge)) &&
         attr.max_inline_data <= limits.max_inline && !to_string(attr.type).starts_with('?') &&
         attr.type != QpType::kXrcRecv && (!attr.block_own_multicast || attr.type == QpType::kUd);
}

}  // namespace

void World::create_pd(Side& on) {
  if (on.pds.size() == 4 || (!on.pds.empty() && !wrong(1))) return;
  auto pd = Pd::create(on.device);
  expect(pd.has_value(), "a PD cannot be created");
  on.pds.push_back(std::make_unique<PdObject>(PdObject{std::move(*pd)}));
}

void World::destroy_pd(Side& on) {
  PdObject* pd = pick(on.pds, random_);
  if (pd != nullptr && pd->users == 0) erase(on.pds, *pd);
}

void World::create_mr(Side& on) {
  PdObject* pd = pick(on.pds, random_);
  if (pd == nullptr) return;
  chance(6) ? allocate_mr(on, *pd) : register_in_arena(on, *pd);
}

void World::register_in_arena(Side& on, PdObject& pd) {
  const std::size_t slot = below(Arena::kSlots);
  if (!on.slot_is_free(slot)) return;
  const std::uint32_t from = chance(2) ? 0 : below(100);
  const std::uint32_t length = wrong(8) ? below(3) : 512 + below(Arena::kSlotBytes - 511 - from);
  const auto memory = on.arena.slot(slot).subspan(from, length);
  std::uint32_t flags = wrong(2) ? below(16) : access::kAll;
  if (chance(4)) flags |= access::kInvalidatable;
  if (chance(6)) flags |= access::kZeroBased;
  if (chance(2)) flags |= access::kMwBind | access::kFlushGlobal | access::kFlushPersistent;
  if (wrong(20)) flags |= 1U << (4 + below(26));
  const bool writes = (flags & (access::kRemoteWrite | access::kRemoteAtomic)) != 0;
  const bool is_right = (!writes || (flags & access::kLocalWrite) != 0) && (flags & ~kKnownAccess) == 0;
  auto mr = Mr::reg(pd.pd, memory, flags);
  expect(mr.has_value() == is_right, "Mr::reg judges access flags wrongly");
  if (!mr) {
    ++totals_.errors;
    return expect_error(mr.error(), {Errc::kInvalid}, "Mr::reg");
  }
  const bool is_zero_based = (flags & access::kZeroBased) != 0;
  expect(mr->addr() == (is_zero_based ? 0 : std::bit_cast<std::uint64_t>(memory.data())) &&
             mr->memory().size() == length,
         "a region is not the memory that was registered");
  if ((flags & access::kLocalWrite) != 0) on.arena.open(memory);
  ++pd.users;
  on.mrs.push_back(std::make_unique<MrObject>(std::move(*mr), pd, slot));
  on.mrs.back()->access = flags;
}

void World::allocate_mr(Side& on, PdObject& pd) {
  constexpr std::array<std::size_t, 6> kSizes{0, 1, 4096, 5000, std::size_t{1} << 60, SIZE_MAX};
  const std::size_t bytes = kSizes[below(kSizes.size())];
  auto mr = Mr::alloc(pd.pd, bytes, access::kAll);
  if (!mr) {
    ++totals_.errors;
    return expect_error(mr.error(), {bytes == 0 ? Errc::kInvalid : Errc::kNoMemory}, "Mr::alloc");
  }
  expect(bytes > 0 && bytes < 1U << 20 && mr->memory().size() == bytes, "Mr::alloc gave another size");
  const auto is_zero = [](std::byte byte) { return byte == std::byte{}; };
  expect(std::all_of(mr->memory().begin(), mr->memory().end(), is_zero), "Mr::alloc gave used memory");
  ++pd.users;
  on.mrs.push_back(std::make_unique<MrObject>(std::move(*mr), pd, Arena::kSlots));
}

void World::destroy_mr(Side& on) {
  MrObject* mr = pick(on.mrs, random_);
  if (mr == nullptr || !wrong(2)) return;
  on.stale_keys.push_back(raw(mr->mr.rkey()));
  const auto memory = mr->mr.memory();
  const bool in_arena = mr->slot != Arena::kSlots;
  --mr->pd.users;
  erase(on.mrs, *mr);
  if (in_arena) on.arena.restore(memory);  // whoever writes there from now on is found out
}

void World::create_cq(Side& on) {
  if (on.cqs.size() == 5) return;
  std::uint32_t entries = wrong(3) ? 1 + below(8) : 64 + below(200);
  if (wrong(16)) entries = chance(2) ? 0 : on.device.limits().max_cqe + 1 + below(3);
  const unsigned loop = chance(20) ? 1 + below(100) : 0;
  const bool is_right = entries > 0 && entries <= on.device.limits().max_cqe && loop == 0;
  const CqAttr attr{.entries = entries, .loop = loop, .timestamps = chance(3)};
  auto cq = Cq::create(on.device, attr);
  expect(cq.has_value() == is_right, "Cq::create judges its arguments wrongly");
  if (!cq) {
    ++totals_.errors;
    return expect_error(cq.error(), {Errc::kInvalid}, "Cq::create");
  }
  expect(cq->fd() >= 0, "a CQ has no descriptor");
  on.cqs.push_back(std::make_unique<CqObject>(std::move(*cq), attr));
}

void World::resize_cq(Side& on) {
  CqObject* cq = pick(on.cqs, random_);
  if (cq == nullptr) return;
  const std::uint32_t most = on.device.limits().max_cqe;
  const std::uint32_t entries = wrong(8)   ? (chance(2) ? 0 : most + 1 + below(3))
                                : wrong(2) ? 1 + below(16)
                                           : 64 + below(200);
  const std::uint32_t before = cq->cq.entries();
  const Status resized = cq->cq.resize(entries);
  if (!resized) {
    ++totals_.errors;
    expect_error(resized.error(), {Errc::kInvalid}, "Cq::resize");
    expect(cq->cq.entries() == before, "a refused Cq::resize changed the CQ");
    expect(entries == 0 || entries > most || entries < cq->most(), "Cq::resize fails for no reason");
    return;
  }
  expect(entries > 0 && entries <= most && cq->cq.entries() >= entries, "Cq::resize took a wrong size");
  cq->entries = entries;
  cq->add(0);
}

void World::moderate_cq(Side& on) {
  CqObject* cq = pick(on.cqs, random_);
  if (cq == nullptr) return;
  const std::chrono::microseconds period(wrong(8) ? -1 : 50 * static_cast<int>(below(3)));
  const auto count = static_cast<std::uint16_t>(below(4));
  const Status moderated = cq->cq.moderate(count, period);
  expect(moderated.has_value() == (period.count() >= 0), "Cq::moderate judges its arguments wrongly");
  if (!moderated) return expect_error(moderated.error(), {Errc::kInvalid}, "Cq::moderate");
  cq->is_moderated = count > 1 || period.count() > 0;
  cq->armed_empty = false;
}

void World::destroy_cq(Side& on) {
  CqObject* cq = pick(on.cqs, random_);
  if (cq == nullptr || cq->users != 0) return;
  for (const auto& srq : on.srqs) srq->unlink(*cq);
  erase(on.cqs, *cq);
}

QpInitAttr World::random_capacities() {
  constexpr std::array kTypes{QpType::kRc, QpType::kUc, QpType::kUd, QpType::kXrcSend};
  QpInitAttr attr{.type = chance(8) ? kTypes[below(kTypes.size())] : type_,
                  .max_send_wr = below(40),
                  .max_recv_wr = below(40),
                  .max_send_sge = below(5),
                  .max_recv_sge = below(5),
                  .max_inline_data = below(3) * 50,
                  .sq_sig_all = chance(3)};
  attr.block_own_multicast = wrong(24) || (attr.type == QpType::kUd && chance(2));
  if (wrong(64)) attr.type = QpType{static_cast<std::uint8_t>(below(256))};
  if (!wrong(16)) return attr;
  constexpr std::array kFields{&QpInitAttr::max_send_wr, &QpInitAttr::max_recv_wr, &QpInitAttr::max_send_sge,
                               &QpInitAttr::max_recv_sge, &QpInitAttr::max_inline_data};
  attr.*kFields[below(kFields.size())] = chance(2) ? UINT32_MAX : 32769 + below(9);
  return attr;
}

void World::create_qp(Side& on) {
  if (uses_xrc() && chance(2)) return create_target(on);
  const bool foreign = wrong(24);  // a CQ of the other device
  const Uses uses{.pd = pick(on.pds, random_),
                  .send_cq = pick(foreign ? other(on).cqs : on.cqs, random_),
                  .recv_cq = pick(foreign && chance(2) ? other(on).cqs : on.cqs, random_),
                  .srq = chance(3) ? pick(on.srqs, random_) : nullptr};
  if (uses.pd == nullptr || uses.send_cq == nullptr || uses.recv_cq == nullptr) return;
  const QpInitAttr attr = random_capacities();
  const bool full = on.qps.size() >= on.device.limits().max_qp;
  const bool has_receives = uses.srq == nullptr && attr.type != QpType::kXrcSend;
  auto qp = uses.srq == nullptr
                ? Qp::create(uses.pd->pd, uses.send_cq->cq, uses.recv_cq->cq, attr)
                : Qp::create(uses.pd->pd, uses.send_cq->cq, uses.recv_cq->cq, uses.srq->srq, attr);
  expect(qp.has_value() == (is_within(attr, has_receives, on.device.limits()) && !foreign && !full),
         "Qp::create judges its arguments wrongly");
  if (!qp) {
    ++totals_.errors;
    return expect_error(
        qp.error(), {full ? Errc::kLimit : Errc::kInvalid, Errc::kInvalid, Errc::kUnsupported}, "Qp::create");
  }
  expect(qp->attr().max_send_wr >= attr.max_send_wr &&
             (!has_receives || qp->attr().max_recv_wr >= attr.max_recv_wr),
         "a QP was granted less than was asked for");
  const std::uint32_t qpn = raw(qp->qpn());
  expect(qpn > 1 && qpn < 0xff'ffff && on.find(qp->qpn()) == nullptr,
         "a QP has a number that is taken or reserved");
  on.qpns.push_back(qpn);
  if (uses.srq != nullptr) uses.srq->link(*uses.recv_cq);
  on.qps.push_back(std::make_unique<QpObject>(std::move(*qp), uses));
}

void World::destroy_qp(Side& on) {
  QpObject* qp = pick(on.qps, random_);
  if (qp == nullptr || !wrong(2)) return;
  qp->forget();
  erase(on.qps, *qp);
}

/// Assignment to a live handle destroys what it held.
void World::replace_qp(Side& on) {
  QpObject* qp = pick(on.qps, random_);
  if (qp == nullptr || !wrong(2) || on.qps.size() >= on.device.limits().max_qp || !qp->has_sends()) return;
  auto fresh = Qp::create(qp->uses.pd->pd, qp->uses.send_cq->cq, qp->uses.recv_cq->cq, {.type = type_});
  expect(fresh.has_value(), "a QP cannot be created");
  on.qpns.push_back(raw(fresh->qpn()));
  qp->forget();
  qp->groups.clear();
  qp->qp = std::move(*fresh);
  qp->uses.end();
  qp->uses.srq = nullptr;
  qp->uses.begin();
  expect(qp->qp.query().state == QpState::kReset, "a new QP is not in Reset");
}

QpAttr World::attr_towards(Side& on, Side& peer, Qpn dest, Psn own, Psn peers) {
  QpAttr attr{
      .path_mtu = PathMtu{static_cast<std::uint8_t>(1 + below(5))},
      .dest_qpn = dest,
      .rq_psn = peers,
      .sq_psn = own,
      .access_flags = wrong(8) ? below(16) : access::kAll | access::kFlushGlobal | access::kFlushPersistent,
      .sl = static_cast<std::uint8_t>(below(8)),
      .max_rd_atomic = static_cast<std::uint8_t>(wrong(3) ? 0 : 1 + below(4)),
      .max_dest_rd_atomic = static_cast<std::uint8_t>(wrong(3) ? 0 : 4),
      .min_rnr_timer = 1,
      .timeout = static_cast<std::uint8_t>(below(9)),
      .retry_cnt = static_cast<std::uint8_t>(wrong(3) ? below(3) : 7),
      .rnr_retry = static_cast<std::uint8_t>(wrong(3) ? below(8) : 7),
      .qkey = wrong(8) ? random_.next32() : kQkey};
  choose_path(on, peer, attr.sgid_index, attr.dgid);
  return attr;
}

/// Mostly a QP that one of type `type` may talk to.
QpObject* World::partner_of(QpType type, Side& on) {
  QpType wanted = type;
  if (type == QpType::kXrcSend) wanted = QpType::kXrcRecv;
  if (type == QpType::kXrcRecv) wanted = QpType::kXrcSend;
  QpObject* found = pick(on.qps, random_);
  for (int i = 0; i < 6 && found != nullptr && found->type() != wanted; ++i) found = pick(on.qps, random_);
  return found;
}

/// Mostly for those that there are.
void World::ask_for_options(QpObject& object) {
  const Ece asked{.vendor_id = wrong(8) ? random_.next32() : ece::kVendor,
                  .options = wrong(4)    ? random_.next32()
                             : chance(4) ? ece::kAll
                                         : ece::kMaskedAtomics};
  const bool may = object.qp.query().state <= QpState::kInit;
  const Ece before = object.qp.query_ece();
  const Status status = object.qp.set_ece(asked);
  expect(status.has_value() == may, "Qp::set_ece in Reset or Init fails, or elsewhere does not");
  const Ece after = object.qp.query_ece();
  const bool has_none = object.type() == QpType::kUc || object.type() == QpType::kUd;
  const std::uint32_t can = asked.vendor_id == ece::kVendor && !has_none ? ece::kAll : 0;
  expect(after.vendor_id == (may ? asked.vendor_id : before.vendor_id) &&
             after.options == (may ? asked.options & can : before.options),
         "Qp::query_ece grants something else than was asked for and is there");
}

/// A QP of each side, joined with each other, mostly rightly; sometimes both are of one side.
void World::connect(Side& on) {
  QpObject* here = pick(on.qps, random_);
  if (here == nullptr) return;
  Side& peer = chance(12) ? on : other(on);
  QpObject* there = partner_of(here->type(), peer);
  if (there == nullptr) return;
  const auto is_up = [](const QpObject* qp) { return qp->qp.query().state == QpState::kRts; };
  if (is_up(here) && is_up(there) && !wrong(1)) return;
  const Psn own{random_.next32()};
  const Psn peers{random_.next32()};
  const QpAttr attr = attr_towards(on, peer, there->qp.qpn(), own, peers);
  QpAttr back = attr_towards(peer, on, here->qp.qpn(), peers, own);
  back.path_mtu = attr.path_mtu;
  connect_one(on, *here, attr);
  connect_one(peer, *there, back);
}

void World::connect_one(Side& on, QpObject& object, const QpAttr& attr) {
  if (!wrong(8)) change(object, {}, qp_attr::kState);
  if (chance(3)) post_recv(on);
  ask_for_options(object);
  const GidEntry own = on.gids.at(attr.sgid_index);
  const bool is_reached =
      object.type() == QpType::kUd || (!own.gid.is_zero() && own.gid.is_v4() == attr.dgid.is_v4());
  const bool fresh = object.qp.query().state <= QpState::kInit;
  const Status status = object.qp.connect(attr);
  expect(status.has_value() == (fresh && is_reached),
         "Qp::connect from Reset or Init fails, or from elsewhere or a GID that is gone does not");
  if (status) {
    ++totals_.connections;
  } else {
    ++totals_.errors;
    expect_error(status.error(), {Errc::kInvalid}, "Qp::connect");
  }
}

QpAttr World::random_attr(Side& on) {
  QpAttr attr = attr_towards(on, other(on), Qpn{random_.next32() & 0xff'ffff}, Psn{1}, Psn{2});
  attr.state = QpState{static_cast<std::uint8_t>(chance(12) ? below(256) : below(7))};
  if (chance(2)) return attr;
  switch (below(6)) {
    case 0:
      attr.path_mtu = PathMtu{static_cast<std::uint8_t>(below(256))};
      break;
    case 1:
      attr.dgid = chance(2) ? Gid{} : on.device.gids()[0].gid;
      break;
    case 2:
      attr.sgid_index = below(5);
      break;
    case 3:
      attr.timeout = attr.min_rnr_timer = static_cast<std::uint8_t>(below(256));
      break;
    case 4:
      attr.retry_cnt = attr.rnr_retry = static_cast<std::uint8_t>(below(256));
      break;
    default:
      attr.max_rd_atomic = attr.max_dest_rd_atomic = static_cast<std::uint8_t>(below(256));
      break;
  }
  return attr;
}

void World::modify(Side& on) {
  QpObject* qp = pick(on.qps, random_);
  if (qp == nullptr || !wrong(1)) return;
  constexpr std::array kMasks{qp_attr::kState,   qp_attr::kInitMask,   qp_attr::kRtrMask,
                              qp_attr::kRtsMask, qp_attr::kUdInitMask, qp_attr::kUcRtrMask,
                              qp_attr::kState,   qp_attr::kInitMask,   qp_attr::kUnreliableRtsMask};
  std::uint32_t mask = chance(6) ? random_.next32() : kMasks[below(kMasks.size())];
  if (chance(4)) mask ^= 1U << below(21);
  if (chance(8)) mask &= ~qp_attr::kState;
  change(*qp, random_attr(on), mask);
}

void World::to_error_or_reset(Side& on) {
  QpObject* qp = pick(on.qps, random_);
  if (qp == nullptr || !wrong(1)) return;
  const QpState to = chance(3) ? QpState::kReset : QpState::kError;
  change(*qp, {.state = to}, qp_attr::kState);
  expect(qp->qp.query().state == to, "a QP cannot be moved to Error or Reset");
}

/// A modify() that fails changes nothing; one that does not leads to the state it names.
void World::change(QpObject& object, const QpAttr& attr, std::uint32_t mask) {
  Qp& qp = object.qp;
  const QpAttr before = qp.query();
  const Status status = qp.modify(attr, mask);
  const QpAttr after = qp.query();
  if (!status) {
    ++totals_.errors;
    expect_error(status.error(), {Errc::kInvalid, Errc::kBadState}, "Qp::modify");
    expect(same(before, after), "a refused Qp::modify changed the QP");
    return;
  }
  const QpState wanted = (mask & qp_attr::kState) != 0 ? attr.state : before.state;
  expect(after.state == wanted, "Qp::modify led to another state");
  if ((mask & qp_attr::kState) != 0 && attr.state == QpState::kReset) object.forget();
}

void World::query(Side& on) {
  QpObject* qp = pick(on.qps, random_);
  if (qp == nullptr) return;
  const QpAttr attr = qp->qp.query();
  expect(attr.state <= QpState::kError && to_string(attr.state) != "?", "a QP is in no state");
  expect(qp->qp.error_text().empty() == (attr.state != QpState::kError),
         "Qp::error_text is there outside of Error, or missing there");
  expect(!chance(8) || !on.device.counters().empty(), "a device has no counters");
}

void World::move_handles(Side& on) {
  const auto there_and_back = [](auto& handle) {
    auto moved = std::move(handle);
    handle = std::move(moved);
  };
  if (chance(4)) there_and_back(on.device);
  if (PdObject* pd = pick(on.pds, random_)) there_and_back(pd->pd);
  if (MrObject* mr = pick(on.mrs, random_)) there_and_back(mr->mr);
  if (MwObject* mw = pick(on.mws, random_)) there_and_back(mw->mw);
  if (CqObject* cq = pick(on.cqs, random_)) there_and_back(cq->cq);
  if (SrqObject* srq = pick(on.srqs, random_)) there_and_back(srq->srq);
  if (XrcdObject* xrcd = pick(on.xrcds, random_)) there_and_back(xrcd->xrcd);
  if (AhObject* ah = pick(on.ahs, random_)) there_and_back(ah->ah);
  if (QpObject* qp = pick(on.qps, random_)) there_and_back(qp->qp);
}

}  // namespace uroce::api
