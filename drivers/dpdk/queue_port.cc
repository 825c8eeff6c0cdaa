#include "drivers/dpdk/queue_port.h"

#include <rte_cycles.h>
#include <rte_ethdev.h>
#include <rte_mbuf.h>
#include <sys/socket.h>

#include <algorithm>
#include <cassert>

#include "drivers/dpdk/eal.h"

namespace uroce::drivers::dpdk {
namespace {

using port::kBurst;

constexpr std::uint32_t kEthernetHeader = 14;
/// A memif's sockets are looked at once a millisecond; the clock is read only every so many polls.
constexpr unsigned kServicesPerSecond = 1000;
constexpr unsigned kPollsPerClock = 64;
constexpr unsigned kIdlePollCost = 4;  // idle polls come faster and have time to spare
/// Attempts of one flush to place what is left after a partial burst.
constexpr int kFlushAttempts = 4;
/// A link that took nothing for 1/10 s is dead: its frames are dropped, not kept for ever.
constexpr unsigned kStuckLimitsPerSecond = 10;

/// The room of an mbuf begins with a cache line: mempools give out whole ones.
constexpr bool kLendsLines = sizeof(rte_mbuf) % 64 == 0 && RTE_PKTMBUF_HEADROOM % 64 == 0;

std::uint64_t bytes_of(std::span<rte_mbuf* const> frames) noexcept {
  std::uint64_t bytes = 0;
  for (const rte_mbuf* frame : frames) bytes += frame->pkt_len;
  return bytes;
}

}  // namespace

QueuePort::QueuePort(std::shared_ptr<Device> device, std::uint16_t queue)
    : Port(kLendsLines),
      device_(std::move(device)),
      memif_(device_->memif()),
      losses_(queue == 0 ? device_->losses() : nullptr),
      sender_(device_->sender(queue)),
      pool_(device_->pool(queue)),
      id_(device_->id()),
      queue_(queue),
      is_up_(memif_ == nullptr),
      max_frame_(frame_bytes(device_->info().link_mtu)),
      service_period_(rte_get_tsc_hz() / kServicesPerSecond),
      stuck_limit_(rte_get_tsc_hz() / kStuckLimitsPerSecond) {}

QueuePort::~QueuePort() {
  rx_release();
  if (is_up_) send_pending();
  rte_pktmbuf_free_bulk(tx_.data(), pending_);
  rte_pktmbuf_free_bulk(claims_.data(), free_);
}

void QueuePort::enter_thread() noexcept {
  enter_eal_thread();
}

/// An interface that went down leaves an error with the socket, which would wake sleepers until it is read.
void QueuePort::disarm_rx() noexcept {
  int error = 0;
  socklen_t size = sizeof error;
  if (const int fd = rx_fd(); fd >= 0) getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size);
}

port::LinkState QueuePort::link_state() noexcept {
  if (losses_ != nullptr) losses_->look();
  if (memif_ == nullptr) return device_->link_state();
  return is_up_ ? port::LinkState::kUp : port::LinkState::kDown;
}

/// Between bursts, so that no ring is in use when its peer's end takes it away.
void QueuePort::service_link() noexcept {
  polls_to_service_ = kPollsPerClock;
  const std::uint64_t now = rte_rdtsc();
  if (now - last_service_ < service_period_) return;
  last_service_ = now;
  set_link(memif_->service(now));
}

void QueuePort::set_link(bool is_up) noexcept {
  if (is_up == is_up_) return;
  is_up_ = is_up;
  if (!is_up) return;
  if (was_up_) peer_restarts_.add(1);
  was_up_ = true;
}

unsigned QueuePort::rx_burst(std::span<port::RxFrame> frames) noexcept {
  assert(shown_ == 0);
  if (memif_ != nullptr) {
    if (polls_to_service_ == 0) service_link();
    if (!is_up_) {
      polls_to_service_ -= std::min(polls_to_service_, kIdlePollCost);
      return 0;
    }
  }
  const auto wanted = static_cast<std::uint16_t>(std::min<std::size_t>(frames.size(), kBurst));
  const unsigned received = rte_eth_rx_burst(id_, queue_, rx_.data(), wanted);
  polls_to_service_ -= std::min(polls_to_service_, received > 0 ? 1 : kIdlePollCost);
  if (received == 0) return 0;

  unsigned shown = 0;
  std::uint64_t bytes = 0;
  for (unsigned i = 0; i < received; ++i) {
    rte_mbuf* mbuf = rx_[i];
    // An mbuf has room for any legal frame: what is still in pieces after this is none.
    const bool is_whole = mbuf->nb_segs == 1 || rte_pktmbuf_linearize(mbuf) == 0;
    if (!is_whole || mbuf->pkt_len < kEthernetHeader) {
      rx_malformed_.add(1);
      rte_pktmbuf_free(mbuf);
      continue;
    }
    frames[shown] = {.data = rte_pktmbuf_mtod(mbuf, const std::byte*), .len = mbuf->pkt_len};
    bytes += mbuf->pkt_len;
    rx_[shown++] = mbuf;
  }
  shown_ = shown;
  rx_frames_.add(shown);
  rx_bytes_.add(bytes);
  return shown;
}

void QueuePort::rx_release() noexcept {
  rte_pktmbuf_free_bulk(rx_.data(), shown_);
  shown_ = 0;
}

std::byte* QueuePort::tx_claim(std::uint32_t len) noexcept {
  assert(len >= kEthernetHeader && len <= max_frame_);
  if (pending_ == kBurst && !send_pending()) {
    tx_no_room_.add(1);
    return nullptr;
  }
  if (free_ == 0) {
    if (rte_pktmbuf_alloc_bulk(pool_, claims_.data(), kClaimCache) != 0) {
      tx_no_room_.add(1);
      return nullptr;
    }
    free_ = kClaimCache;
  }
  if (len > max_frame_) return nullptr;
  rte_mbuf* mbuf = claims_[free_ - 1];
  mbuf->data_len = static_cast<std::uint16_t>(len);
  mbuf->pkt_len = len;
  return rte_pktmbuf_mtod(mbuf, std::byte*);
}

void QueuePort::tx_commit() noexcept {
  assert(free_ > 0 && pending_ < kBurst);
  tx_[pending_++] = claims_[--free_];
  if (pending_ == kBurst) send_pending();
}

void QueuePort::tx_flush() noexcept {
  if (pending_ > 0) send_pending();
}

unsigned QueuePort::offer(std::span<rte_mbuf*> frames) noexcept {
  const std::uint64_t bytes = bytes_of(frames);  // before: an mbuf that is sent is gone
  unsigned sent = 0;
  unsigned gone = 0;
  if (sender_ == nullptr) {
    sent = gone = rte_eth_tx_burst(id_, queue_, frames.data(), static_cast<std::uint16_t>(frames.size()));
  } else {
    const PacketSender::Outcome outcome = sender_->send(frames);
    sent = outcome.sent;
    gone = sent + (outcome.is_next_lost ? 1 : 0);
  }
  tx_frames_.add(sent);
  tx_dropped_.add(gone - sent);
  tx_bytes_.add(bytes - bytes_of(frames.subspan(sent)));
  if (sender_ != nullptr) rte_pktmbuf_free_bulk(frames.data(), gone);
  return gone;
}

bool QueuePort::send_pending() noexcept {
  if (!is_up_) {
    drop_pending();
    return true;
  }
  unsigned gone = 0;
  for (int attempt = 0; attempt < kFlushAttempts && gone < pending_; ++attempt) {
    gone += offer(std::span(tx_).subspan(gone, pending_ - gone));
  }
  std::copy(tx_.begin() + gone, tx_.begin() + pending_, tx_.begin());
  pending_ -= gone;
  if (gone > 0 || pending_ == 0) {
    stuck_since_ = 0;
    return pending_ < kBurst;
  }
  const std::uint64_t now = rte_rdtsc();
  if (stuck_since_ == 0) stuck_since_ = now;
  if (now - stuck_since_ < stuck_limit_) return pending_ < kBurst;
  stuck_since_ = 0;
  drop_pending();
  return true;
}

void QueuePort::drop_pending() noexcept {
  tx_dropped_.add(pending_);
  rte_pktmbuf_free_bulk(tx_.data(), pending_);
  pending_ = 0;
}

port::PortCounters QueuePort::known_counters() const noexcept {
  port::PortCounters counters;
  counters.rx_frames = rx_frames_.get();
  counters.rx_bytes = rx_bytes_.get();
  counters.tx_frames = tx_frames_.get();
  counters.tx_bytes = tx_bytes_.get();
  if (losses_ != nullptr) counters.rx_missed = losses_->known();
  counters.rx_malformed = rx_malformed_.get();
  counters.tx_dropped = tx_dropped_.get();
  counters.tx_no_room = tx_no_room_.get();
  counters.peer_restarts = peer_restarts_.get();
  return counters;
}

port::PortCounters QueuePort::counters() const noexcept {
  if (losses_ != nullptr) losses_->ask();
  return known_counters();
}

}  // namespace uroce::drivers::dpdk
