// The requester's part of selective repeat: what it asks for again, and when.
#include "transport/selective_repeat.h"

#include <algorithm>

#include "transport/requester.h"

namespace uroce::transport {

/// A peer that agreed on it tells which requests it holds behind the one that it misses.
void Requester::on_selective_nak(const wire::PacketView& packet, Ticks now) noexcept {
  if (selective_ == nullptr || packet.aeth().syndrome != wire::syndrome::kNakPsnSequence) {
    qp_.counters.add(Count::kRequesterGhostResponses);
    return;
  }
  qp_.count(Count::kRequesterSeqNaks);
  qp_.counters.add(Count::kRequesterSelectiveNaks);
  const Psn missing = packet.bth.psn;
  acknowledge(span_from(missing, unacked_psn_), now);
  if (qp_.has_failed() || besides_.waits_for_receive) return;
  note_taken(missing);
  if (missing != selective_->taken) return;  // older than another answer
  Scoreboard& board = selective_->board;
  const wire::HeldEth held = packet.held_eth();
  bool has_news = false;
  for (std::uint32_t i = 0; i < wire::HeldEth::kPackets; ++i) {
    const Psn psn = missing + 1 + i;
    if (held.has(i) && before(psn, sent_psn_)) has_news = board.settle(psn) || has_news;
  }
  board.unsettle(missing);
  skip_read_tails(board.newest());
  end_probes();
  if (has_news) timer_.postpone_probe(now);
  repeat_lost(now);
}

/// The peer has taken all before `end`, as an answer says that came ahead of a response.
void Requester::on_missing_response(Psn end, Ticks now) noexcept {
  note_taken(end);
  if (repeat_lost(now)) qp_.count(Count::kRequesterImpliedNaks);
}

/// A response ahead of one that is missing.
void Requester::hold_response(const wire::PacketView& packet, Ticks now) noexcept {
  if (selective_ == nullptr || qp_.has_failed()) return;
  const Psn psn = packet.bth.psn;
  const HeldFrames::Put put = selective_->responses.put(unacked_psn_, packet);
  note_taken(psn + 1);
  if (put == HeldFrames::Put::kHeld) {
    qp_.counters.add(Count::kRequesterHeldResponses);
    selective_->board.settle(psn);
    timer_.postpone_probe(now);
  } else if (put == HeldFrames::Put::kNoRoom) {
    qp_.counters.add(Count::kRequesterUnheldResponses);
  }
  repeat_lost(now);
}

/// The missing response is there: what the peer had taken completes, up to the next one.
void Requester::take_held_responses(Ticks now) noexcept {
  while (!qp_.has_failed() && before(unacked_psn_, selective_->taken)) {
    if (!qp_.sq.at(oldest_).is_answered()) {
      acknowledge(span_from(selective_->taken, unacked_psn_), now);
      continue;
    }
    const Psn psn = unacked_psn_;
    wire::PacketView packet;
    if (!selective_->responses.take(psn, packet)) return selective_->board.unsettle(psn);
    take_response(packet, now);
    if (unacked_psn_ == psn) {  // it was not what it should be
      selective_->board.unsettle(psn);
      return;
    }
  }
}

/// All requests before `end` have been taken: those with a response wait for that, others for nothing.
void Requester::note_taken(Psn end) noexcept {
  Selective& s = *selective_;
  s.on_progress(unacked_psn_);
  Psn stop = oldest_psn_;
  for (std::uint32_t index = oldest_; index != started_ && before(s.taken, end); ++index) {
    stop = stop + packets_of(index);
    const bool is_answered = qp_.sq.at(index).is_answered();
    for (; before(s.taken, end) && before(s.taken, stop); s.taken = s.taken + 1) {
      if (!is_answered || s.responses.has(s.taken)) {
        s.board.settle(s.taken);
      } else {
        s.board.unsettle(s.taken);
      }
    }
  }
  s.board.note_newest(end);
}

/// The PSNs of a READ request that was not taken are asked for with its first one.
void Requester::skip_read_tails(Psn end) noexcept {
  Psn first = oldest_psn_;
  for (std::uint32_t index = oldest_; index != started_; first = first + packets_of(index++)) {
    if (!before(first, end)) return;
    if (!qp_.sq.at(index).is_read()) continue;
    const std::uint32_t answered = index == oldest_ ? span_from(unacked_psn_, first) : 0;
    for (std::uint32_t i = answered; i < packets_of(index); ++i) {
      const Psn psn = first + i;
      if (!before(psn, end)) return;
      if (i % read_chunk() != 0 && !before(psn, selective_->taken))
        selective_->board.settle_without_news(psn);
    }
  }
}

/// Sends again what is lost. That costs no retry: something else arrived, so the peer answers, and there is
/// no more such news than packets in flight. A packet that never arrives meets the ack timeout.
/// @return whether there is any
bool Requester::repeat_lost(Ticks now) noexcept {
  Scoreboard& board = selective_->board;
  const bool any = board.want_lost();
  if (any) {
    if (board.wants(unacked_psn_)) {
      timer_.postpone_probe(now);
      is_back_ = true;
    }
    begin_repeat();
  } else if (besides_.repeating) {
    next_repeat();
  }
  return any;
}

/// Moves from where sending is to what is wanted.
void Requester::begin_repeat() noexcept {
  if (!besides_.repeating && send_psn() != sent_psn_) count_reads_in_flight();
  besides_.repeating = true;
  broken_ = Fault::kNone;
  next_repeat();
}

/// Moves to the next packet that is wanted or, behind the last one, to where sending was.
void Requester::next_repeat() noexcept {
  if (broken_ != Fault::kNone) return;
  const Scoreboard& board = selective_->board;
  const std::optional<Psn> wanted = board.first_wanted();
  besides_.repeating = wanted.has_value();
  if (besides_.repeating)
    since_ack_req_ = static_cast<std::uint16_t>(qp_.max_unacked);  // each asks for an answer
  seek(wanted.value_or(sent_psn_));
}

/// The next packet to send is the one with `psn`, which has been sent before or is the next to be.
void Requester::seek(Psn psn) noexcept {
  if (before(psn, send_psn())) {
    current_ = oldest_;
    current_psn_ = oldest_psn_;
  }
  while (current_ != started_ && span_from(psn, current_psn_) >= packets_of(current_))
    current_psn_ = current_psn_ + packets_of(current_++);
  sent_packets_ = current_ == started_ ? 0 : span_from(psn, current_psn_);
  cursor_.rewind();
}

void Requester::note_repeat(Psn psn, std::uint32_t packets) noexcept {
  selective_->board.advance(unacked_psn_);
  selective_->board.on_repeated(psn, packets, sent_psn_);
}

/// Up to which packet of it a READ is to be asked for from the current one on: all if the request was lost,
/// else up to the next response that has come.
std::uint32_t Requester::end_of_hole(std::uint32_t end) const noexcept {
  const Psn first = current_psn_;
  std::uint32_t at = sent_packets_;
  if (!before(first + at, selective_->taken)) return end;
  for (++at; at < end && selective_->board.wants(first + at);) ++at;
  return at;
}

/// Those that went back to the oldest packet count READs as they send them again.
void Requester::count_reads_in_flight() noexcept {
  reads_in_flight_ = 0;
  Psn first = oldest_psn_;
  for (std::uint32_t index = oldest_; index != started_; first = first + packets_of(index++)) {
    if (!qp_.sq.at(index).is_answered()) continue;
    const std::uint32_t packets = packets_of(index);
    for (std::uint32_t at = 0; at < packets; at += read_chunk()) {
      const Psn last = first + (std::min(at + read_chunk(), packets) - 1);
      if (!before(last, sent_psn_) || reads_in_flight_ == read_ends_.size()) return;
      if (!before(last, unacked_psn_)) note_read_in_flight(last);
    }
  }
}

/// The answer is late: what is not known to have arrived goes once more, the oldest first.
void Requester::repeat_unsettled() noexcept {
  note_taken(unacked_psn_);
  selective_->board.unsettle(unacked_psn_);
  skip_read_tails(sent_psn_);
  selective_->board.unsettle(unacked_psn_);
  selective_->board.want_unsettled(sent_psn_);
  begin_repeat();
}

/// Who takes a request takes what it holds behind it in the same step. One that waits for the next although
/// it held that has let go of everything at an RNR NAK, which was lost.
void Requester::look_for_dropped(Ticks now) noexcept {
  const bool waits_for_held = in_flight() > 0 && !before(unacked_psn_, selective_->taken) &&
                              selective_->board.has_settled(unacked_psn_);
  if (!waits_for_held) return;
  go_back(now);
  besides_.recovering = true;
}

/// What the peer was said to hold or to have taken is worth nothing any more.
void Requester::forget_selective() noexcept {
  besides_.repeating = false;
  selective_->forget(unacked_psn_);
}

/// Control: allocates.
void Requester::make_selective() {
  const bool wanted = (qp_.ece & ece::kSelectiveRepeat) != 0;
  if (!wanted || selective_ != nullptr) return;
  selective_ = std::make_unique<Selective>(qp_.mtu);
  besides_.is_selective = true;
}

}  // namespace uroce::transport
