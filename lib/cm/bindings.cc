#include "cm/bindings.h"

#include <algorithm>

namespace uroce::cm {

namespace {

/// Whether `six`, of IPv6, leaves the other family alone. As IPV6_V6ONLY, RFC 3493 5.3.
bool is_apart(const Gid& six, PortUse use, const Gid& other) noexcept {
  return !six.is_v4() && use.is_v6_only && other.is_v4();
}

}  // namespace

bool Bindings::is_free(PortSpace space, std::uint16_t port, const Holder& wanted) const {
  const auto found = ports_.find({space, port});
  if (found == ports_.end()) return true;
  return std::none_of(found->second.begin(), found->second.end(), [&](const Holder& holder) {
    if (holder.id == wanted.id || (holder.use.shares && wanted.use.shares)) return false;
    if (is_apart(holder.ip, holder.use, wanted.ip) || is_apart(wanted.ip, wanted.use, holder.ip))
      return false;
    return holder.ip == wanted.ip || holder.ip.is_unspecified() || wanted.ip.is_unspecified();
  });
}

Bindings::Holder* Bindings::holder_of(PortSpace space, std::uint16_t port, CmId id) noexcept {
  const auto found = ports_.find({space, port});
  if (found == ports_.end()) return nullptr;
  const auto holder = std::ranges::find(found->second, id, &Holder::id);
  return holder == found->second.end() ? nullptr : &*holder;
}

Result<std::uint16_t> Bindings::take(PortSpace space, const CmAddress& address, CmId id, Random& random,
                                     PortUse use) {
  constexpr std::uint32_t kFirst = 32768;  // ports that are given to those who do not ask for one
  constexpr std::uint32_t kCount = 28232;
  CmAddress wanted = address;
  if (wanted.port == 0) {
    const auto start = static_cast<std::uint32_t>(random.below(kCount));
    for (std::uint32_t i = 0; i < kCount; ++i) {
      const auto port = static_cast<std::uint16_t>(kFirst + (start + i) % kCount);
      if (ports_.contains({space, port})) continue;
      wanted.port = port;
      break;
    }
    if (wanted.port == 0) return Error{Errc::kLimit, "all ports from 32768 to 60999 are in use"};
  } else if (!is_free(space, wanted.port, {id, wanted.ip, use})) {
    return Error{Errc::kNameInUse, "port " + std::to_string(wanted.port) + " is in use: choose another one"};
  }
  ports_[{space, wanted.port}].push_back({id, wanted.ip, use});
  return wanted.port;
}

void Bindings::change(PortSpace space, std::uint16_t port, CmId id, PortUse use) noexcept {
  if (Holder* holder = holder_of(space, port, id)) holder->use = use;
}

bool Bindings::claim(PortSpace space, std::uint16_t port, CmId id) noexcept {
  Holder* holder = holder_of(space, port, id);
  if (holder == nullptr) return false;
  const PortUse alone{.is_v6_only = holder->use.is_v6_only};
  if (!is_free(space, port, {id, holder->ip, alone})) return false;
  holder->use = alone;
  return true;
}

void Bindings::release(PortSpace space, std::uint16_t port, CmId id) noexcept {
  const auto found = ports_.find({space, port});
  if (found == ports_.end()) return;
  std::erase_if(found->second, [id](const Holder& holder) { return holder.id == id; });
  if (found->second.empty()) ports_.erase(found);
}

}  // namespace uroce::cm
