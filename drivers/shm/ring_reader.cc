#include "drivers/shm/ring_reader.h"

namespace uroce::drivers::shm {

RingReader::RingReader(const Place& place, PeerWatch& watch, port::LivePortCounters& counters) noexcept
    : place_(place), counters_(counters), watch_(watch) {
  presence_ = place_.control->consumer.presence.load(std::memory_order_relaxed);
  begin_epoch();
}

/// Forgets the stream. The producer sees the new epoch at its next claim and offers another stream.
void RingReader::begin_epoch() noexcept {
  ConsumerLine& line = place_.control->consumer;
  ack_ = 0;
  tag_ = kNoTag;
  line.ack.store(0, std::memory_order_relaxed);
  line.sleep.store(kAwake, std::memory_order_relaxed);
  presence_ = make_presence(presence_epoch(presence_) + 1, true);
  line.presence.store(presence_, std::memory_order_release);  // pairs with RingWriter::claim_unsynchronised
}

/// @return true if reading goes on at the start of the ring.
bool RingReader::skip(std::uint32_t header, std::uint32_t offset) noexcept {
  if ((header & ~kTagMask) == kSkip && offset != 0) {
    position_ += place_.ring_bytes - offset;
    return true;
  }
  counters_.rx_malformed.add();
  is_broken_ = true;  // the frames shown so far stay; the stream ends at the next read
  tag_ = kNoTag;
  return false;
}

void RingReader::resynchronise() noexcept {
  is_broken_ = false;
  begin_epoch();
}

/// Called when nothing is left to read, so what an earlier producer had published is not lost.
void RingReader::take_offer(std::uint64_t offer) noexcept {
  ConsumerLine& line = place_.control->consumer;
  if (is_broken_) return;  // a new epoch begins at the next read
  if (offer == ack_ || offer_epoch(offer) != presence_epoch(presence_)) {
    // Nothing new, or meant for an earlier incarnation. A peer gone wrong may have written over our own
    // words.
    line.ack.store(ack_, std::memory_order_relaxed);
    line.presence.store(presence_, std::memory_order_release);
    return;
  }
  watch_.look();
  position_ = 0;
  fetched_ = 0;
  released_ = 0;
  shows_long_ = false;
  shows_short_ = false;
  frames_ = 0;
  ack_ = offer;
  tag_ = stream_tag(offer_id(offer));
  place_.control->release.bytes.store(0, std::memory_order_relaxed);
  place_.control->release.frames.store(0, std::memory_order_relaxed);
  line.presence.store(presence_, std::memory_order_relaxed);
  line.ack.store(offer, std::memory_order_release);  // pairs with RingWriter::claim
}

bool RingReader::has_work() const noexcept {
  const std::uint64_t offer = place_.control->producer.offer.load(std::memory_order_acquire);
  return is_broken_ || has_some() || (offer != ack_ && offer_epoch(offer) == presence_epoch(presence_));
}

void RingReader::detach() noexcept {
  ConsumerLine& line = place_.control->consumer;
  line.presence.store(make_presence(presence_epoch(presence_), false), std::memory_order_release);
  line.ack.store(0, std::memory_order_release);
}

}  // namespace uroce::drivers::shm
