/// Where the packets of connections go.
#pragma once

#include <cstdint>

#include "port/port.h"
#include "uroce/ah_attr.h"
#include "wire/frame_template.h"

namespace uroce::transport {

/// What connections with the same address vector share, so that the packets of thousands of QPs to one peer
/// read the same cache lines.
///
/// Threads: loop. Lifetime: the loop's, as long as a QP uses it.
struct Path {
  AhAttr to;
  wire::FrameTemplate head;  ///< valid once its QPs are `resolved`; the UDP source port is each QP's own
  port::FrameSink* sink = nullptr;  ///< where its frames are written
  port::FrameSink* bulk = nullptr;  ///< and those of bulk transfers
  bool is_inner = false;            ///< not to the port, or not only
  std::uint32_t users = 0;          ///< QPs
};

}  // namespace uroce::transport
