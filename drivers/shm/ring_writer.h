/// The producing end of one ring.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <memory>

#include "base/cache_line.h"
#include "base/due_bell.h"
#include "base/prefetch.h"
#include "drivers/shm/layout.h"
#include "drivers/shm/nearness.h"
#include "drivers/shm/peer_watch.h"
#include "port/port_counters.h"

namespace uroce::drivers::shm {

/// Lends room in the ring, or beside it for short frames whose first line is not written last, and publishes
/// each record by itself.
///
/// With no consumer, or a dead one, it lends private room instead and drops what is committed: a missing peer
/// never blocks a sender. A consumer that lives but does not read makes claim() answer nullptr.
///
/// Threads: loop. Lifetime: the mapping, the watch, the bell and the counters outlive it.
class RingWriter {
 public:
  struct Place {
    RingControl* control = nullptr;
    std::byte* ring = nullptr;
    std::uint32_t ring_bytes = 0;
    std::uint32_t max_frame = 0;
    bool fence_free = false;  ///< see Link::is_fence_free()
  };
  RingWriter(const Place& place, PeerWatch& watch, const Bell& bell, port::LivePortCounters& counters);

  /// @param by_lines  as FrameSink::tx_claim_lines() says
  [[nodiscard]] std::byte* claim(std::uint32_t len, bool by_lines = false) noexcept {
    if (claimed_len_ != 0) forget_claim();
    if (len < kMinFrame || len > place_.max_frame) return nullptr;
    if (consumer().ack.load(std::memory_order_acquire) != live_offer_)
      return claim_unsynchronised(len, by_lines);
    const std::uint64_t start = start_of(len);
    return has_room(start + record_bytes(len)) ? lend(start, len, by_lines) : claim_crowded(len, by_lines);
  }

  /// FrameSink::prepare(): takes lines of the next record from the consumer's cache, but for the first, which
  /// that polls.
  [[nodiscard]] bool prepare(std::uint32_t len) noexcept {
    const std::uint64_t start = start_of(len);
    const std::uint64_t end = start + record_bytes(len);
    if (live_offer_ == kNever) return true;
    if (!has_room(end)) look_at_released();
    if (!has_room(end)) return true;
    fetched_ = std::max(fetched_, start + kCacheLine);
    if (fetched_ >= end) return true;
    const std::uint64_t until = std::min<std::uint64_t>(end, fetched_ + kLinesBetweenLooks * kCacheLine);
    fetch_lines(fetched_, until - fetched_);
    fetched_ = until;
    return false;
  }

  void commit() noexcept {
    if (claimed_len_ == 0) return;
    if (claimed_start_ == kPrivate) return drop();
    const std::uint64_t next = claimed_start_ + record_bytes(claimed_len_);
    if (is_staged_) {
      if (next < clears_until_) clear_header(next);
      unstage(at(claimed_start_), record_bytes(claimed_len_));
    }
    // pairs with RingReader::read
    record_header(at(claimed_start_)).store(tag(claimed_start_) | claimed_len_, std::memory_order_release);
    if (claimed_start_ != position_) {
      record_header(at(position_)).store(tag(position_) | kSkip, std::memory_order_release);
    }
    position_ = next;
    if (claimed_len_ <= kLongFrame) fetch_lines(next + kCacheLine, next - claimed_start_);
    ++published_;
    counters_.tx_frames.add();
    counters_.tx_bytes.add(claimed_len_);
    claimed_len_ = 0;
  }

  /// Nothing is on its way: the consumer has given back all, or there is none.
  [[nodiscard]] bool is_drained() const noexcept {
    return live_offer_ == kNever ||
           place_.control->release.bytes.load(std::memory_order_acquire) == position_;
  }

  [[nodiscard]] std::uint64_t place() const noexcept { return position_; }
  /// Likewise, of what was published before place() was `place`. A ring that began anew has forgotten that.
  [[nodiscard]] bool has_taken(std::uint64_t place) const noexcept {
    return live_offer_ == kNever || place > position_ ||
           place_.control->release.bytes.load(std::memory_order_acquire) >= place;
  }

  /// As Port::leave_ringing_to() says.
  void leave_ringing_to(DueBell* bell) noexcept { due_bell_ = bell; }

  /// Rings for a consumer that sleeps, if there is anything new.
  void flush() noexcept {
    if (position_ == flushed_) return;
    flushed_ = position_;
    // Publishing and this look must not change places. Who falls asleep for the first time takes care of the
    // processor (expose_to_producers), this of the compiler.
    if (place_.fence_free) {
      std::atomic_signal_fence(std::memory_order_seq_cst);
    } else {
      std::atomic_thread_fence(std::memory_order_seq_cst);
    }
    if (consumer().sleep.load(std::memory_order_relaxed) != kAwake) wake_consumer();
  }

 private:
  static constexpr std::uint64_t kNever = ~std::uint64_t{0};    // no acknowledgement has this value
  static constexpr std::uint64_t kPrivate = ~std::uint64_t{0};  // as claimed_start_: not in the ring
  static constexpr std::uint32_t kStageBytes = 512;             // shorter records are built outside the ring

  [[nodiscard]] ConsumerLine& consumer() const noexcept { return place_.control->consumer; }
  [[nodiscard]] std::byte* at(std::uint64_t position) const noexcept {
    return place_.ring + (position & (place_.ring_bytes - 1));
  }
  /// Where a record of `len` bytes goes: at the end of the stream, or behind a skip record.
  [[nodiscard]] std::uint64_t start_of(std::uint32_t len) const noexcept {
    const std::uint64_t offset = position_ & (place_.ring_bytes - 1);
    return offset + record_bytes(len) <= place_.ring_bytes ? position_
                                                           : position_ + place_.ring_bytes - offset;
  }
  /// For a record up to `end`, as far as is known. One cache line more: the header behind it may be cleared,
  /// too.
  [[nodiscard]] bool has_room(std::uint64_t end) const noexcept {
    return end + kCacheLine - cached_released_ <= place_.ring_bytes;
  }
  [[nodiscard]] std::byte* lend(std::uint64_t start, std::uint32_t len, bool by_lines) noexcept {
    claimed_start_ = start;
    claimed_len_ = len;
    is_staged_ = !by_lines && record_bytes(len) <= kStageBytes;
    const std::uint64_t next = start + record_bytes(len);
    if (len > kLongFrame) clears_until_ = next + place_.ring_bytes;
    // Now, since behind the record the consumer, which polls its first line, would take that away between two
    // stores. A staged one's in commit(): the stage could not be read until the next header's line has come.
    if (!is_staged_ && next < clears_until_) clear_header(next);
    return (is_staged_ ? stage_.data() : at(start)) + kHeaderBytes;
  }
  [[nodiscard]] std::uint32_t tag(std::uint64_t position) const noexcept {
    return tag_ | lap_bit(position, place_.ring_bytes);
  }
  void clear_header(std::uint64_t position) noexcept {
    record_header(at(position)).store(0, std::memory_order_relaxed);
  }
  /// Line by line, the one that the consumer polls last and at once: while it is being filled, each look of
  /// the consumer takes it away from this core. Measured: 64 B SEND round trip 1.09 -> 0.87 us.
  void unstage(std::byte* record, std::uint32_t bytes) noexcept {
    for (std::uint32_t line = kCacheLine; line < bytes; line += kCacheLine) {
      std::memcpy(record + line, stage_.data() + line, kCacheLine);
    }
    std::memcpy(record + kHeaderBytes, stage_.data() + kHeaderBytes, kCacheLine - kHeaderBytes);
  }
  /// Takes lines that will be written from the consumer's cache. Measured, for the next short record, all but
  /// the first line and that of the header behind it: WRITEs of 64 B posted in lists, 7.5 -> 14 million/s.
  void fetch_lines(std::uint64_t from, std::uint64_t bytes) const noexcept {
    for (std::uint64_t line = 0; line < bytes; line += kCacheLine) prefetch_to_write(at(from + line));
  }
  void forget_claim() noexcept;
  void look_at_released() noexcept;
  [[nodiscard]] std::byte* claim_crowded(std::uint32_t len, bool by_lines) noexcept;
  [[nodiscard]] std::byte* claim_unsynchronised(std::uint32_t len, bool by_lines) noexcept;
  [[nodiscard]] std::byte* refuse(std::uint32_t len) noexcept;
  [[nodiscard]] std::byte* lend_private(std::uint32_t len) noexcept;
  void judge_distance(std::uint64_t ns) noexcept;
  void want_lines() noexcept;
  void offer_stream(std::uint32_t epoch) noexcept;
  void start_stream() noexcept;
  void lose_unread() noexcept;
  void drop() noexcept;
  void wake_consumer() noexcept;

  Place place_;
  std::uint64_t live_offer_ = kNever;  // the offer that the consumer reads; kNever: none
  std::uint64_t position_ = 0;         // of the stream, bytes published
  std::uint64_t fetched_ = 0;          // of the stream, bytes that prepare() has fetched room for
  std::uint64_t flushed_ = 0;          // position_ at the last flush
  std::uint64_t cached_released_ = 0;
  std::uint64_t clears_until_ = 0;  // of the stream: up to there headers are cleared ahead; layout.h
  std::uint64_t claimed_start_ = 0;
  std::uint32_t claimed_len_ = 0;  // 0: nothing is claimed
  bool is_staged_ = false;         // the claimed one: built beside the ring
  std::uint32_t tag_ = 0;
  std::uint64_t published_ = 0;  // frames of the stream
  port::LivePortCounters& counters_;
  PeerWatch& watch_;
  const Bell& bell_;
  DueBell* due_bell_ = nullptr;
  Nearness nearness_;  // of the consumer

  std::uint64_t offer_;                 // as published last, perhaps by an earlier incarnation
  bool has_offered_ = false;            // offer_ is of this incarnation
  bool is_consumer_dead_ = false;       // known from the kernel; until its epoch changes
  std::uint64_t waiting_since_ns_ = 0;  // 0: not waiting
  std::unique_ptr<CacheLine[]> private_room_;
  alignas(kCacheLine) std::array<std::byte, kStageBytes> stage_{};
};

}  // namespace uroce::drivers::shm
