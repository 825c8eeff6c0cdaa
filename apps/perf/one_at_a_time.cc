#include "apps/perf/one_at_a_time.h"

#include <atomic>
#include <cstring>

#include "apps/common/pieces.h"

namespace uroce::apps::perf {
namespace {

constexpr std::uint64_t kOperation = 1;
constexpr std::uint32_t kSignalEvery = 16;

/// Last byte of WRITE number n: differs from that of n-1, never 0.
std::byte mark_of(std::uint64_t number) noexcept {
  return static_cast<std::byte>(number % 255 + 1);
}

}  // namespace

OneAtATime::OneAtATime(Session& session, std::uint32_t size)
    : session_(session), spec_(session.spec()), size_(size), area_(session.area(0)), watch_(session) {
  for (const std::size_t area : {area_.tx, area_.rx})
    fill_all(session.device(), session.bytes(area, area_.bytes), std::byte{0});
  if (spec_.verb == Verb::kRead) fill_with_pattern(session.device(), session.bytes(area_.tx, size), size);
}

bool OneAtATime::turn(std::uint64_t number) noexcept {
  switch (spec_.verb) {
    case Verb::kSend:
      return post_message(number, area_.tx) && wait_for_message() && repost();
    case Verb::kWrite:
      session_.bytes(area_.tx + size_ - 1, 1)[0] = mark_of(number);
      return post_message(number, area_.tx) && wait_for_mark(number);
    case Verb::kRead:
    case Verb::kAtomic:
      return post(number, spec_.verb == Verb::kRead ? area_.rx : area_.tx, true) && wait_for_completion();
  }
  return false;
}

bool OneAtATime::answer(std::uint64_t number) noexcept {
  if (spec_.verb == Verb::kSend) {
    if (!wait_for_message()) return false;
    // The slot is posted again after the answer: the client sends nothing before it has that.
    return post_message(number, incoming()) && repost();
  }
  if (!wait_for_mark(number)) return false;
  const std::size_t from = spec_.verify ? area_.rx : area_.tx;
  if (!spec_.verify) session_.bytes(from + size_ - 1, 1)[0] = mark_of(number);
  return post_message(number, from);
}

void OneAtATime::wait_for_news() noexcept {
  while (!is_over()) poll();
}

bool OneAtATime::wait_until(const TickClock& clock, std::uint64_t due) noexcept {
  while (clock.ticks() < due && !is_over()) take_completion();
  return !is_over();
}

bool OneAtATime::poll() noexcept {
  if (take_completion()) return true;
  has_news_ = watch_.has_news();
  if (watch_.is_silent() && session_.is_client())
    error_ = Error{.code = Errc::kTimeout, .text = "the peer is silent"};
  return false;
}

bool OneAtATime::take_completion() noexcept {
  Wc wc;
  if (session_.poll({&wc, 1}) == 0) return false;
  watch_.heard();
  if (!wc.ok()) {
    error_ = session_.failure(wc);
  } else if (Session::is_receive(wc)) {
    slot_ = Session::receive_slot(wc);
    data_errors_ += wc.byte_len != size_ ? 1 : 0;
  } else {
    ++completed_;
  }
  return true;
}

bool OneAtATime::give_up(const char* why) noexcept {
  error_ = Error{.code = Errc::kSystem, .text = why};
  return false;
}

bool OneAtATime::repost() noexcept {
  return session_.post_receive(0, last_slot_) || give_up("the receive queue took no more work requests");
}

/// One way of a ping-pong.
bool OneAtATime::post_message(std::uint64_t number, std::size_t from) noexcept {
  const std::uint32_t waits = spec_.cq_mod;
  if (waits == 0) return post(number, from, number % kSignalEvery == 0);
  const bool signaled = number % waits == 0;
  return post(number, from, signaled) && (!signaled || wait_for_completion());
}

bool OneAtATime::post(std::uint64_t number, std::size_t from, bool signaled) noexcept {
  const bool is_inline = spec_.is_ping_pong() && size_ <= session_.inline_limit();
  const Sge sge = session_.sge(from, size_);
  SendWr wr{.wr_id = kOperation, .sges = {&sge, 1}, .opcode = WrOpcode::kSend};
  wr.flags =
      static_cast<std::uint8_t>((signaled ? send_flag::kSignaled : 0) | (is_inline ? send_flag::kInline : 0));
  wr.rkey = session_.rkey();
  wr.remote_addr = session_.remote(spec_.verb == Verb::kRead ? area_.tx : area_.rx);
  if (spec_.verb == Verb::kWrite) wr.opcode = WrOpcode::kRdmaWrite;
  if (spec_.verb == Verb::kRead) wr.opcode = WrOpcode::kRdmaRead;
  if (spec_.verb == Verb::kAtomic) {
    wr.opcode = spec_.compare_swap ? WrOpcode::kAtomicCmpAndSwp : WrOpcode::kAtomicFetchAndAdd;
    wr.compare_add = spec_.compare_swap ? number : 1;
    wr.swap = number + 1;
  }
  posted_ += signaled ? 1 : 0;
  if (session_.qp(0).post_send(wr)) return true;
  return give_up("the send queue took no more work requests");
}

bool OneAtATime::wait_for_message() noexcept {
  while (!slot_) {
    poll();
    if (is_over()) return false;
  }
  last_slot_ = *slot_;
  slot_.reset();
  return true;
}

bool OneAtATime::wait_for_mark(std::uint64_t number) noexcept {
  // Written by the poll loop, which may be another thread.
  const std::atomic_ref<std::byte> last(session_.bytes(area_.rx + size_ - 1, 1)[0]);
  while (last.load(std::memory_order_acquire) != mark_of(number)) {
    poll();
    if (is_over()) return false;
  }
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
