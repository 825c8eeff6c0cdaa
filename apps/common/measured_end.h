/// One end of a uroce connection whose speed is measured against the other end's in another process.
#pragma once

#include <array>
#include <functional>
#include <span>
#include <utility>

#include "apps/common/endpoint.h"
#include "apps/common/sample.h"

namespace uroce::apps {

/// Memory, queues and loops of one end.
///
/// Threads: one. Lifetime: Device and Pd outlive it.
class MeasuredEnd {
 public:
  /// @param largest_write  bytes, of streams
  static Result<MeasuredEnd> create(Device& device, Pd& pd, bool give_way,
                                    std::uint32_t largest_write = Sample::kHotBytes);

  /// What the other end's connect() needs.
  [[nodiscard]] Json describe() const;
  Status connect(const Json& peer);
  /// One side's part of a sample; both ends run theirs at the same time.
  Result<Json> run(const Sample& sample, bool client);
  /// What the client does besides, called once a message or poll while it measures; empty: nothing.
  void beside(std::function<void()> work) { beside_ = std::move(work); }
  /// Tells a peer that serves a stream that it is over.
  Status end_stream(Patience& patience) noexcept;

 private:
  static constexpr std::uint32_t kMessageBytes = 4096;  ///< largest SEND
  static constexpr std::size_t kSlotBytes =
      4096 + 64;  ///< not a power of two: slots spread over the cache's sets
  static constexpr std::uint32_t kReceives = 1024;        ///< receives posted
  static constexpr std::uint32_t kSends = 512;            ///< depth of the send queue
  static constexpr std::uint32_t kBatch = Sample::kList;  ///< sends posted at a time
  /// Receives posted again at a time. Of 32 a round trip would notice, one of 32: in its p99.
  static constexpr std::uint32_t kRefill = 8;
  static constexpr std::uint32_t kSignalEvery = 16;  ///< of messages that are answered
  static constexpr std::uint32_t kOpenWindow = 256;  ///< messages of an open loop that wait for their answers
  static constexpr std::size_t kSendAt = kSlotBytes * kReceives;
  static constexpr std::size_t kLastAt = kSendAt + kSlotBytes;
  static constexpr std::size_t kStreamAt = kLastAt + kSlotBytes;  ///< written to, and from
  static constexpr std::byte kLastMark{1};                        ///< first byte of a sample's last message
  /// wr_ids; receives have the number of their slot.
  static constexpr std::uint64_t kSendId = 1ULL << 32U;
  static constexpr std::uint64_t kWriteId = 2ULL << 32U;
  static constexpr std::uint64_t kLastId = 3ULL << 32U;

  MeasuredEnd(Mr memory, Link link, bool give_way)
      : memory_(std::move(memory)), link_(std::move(link)), give_way_(give_way) {}

  Result<Json> rtt_client(const Sample& sample);
  Result<Json> rtt_server(const Sample& sample);
  Result<Json> rate_client(const Sample& sample);
  Result<Json> rate_server(const Sample& sample);
  Result<Json> stream_client(const Sample& sample);
  Result<Json> stream_server(const Sample& sample);
  Result<Json> open_client(const Sample& sample);
  Result<Json> open_server(const Sample& sample);
  /// Behind the last answer: the end of the sample, there and back.
  Status end_client(const Sample& sample, Patience& patience) noexcept;

  [[nodiscard]] static bool is_receive(const Wc& wc) noexcept { return wc.wr_id < kSendId; }
  [[nodiscard]] bool is_last(const Wc& wc) const noexcept {
    return memory_.memory()[wc.wr_id * kSlotBytes] == kLastMark;
  }
  [[nodiscard]] bool post_receives(std::span<const std::uint32_t> slots) noexcept;
  /// Posts a used receive again: at once, or together with others.
  [[nodiscard]] bool repost(std::uint64_t slot, bool at_once) noexcept;
  /// One message from `offset` of the memory.
  [[nodiscard]] bool post_message(std::size_t offset, std::uint32_t bytes, bool signaled) noexcept;
  /// kBatch messages, the last of them signaled.
  [[nodiscard]] bool post_messages(std::uint32_t bytes) noexcept;
  /// One message from each offset, at most kBatch, every kSignalEvery-th signaled.
  /// @param number  of the first, in this sample
  [[nodiscard]] bool post_list(std::span<const std::size_t> offsets, std::uint32_t bytes,
                               std::uint64_t number) noexcept;
  /// The message that ends a sample, signaled with kLastId.
  [[nodiscard]] bool post_last(std::uint32_t bytes) noexcept;
  [[nodiscard]] bool post_write(std::uint32_t bytes, std::uint64_t number) noexcept;
  /// The next received message; completions of sends are dropped.
  /// @return false when the time is over, or with a bad completion in `wc`.
  [[nodiscard]] bool next_message(Wc& wc, Patience& patience) noexcept;
  /// Waits for the completion of post_last().
  Status finish(Patience& patience) noexcept;
  /// Why a loop ended early: a bad completion or, with a good one, the time.
  [[nodiscard]] Error stopped(const Wc& wc) const;
  [[nodiscard]] Error ring_full() const;

  Mr memory_;
  Link link_;
  bool give_way_;
  std::function<void()> beside_;
  TickClock clock_ = TickClock::calibrate();
  std::uint64_t peer_addr_ = 0;  ///< of the peer's stream area
  Rkey peer_rkey_{};
  bool last_done_ = false;          ///< post_last() has completed
  std::array<Sge, kBatch> sges_{};  ///< of post_list()
  std::array<SendWr, kBatch> wrs_{};
  std::uint32_t used_ = 0;
  std::array<std::uint32_t, kRefill> used_slots_{};  ///< receives that wait to be posted again
};

}  // namespace uroce::apps
