/// UDP between two processes, spinning: what is lost is lost.
#pragma once

#include "apps/common/sample.h"
#include "apps/common/tcp.h"

namespace uroce::apps {

/// The two ends of one sample, which agree over `control`, a TCP connection of its own.
///
/// Datagrams are as long as messages are; a round trip that gets no answer for 20 ms is begun anew.
Result<Json> udp_client(const Socket& control, const std::string& host, const Sample& sample,
                        const TickClock& clock);
Result<Json> udp_server(const Socket& control, const Sample& sample);

/// Whether messages of such a sample are sent as datagrams: longer ones no program sends so.
[[nodiscard]] constexpr bool fits_udp(Kind kind, std::uint32_t bytes) noexcept {
  return kind != Kind::kStream || bytes <= 8192;
}

}  // namespace uroce::apps
