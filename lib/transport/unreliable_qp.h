/// Queue pairs of the unreliable transports.
#pragma once

#include "transport/queue_pair_of.h"
#include "transport/uc_responder.h"
#include "transport/ud_responder.h"
#include "transport/unreliable_sender.h"

namespace uroce::transport {

/// IBA 9.8.2.
using UcQp = QueuePairOf<UnreliableSender, UcResponder>;
/// IBA 9.8.3.
using UdQp = QueuePairOf<UnreliableSender, UdResponder>;

}  // namespace uroce::transport
