// The responder's part of selective repeat: requests that come ahead are held, and taken in their turn.
#include "transport/frame_writer.h"
#include "transport/responder.h"
#include "uroce/ece.h"

namespace uroce::transport {

/// Control: allocates.
void Responder::make_room_ahead() {
  const bool wanted = (qp_.ece & ece::kSelectiveRepeat) != 0;
  held_ = wanted ? std::make_unique<HeldFrames>(wire::HeldEth::kPackets, qp_.mtu) : nullptr;
  if (wanted) resources_.make_room_for_parts();
}

/// A packet from the future. As long as any is held each burst of them is answered: the peer learns what it
/// need not send again.
void Responder::hold(const wire::PacketView& packet) noexcept {
  const HeldFrames::Put put = held_->put(expected_psn_, packet);
  if (put == HeldFrames::Put::kHeld) qp_.counters.add(Count::kResponderHeldRequests);
  if (put == HeldFrames::Put::kNoRoom) qp_.counters.add(Count::kResponderUnheldRequests);
  if (!held_->is_empty() && nak_pending_ == 0) gap_reported_ = false;
}

/// What waited for the request that was taken just now goes the same way, in order.
void Responder::take_held() noexcept {
  const SharedReceives* const first = qp_.receives.shared();
  while (!qp_.has_failed() && !refusing_) {
    wire::PacketView packet;
    if (!held_->take(expected_psn_, packet)) break;
    qp_.counters.add(Count::kResponderReplayedRequests);
    const Psn psn = expected_psn_;
    on_new_request(packet);
    if (qp_.receives.shared() != first) qp_.events |= QpContext::kManyQueues;
    if (expected_psn_ == psn) break;  // not taken
  }
  if (qp_.has_failed()) return;
  if (refusing_) return held_->clear();  // the peer sends all of it again
  held_->advance(expected_psn_);
  if (!held_->is_empty()) report_held();
}

/// Something else is missing, or something was sent in vain.
void Responder::report_held() noexcept {
  if (nak_pending_ != 0 || refusing_) return;
  gap_reported_ = true;
  nak_pending_ = wire::syndrome::kNakPsnSequence;
  qp_.count(Count::kResponderSeqNaks);
}

bool Responder::emit_nak(TxContext& tx) noexcept {
  const bool tells =
      nak_pending_ == wire::syndrome::kNakPsnSequence && held_ != nullptr && !held_->is_empty();
  if (!tells) return emit_acknowledge(tx, nak_pending_, expected_psn_);
  FrameWriter frame(tx.lane(qp_.answers_bulk));
  if (!frame.begin(qp_, tx, wire::Opcode::kRcSelectiveNak, expected_psn_, 0)) return false;
  frame.put(wire::Aeth{.syndrome = nak_pending_, .msn = msn_ & Psn::kMask});
  frame.put(held_->tell(expected_psn_));
  frame.send_at_once(qp_, tx);
  qp_.counters.add(Count::kResponderSelectiveNaks);
  return true;
}

}  // namespace uroce::transport
