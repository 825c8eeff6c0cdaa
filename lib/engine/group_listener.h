/// The multicast groups that a device listens to, in all VLANs that it is in.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/counters.h"
#include "engine/addresses.h"
#include "engine/membership.h"
#include "port/port.h"

namespace uroce::engine {

/// Opens the port for groups, and reports them in each VLAN in which the device has an address, and untagged:
/// who sends to a group there reaches its members.
///
/// Threads: loop; the first four are control calls of whoever owns it. Throws bad_alloc where it says so, and
/// nothing has changed then.
class GroupListener {
 public:
  /// Opens the port for what every node must hear. Throws bad_alloc.
  /// @param addresses  those of the device, also after they have changed
  GroupListener(const Addresses& addresses, port::Port& port, Counters& counters, std::uint64_t seed);

  /// One more QP listens to `group`. Throws bad_alloc.
  void join(const Gid& group, Ticks now);
  /// One less.
  void leave(const Gid& group, Ticks now) noexcept;
  /// `changed` are going to be the device's addresses: groups are reported in VLANs that are new. Throws
  /// bad_alloc.
  void prepare(const Addresses& changed, Ticks now);

  /// What a router or another listener says in a VLAN.
  void on_message(std::uint16_t vlan, bool is_v4, const wire::GroupMessage& message, Ticks now) noexcept;

  /// Sends the reports that are due. Cheap when there are none.
  void on_time(Ticks now) noexcept {
    if (due_.is_set() && due_ <= now) send_due(now);
  }
  [[nodiscard]] Ticks deadline() const noexcept { return due_; }

 private:
  struct Wanted {
    Gid group;
    std::uint32_t users = 0;  // QPs
  };
  using Memberships = std::vector<std::unique_ptr<Membership>>;

  [[nodiscard]] std::vector<Wanted>::iterator find(const Gid& group) noexcept;
  [[nodiscard]] std::unique_ptr<Membership> membership_in(std::uint16_t vlan, Ticks now) const;
  [[nodiscard]] std::vector<MacAddress> heard_with(const Addresses& addresses) const;
  void send_due(Ticks now) noexcept;
  void update_due() noexcept;

  const Addresses& addresses_;
  port::Port& port_;
  Counters& counters_;
  const std::uint64_t seed_;
  std::vector<Wanted> wanted_;
  Memberships in_;  // by VLAN; the untagged network always is one
  Ticks due_;
};

}  // namespace uroce::engine
