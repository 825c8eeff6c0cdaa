/// A link whose frames wake sleepers, and a QP behind it.
#pragma once

#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <catch2/catch.hpp>
#include <cstdint>
#include <mutex>

#include "engine/loop_fixture.h"

namespace uroce::test {

/// A link that is readable while frames wait, as a packet socket is, and takes frames only now and then.
class SocketLike final : public port::Port {
 public:
  explicit SocketLike(LoopFixture& fixture) : fixture_(fixture) {}
  ~SocketLike() override { close(fd_); }
  const port::PortInfo& info() const noexcept override { return fixture_.port->info(); }
  unsigned rx_burst(std::span<port::RxFrame> frames) noexcept override {
    const std::lock_guard lock(mutex_);
    if (bell_[1] >= 0) rang_in_loop = rang_in_loop || is_readable(bell_[0]);
    const unsigned count = fixture_.port->rx_burst(frames);
    if (count > 0) taker = gettid();
    std::uint64_t value = 0;
    if (count > 0 && read(fd_, &value, sizeof value) < 0) return count;  // the application was faster
    return count;
  }
  void rx_release() noexcept override {
    const std::lock_guard lock(mutex_);
    fixture_.port->rx_release();
  }
  std::byte* tx_claim(std::uint32_t len) noexcept override {
    const std::lock_guard lock(mutex_);
    return fixture_.port->tx_claim(len);
  }
  void tx_commit() noexcept override {
    const std::lock_guard lock(mutex_);
    fixture_.port->tx_commit();
    sent.fetch_add(1);
  }
  void tx_flush() noexcept override {
    const std::lock_guard lock(mutex_);
    fixture_.port->tx_flush();
    if (bell_[1] >= 0) due_bell_->put(bell_[1]);
  }
  void leave_ringing_to(DueBell* bell) noexcept override { due_bell_ = bell; }
  bool arm_rx_beside() noexcept override {
    armed_beside.fetch_add(1);
    return true;
  }
  int rx_fd() const noexcept override { return fd_; }
  port::PortCounters counters() const noexcept override { return {}; }

  /// A frame comes in, and sleepers are told.
  void bring(const Bytes& frame) {
    const std::lock_guard lock(mutex_);
    static_cast<void>(fixture_.taken());  // what was sent has room again
    fixture_.give(frame);
    fixture_.link.advance_to(fixture_.now_ns += 100);
    const std::uint64_t one = 1;
    REQUIRE(write(fd_, &one, sizeof one) == sizeof one);
  }

  /// From now on there is a peer that sleeps whenever something may have been sent. @param bell  a pipe
  void let_peer_sleep(const std::array<int, 2>& bell) noexcept { bell_ = bell; }

  bool rang_in_loop = false;  // it was woken by then
  std::atomic<unsigned> armed_beside{0};
  std::atomic<unsigned> sent{0};
  std::atomic<pid_t> taker{0};  // the thread that took the last frames

 private:
  std::mutex mutex_;  // the fixture knows of no threads
  LoopFixture& fixture_;
  DueBell* due_bell_ = nullptr;
  std::array<int, 2> bell_{-1, -1};
  int fd_ = eventfd(0, EFD_NONBLOCK);
};

inline void connect(engine::PollLoop& loop, transport::RcQp& qp, Ticks now,
                    std::uint8_t timeout = QpAttr{}.timeout) {
  QpAttr attr;
  attr.timeout = timeout;
  attr.dest_qpn = LoopFixture::kPeerQpn;
  attr.dgid = LoopFixture::peer_v4();
  attr.sgid_index = 1;
  attr.access_flags = access::kAll;
  REQUIRE(to_rts(loop, qp, attr, {.gid_count = 2}, now));
}

inline Bytes write_to(const LoopFixture& f, std::uint32_t psn) {
  return frame_of({.opcode = wire::Opcode::kRcWriteOnly,
                   .psn = psn,
                   .ack_req = true,
                   .reth = wire::Reth{},
                   .dest_qpn = Qpn{0x10}},
                  f.from_peer(), {});
}

}  // namespace uroce::test
