#include "engine/local_port.h"

#include <algorithm>

#include "wire/packet.h"

namespace uroce::engine {

std::byte* GroupPort::tx_claim(std::uint32_t len) noexcept {
  frame_ = {};
  if (!groups_.is_empty() && ring_.claim(len) == nullptr) return nullptr;  // no copy is lost on the way
  std::byte* room = port_.tx_claim(len);
  if (room != nullptr) frame_ = {room, len};
  return room;
}

void GroupPort::tx_commit() noexcept {
  // Before the port has it: afterwards the room is no longer ours.
  wire::PacketView view;
  if (!groups_.is_empty() && wire::parse_packet(frame_, view) == wire::ParseResult::kRoce &&
      groups_.find(view.dst_gid()) != nullptr) {
    std::byte* copy = ring_.claim(static_cast<std::uint32_t>(frame_.size()));
    if (copy != nullptr) {
      std::copy(frame_.begin(), frame_.end(), copy);
      ring_.publish();
      counters_.add(Count::kLocalFrames);
    }
  }
  port_.tx_commit();
}

}  // namespace uroce::engine
