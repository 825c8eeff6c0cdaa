/// Address handles as the loops know them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/time.h"
#include "port/port.h"
#include "transport/next_hop.h"
#include "uroce/ah_attr.h"
#include "wire/frame_template.h"

namespace uroce::transport {

/// Where one handle's datagrams go.
struct AddressHandle {
  AhId id{};
  std::uint32_t pd = 0;
  AhAttr attr;
  wire::FrameTemplate head;  ///< valid once `resolved`
  bool resolved = false;
  NextHop held;                     ///< the next hop that the loop holds for it; unset: none
  port::FrameSink* sink = nullptr;  ///< where its frames go; nullptr: to the port
  Ticks give_up;  ///< not resolved: datagrams wait until then, and those after it do not wait
};

/// Who sent a datagram, and to which of our addresses or groups.
struct DatagramOrigin {
  AhAttr sender;
  Gid to;
  GidType type = GidType::kRoceV2;
};

/// What the first bytes of a UD receive say about its sender: an IPv6 header, a GRH, or 20 zeros and an IPv4
/// header, whose checksum tells it from the others. IBA A17.4.5.1.
[[nodiscard]] DatagramOrigin origin_of(std::span<const std::byte, kGrhBytes> grh) noexcept;

/// The handles of a loop. An identifier is (generation << 32 | index), so that one that is gone is not
/// mistaken for the one that has its place.
///
/// Threads: loop.
class AddressHandles {
 public:
  [[nodiscard]] AddressHandle* find(AhId id) noexcept {
    const std::size_t index = raw(id) & 0xffff'ffff;
    return index < handles_.size() && raw(id) != 0 && handles_[index].id == id ? &handles_[index] : nullptr;
  }
  AddressHandle& insert(AhId id, std::uint32_t pd, const AhAttr& attr) {
    const std::size_t index = raw(id) & 0xffff'ffff;
    if (index >= handles_.size()) handles_.resize(index + 1);
    handles_[index] = {.id = id,
                       .pd = pd,
                       .attr = attr,
                       .head = {},
                       .resolved = false,
                       .held = {},
                       .sink = nullptr,
                       .give_up = {}};
    return handles_[index];
  }
  void erase(AhId id) noexcept {
    if (AddressHandle* handle = find(id)) handle->id = AhId{};
  }

  template <typename F>
  void for_each(F&& use) {
    for (AddressHandle& handle : handles_) {
      if (raw(handle.id) != 0) use(handle);
    }
  }

 private:
  std::vector<AddressHandle> handles_;
};

}  // namespace uroce::transport
