/// Asynchronous events. Standard library only.
#pragma once

#include <cstdint>
#include <string>

#include "uroce/types.h"

namespace uroce {

/// Something that happened to an object outside any completion. Same values as enum ibv_event_type.
enum class AsyncEventType : std::uint8_t {
  kCqErr = 0,
  kQpFatal = 1,
  kQpReqErr = 2,
  kQpAccessErr = 3,
  kCommEst = 4,
  kSqDrained = 5,
  kDeviceFatal = 8,        ///< the port's device has been taken away
  kPortActive = 9,         ///< the link has come up
  kPortErr = 10,           ///< the link has gone down: no cable, or no peer
  kSrqLimitReached = 15,   ///< fewer receives are left than Srq::arm_limit() said
  kGidChange = 18,         ///< Device::add_ip() or remove_ip() was called
  kQpLastWqeReached = 16,  ///< a QP in Error takes nothing more from its SRQ
};

struct AsyncEvent {
  AsyncEventType type{};
  Qpn qpn{};              ///< the QP concerned, if one is (kCqErr: the QP whose completion did not fit)
  std::uint32_t cq = 0;   ///< kCqErr: Cq::number()
  std::uint32_t srq = 0;  ///< kSrqLimitReached: Srq::number()
  std::string text;       ///< one sentence saying why
};

}  // namespace uroce
