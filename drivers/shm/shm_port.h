/// The default link between two processes on one machine.
#pragma once

#include <memory>

#include "drivers/shm/link.h"
#include "drivers/shm/ring_reader.h"
#include "drivers/shm/ring_writer.h"

namespace uroce::drivers {

/// One queue of one end of a shared-memory link.
///
/// Survives the death of the peer at any instruction, and its restart. No system call on the data path; the
/// exceptions are a peer that sleeps (a bell is rung) and one that takes nothing for a millisecond (the
/// kernel is asked whether it lives).
class ShmPort final : public port::Port {
 public:
  ShmPort(std::shared_ptr<shm::Link> link, std::uint32_t queue, port::PortInfo info);
  ~ShmPort() override;

  [[nodiscard]] const port::PortInfo& info() const noexcept override { return info_; }
  unsigned rx_burst(std::span<port::RxFrame> frames) noexcept override;
  void rx_release() noexcept override {
    reader_.release();
    if (shows_bulk_) bulk_reader_.release();
  }
  /// Of a ring full of bulk each burst shows one frame, or none; so does the first one that is not empty.
  [[nodiscard]] bool shows_more() const noexcept override {
    return leaves_bulk_ || (shows_bulk_ && bulk_reader_.has_next()) || reader_.has_left_some();
  }
  [[nodiscard]] std::span<const std::byte> next_frame() const noexcept override {
    return shows_bulk_ ? bulk_reader_.next_frame() : reader_.next_frame();
  }
  void leave_fetching_to(FetchAhead* ahead) noexcept override {
    reader_.leave_fetching_to(ahead);
    bulk_reader_.leave_fetching_to(ahead);
  }
  void leave_ringing_to(DueBell* bell) noexcept override {
    writer_.leave_ringing_to(bell);
    bulk_.writer.leave_ringing_to(bell);
  }
  void spare_others(bool yes) noexcept override { bulk_reader_.leave_to_prepare(yes); }
  [[nodiscard]] port::FrameSink& bulk_sink() noexcept override { return bulk_; }
  [[nodiscard]] bool has_lanes() const noexcept override { return true; }
  [[nodiscard]] std::byte* tx_claim(std::uint32_t len) noexcept override { return writer_.claim(len); }
  [[nodiscard]] std::byte* tx_claim_lines(std::uint32_t len) noexcept override {
    return writer_.claim(len, true);
  }
  void tx_commit() noexcept override { writer_.commit(); }
  [[nodiscard]] bool takes_pieces() const noexcept override { return true; }
  [[nodiscard]] std::uint64_t place() const noexcept override { return writer_.place(); }
  [[nodiscard]] bool has_taken(std::uint64_t place) const noexcept override {
    return writer_.has_taken(place);
  }
  void tx_flush() noexcept override {
    writer_.flush();
    bulk_.writer.flush();
  }
  [[nodiscard]] int rx_fd() const noexcept override { return link_->own_bell(queue_).fd(); }
  bool arm_rx() noexcept override;
  bool arm_rx_beside() noexcept override;
  /// Without silencing the bell. @return whether the port was drowsy
  bool doze() noexcept;
  /// arm_rx() in two steps, for who has several ports and calls shm::expose_to_producers() in between, which
  /// interrupts all cores. @return whether the port was drowsy, and that is not needed
  bool fall_asleep() noexcept;
  [[nodiscard]] bool has_work() const noexcept;
  void disarm_rx() noexcept override;
  void keep_awake() noexcept override;
  /// Up while a process, even a stopped one, holds the other end.
  [[nodiscard]] port::LinkState link_state() noexcept override {
    return link_->is_peer_alive() ? port::LinkState::kUp : port::LinkState::kDown;
  }
  [[nodiscard]] port::PortCounters counters() const noexcept override { return counters_.snapshot(); }

 private:
  struct BulkSink final : port::FrameSink {
    template <typename... Args>
    explicit BulkSink(Args&&... args) : FrameSink(true), writer(std::forward<Args>(args)...) {}
    [[nodiscard]] std::byte* tx_claim(std::uint32_t len) noexcept override { return writer.claim(len); }
    [[nodiscard]] std::byte* tx_claim_lines(std::uint32_t len) noexcept override {
      return writer.claim(len, true);
    }
    void tx_commit() noexcept override { writer.commit(); }
    [[nodiscard]] bool prepare(std::uint32_t len) noexcept override { return writer.prepare(len); }
    [[nodiscard]] bool takes_pieces() const noexcept override { return true; }
    [[nodiscard]] bool is_drained() const noexcept override { return writer.is_drained(); }
    shm::RingWriter writer;
  };

  std::shared_ptr<shm::Link> link_;
  std::uint32_t queue_;
  port::PortInfo info_;
  port::LivePortCounters counters_;
  shm::PeerWatch watch_;
  shm::RingWriter writer_;
  BulkSink bulk_;
  shm::RingReader reader_;
  shm::RingReader bulk_reader_;
  unsigned bulk_waits_ = 0;
  unsigned busy_ = 0;  // bursts without bulk, but with something else
  bool shows_bulk_ = false;
  bool leaves_bulk_ = false;  // there is some, and the last burst did not show it
};

}  // namespace uroce::drivers
