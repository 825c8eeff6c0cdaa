#include "apps/perf/one_at_a_time.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <cstring>

#include "apps/common/pieces.h"

namespace uroce::apps::perf {
namespace {

constexpr std::uint64_t kOperation = 1;
constexpr std::uint32_t kSignalEvery = 16;
constexpr std::uint32_t kMarks = 255;  // never 0

/// When a message is sent again whose answer is missing: what the answer may take, big messages on slow
/// links.
constexpr std::uint64_t kAgainNs = 20 * kMillisecond;
constexpr std::uint64_t kAgainNsPerByte = 16;

/// Last byte of the WRITE of that number: differs from that of the one before.
std::byte mark_of(std::uint64_t tag) noexcept {
  return static_cast<std::byte>(tag % kMarks + 1);
}

std::uint64_t patience_of(const Session& session, std::uint32_t size) noexcept {
  if (!session.is_client()) return UINT64_MAX;
  return session.spec().is_reliable() ? kSilenceNs : kAgainNs + kAgainNsPerByte * size;
}

/// Sleeps for the better part of that time: who is woken may be late.
void rest(double ns) noexcept {
  constexpr double kLateNs = 50'000;
  constexpr double kLookNs = 100.0 * kMillisecond;  // for a signal that came just before
  if (ns <= kLateNs) return;
  const timespec nap{.tv_sec = 0, .tv_nsec = static_cast<long>(std::min(ns - kLateNs, kLookNs))};
  (void)nanosleep(&nap, nullptr);
}

}  // namespace

OneAtATime::OneAtATime(Session& session, std::uint32_t size)
    : session_(session),
      spec_(session.spec()),
      size_(size),
      receive_len_(size + spec_.headroom()),
      is_numbered_(spec_.verb == Verb::kSend && !spec_.is_reliable()),
      area_(session.area(0)),
      watch_(session),
      patience_ns_(patience_of(session, size)),
      tag_(session.begin_run()),
      first_tag_(tag_) {
  for (const std::size_t area : {area_.tx, area_.rx})
    fill_all(session.device(), session.bytes(area, area_.bytes), std::byte{0});
  if (spec_.verb == Verb::kRead) fill_with_pattern(session.device(), session.bytes(area_.tx, size), size);
  prepare_request();
}

void OneAtATime::prepare_request() noexcept {
  wr_.wr_id = kOperation;
  wr_.rkey = session_.rkey();
  wr_.remote_addr = session_.remote(spec_.verb == Verb::kRead ? area_.tx : area_.rx);
  if (spec_.is_datagram()) session_.address(wr_, 0);
  switch (spec_.verb) {
    case Verb::kSend:
      wr_.opcode = is_numbered_ ? WrOpcode::kSendWithImm : WrOpcode::kSend;
      return;
    case Verb::kWrite:
      wr_.opcode = WrOpcode::kRdmaWrite;
      return;
    case Verb::kRead:
      wr_.opcode = WrOpcode::kRdmaRead;
      return;
    case Verb::kAtomic:
      wr_.opcode = spec_.compare_swap ? WrOpcode::kAtomicCmpAndSwp : WrOpcode::kAtomicFetchAndAdd;
      return;
  }
}

bool OneAtATime::turn(std::uint64_t number) noexcept {
  first_tag_ = ++tag_;
  switch (spec_.verb) {
    case Verb::kSend:
      return post_message(area_.tx) && wait_for_message() && repost();
    case Verb::kWrite:
      mark(area_.tx) = mark_of(tag_);
      return post_message(area_.tx) && wait_for_mark();
    case Verb::kRead:
      return post(area_.rx, true) && wait_for_completion();
    case Verb::kAtomic:
      wr_.compare_add = spec_.compare_swap ? number : 1;
      wr_.swap = number + 1;
      return post(area_.tx, true) && wait_for_completion();
  }
  return false;
}

bool OneAtATime::answer() noexcept {
  if (spec_.verb == Verb::kSend) {
    if (!wait_for_message()) return false;
    // The slot is posted again after the answer: until the client has that, it sends nothing else.
    return post_message(incoming()) && repost();
  }
  if (!wait_for_mark()) return false;
  const std::size_t from = spec_.verify ? area_.rx : area_.tx;
  if (!spec_.verify) mark(from) = seen_mark_;
  return post_message(from);
}

void OneAtATime::wait_for_news() noexcept {
  while (!is_over()) poll();
}

bool OneAtATime::wait_until(const TickClock& clock, std::uint64_t due) noexcept {
  for (std::uint64_t now = clock.ticks(); now < due; now = clock.ticks()) {
    if (is_over() || is_stopped()) return false;
    if (!take_completion() && session_.local().sleeps) rest(clock.ns(due - now));
  }
  return !is_over();
}

bool OneAtATime::poll() noexcept {
  if (take_completion()) return true;
  has_news_ = watch_.has_news();
  if (watch_.still_ns() > patience_ns_) on_silence();
  return false;
}

bool OneAtATime::take_completion() noexcept {
  Wc wc;
  if (session_.poll({&wc, 1}) == 0) return false;
  watch_.heard();
  if (!wc.ok()) {
    error_ = session_.failure(wc);
  } else if (Session::is_receive(wc)) {
    take_message(wc);
  } else {
    ++completed_;
  }
  return true;
}

void OneAtATime::take_message(const Wc& wc) noexcept {
  const std::uint64_t slot = Session::receive_slot(wc);
  if (is_numbered_) {
    if (!is_answer(ntohl(wc.imm_data))) {
      (void)repost(slot);
      return;
    }
    if (slot_) (void)repost(*slot_);  // not answered yet, and sent again
  }
  slot_ = slot;
  data_errors_ += wc.byte_len != receive_len_ ? 1 : 0;
}

/// Client: an answer to what was sent last, under whatever number. Server: a message that is new.
bool OneAtATime::is_answer(std::uint32_t tag) noexcept {
  if (session_.is_client()) return take_answer(tag - static_cast<std::uint32_t>(first_tag_));
  const auto newer = static_cast<std::int32_t>(tag - static_cast<std::uint32_t>(tag_));
  if (newer <= 0) return false;
  tag_ += static_cast<std::uint64_t>(newer);
  return true;
}

/// Likewise, of a mark that is not the last one.
bool OneAtATime::is_answer(std::byte mark) noexcept {
  if (!session_.is_client()) return true;
  const auto first = std::to_integer<std::uint32_t>(mark_of(first_tag_));
  return take_answer((std::to_integer<std::uint32_t>(mark) + kMarks - first) % kMarks);
}

/// @param later  how many times the message had been sent before the one that is answered
bool OneAtATime::take_answer(std::uint32_t later) noexcept {
  if (later >= tag_ + 1 - first_tag_) return false;
  was_repeated_ = later > 0;
  first_tag_ = tag_ + 1;  // none of the others is waited for now
  return true;
}

/// The client's: over RC the peer is gone then, over UC and UD a message may be lost.
void OneAtATime::on_silence() noexcept {
  const std::uint64_t now = now_ns();
  if (spec_.is_reliable()) {
    error_ = Error{.code = Errc::kTimeout, .text = "the peer is silent"};
  } else if (silent_since_ns_ == 0 || now - silent_since_ns_ <= kSilenceNs) {
    send_again(now);
  } else {
    error_ = session_.undelivered(fmt::format("a message was sent {} times within {} s, and no answer came",
                                              tag_ - first_tag_ + 1, kSilenceNs / kSecond));
  }
}

void OneAtATime::send_again(std::uint64_t now) noexcept {
  if (silent_since_ns_ == 0) silent_since_ns_ = now;
  watch_.heard();
  if (completed_ < posted_) return;  // it is still being sent
  ++tag_;
  if (spec_.verb == Verb::kWrite) mark(area_.tx) = mark_of(tag_);
  (void)post(area_.tx, true);
}

bool OneAtATime::give_up(const char* why) noexcept {
  error_ = Error{.code = Errc::kSystem, .text = why};
  return false;
}

bool OneAtATime::repost(std::uint64_t slot) noexcept {
  return session_.post_receive(0, slot) || give_up("the receive queue took no more work requests");
}

/// One way of a ping-pong.
bool OneAtATime::post_message(std::size_t from) noexcept {
  const std::uint32_t waits = spec_.cq_mod;
  const bool signaled = sent_++ % (waits == 0 ? kSignalEvery : waits) == 0;
  return post(from, signaled) && (!signaled || waits == 0 || wait_for_completion());
}

bool OneAtATime::post(std::size_t from, bool signaled) noexcept {
  const bool is_inline = spec_.is_ping_pong() && size_ <= session_.inline_limit();
  const Sge sge = session_.sge(from, size_);
  wr_.sges = {&sge, 1};
  wr_.flags =
      static_cast<std::uint8_t>((signaled ? send_flag::kSignaled : 0) | (is_inline ? send_flag::kInline : 0));
  wr_.imm_data = htonl(static_cast<std::uint32_t>(tag_));
  posted_ += signaled ? 1 : 0;
  if (session_.qp(0).post_send(wr_)) return true;
  return give_up("the send queue took no more work requests");
}

bool OneAtATime::wait_for_message() noexcept {
  while (!slot_) {
    poll();
    if (is_over()) return false;
  }
  silent_since_ns_ = 0;
  last_slot_ = *slot_;
  slot_.reset();
  return true;
}

bool OneAtATime::wait_for_mark() noexcept {
  // Written by the poll loop, which may be another thread.
  const std::atomic_ref<std::byte> last(mark(area_.rx));
  std::byte mark = last.load(std::memory_order_acquire);
  while (mark == seen_mark_ || !is_answer(mark)) {
    poll();
    if (is_over()) return false;
    mark = last.load(std::memory_order_acquire);
  }
  silent_since_ns_ = 0;
  seen_mark_ = mark;
  watch_.heard();
  return true;
}

bool OneAtATime::wait_for_completion() noexcept {
  while (completed_ < posted_) {
    poll();
    if (is_over()) return false;
  }
  return true;
}

std::size_t OneAtATime::incoming() const noexcept {
  return spec_.verb == Verb::kSend ? session_.receive_offset(0, last_slot_) : area_.rx;
}

/// The last byte of a WRITE is its mark.
std::size_t OneAtATime::pattern_bytes() const noexcept {
  return size_ - (spec_.verb == Verb::kWrite ? 1 : 0);
}

void OneAtATime::fill(std::uint64_t number) noexcept {
  if (spec_.is_ping_pong()) {
    fill_with_pattern(session_.device(), session_.bytes(area_.tx, pattern_bytes()), number);
  } else if (spec_.verb == Verb::kRead) {
    fill_all(session_.device(), session_.bytes(area_.rx, size_), std::byte{0});
  }
}

void OneAtATime::check(std::uint64_t number) noexcept {
  switch (spec_.verb) {
    case Verb::kSend:
    case Verb::kWrite:
      data_errors_ +=
          errors_in_pattern(session_.device(), session_.bytes(incoming(), pattern_bytes()), number);
      return;
    case Verb::kRead:
      data_errors_ += errors_in_pattern(session_.device(), session_.bytes(area_.rx, size_), size_);
      return;
    case Verb::kAtomic: {
      std::uint64_t old = 0;
      std::memcpy(&old, session_.bytes(area_.tx, sizeof old).data(), sizeof old);
      data_errors_ += old != number ? 1 : 0;
      return;
    }
  }
}

}  // namespace uroce::apps::perf
