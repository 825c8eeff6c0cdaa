/// The parts of a short frame, which a template writes at once and sums up from registers: no load then waits
/// for stores before it to have left the processor.
#pragma once

#include <cstddef>
#include <cstdint>

#include "wire/bth.h"

namespace uroce::wire {

/// What a frame holds besides what its template does.
struct FrameParts {
  static constexpr std::uint32_t kMostExtension = 32;  ///< bytes
  static constexpr std::uint32_t kMostPayload = 511;   ///< bytes

  Words<Bth::kSize> bth;
  Words<kMostExtension> extension;  ///< the headers behind the BTH, if any, with zeros behind them
  std::uint32_t header_bytes;       ///< the BTH's and theirs
  std::uint32_t payload_bytes;
  const std::byte* payload;
  std::uint16_t udp_source_port;  ///< RoCE v2 only
};

}  // namespace uroce::wire
