/// Which ids have which ports.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "base/random.h"
#include "uroce/cm_types.h"

namespace uroce::cm {

/// How an id has its port.
struct PortUse {
  bool shares = false;      ///< with others that do
  bool is_v6_only = false;  ///< where its address is ::, IPv4 is for others
};

/// Ports in use, by port space.
///
/// Threads: one at a time.
class Bindings {
 public:
  /// Takes `address.port` for `id`, or a free one if it is 0. Two may have a port if neither has the other's
  /// IP address nor all of them, or if both share it; one for all of IPv6 only is none for IPv4.
  /// @return kNameInUse, kLimit if all ports are taken.
  Result<std::uint16_t> take(PortSpace space, const CmAddress& address, CmId id, Random& random,
                             PortUse use = {});
  /// From now on `id` has the port that it has so.
  void change(PortSpace space, std::uint16_t port, CmId id, PortUse use) noexcept;
  /// Makes the port that `id` has its own, unless it shares it with another one now.
  [[nodiscard]] bool claim(PortSpace space, std::uint16_t port, CmId id) noexcept;
  void release(PortSpace space, std::uint16_t port, CmId id) noexcept;
  /// The ids that a message to that port is for; `accepts` chooses.
  template <typename F>
  [[nodiscard]] CmId find(PortSpace space, std::uint16_t port, F&& accepts) const {
    const auto found = ports_.find({space, port});
    if (found == ports_.end()) return CmId{};
    for (const Holder& holder : found->second) {
      if (accepts(holder.id)) return holder.id;
    }
    return CmId{};
  }
  [[nodiscard]] std::size_t size() const noexcept { return ports_.size(); }

 private:
  struct Holder {
    CmId id{};
    Gid ip;
    PortUse use{};
  };
  /// Whether none but those that `wanted` shares with has its place.
  [[nodiscard]] bool is_free(PortSpace space, std::uint16_t port, const Holder& wanted) const;
  [[nodiscard]] Holder* holder_of(PortSpace space, std::uint16_t port, CmId id) noexcept;

  std::map<std::pair<PortSpace, std::uint16_t>, std::vector<Holder>> ports_;
};

}  // namespace uroce::cm
