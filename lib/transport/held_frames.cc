#include "transport/held_frames.h"

#include <cstring>

namespace uroce::transport {

namespace {

constexpr std::uint32_t kHeaders = 192;  // more than Ethernet, IPv6, UDP, all of RoCE, pad and ICRC take

}  // namespace

/// The frames' memory is not touched before it is needed.
HeldFrames::HeldFrames(std::uint32_t slots, std::uint32_t mtu)
    : slots_(slots),
      slot_bytes_(mtu + kHeaders),
      bytes_(new std::byte[std::size_t{slots} * slot_bytes_]),
      known_(std::make_unique<Known[]>(slots)) {}

HeldFrames::Put HeldFrames::put(Psn missing, const wire::PacketView& packet) noexcept {
  if (is_empty()) held_.restart(missing);
  held_.advance(missing);
  const Psn psn = packet.bth.psn;
  if (held_.has(psn)) return Put::kAlready;
  const std::uint32_t length = packet.bth_offset + packet.roce_len;  // what follows is padding
  const std::uint32_t ahead = span_from(psn, missing);
  if (ahead > slots_ || ahead >= PsnBitmap::kSpan || length > slot_bytes_) return Put::kNoRoom;
  std::memcpy(slot(psn), packet.frame, length);
  known_[psn.value() & (slots_ - 1)] = {.length = length, .op = packet.op};
  held_.set(psn);
  return Put::kHeld;
}

bool HeldFrames::take(Psn psn, wire::PacketView& packet) noexcept {
  if (!held_.has(psn)) return false;
  held_.set(psn, false);
  const Known& known = known_[psn.value() & (slots_ - 1)];
  return wire::parse_packet({slot(psn), known.length}, packet) == wire::ParseResult::kRoce &&
         packet.op == known.op && packet.bth.psn == psn;
}

wire::HeldEth HeldFrames::tell(Psn missing) noexcept {
  held_.advance(missing);
  wire::HeldEth told;
  for (std::uint32_t i = 0; i < wire::HeldEth::kPackets; ++i) {
    if (held_.has(missing + 1 + i)) told.add(i);
  }
  return told;
}

}  // namespace uroce::transport
