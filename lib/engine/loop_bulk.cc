// How a loop's bulk transfers make way for short messages.
#include "engine/poll_loop.h"

namespace uroce::engine {

/// A packet of `qp` has come. Something short may be what an application waits for, unless it belongs to the
/// bulk itself.
void PollLoop::note_come(const transport::QueuePair& qp, const wire::PacketView& packet, Ticks now) noexcept {
  if (packet.frame_len > kShortFrame) {
    bulk_qp_ = &qp;
    return;
  }
  const wire::OpcodeInfo& op = *packet.op;
  const bool asks_for_bulk = op.is_read_request && packet.reth().length > transport::kLongestPrompt;
  const bool is_message = op.is_only() && (op.is_request || op.is_response) && !op.is_ack && !asks_for_bulk;
  if (!is_message || &qp == bulk_qp_) return;
  came_until_ = now + kCrowdNs;
  if (!spares_others_ && now < asked_until_) spare_others(true);
}

/// Short messages are under way both ways, or no longer: bulk that comes is handled such that they wait for
/// it no longer than they must.
[[gnu::cold]] void PollLoop::spare_others(bool yes) noexcept {
  spares_others_ = yes;
  port_.spare_others(yes);
}

}  // namespace uroce::engine
