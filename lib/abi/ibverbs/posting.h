/// Work requests on their way into the engine's rings.
#pragma once

#include "abi/ibverbs/objects.h"

namespace uroce::abi {

/// Fills in what ibv_wr_start() and its like call: the operations that `send_ops` (IBV_QP_EX_WITH_*) name.
void set_extended_sends(QueuePair& qp, std::uint64_t send_ops) noexcept;

/// In a child that was forked: sends that are built call by call are lost, and fail when they are complete.
void die(QueuePair& qp) noexcept;

/// Why the QP did not take `wr` just now: ENOMEM if its send queue is full, EINVAL otherwise.
[[nodiscard]] int why_not_taken(const QueuePair& qp, const SendWr& wr);

/// Posts a program's list of receives, `Queue` being a Qp or an Srq, in batches.
/// @return the first that was not taken, nullptr if all were.
template <typename Queue>
[[nodiscard]] ibv_recv_wr* post_receives(Queue& queue, RecvBatch& batch, ibv_recv_wr* wr) noexcept {
  while (wr != nullptr) {
    ibv_recv_wr* const first = wr;
    std::size_t count = 0;
    for (; wr != nullptr && count < batch.size(); wr = wr->next) {
      batch[count++] = {.wr_id = wr->wr_id, .sges = sges_of(wr->sg_list, wr->num_sge)};
    }
    const std::size_t taken = queue.post_recv(std::span(batch).first(count));
    if (taken == count) continue;
    wr = first;
    for (std::size_t i = 0; i < taken; ++i) wr = wr->next;
    return wr;
  }
  return nullptr;
}

}  // namespace uroce::abi
