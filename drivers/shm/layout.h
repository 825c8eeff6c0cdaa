/// What two processes share: two FIFO byte rings per direction and queue, one for bulk, and the words that
/// keep them in step.
///
///   page 0     LinkHeader, SideLine[2]
///   page 1..   RingControl[lanes][queues][2]
///   then       the rings themselves, [lanes][queues][2], page aligned
///
/// A ring is a stream of records. A record starts on a cache line: a 4-byte header, then the frame. The
/// header is stored last, with release, and carries the tag of the stream and of the lap. Records never
/// straddle the end of the ring: a skip record sends the reader back to the start.
///
/// No line looks like a header of the lap to come: the consumer clears what does before it gives lines back,
/// read or skipped, unless all records that it has read at once are long. So for a lap behind a long record,
/// or room that was claimed and not used, and in the first lap of a stream, the producer clears the header
/// behind each record before it writes the record.
///
/// A stream starts at offset 0 when both ends agree on it: the producer offers (stream id, consumer epoch), a
/// consumer of that epoch acknowledges it, and only then does the producer write. A restarted end therefore
/// never sees records that were not meant for it, and never overwrites what the other one is still reading.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace uroce::drivers::shm {

inline constexpr std::size_t kCacheLine = 64;
inline constexpr std::size_t kPage = 4096;
inline constexpr std::uint64_t kMagic = 0x6d68'7365'636f'7275;  // "uroceshm"
inline constexpr std::uint32_t kLayoutVersion = 6;

// Record header: stream:16 lap:1 skip:1 length:14.
inline constexpr std::uint32_t kHeaderBytes = 4;
inline constexpr std::uint32_t kLengthMask = 0x3fff;
inline constexpr std::uint32_t kSkip = 0x4000;
inline constexpr std::uint32_t kTagMask = 0xffff'8000;
inline constexpr std::uint32_t kLapBit = 0x8000;  // of the tag: it differs from lap to lap
/// A tag that no stream has.
inline constexpr std::uint32_t kNoTag = kTagMask;
/// Records of longer frames the consumer does not look through for their own sake, bytes.
inline constexpr std::uint32_t kLongFrame = 1024;

inline constexpr std::uint32_t kMaxLinkMtu = 9600;
inline constexpr std::uint32_t kFrameOverhead = 18;  // Ethernet header and one VLAN tag
inline constexpr std::uint32_t kMinFrame = 14;
static_assert(kMaxLinkMtu + kFrameOverhead <= kLengthMask);

/// Lines that either end fetches between two looks at the other lane, where bulk has others beside it.
/// Measured on an AMD EPYC (Zen 5), cores apart: 64 B round trips beside 1 MiB WRITEs p50 1.29 ->
/// 1.05 us, p99 2.1 -> 1.53 us, bulk 56 -> 45 Gb/s; with 16 lines 1.00, 1.5 and 39, with 33 1.04, 1.6 and 47.
inline constexpr unsigned kLinesBetweenLooks = 24;

/// Bytes that a frame of `len` bytes takes in the ring.
[[nodiscard]] constexpr std::uint32_t record_bytes(std::uint32_t len) noexcept {
  return (len + kHeaderBytes + (kCacheLine - 1)) & ~static_cast<std::uint32_t>(kCacheLine - 1);
}

/// The tag that the records of stream `id` carry in its first lap; in no lap 0 (a cleared header) or kNoTag.
[[nodiscard]] constexpr std::uint32_t stream_tag(std::uint32_t id) noexcept {
  return (id % 0xfffe + 1) << 16;
}
/// What the tag differs in from that at byte `position` of the stream.
[[nodiscard]] constexpr std::uint32_t lap_bit(std::uint64_t position, std::uint32_t ring_bytes) noexcept {
  return (position & ring_bytes) != 0 ? kLapBit : 0;
}
static_assert(stream_tag(0) > kLapBit && (stream_tag(0xfffd) | kLapBit) < (kNoTag & ~kLapBit));

[[nodiscard]] constexpr std::uint64_t make_offer(std::uint32_t id, std::uint32_t epoch) noexcept {
  return static_cast<std::uint64_t>(id) << 32 | epoch;
}
[[nodiscard]] constexpr std::uint32_t offer_id(std::uint64_t offer) noexcept {
  return static_cast<std::uint32_t>(offer >> 32);
}
[[nodiscard]] constexpr std::uint32_t offer_epoch(std::uint64_t offer) noexcept {
  return static_cast<std::uint32_t>(offer);
}

[[nodiscard]] constexpr std::uint64_t make_presence(std::uint32_t epoch, bool attached) noexcept {
  return static_cast<std::uint64_t>(epoch) << 1 | (attached ? 1 : 0);
}
[[nodiscard]] constexpr std::uint32_t presence_epoch(std::uint64_t presence) noexcept {
  return static_cast<std::uint32_t>(presence >> 1);
}
[[nodiscard]] constexpr bool is_attached(std::uint64_t presence) noexcept {
  return (presence & 1) != 0;
}

/// Written once, under the file's setup lock, while nobody is attached.
struct alignas(kCacheLine) LinkHeader {
  std::uint64_t magic = 0;
  std::uint32_t version = 0;
  std::uint32_t queues = 0;
  std::uint32_t ring_bytes = 0;
  std::uint32_t link_mtu = 0;
  std::uint32_t ends = 0;  ///< of the mesh that the link is part of; 2: it is a link of its own
};

/// One end. Written by it alone.
struct alignas(kCacheLine) SideLine {
  std::atomic<std::uint32_t> epoch;  ///< incarnations of this end so far
  std::atomic<std::int32_t> pid;     ///< of the present one, for messages
};

/// Written by the producer, when a stream starts or the consumer's core has moved.
struct alignas(2 * kCacheLine) ProducerLine {
  std::atomic<std::uint64_t> offer;
  std::atomic<std::uint32_t> wants_lines;  ///< 1: hand long records over; RingReader::release()
};

/// Written by the consumer, when it comes, goes, or falls asleep: the producer looks here for every frame.
struct alignas(kCacheLine) ConsumerLine {
  std::atomic<std::uint64_t> ack;       ///< the offer that is being read; 0: none
  std::atomic<std::uint64_t> presence;  ///< epoch (incarnations and new starts so far) << 1 | attached
  std::atomic<std::uint32_t> sleep;     ///< kAwake, kAsleep or kDrowsy
};

/// A consumer's sleep, as producers see it. Falling asleep from kAwake takes a barrier on all of their
/// processors, tens of microseconds on a virtual one; from kDrowsy, while they pass one with each burst,
/// hardly anything.
inline constexpr std::uint32_t kAwake = 0;
inline constexpr std::uint32_t kAsleep = 1;  ///< wants the bell rung
inline constexpr std::uint32_t kDrowsy = 2;  ///< may fall asleep at any time

/// Written by the consumer for every burst: the producer looks here only when it seems to have run out of
/// room.
struct alignas(2 * kCacheLine) ReleaseLine {
  std::atomic<std::uint64_t> bytes;   ///< of the stream, given back so far
  std::atomic<std::uint64_t> frames;  ///< of the stream, given back so far
};

struct RingControl {
  ProducerLine producer;
  alignas(2 * kCacheLine) ConsumerLine consumer;
  ReleaseLine release;
};

// Adjacent lines are fetched in pairs, so what is written often keeps a pair to itself.
static_assert(offsetof(RingControl, consumer) == 2 * kCacheLine);
static_assert(offsetof(RingControl, release) == 4 * kCacheLine);
static_assert(sizeof(RingControl) == 6 * kCacheLine);
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

/// Which of the two rings of a direction: what is in one does not wait for what is in the other.
enum class Lane : std::uint8_t { kPrompt, kBulk };
inline constexpr std::size_t kLanes = 2;

/// Sizes that both ends must agree on.
struct Geometry {
  std::uint32_t queues = 1;
  std::uint32_t ring_bytes = 0;
  std::uint32_t link_mtu = 4200;

  friend constexpr bool operator==(const Geometry&, const Geometry&) noexcept = default;

  [[nodiscard]] constexpr std::uint32_t max_frame() const noexcept { return link_mtu + kFrameOverhead; }
  /// The producer of direction `d` is side `d`.
  [[nodiscard]] constexpr std::size_t control_at(std::uint32_t queue, unsigned direction,
                                                 Lane lane = Lane::kPrompt) const noexcept {
    return kPage + index(queue, direction, lane) * sizeof(RingControl);
  }
  [[nodiscard]] constexpr std::size_t ring_at(std::uint32_t queue, unsigned direction,
                                              Lane lane = Lane::kPrompt) const noexcept {
    const std::size_t controls = control_at(queues, 0, Lane::kBulk);
    return ((controls + kPage - 1) & ~(kPage - 1)) + index(queue, direction, lane) * ring_bytes;
  }
  [[nodiscard]] constexpr std::size_t total_bytes() const noexcept {
    return ring_at(0, 0) + kLanes * queues * 2UL * ring_bytes;
  }

 private:
  [[nodiscard]] constexpr std::size_t index(std::uint32_t queue, unsigned direction,
                                            Lane lane) const noexcept {
    return (static_cast<std::size_t>(lane) * queues + queue) * 2UL + direction;
  }
};

/// The word at the start of a record.
[[nodiscard]] inline std::atomic_ref<std::uint32_t> record_header(std::byte* record) noexcept {
  return std::atomic_ref<std::uint32_t>(*static_cast<std::uint32_t*>(static_cast<void*>(record)));
}

}  // namespace uroce::drivers::shm
