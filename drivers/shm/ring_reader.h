/// The consuming end of one ring.
#pragma once

#include <algorithm>
#include <atomic>
#include <span>

#include "base/cpu.h"
#include "base/fetch_ahead.h"
#include "base/prefetch.h"
#include "drivers/shm/layout.h"
#include "drivers/shm/pace.h"
#include "drivers/shm/peer_watch.h"
#include "port/port_counters.h"

namespace uroce::drivers::shm {

/// Shows records in place. Believes nothing that it reads: a header that cannot be true is counted and makes
/// both ends start a new stream.
///
/// Threads: loop; fall_asleep() and wake_up() as Port::arm_rx_beside() says. Lifetime: the mapping, the watch
/// and the counters outlive it. Construction begins a new epoch of the consumer, detach() says goodbye.
class RingReader {
 public:
  struct Place {
    RingControl* control = nullptr;
    std::byte* ring = nullptr;
    std::uint32_t ring_bytes = 0;
    std::uint32_t max_frame = 0;
  };
  RingReader(const Place& place, PeerWatch& watch, port::LivePortCounters& counters) noexcept;

  /// There is a record, which read() shows, or refuses.
  [[nodiscard]] bool has_some() const noexcept {
    // pairs with RingWriter::commit
    return (record_header(next()).load(std::memory_order_acquire) & kTagMask) == tag(position_);
  }
  /// From now on, or no longer, prepare() fetches what is long, and read() does not.
  void leave_to_prepare(bool yes) noexcept { leaves_to_prepare_ = yes; }
  [[nodiscard]] bool leaves_to_prepare() const noexcept { return leaves_to_prepare_; }
  /// Fetches some lines of the next record, which is there. @return whether none was left
  [[nodiscard]] bool prepare() noexcept {
    const std::uint32_t header = record_header(next()).load(std::memory_order_relaxed);
    const std::uint64_t end = position_ + record_bytes(header & kLengthMask);
    fetched_ = std::max(fetched_, position_);
    if ((header & kSkip) != 0 || fetched_ >= end) return true;
    for (unsigned i = 0; i < kLinesBetweenLooks && fetched_ < end; ++i, fetched_ += kCacheLine) {
      prefetch(place_.ring + (fetched_ & (place_.ring_bytes - 1)));
    }
    return false;
  }
  /// A hint: behind the last long record that was shown there was another one.
  [[nodiscard]] bool has_next() const noexcept { return has_next_; }
  /// The record behind the last long one that was shown, if there was one then that read() will show.
  [[nodiscard]] std::span<const std::byte> next_frame() const noexcept {
    if (!has_next_ || leaves_to_prepare_) return {};
    const auto offset = static_cast<std::uint32_t>(position_ & (place_.ring_bytes - 1));
    // pairs with RingWriter::commit
    const std::uint32_t header = record_header(place_.ring + offset).load(std::memory_order_acquire);
    const std::uint32_t len = header & kLengthMask;
    const bool is_shown = (header & kTagMask) == tag(position_) && (header & kSkip) == 0 &&
                          is_plausible(offset, len, record_bytes(len));
    return is_shown ? std::span<const std::byte>{place_.ring + offset + kHeaderBytes, len}
                    : std::span<const std::byte>{};
  }
  /// As Port::leave_fetching_to() says.
  void leave_fetching_to(FetchAhead* ahead) noexcept { ahead_ = ahead; }
  /// The last read() has shown one record and not looked behind it, where there is another one.
  [[nodiscard]] bool has_left_some() const noexcept { return shows_one_ && has_some(); }
  /// The next read() looks, however little time has passed since the last one.
  void hurry() noexcept { pace_.hurry(); }
  /// What read() does besides when it has nothing to show.
  void keep_up() noexcept {
    if (is_broken_) resynchronise();
    check_agreement();
  }

  /// The first record after a read() that found none is shown alone: the header behind it, which the producer
  /// may be about to write, takes as long to come as the record's own, and if it then is there, both records
  /// are handled before anybody sees the first. Measured: 64 B round trips of which one of 16 has an ACK
  /// behind it, p99 0.78 -> 0.72 us; each with an ACK 0.79 -> 0.73.
  ///
  /// @param shows_all  there is something behind them that should not come first
  unsigned read(std::span<port::RxFrame> frames, bool shows_all = false) noexcept {
    if (is_broken_) resynchronise();
    if (pace_.waits()) return 0;
    unsigned count = 0;
    std::uint64_t bytes = 0;
    const bool paced = is_paced();
    shows_one_ = was_idle_ && !paced && !shows_all;
    const std::size_t most = shows_one_ ? std::min<std::size_t>(frames.size(), 1) : frames.size();
    while (count < most) {
      const auto offset = static_cast<std::uint32_t>(position_ & (place_.ring_bytes - 1));
      // pairs with RingWriter::commit
      const std::uint32_t header = record_header(place_.ring + offset).load(std::memory_order_acquire);
      if ((header & kTagMask) != tag(position_)) break;
      const std::uint32_t len = header & kLengthMask;
      const std::uint32_t taken = record_bytes(len);
      if ((header & kSkip) != 0 || !is_plausible(offset, len, taken)) {
        if (skip(header, offset)) continue;
        break;
      }
      if (!paced) [[likely]]
        prefetch_lines<kLinesOfRecord>();
      frames[count++] = {.data = place_.ring + offset + kHeaderBytes, .len = len};
      bytes += len;
      position_ += taken;
      if (len <= kLongFrame) {
        shows_short_ = true;
      } else {
        shows_long_ = true;
        if (has_next_ = has_some(); has_next_ && !leaves_to_prepare_) prefetch_record(taken);
      }
    }
    was_idle_ = count == 0;
    if (count == 0) return see_nothing();
    if (count < most && is_paced()) pace_.wait();
    shown_ = count;
    frames_ += count;
    counters_.rx_frames.add(count);
    counters_.rx_bytes.add(bytes);
    return count;
  }

  /// Gives the room of all shown frames back to the producer.
  ///
  /// Long records, and those of a stream, are handed over if it wants that: a byte is written to each line,
  /// which takes the line away from the producer's core. That then fetches it when it next stores there, many
  /// lines at a time; a line that both have it has to wait for, one by one. Measured: 64 KiB WRITEs 15 -> 79
  /// Gb/s between cores that do not share a cache. Between others this loses a tenth.
  void release() noexcept {
    // Not in read(): what the application answers would wait for it.
    if (shown_ != 0) shows_long_ ? pace_.saw_long() : pace_.saw(shown_, counters_.tx_frames.get());
    shown_ = 0;
    if (ack_ == 0) return;
    if (is_paced() || (shows_long_ && wants_lines())) hand_over();
    if (shows_short_) look_through();
    shows_long_ = false;
    shows_short_ = false;
    released_ = position_;
    place_.control->release.frames.store(frames_, std::memory_order_relaxed);
    // pairs with RingWriter::claim_crowded
    place_.control->release.bytes.store(position_, std::memory_order_release);
  }

  /// Asks the producer to ring. What it does not ring for, because it had published it before, has_work()
  /// tells, if it was drowsy, otherwise once expose_to_producers() has been called.
  /// @return whether it was drowsy
  bool fall_asleep() noexcept {
    std::atomic<std::uint32_t>& sleep = place_.control->consumer.sleep;
    const bool is_drowsy = sleep.exchange(kAsleep, std::memory_order_relaxed) != kAwake;
    std::atomic_thread_fence(std::memory_order_seq_cst);  // pairs with RingWriter::wake_consumer()
    return is_drowsy;
  }
  [[nodiscard]] bool has_work() const noexcept;
  /// Also if it has not been asleep.
  void wake_up() noexcept {
    std::atomic<std::uint32_t>& sleep = place_.control->consumer.sleep;
    if (sleep.load(std::memory_order_relaxed) == kAsleep) sleep.store(kDrowsy, std::memory_order_relaxed);
  }
  void keep_awake() noexcept { place_.control->consumer.sleep.store(kAwake, std::memory_order_relaxed); }
  /// Leaves in good order: the producer stops at once.
  void detach() noexcept;

 private:
  /// A look has found nothing. @return 0
  unsigned see_nothing() noexcept {
    pace_.saw(0, 0);
    if (is_paced()) {
      pace_.wait();
    } else {
      prefetch_lines<kLinesWhileIdle>();
    }
    check_agreement();
    return 0;
  }
  /// The producer is far away.
  [[nodiscard]] bool wants_lines() const noexcept {
    return place_.control->producer.wants_lines.load(std::memory_order_relaxed) != 0;
  }
  /// The records are a stream whose producer is far away.
  [[nodiscard]] bool is_paced() const noexcept { return pace_.is_stream() && wants_lines(); }
  [[nodiscard]] std::uint32_t tag(std::uint64_t position) const noexcept {
    return tag_ ^ lap_bit(position, place_.ring_bytes);
  }
  [[nodiscard]] std::byte* next() const noexcept {
    return place_.ring + (position_ & (place_.ring_bytes - 1));
  }
  [[nodiscard]] bool is_plausible(std::uint32_t offset, std::uint32_t len,
                                  std::uint32_t taken) const noexcept {
    return len >= kMinFrame && len <= place_.max_frame && taken <= place_.ring_bytes - offset;
  }
  // Cache lines behind a header that are fetched beside it. Measured: 2 on arrival raise the rate at 128 B
  // from 38 to 60 million frames/s; 3 while idle lower the round trip of 128 B from 515 to 360 ns, because
  // they travel together with the header's line instead of after it.
  static constexpr std::uint32_t kLinesOfRecord = 2;
  static constexpr std::uint32_t kLinesWhileIdle = 3;

  /// The next record is there, and probably as long as this one: it travels while this one is read, and so
  /// does the header behind it. Measured: 64 KiB WRITEs 104 -> 133 Gb/s, where both cores share a cache.
  /// Bit by bit on Intel, and where there is time for it: AMD EPYC (Zen 3), mostly apart, 64 KiB 25 -> 33
  /// Gb/s, 4 KiB 34 -> 41.
  void prefetch_record(std::uint32_t bytes) const noexcept {
    const std::byte* const first = next();
    const auto left = static_cast<std::uint32_t>(place_.ring + place_.ring_bytes - first);
    bytes = std::min<std::uint32_t>(bytes + kCacheLine, left);
    if (!cpu::is_intel && !(cpu::sums_slowly && wants_lines())) {
      for (std::uint32_t at = 0; at < bytes; at += kCacheLine) prefetch(first + at);
      return;
    }
    FetchAhead here;
    FetchAhead& ahead = ahead_ == nullptr ? here : *ahead_;
    ahead.set(first, bytes);
    ahead_ == nullptr ? ahead.fetch_rest() : ahead.fetch(FetchAhead::kFew);
  }

  /// Any byte does but those of headers: what was published must not seem to be so again.
  void hand_over() noexcept {
    for (std::uint64_t line = released_; line < position_; line += kCacheLine) {
      place_.ring[(line + kCacheLine - 1) & (place_.ring_bytes - 1)] = std::byte{0};
    }
  }

  /// Clears what looks like a header of the next lap in the lines that are about to be given back. There are
  /// no more than a lap of them, unless a peer gone wrong has changed what was read.
  void look_through() noexcept {
    const std::uint64_t lap = position_ - std::min<std::uint64_t>(position_, place_.ring_bytes);
    for (std::uint64_t line = std::max(released_, lap); line < position_; line += kCacheLine) {
      const auto word = record_header(place_.ring + (line & (place_.ring_bytes - 1)));
      if ((word.load(std::memory_order_relaxed) & kTagMask) == (tag(line) ^ kLapBit)) [[unlikely]]
        word.store(0, std::memory_order_relaxed);
    }
  }

  template <std::uint32_t kLines>
  void prefetch_lines() const noexcept {
    for (std::uint32_t line = 1; line <= kLines; ++line) {
      prefetch(place_.ring + ((position_ + line * kCacheLine) & (place_.ring_bytes - 1)));
    }
  }
  /// Three loads from the cache, for every empty poll.
  void check_agreement() noexcept {
    const ConsumerLine& line = place_.control->consumer;
    const std::uint64_t offer = place_.control->producer.offer.load(std::memory_order_acquire);
    const std::uint64_t changes = (offer ^ ack_) | (line.ack.load(std::memory_order_relaxed) ^ ack_) |
                                  (line.presence.load(std::memory_order_relaxed) ^ presence_);
    if (changes != 0) take_offer(offer);
  }
  bool skip(std::uint32_t header, std::uint32_t offset) noexcept;
  void take_offer(std::uint64_t offer) noexcept;
  void resynchronise() noexcept;
  void begin_epoch() noexcept;

  Place place_;
  std::uint64_t position_ = 0;  // of the stream, bytes read
  std::uint64_t fetched_ = 0;   // of the stream, bytes that prepare() has fetched
  std::uint64_t released_ = 0;  // of the stream, bytes given back
  std::uint64_t ack_ = 0;       // the offer being read; 0: none
  std::uint32_t tag_ = kNoTag;
  bool is_broken_ = false;
  bool leaves_to_prepare_ = false;
  bool has_next_ = false;    // there was another one behind the last long record
  bool was_idle_ = false;    // the last read() found nothing
  bool shows_one_ = false;   // the one before had found nothing
  bool shows_long_ = false;  // among what was read since the last release
  bool shows_short_ = false;
  unsigned shown_ = 0;  // frames since the last release
  Pace pace_;
  std::uint64_t presence_ = 0;
  std::uint64_t frames_ = 0;  // of the stream
  port::LivePortCounters& counters_;
  PeerWatch& watch_;
  FetchAhead* ahead_ = nullptr;  // nullptr: fetches itself
};

}  // namespace uroce::drivers::shm
