/// Completion queues: polling, and the end of their events.
#pragma once

#include "abi/ibverbs/objects.h"

namespace uroce::abi {

/// Fills in what ibv_start_poll() and its like call; of the readers those that `wc_flags` ask for, and those
/// that are always there.
void set_extended_polling(CompletionQueue& cq, std::uint64_t wc_flags) noexcept;

/// Nobody is told of its events from now on, nor looks after its loop for the sake of it.
void leave_channel(CompletionQueue& cq);

/// In a child that was forked: what those call fails.
void die(CompletionQueue& cq) noexcept;

}  // namespace uroce::abi
