// Steps with shared receive queues and XRC.
#include <algorithm>
#include <bit>

#include "api/fuzz_world.h"

namespace uroce::api {

void World::create_srq(Side& on) {
  Uses uses{.pd = pick(on.pds, random_)};
  if (uses.pd == nullptr || on.srqs.size() == 4) return;
  if (uses_xrc() || chance(4)) create_xrcd(on);
  uses.xrcd = uses_xrc() || chance(3) ? pick(on.xrcds, random_) : nullptr;
  const bool foreign = uses.xrcd != nullptr && wrong(24);  // a CQ of the other device
  if (uses.xrcd != nullptr) uses.recv_cq = pick(foreign ? other(on).cqs : on.cqs, random_);
  if (uses.xrcd != nullptr && uses.recv_cq == nullptr) return;
  SrqInitAttr attr{.max_wr = 1 + below(40), .max_sge = below(5)};
  const Limits& limits = on.device.limits();
  if (wrong(16)) attr.max_wr = chance(2) ? 0 : limits.max_qp_wr + 1 + below(2);
  if (wrong(16)) attr.max_sge = limits.max_sge + below(3);
  const bool is_right = attr.max_wr > 0 && attr.max_wr <= limits.max_qp_wr && attr.max_sge <= limits.max_sge;
  auto srq = uses.xrcd == nullptr ? Srq::create(uses.pd->pd, attr)
                                  : Srq::create(uses.pd->pd, uses.xrcd->xrcd, uses.recv_cq->cq, attr);
  expect(srq.has_value() == (is_right && !foreign), "Srq::create judges its arguments wrongly");
  if (!srq) {
    ++totals_.errors;
    return expect_error(srq.error(), {Errc::kInvalid}, "Srq::create");
  }
  expect(srq->attr().max_wr >= attr.max_wr && srq->attr().max_sge >= attr.max_sge && srq->limit() == 0,
         "an SRQ was granted less than was asked for");
  const bool is_used =
      std::find(on.srq_numbers.begin(), on.srq_numbers.end(), srq->number()) != on.srq_numbers.end();
  expect(srq->number() <= 0xff'ffff && !is_used, "an SRQ has a number that is taken");
  on.srq_numbers.push_back(srq->number());
  on.srqs.push_back(std::make_unique<SrqObject>(std::move(*srq), uses));
}

/// One for XRC may go at any time; its completions stay.
void World::destroy_srq(Side& on) {
  SrqObject* srq = pick(on.srqs, random_);
  if (srq == nullptr || srq->users > 0 || !wrong(2)) return;
  for (const PostedWr& wr : srq->posted) on.orphans.insert(wr.wr_id);
  erase(on.srqs, *srq);
}

void World::resize_srq(Side& on) {
  SrqObject* object = pick(on.srqs, random_);
  if (object == nullptr) return;
  Srq& srq = object->srq;
  const std::uint32_t most = on.device.limits().max_qp_wr;
  const std::uint32_t max_wr =
      wrong(8) ? (chance(2) ? 0 : most + 1 + below(3)) : 1 + below(chance(3) ? 6 : 60);
  const std::uint32_t before = srq.attr().max_wr;
  const std::uint32_t limit = srq.limit();
  const bool is_right = max_wr > 0 && max_wr <= most;
  const Status resized = srq.resize(max_wr);
  expect(srq.limit() == limit, "Srq::resize changed the limit that is armed");
  if (!resized) {
    ++totals_.errors;
    expect_error(resized.error(), {Errc::kInvalid}, "Srq::resize");
    expect(srq.attr().max_wr == before, "a refused Srq::resize changed the SRQ");
    const std::uint32_t depth = is_right ? std::bit_ceil(max_wr) : 0;
    expect(!is_right || depth < object->posted.size() || depth < limit, "Srq::resize fails for no reason");
    return;
  }
  expect(is_right && srq.attr().max_wr >= max_wr && srq.attr().max_wr >= limit,
         "Srq::resize took a wrong size");
}

void World::arm_srq(Side& on) {
  SrqObject* object = pick(on.srqs, random_);
  if (object == nullptr) return;
  const std::uint32_t limit = wrong(8) ? below(200) : below(8);
  const std::uint32_t before = object->srq.limit();
  const Status armed = object->srq.arm_limit(limit);
  expect(armed.has_value() == (limit <= object->srq.attr().max_wr),
         "Srq::arm_limit judges the limit wrongly");
  if (!armed) {
    ++totals_.errors;
    expect(object->srq.limit() == before, "a refused Srq::arm_limit changed the limit");
    return expect_error(armed.error(), {Errc::kInvalid}, "Srq::arm_limit");
  }
  const std::uint32_t after = object->srq.limit();
  expect(after == limit || (after == 0 && object->posted.size() >= limit) || object->posted.size() < limit,
         "an SRQ has another limit than was armed");
}

void World::post_srq(Side& on) {
  SrqObject* object = pick(on.srqs, random_);
  if (object == nullptr) return;
  const SrqInitAttr& attr = object->srq.attr();
  RecvBatch batch;
  random_receives(on, attr.max_sge, batch);
  const std::size_t room = attr.max_wr - std::min<std::size_t>(attr.max_wr, object->posted.size());
  const std::size_t taken = object->srq.post_recv(std::span(batch.wrs).first(batch.count));
  expect(taken <= batch.right, "a receive beyond the SRQ's capacities was taken");
  expect(taken >= std::min<std::size_t>(batch.right, room), "a receive was refused that there is room for");
  totals_.posted += taken;
  if (taken < batch.count) ++totals_.errors;
  for (const RecvWr& wr : std::span(batch.wrs).first(taken)) {
    std::uint64_t bytes = 0;
    for (const Sge& sge : wr.sges) bytes += sge.length;
    object->on_posted({wr.wr_id, true, WcOpcode::kRecv, bytes});
  }
}

void World::create_xrcd(Side& on) {
  if (on.xrcds.size() == 2) return;
  auto xrcd = Xrcd::create(on.device);
  expect(xrcd.has_value(), "Xrcd::create fails");
  on.xrcds.push_back(std::make_unique<XrcdObject>(std::move(*xrcd)));
}

void World::destroy_xrcd(Side& on) {
  XrcdObject* xrcd = pick(on.xrcds, random_);
  if (xrcd != nullptr && xrcd->users == 0 && wrong(2)) erase(on.xrcds, *xrcd);
}

void World::create_target(Side& on) {
  create_xrcd(on);
  const Uses uses{.xrcd = pick(on.xrcds, random_)};
  if (uses.xrcd == nullptr) return;
  const QpInitAttr attr{.type = wrong(24) ? QpType::kRc : QpType::kXrcRecv};
  const bool full = on.qps.size() >= on.device.limits().max_qp;
  auto qp = Qp::create(uses.xrcd->xrcd, attr);
  expect(qp.has_value() == (attr.type == QpType::kXrcRecv && !full), "Qp::create judges a target wrongly");
  if (!qp) {
    ++totals_.errors;
    return expect_error(qp.error(), {full ? Errc::kLimit : Errc::kInvalid, Errc::kInvalid}, "Qp::create");
  }
  on.qpns.push_back(raw(qp->qpn()));
  on.qps.push_back(std::make_unique<QpObject>(std::move(*qp), uses));
}

/// Mostly to an SRQ of the peer.
void World::aim_xrc(Side& on, SendWr& wr) {
  const SrqObject* srq = pick(other(on).srqs, random_);
  wr.remote_srq = srq == nullptr || wrong(16) ? random_.next32() : srq->srq.number();
}

}  // namespace uroce::api
