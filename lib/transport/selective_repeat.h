/// What a requester knows beyond cumulative acknowledgements.
#pragma once

#include <cstdint>

#include "transport/held_frames.h"
#include "transport/scoreboard.h"
#include "uroce/ece.h"

namespace uroce::transport {

/// Of a requester whose peer agreed on selective repeat. Answers ahead of a missing READ or atomic response
/// are kept: the responses as they came, of ACKs how far they go.
///
/// Threads: loop.
struct Selective {
  static constexpr std::uint32_t kResponses = PsnBitmap::kSpan;  ///< held at most

  explicit Selective(std::uint32_t mtu) : responses(kResponses, mtu) {}

  /// Called for each, so that nothing stays that PSNs could meet again.
  void on_progress(Psn unacked) noexcept {
    if (before(taken, unacked)) taken = unacked;
    if (!board.is_blank()) [[unlikely]]
      responses.advance(unacked);
    board.advance(unacked);
  }
  void forget(Psn unacked) noexcept {
    board.restart(unacked);
    responses.clear();
    taken = unacked;
  }

  Scoreboard board;
  HeldFrames responses;
  Psn taken;  ///< the peer has taken all requests before it
};

}  // namespace uroce::transport
