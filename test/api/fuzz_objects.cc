#include "api/fuzz_objects.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace uroce::api {

void expect_error(const Error& error, std::initializer_list<Errc> kinds, const char* call) {
  if (error.text.empty()) throw Broken(std::string(call) + " failed without a text");
  if (std::find(kinds.begin(), kinds.end(), error.code) == kinds.end()) {
    throw Broken(std::string(call) + " failed with code " + std::to_string(static_cast<int>(error.code)) +
                 ": " + error.text);
  }
}

Arena::Arena() : bytes_(kSlots * (kSlotBytes + kGuardBytes) + kGuardBytes), pattern_(bytes_.size()) {
  for (std::size_t i = 0; i < pattern_.size(); ++i)
    pattern_[i] = static_cast<std::byte>((i * 31 + 7) ^ i >> 8);
  bytes_ = pattern_;
}

Arena::Range Arena::range(std::span<std::byte> of) const noexcept {
  const auto begin = static_cast<std::size_t>(of.data() - bytes_.data());
  return {begin, begin + of.size()};
}

void Arena::open(std::span<std::byte> writable) {
  const Range opened = range(writable);
  const auto after = std::find_if(open_.begin(), open_.end(),
                                  [&](const Range& other) { return other.begin >= opened.begin; });
  open_.insert(after, opened);
}

void Arena::restore(std::span<std::byte> writable) {
  const Range closed = range(writable);
  std::memcpy(&bytes_[closed.begin], &pattern_[closed.begin], closed.end - closed.begin);
  std::erase_if(open_, [&](const Range& other) { return other.begin == closed.begin; });
}

void Arena::check() const {
  std::size_t from = 0;
  for (const Range& hole : open_) {
    expect(std::memcmp(&bytes_[from], &pattern_[from], hole.begin - from) == 0,
           "memory outside of writable regions was written");
    from = hole.end;
  }
  expect(std::memcmp(&bytes_[from], &pattern_[from], bytes_.size() - from) == 0,
         "memory outside of writable regions was written");
}

std::uint64_t Arena::address(Random& random) noexcept {
  return std::bit_cast<std::uint64_t>(bytes_.data()) + random.below(bytes_.size());
}

std::uint64_t Arena::readable(std::size_t bytes, Random& random) noexcept {
  return std::bit_cast<std::uint64_t>(bytes_.data()) + random.below(bytes_.size() - bytes);
}

bool Side::slot_is_free(std::size_t slot) const noexcept {
  return std::none_of(mrs.begin(), mrs.end(), [slot](const auto& mr) { return mr->slot == slot; });
}

QpObject* Side::find(Qpn qpn) const noexcept {
  const auto found =
      std::find_if(qps.begin(), qps.end(), [&](const auto& qp) { return qp->qp.qpn() == qpn; });
  return found == qps.end() ? nullptr : found->get();
}

SrqObject* Side::owner_of(std::uint64_t wr_id) const noexcept {
  for (const auto& srq : srqs) {
    if (srq->find(wr_id) != srq->posted.end()) return srq.get();
  }
  return nullptr;
}

void Uses::change(unsigned by) const noexcept {
  if (pd != nullptr) pd->users += by;
  if (send_cq != nullptr) send_cq->users += by;
  if (recv_cq != nullptr) recv_cq->users += by;
  if (srq != nullptr) srq->users += by;
  if (xrcd != nullptr) xrcd->users += by;
}

SrqObject::~SrqObject() {
  const auto left = static_cast<std::uint32_t>(posted.size());
  for (CqObject* cq : cqs) cq->shared -= left, cq->ghosts += left;
  uses.end();
}

void SrqObject::link(CqObject& cq) {
  if (std::find(cqs.begin(), cqs.end(), &cq) != cqs.end()) return;
  cqs.push_back(&cq);
  cq.shared += static_cast<std::uint32_t>(posted.size());
  cq.note_overflow();
}

void SrqObject::on_posted(const PostedWr& wr) {
  posted.push_back(wr);
  for (CqObject* cq : cqs) {
    ++cq->shared;
    cq->note_overflow();
  }
}

void SrqObject::on_completion(const CqObject& from, const QpObject* owner, const Wc& wc) {
  expect(to_string(wc.status) != "unknown", "a completion has an unknown status");
  const bool is_xrc = owner == nullptr || owner->type() == QpType::kXrcRecv;
  expect(!is_xrc || uses.xrcd != nullptr, "a completion is of a QP that does not exist");
  expect(&from == (is_xrc ? uses.recv_cq : owner->uses.recv_cq), "a completion came through another CQ");
  expect(is_xrc ? owner == nullptr || owner->uses.xrcd == uses.xrcd : owner->uses.srq == this,
         "a QP took a receive of an SRQ that is not its own");
  const auto wr = find(wc.wr_id);
  const PostedWr done = *wr;
  *wr = posted.back();
  posted.pop_back();
  for (CqObject* cq : cqs) --cq->shared;
  if (wc.ok()) expect_received(done, wc);
}

void expect_received(const PostedWr& posted, const Wc& wc) {
  if (wc.opcode == WcOpcode::kRecv) {
    expect(wc.byte_len <= posted.bytes, "more bytes were received than there was room for");
  } else {
    expect(wc.opcode == WcOpcode::kRecvRdmaWithImm && (wc.flags & wc_flag::kWithImm) != 0,
           "a receive completed with the opcode of a send");
  }
}

void QpObject::forget() noexcept {
  const auto leave = [](CqObject* cq, std::deque<PostedWr>& wrs) {
    if (cq == nullptr) return;
    const auto count = static_cast<std::uint32_t>(wrs.size());
    cq->outstanding -= count;
    cq->ghosts += count;
    wrs.clear();
  };
  leave(uses.send_cq, sends);
  leave(uses.recv_cq, recvs);
}

void QpObject::on_completion(const CqObject& from, const Wc& wc) {
  expect(to_string(wc.status) != "unknown", "a completion has an unknown status");
  if (!wc.ok()) expect(!describe_vendor_err(wc.vendor_err).empty(), "a failed completion tells no reason");
  // wr_ids of receives are odd, those of sends even.
  const bool is_recv = (wc.wr_id & 1) != 0;
  expect(&from == (is_recv ? uses.recv_cq : uses.send_cq), "a completion came through another CQ");
  is_recv ? complete_recv(wc) : complete_send(wc);
}

/// Sends complete in order; those that asked for no completion complete with a later one.
void QpObject::complete_send(const Wc& wc) {
  while (!sends.empty() && sends.front().wr_id != wc.wr_id) {
    expect(!sends.front().signaled || uses.send_cq->may_overflow, "the completion of a send is missing");
    sends.pop_front();
    --uses.send_cq->outstanding;
  }
  expect(!sends.empty(), "a send completed that was not posted, or twice, or out of order");
  const PostedWr done = sends.front();
  sends.pop_front();
  --uses.send_cq->outstanding;
  if (!wc.ok()) return;
  expect(done.signaled, "a send that asked for no completion has one");
  expect(wc.opcode == done.opcode, "a send's completion has the opcode of another operation");
}

void QpObject::complete_recv(const Wc& wc) {
  while (!recvs.empty() && recvs.front().wr_id != wc.wr_id) {
    expect(uses.recv_cq->may_overflow, "the completion of a receive is missing");
    recvs.pop_front();
    --uses.recv_cq->outstanding;
  }
  expect(!recvs.empty(), "a receive completed that was not posted, or twice, or out of order");
  const PostedWr done = recvs.front();
  recvs.pop_front();
  --uses.recv_cq->outstanding;
  if (!wc.ok()) return;
  expect_received(done, wc);
}

void QpObject::check_flushed(const CqObject& drained) const {
  if (&drained == uses.send_cq && !uses.send_cq->may_overflow) {
    const bool owes = std::any_of(sends.begin(), sends.end(), [](const PostedWr& wr) { return wr.signaled; });
    expect(!owes, "a QP in Error holds sends back");
  }
  if (&drained == uses.recv_cq && !uses.recv_cq->may_overflow) {
    expect(recvs.empty(), "a QP in Error holds receives back");
  }
}

}  // namespace uroce::api
