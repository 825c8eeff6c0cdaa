#include "drivers/shm/ring_writer.h"

#include <algorithm>
#include <ctime>

namespace uroce::drivers::shm {
namespace {

/// How long a consumer may give no sign of life before the kernel is asked about it.
constexpr std::uint64_t kPatienceNs = 1'000'000;

/// Off the fast path only.
std::uint64_t clock_ns() noexcept {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000U + static_cast<std::uint64_t>(now.tv_nsec);
}

}  // namespace

RingWriter::RingWriter(const Place& place, PeerWatch& watch, const Bell& bell,
                       port::LivePortCounters& counters)
    : place_(place),
      counters_(counters),
      watch_(watch),
      bell_(bell),
      offer_(place.control->producer.offer.load(std::memory_order_relaxed)),
      private_room_(std::make_unique<CacheLine[]>(record_bytes(place.max_frame) / sizeof(CacheLine))) {}

/// What was claimed and not committed may have been written to all the same, and lies ahead: it is cleared as
/// what a long record leaves behind.
void RingWriter::forget_claim() noexcept {
  if (claimed_start_ != kPrivate && !is_staged_) {
    clears_until_ = claimed_start_ + record_bytes(claimed_len_) + place_.ring_bytes;
  }
  claimed_len_ = 0;
}

/// How much the consumer has given back by now.
void RingWriter::look_at_released() noexcept {
  const std::uint64_t before = clock_ns();
  // pairs with RingReader::release
  const std::uint64_t released = place_.control->release.bytes.load(std::memory_order_acquire);
  if (released != cached_released_) judge_distance(clock_ns() - before);
  if (released <= position_ && released >= cached_released_) {
    cached_released_ = released;
  } else {
    counters_.rx_malformed.add();  // a peer gone wrong; what it says is not believed
  }
}

std::byte* RingWriter::claim_crowded(std::uint32_t len, bool by_lines) noexcept {
  look_at_released();
  const std::uint64_t start = start_of(len);
  if (!has_room(start + record_bytes(len))) return refuse(len);
  waiting_since_ns_ = 0;
  return lend(start, len, by_lines);
}

/// @param ns  what the consumer's cache line took
void RingWriter::judge_distance(std::uint64_t ns) noexcept {
  const bool was_near = nearness_.is_near();
  nearness_.saw(ns);
  if (nearness_.is_near() != was_near) want_lines();
}

void RingWriter::want_lines() noexcept {
  place_.control->producer.wants_lines.store(nearness_.is_near() ? 0 : 1, std::memory_order_relaxed);
}

std::byte* RingWriter::claim_unsynchronised(std::uint32_t len, bool by_lines) noexcept {
  // pairs with RingReader::begin_epoch
  const std::uint64_t presence = consumer().presence.load(std::memory_order_acquire);
  if (!is_attached(presence)) {
    lose_unread();
    return lend_private(len);
  }
  const std::uint32_t epoch = presence_epoch(presence);
  if (!has_offered_ || epoch != offer_epoch(offer_)) {
    offer_stream(epoch);
  } else if (!is_consumer_dead_ && consumer().ack.load(std::memory_order_acquire) == offer_) {
    start_stream();
    return claim(len, by_lines);
  }
  return refuse(len);
}

/// The peer cannot take the frame now. If it is dead, the frame will be dropped; else the caller keeps it.
std::byte* RingWriter::refuse(std::uint32_t len) noexcept {
  if (!is_consumer_dead_) {
    const std::uint64_t now = clock_ns();
    if (waiting_since_ns_ == 0) waiting_since_ns_ = now;
    if (now - waiting_since_ns_ > kPatienceNs) {
      waiting_since_ns_ = now;
      is_consumer_dead_ = !watch_.is_peer_alive();
      // Once more, in case a peer gone wrong has written over it.
      if (has_offered_) place_.control->producer.offer.store(offer_, std::memory_order_release);
    }
  }
  if (is_consumer_dead_) {
    lose_unread();
    return lend_private(len);
  }
  counters_.tx_no_room.add();
  return nullptr;
}

std::byte* RingWriter::lend_private(std::uint32_t len) noexcept {
  claimed_start_ = kPrivate;
  claimed_len_ = len;
  return private_room_[0].data() + kHeaderBytes;
}

/// Offers a new stream to the consumer's incarnation `epoch`. Nothing is written to the ring until it is
/// taken, because an earlier incarnation's frames may still be in use there.
void RingWriter::offer_stream(std::uint32_t epoch) noexcept {
  lose_unread();
  watch_.look();
  offer_ = make_offer(offer_id(offer_) + 1, epoch);
  has_offered_ = true;
  is_consumer_dead_ = false;
  waiting_since_ns_ = 0;
  place_.control->producer.offer.store(offer_,
                                       std::memory_order_release);  // pairs with RingReader::take_offer
  bell_.ring();  // asleep or not: a former producer may have died when it had said that it would
}

void RingWriter::start_stream() noexcept {
  live_offer_ = offer_;
  want_lines();
  tag_ = stream_tag(offer_id(offer_));
  position_ = 0;
  fetched_ = 0;
  flushed_ = 0;
  cached_released_ = 0;
  clears_until_ = place_.ring_bytes;
  published_ = 0;
  waiting_since_ns_ = 0;
}

/// Ends the stream; what its consumer has not given back counts as dropped.
void RingWriter::lose_unread() noexcept {
  if (live_offer_ == kNever) return;
  live_offer_ = kNever;
  const std::uint64_t taken = place_.control->release.frames.load(std::memory_order_relaxed);
  counters_.tx_dropped.add(published_ - std::min(taken, published_));
}

void RingWriter::drop() noexcept {
  claimed_len_ = 0;
  counters_.tx_dropped.add();
}

void RingWriter::wake_consumer() noexcept {
  std::atomic_thread_fence(std::memory_order_seq_cst);  // pairs with RingReader::fall_asleep()
  std::uint32_t asleep = kAsleep;
  if (consumer().sleep.load(std::memory_order_relaxed) != asleep ||
      !consumer().sleep.compare_exchange_strong(asleep, kDrowsy, std::memory_order_acq_rel)) {
    return;
  }
  due_bell_ != nullptr ? due_bell_->put(bell_.fd()) : bell_.ring();
}

}  // namespace uroce::drivers::shm
