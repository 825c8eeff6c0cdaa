/// Reliable-connection queue pair.
#pragma once

#include "transport/queue_pair_of.h"
#include "transport/requester.h"
#include "transport/responder.h"

namespace uroce::transport {

/// IBA 9.7.
using RcQp = QueuePairOf<Requester, Responder>;

}  // namespace uroce::transport
