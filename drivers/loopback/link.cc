#include <algorithm>

#include "drivers/loopback/end_port.h"
#include "drivers/loopback/loopback.h"

namespace uroce::drivers {
namespace {

class LinkPort final : public loopback::EndPort {
 public:
  LinkPort(port::PortInfo info, loopback::Channel& rx, loopback::Channel& tx, const std::uint64_t& now_ns,
           const port::LinkState& state)
      : EndPort(std::move(info), rx, now_ns, true), tx_(tx), state_(state) {}

  [[nodiscard]] std::byte* tx_claim(std::uint32_t len) noexcept override {
    std::byte* room = tx_.claim(len);
    if (room == nullptr) counters_.tx_no_room.add();
    return room;
  }
  void tx_commit() noexcept override {
    if (tx_.claimed_len() == 0) return;
    count_sent(tx_.claimed_len());
    tx_.commit(now_ns_);
  }

  [[nodiscard]] port::LinkState link_state() noexcept override { return state_; }

 private:
  loopback::Channel& tx_;
  const port::LinkState& state_;
};

}  // namespace

LoopbackLink::LoopbackLink(const LoopbackConfig& config) : config_(config) {
  channels_.emplace_back(config);
  channels_.emplace_back(config);
}

std::unique_ptr<port::Port> LoopbackLink::open_end(unsigned side) {
  const port::PortInfo info{.name = "loopback:" + std::to_string(side),
                            .mac = LoopbackSwitch::mac(side),
                            .link_mtu = config_.link_mtu,
                            .side = side,
                            .ends = 2,
                            .kernel_sends = config_.kernel_sends};
  return std::make_unique<LinkPort>(info, channels_[1 - side], channels_[side], now_ns_, state_);
}

void LoopbackLink::advance_to(std::uint64_t now_ns) noexcept {
  now_ns_ = std::max(now_ns_, now_ns);
}

std::optional<std::uint64_t> LoopbackLink::next_arrival_ns() const noexcept {
  const auto first = channels_[0].next_arrival_ns();
  const auto second = channels_[1].next_arrival_ns();
  if (!first || !second) return first ? first : second;
  return std::min(*first, *second);
}

}  // namespace uroce::drivers
