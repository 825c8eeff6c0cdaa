#include "transport/scoreboard.h"

#include <bit>

namespace uroce::transport {

void Scoreboard::restart(Psn unacked) noexcept {
  settled_.restart(unacked);
  wanted_.restart(unacked);
  repeated_.restart(unacked);
  newest_ = unacked;
  is_blank_ = true;
  arrived_serial_ = serial_;
  arrived_psn_ = unacked;
}

void Scoreboard::note_arrived(Psn psn) noexcept {
  const std::uint32_t serial = repeats_[index(psn)].serial;
  const auto ahead = static_cast<std::int32_t>(serial - arrived_serial_);
  if (ahead < 0 || (ahead == 0 && !before(arrived_psn_, psn))) return;
  arrived_serial_ = serial;
  arrived_psn_ = psn;
}

void Scoreboard::advance_known(Psn unacked) noexcept {
  const Psn base = settled_.base();
  if (!before(base, unacked)) return;
  for (std::uint32_t i = 0; i < PsnBitmap::kWords; ++i) {
    std::uint64_t arrived = repeated_.word(i) & repeated_.word_before(i, unacked);
    for (; arrived != 0; arrived &= arrived - 1) {
      note_arrived(base + (i * PsnBitmap::kWordBits + static_cast<std::uint32_t>(std::countr_zero(arrived))));
    }
  }
  settled_.advance(unacked);
  wanted_.advance(unacked);
  repeated_.advance(unacked);
  note_newest(unacked);
  is_blank_ = newest_ == unacked && settled_.is_empty() && wanted_.is_empty() && repeated_.is_empty();
}

bool Scoreboard::settle(Psn psn) noexcept {
  const bool is_new = !settled_.has(psn);
  if (is_new && repeated_.has(psn)) note_arrived(psn);
  settled_.set(psn);
  is_blank_ = false;
  note_newest(psn + 1);
  return is_new;
}

bool Scoreboard::is_lost_again(Psn psn) const noexcept {
  const Repeat& repeat = repeats_[index(psn)];
  if (before(repeat.sent_psn, newest_)) return true;
  const auto ahead = static_cast<std::int32_t>(arrived_serial_ - repeat.serial);
  return ahead > 0 || (ahead == 0 && before(psn, arrived_psn_));
}

bool Scoreboard::want_lost() noexcept {
  if (is_blank_) return false;
  bool any = false;
  for (std::uint32_t i = 0; i < PsnBitmap::kWords; ++i) {
    const std::uint64_t open = ~settled_.word(i);
    std::uint64_t lost = open & ~repeated_.word(i) & settled_.word_before(i, newest_ - 1);
    for (std::uint64_t left = open & repeated_.word(i); left != 0; left &= left - 1) {
      const auto at = static_cast<std::uint32_t>(std::countr_zero(left));
      if (is_lost_again(settled_.base() + (i * PsnBitmap::kWordBits + at))) lost |= left & -left;
    }
    wanted_.set_word(i, lost);
    any = any || lost != 0;
  }
  return any;
}

void Scoreboard::want_unsettled(Psn end) noexcept {
  is_blank_ = false;
  for (std::uint32_t i = 0; i < PsnBitmap::kWords; ++i) {
    wanted_.set_word(i, ~settled_.word(i) & settled_.word_before(i, end));
  }
}

void Scoreboard::on_repeated(Psn psn, std::uint32_t packets, Psn sent_psn) noexcept {
  ++serial_;
  is_blank_ = false;
  for (std::uint32_t i = 0; i < packets; ++i) {
    wanted_.set(psn + i, false);
    if (span_from(psn + i, repeated_.base()) >= PsnBitmap::kSpan) continue;
    repeated_.set(psn + i);
    repeats_[index(psn + i)] = {.sent_psn = sent_psn, .serial = serial_};
  }
}

}  // namespace uroce::transport
