#include "drivers/loopback/channel.h"

#include <algorithm>

#include "drivers/frame_fields.h"

namespace uroce::drivers::loopback {
namespace {

constexpr std::uint64_t kPsPerNs = 1000;
constexpr std::uint32_t kFrameOverhead = 18;  // Ethernet header and one VLAN tag
/// FCS, preamble and gap take time on a wire, too.
constexpr std::uint64_t kWireOverhead = 24;

std::uint64_t wire_time_ps(std::uint32_t len, std::uint64_t bandwidth_bps) noexcept {
  if (bandwidth_bps == 0) return 0;
  const Wide bits = static_cast<Wide>(std::max(len, 60U) + kWireOverhead) * 8;
  return static_cast<std::uint64_t>(bits * 1'000'000'000'000U / bandwidth_bps);
}

}  // namespace

Channel::Channel(const LoopbackConfig& config)
    : config_(config),
      random_(config.seed),
      slot_bytes_((config.link_mtu + kFrameOverhead + 63U) & ~std::size_t{63}),
      slots_(std::max(config.queue_frames, 1U)),
      room_(slots_.size() * (slot_bytes_ / sizeof(CacheLine))) {}

std::byte* Channel::claim(std::uint32_t len) noexcept {
  claimed_len_ = 0;
  if (len > config_.link_mtu + kFrameOverhead || tail_ - head_ == slots_.size()) return nullptr;
  claimed_len_ = len;
  return room(tail_);
}

void Channel::commit(std::uint64_t now_ns) noexcept {
  if (claimed_len_ == 0) return;
  busy_until_ps_ =
      std::max(busy_until_ps_, now_ns * kPsPerNs) + wire_time_ps(claimed_len_, config_.bandwidth_bps);
  slots_[index(tail_)] = {.len = claimed_len_,
                          .departure_ps = busy_until_ps_,
                          .arrival_ns = (busy_until_ps_ + kPsPerNs - 1) / kPsPerNs + config_.delay_ns};
  if (config_.ce_threshold_frames != 0) mark_if_crowded(now_ns);
  ++tail_;
  claimed_len_ = 0;
}

std::uint32_t Channel::queued(std::uint64_t now_ns) noexcept {
  departed_ = std::max(departed_, head_);
  while (departed_ != tail_ && slots_[index(departed_)].departure_ps <= now_ns * kPsPerNs) ++departed_;
  return static_cast<std::uint32_t>(tail_ - departed_);
}

void Channel::mark_if_crowded(std::uint64_t now_ns) noexcept {
  const std::uint32_t waiting = queued(now_ns);
  if (waiting < config_.ce_threshold_frames) return;
  const std::span frame(room(tail_), claimed_len_);
  const auto fields = find_roce(frame);
  if (fields && is_ecn_capable(frame, *fields) && is_marked(waiting)) mark_congestion(frame, *fields);
}

/// RED: never at the threshold, ce_percent just before ce_full_frames, always from there on.
bool Channel::is_marked(std::uint32_t queued) noexcept {
  if (queued >= config_.ce_full_frames) return true;
  const std::uint64_t range = config_.ce_full_frames - config_.ce_threshold_frames;
  return random_.below(range * 100) <
         std::uint64_t{queued - config_.ce_threshold_frames} * config_.ce_percent;
}

unsigned Channel::show(std::span<port::RxFrame> frames, std::uint64_t now_ns) noexcept {
  const std::size_t most = std::min<std::size_t>(frames.size(), config_.burst_frames);
  shown_ = 0;
  for (std::uint64_t at = head_; at != tail_ && shown_ < most; ++at) {
    const Slot& slot = slots_[index(at)];
    if (slot.arrival_ns > now_ns) break;
    frames[shown_++] = {.data = room(at), .len = slot.len};
  }
  return shown_;
}

void Channel::release() noexcept {
  head_ += shown_;
  shown_ = 0;
}

std::optional<std::uint64_t> Channel::next_arrival_ns() const noexcept {
  const std::uint64_t next = head_ + shown_;
  if (next == tail_) return std::nullopt;
  return slots_[index(next)].arrival_ns;
}

}  // namespace uroce::drivers::loopback
