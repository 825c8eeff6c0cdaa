#include <algorithm>
#include <array>
#include <cstring>

#include "drivers/loopback/end_port.h"
#include "drivers/loopback/loopback.h"

namespace uroce::drivers {

struct LoopbackSwitch::Output {
  explicit Output(const LoopbackConfig& config) : channel(config) {}

  loopback::Channel channel;
  port::Tally missed;
};

class LoopbackSwitch::SwitchPort final : public loopback::EndPort {
 public:
  SwitchPort(port::PortInfo info, LoopbackSwitch& fabric, unsigned index)
      : EndPort(std::move(info), fabric.outputs_[index]->channel, fabric.now_ns_, false),
        fabric_(fabric),
        index_(index),
        input_(fabric.inputs_.empty() ? nullptr : fabric.inputs_[index].get()),
        room_(info_.link_mtu + 18) {}

  [[nodiscard]] std::byte* tx_claim(std::uint32_t len) noexcept override {
    if (input_ != nullptr) {
      std::byte* const room = input_->claim(len);
      if (room == nullptr) counters_.tx_no_room.add();
      return room;
    }
    claimed_len_ = len <= room_.size() ? len : 0;
    return claimed_len_ != 0 ? room_.data() : nullptr;
  }
  void tx_commit() noexcept override {
    if (input_ != nullptr && input_->claimed_len() != 0) {
      count_sent(input_->claimed_len());
      input_->commit(now_ns_);
    }
    if (claimed_len_ == 0) return;
    count_sent(claimed_len_);
    fabric_.forward(index_, std::span<const std::byte>(room_).first(claimed_len_));
    claimed_len_ = 0;
  }
  [[nodiscard]] port::PortCounters counters() const noexcept override {
    port::PortCounters counters = counters_.snapshot();
    counters.rx_missed = fabric_.outputs_[index_]->missed.get();
    return counters;
  }

 private:
  LoopbackSwitch& fabric_;
  unsigned index_;
  loopback::Channel* input_;
  std::vector<std::byte> room_;
  std::uint32_t claimed_len_ = 0;
};

LoopbackSwitch::LoopbackSwitch(const LoopbackConfig& config, unsigned ports) : config_(config) {
  LoopbackConfig input = config;
  input.bandwidth_bps = config.input_bps;
  input.ce_threshold_frames = 0;
  for (unsigned i = 0; i < ports; ++i) {
    LoopbackConfig output = config;
    output.seed += i;
    outputs_.push_back(std::make_unique<Output>(output));
    if (config.input_bps != 0) inputs_.push_back(std::make_unique<loopback::Channel>(input));
  }
}

LoopbackSwitch::~LoopbackSwitch() = default;

std::unique_ptr<port::Port> LoopbackSwitch::open_port(unsigned index) {
  return std::make_unique<SwitchPort>(port::PortInfo{.name = "switch:" + std::to_string(index),
                                                     .mac = mac(index),
                                                     .link_mtu = config_.link_mtu,
                                                     .side = 0,
                                                     .ends = 0},
                                      *this, index);
}

MacAddress LoopbackSwitch::mac(unsigned index) noexcept {
  return MacAddress{{0x02, 0x4c, 0x50, 0x00, static_cast<std::uint8_t>((index + 1) >> 8),
                     static_cast<std::uint8_t>(index + 1)}};
}

void LoopbackSwitch::forward(unsigned from, std::span<const std::byte> frame) noexcept {
  MacAddress destination;
  if (frame.size() < destination.raw.size()) return;
  std::memcpy(destination.raw.data(), frame.data(), destination.raw.size());
  const auto known = static_cast<std::size_t>(destination.raw[4] << 8 | destination.raw[5]) - 1;
  const bool is_unicast = known < outputs_.size() && destination == mac(static_cast<unsigned>(known));
  for (unsigned to = 0; to < outputs_.size(); ++to) {
    if (to == from || (is_unicast && to != known)) continue;
    Output& output = *outputs_[to];
    std::byte* room = output.channel.claim(static_cast<std::uint32_t>(frame.size()));
    if (room == nullptr) {
      output.missed.add();
      continue;
    }
    std::memcpy(room, frame.data(), frame.size());
    output.channel.commit(now_ns_);
  }
}

/// What has come through the inputs by `now_ns`, in the order of its arrival.
void LoopbackSwitch::forward_inputs(std::uint64_t now_ns) noexcept {
  for (;;) {
    std::optional<std::uint64_t> earliest;
    unsigned from = 0;
    for (unsigned i = 0; i < inputs_.size(); ++i) {
      const auto next = inputs_[i]->next_arrival_ns();
      if (!next || *next > now_ns || (earliest && *earliest <= *next)) continue;
      earliest = next;
      from = i;
    }
    if (!earliest) return;
    now_ns_ = std::max(now_ns_, *earliest);
    std::array<port::RxFrame, 1> frame;
    inputs_[from]->show(frame, now_ns_);
    forward(from, {frame[0].data, frame[0].len});
    inputs_[from]->release();
  }
}

void LoopbackSwitch::advance_to(std::uint64_t now_ns) noexcept {
  forward_inputs(now_ns);
  now_ns_ = std::max(now_ns_, now_ns);
}

std::uint32_t LoopbackSwitch::queued(unsigned index) noexcept {
  return outputs_[index]->channel.queued(now_ns_);
}

std::optional<std::uint64_t> LoopbackSwitch::next_arrival_ns() const noexcept {
  std::optional<std::uint64_t> earliest;
  const auto look = [&earliest](const loopback::Channel& channel) {
    const auto next = channel.next_arrival_ns();
    if (next && (!earliest || *next < *earliest)) earliest = next;
  };
  for (const auto& output : outputs_) look(output->channel);
  for (const auto& input : inputs_) look(*input);
  return earliest;
}

}  // namespace uroce::drivers
