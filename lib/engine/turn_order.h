/// In which order QPs have their turns.
#pragma once

#include <cstdint>

#include "transport/queue_pair.h"

namespace uroce::engine {

/// An application that serves many QPs mostly takes them in the same order again, and their ACKs come in that
/// order. Remembers which QP was behind which, so that it is found without a look at the table of all.
///
/// Threads: loop.
class TurnOrder {
 public:
  /// Which QP was behind `qp` the last time; nullptr: not known. A guess.
  [[nodiscard]] transport::QueuePair* behind(const transport::QueuePair& qp) const noexcept {
    const transport::Successor& known = qp.context().sq.successor();
    return known.as_of == departures_ ? known.qp : nullptr;
  }
  /// `second` was behind `first`.
  void learn(transport::QueuePair& first, transport::QueuePair& second) const noexcept {
    if (departures_ != kMost) first.context().sq.successor() = {.qp = &second, .as_of = departures_};
  }
  /// A QP goes away: nothing is known of any.
  void forget() noexcept { departures_ += departures_ != kMost ? 1 : 0; }

 private:
  static constexpr std::uint32_t kMost = ~0U;  // from then on nothing is learned: no number comes again
  std::uint32_t departures_ = 0;
};

}  // namespace uroce::engine
