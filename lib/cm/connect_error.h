/// Why a connection did not come about.
#pragma once

#include <string>
#include <string_view>

#include "uroce/cm_types.h"
#include "uroce/result.h"

namespace uroce {

/// @param event  the first of an id that asked, or was asked and accepted, other than kEstablished
/// @param why    of kRejected, if its private data says more than its reason
[[nodiscard]] inline Error connect_error(const CmEvent& event, std::string_view why = {}) {
  if (event.type == CmEventType::kUnreachable) return Error{Errc::kTimeout, event.text};
  if (!event.text.empty()) return Error{Errc::kPeer, event.text};
  if (event.type == CmEventType::kDisconnected || event.reason == CmReject::kTimeout) {
    return Error{Errc::kPeer, to_string(event.remote) + " ended the connection at once"};
  }
  if (why.empty()) why = to_string(event.reason);
  return Error{Errc::kPeer, to_string(event.remote) + " refused the connection: " + std::string(why)};
}

}  // namespace uroce
