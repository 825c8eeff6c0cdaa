/// Direct calls into the QPs that there are most of.
#pragma once

#include <utility>

#include "transport/rc_qp.h"

namespace uroce::engine {

/// Calls `step` with the QP as what it is if that is RC, so that its calls are direct and inlined; measured
/// on a 64 B SEND with its ACK: 272 -> 257 ns.
template <typename Step>
decltype(auto) as_rc(transport::QueuePair& qp, Step&& step) noexcept {
  if (qp.context().type == QpType::kRc) [[likely]]
    return step(static_cast<transport::RcQp&>(qp));
  return step(qp);
}

}  // namespace uroce::engine
