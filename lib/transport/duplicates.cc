// Requests that the responder has seen before. They change no state and execute nothing twice. IBA 9.7.5.1.5
// ?
#include <algorithm>
#include <utility>

#include "transport/responder.h"

namespace uroce::transport {

void Responder::on_duplicate(const wire::PacketView& packet) noexcept {
  qp_.count(Count::kResponderDuplicateRequests);
  const wire::OpcodeInfo& op = *packet.op;
  if (op.is_send || op.is_write) {
    if (held_ != nullptr && !held_->is_empty()) report_held();
    ack_pending_ = true;  // with the newest PSN and MSN: one ACK however many duplicates a burst holds
    return;
  }
  if (op.is_read_request) {
    replay_read(packet);
    return;
  }
  ResponderResource* request = resources_.find(packet.bth.psn);
  const auto [va, rkey] = op.is_atomic_request ? std::pair{packet.atomic_eth().va, packet.atomic_eth().rkey}
                                               : std::pair{packet.reth().va, packet.reth().rkey};
  if (request == nullptr || request->opcode != packet.bth.opcode || request->va != va ||
      request->rkey != raw(rkey)) {
    qp_.counters.add(Count::kResponderForgottenDuplicates);
    return;
  }
  qp_.counters.add(Count::kResponderReplayedAtomics);
  request->next = 0;
  resources_.queue(*request);
}

/// Answers a READ, or a tail of it, again from memory. The range must be that of the remembered request or
/// lie in it at a packet border.
void Responder::replay_read(const wire::PacketView& packet) noexcept {
  ResponderResource* request = resources_.find(packet.bth.psn);
  const wire::Reth reth = packet.reth();
  const std::uint32_t skip = request == nullptr ? 0 : span_from(packet.bth.psn, request->first_psn);
  const std::uint64_t skipped = std::uint64_t{skip} * qp_.mtu;
  if (request == nullptr || request->opcode != packet.bth.opcode || request->rkey != raw(reth.rkey) ||
      reth.va != request->va + skipped || skipped + reth.length > request->length) {
    qp_.counters.add(Count::kResponderForgottenDuplicates);
    return;
  }
  qp_.counters.add(Count::kResponderReplayedReads);
  const bool to_the_end = skipped + reth.length == request->length;
  const std::uint32_t end = to_the_end ? request->packets : skip + (reth.length + qp_.mtu - 1) / qp_.mtu;
  if (!request->queued) {
    request->next = skip;
    request->end = end;
    resources_.queue(*request);
  } else if (!resources_.add_part(*request, skip, end)) {
    request->next = std::min(request->next, skip);  // responses under way start again from what is missing
    request->end = std::max(request->end, end);
  }
}

}  // namespace uroce::transport
