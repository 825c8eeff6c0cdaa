#include "engine/addresses.h"

namespace uroce::engine {

bool Address::is_on_link(const Gid& other) const noexcept {
  if (gid.is_v4() != other.is_v4()) return false;
  unsigned bits = prefix_len + (gid.is_v4() ? 96 : 0);
  for (std::size_t i = 0; i < 16 && bits > 0; ++i) {
    const unsigned n = std::min(bits, 8U);
    const auto mask = static_cast<std::uint8_t>(0xff << (8 - n));
    if (((gid.raw[i] ^ other.raw[i]) & mask) != 0) return false;
    bits -= n;
  }
  return true;
}

std::vector<Gid> Addresses::untagged() const {
  std::vector<Gid> gids;
  for (const Address& one : own_) {
    if (!one.removed && one.vlan == 0 && one.type == GidType::kRoceV2) gids.push_back(one.gid);
  }
  return gids;
}

bool Addresses::add(const Address& address) {
  const auto same = std::find_if(own_.begin(), own_.end(), [&](const Address& a) {
    return a.gid == address.gid && a.vlan == address.vlan && a.type == address.type;
  });
  if (same == own_.end()) {
    own_.push_back(address);
    return true;
  }
  if (!same->removed) return false;
  *same = address;
  return true;
}

bool Addresses::remove(const Gid& gid, std::uint16_t vlan) noexcept {
  if (own_.front().gid == gid && own_.front().vlan == vlan) return false;
  bool found = false;
  for (Address& address : own_) {
    if (address.gid != gid || address.vlan != vlan || address.removed) continue;
    address.removed = found = true;
  }
  return found;
}

bool Addresses::is_on_link(const Gid& destination, std::size_t sgid_index) const noexcept {
  return destination.is_link_local() || std::any_of(own_.begin(), own_.end(), [&](const Address& a) {
           return !a.removed && a.vlan == own_[sgid_index].vlan && a.is_on_link(destination);
         });
}

NextHop Addresses::next_hop(const Gid& destination, std::size_t sgid_index) const noexcept {
  const bool use_gateway = !is_on_link(destination, sgid_index) && leads_to(destination, sgid_index);
  return {.gid = use_gateway ? *gateway_ : destination, .vlan = own_[sgid_index].vlan};
}

Gid Addresses::source_for(const NextHop& target) const noexcept {
  Gid source = target.gid.is_v4() ? Gid::from_v4({}) : own_.front().gid;
  for (const Address& address : own_) {
    if (address.vlan != target.vlan || address.removed) continue;
    if (address.is_on_link(target.gid)) return address.gid;
    if (address.gid.is_v4() == target.gid.is_v4()) source = address.gid;
  }
  return source;
}

Gid link_local_gid(const MacAddress& mac) noexcept {
  const auto& m = mac.raw;
  return Gid{{0xfe, 0x80, 0, 0, 0, 0, 0, 0, static_cast<std::uint8_t>(m[0] ^ 2), m[1], m[2], 0xff, 0xfe, m[3],
              m[4], m[5]}};
}

std::optional<MacAddress> link_local_mac(const Gid& gid) noexcept {
  const auto& g = gid.raw;
  if (!gid.is_link_local() || g[11] != 0xff || g[12] != 0xfe) return std::nullopt;
  return MacAddress{{static_cast<std::uint8_t>(g[8] ^ 2), g[9], g[10], g[13], g[14], g[15]}};
}

}  // namespace uroce::engine
