/// Which packets in flight are lost: what a requester that repeats selectively reasons with.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "transport/psn_bitmap.h"

namespace uroce::transport {

/// Packets in flight, from the oldest unacknowledged on. A PSN is settled if it need not be sent again for
/// what is known. One that is not is lost once something has arrived that was sent later: a higher PSN or, if
/// it has been repeated, a PSN that was sent for the first time after that, or a later repeat. RFC 6675 and
/// RFC 8985 reason likewise for TCP.
///
/// Threads: loop.
class Scoreboard {
 public:
  /// Knows nothing of what is in flight.
  void restart(Psn unacked) noexcept;
  /// Everything before `unacked` has arrived and been answered.
  void advance(Psn unacked) noexcept {
    if (!is_blank_) return advance_known(unacked);
    settled_.restart(unacked);
    wanted_.restart(unacked);
    repeated_.restart(unacked);
    newest_ = unacked;
  }
  /// Nothing is known of what is in flight.
  [[nodiscard]] bool is_blank() const noexcept { return is_blank_; }

  /// `psn` has arrived. @return whether that is new
  bool settle(Psn psn) noexcept;
  /// `psn` is not sent for itself: it goes with one before it.
  void settle_without_news(Psn psn) noexcept {
    is_blank_ = false;
    settled_.set(psn);
  }
  void unsettle(Psn psn) noexcept { settled_.set(psn, false); }
  [[nodiscard]] bool has_settled(Psn psn) const noexcept { return settled_.has(psn); }
  /// Something with the PSN before `end` has arrived.
  void note_newest(Psn end) noexcept {
    if (!before(newest_, end)) return;
    newest_ = end;
    is_blank_ = false;
  }
  /// One past the newest PSN that has arrived.
  [[nodiscard]] Psn newest() const noexcept { return newest_; }

  /// Wants what is lost, and nothing else. @return whether there is any
  bool want_lost() noexcept;
  /// Wants all up to `end` that is not settled.
  void want_unsettled(Psn end) noexcept;
  [[nodiscard]] bool wants(Psn psn) const noexcept { return wanted_.has(psn); }
  [[nodiscard]] std::optional<Psn> first_wanted() const noexcept { return wanted_.first(); }
  /// `packets` PSNs from `psn` on were sent again, when all up to `sent_psn` had been sent before.
  void on_repeated(Psn psn, std::uint32_t packets, Psn sent_psn) noexcept;

 private:
  struct Repeat {
    Psn sent_psn;              // what is sent first from there on is sent later
    std::uint32_t serial = 0;  // of repeats
  };
  [[nodiscard]] static std::size_t index(Psn psn) noexcept { return psn.value() % PsnBitmap::kSpan; }
  [[nodiscard]] bool is_lost_again(Psn psn) const noexcept;
  void note_arrived(Psn psn) noexcept;
  void advance_known(Psn unacked) noexcept;

  PsnBitmap settled_;
  PsnBitmap wanted_;
  PsnBitmap repeated_;
  std::array<Repeat, PsnBitmap::kSpan> repeats_{};  // by PSN
  Psn newest_;
  bool is_blank_ = true;
  std::uint32_t serial_ = 0;
  std::uint32_t arrived_serial_ = 0;  // of the newest repeat that has arrived
  Psn arrived_psn_;                   // the highest of those
};

}  // namespace uroce::transport
