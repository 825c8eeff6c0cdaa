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
/// who sends to a group there reaches its members. Those are the groups of its QPs and, in the VLANs of its
/// IPv6 addresses, their solicited-node groups (RFC 4861 7.2.1): a switch that snoops lets nobody ask for an
/// address otherwise. Links between processes have no switch, so there only the former are reported.
///
/// Threads: loop; what stands before on_message() are control calls of whoever owns it. Throws bad_alloc
/// where it says so, and nothing has changed then.
class GroupListener {
 public:
  /// Opens the port for what every node must hear, and reports it the first time that on_time() is called.
  /// Throws bad_alloc.
  /// @param addresses  those of the device, also after they have changed
  GroupListener(const Addresses& addresses, port::Port& port, Counters& counters, std::uint64_t seed);

  /// One more QP listens to `group`. Throws bad_alloc.
  void join(const Gid& group, Ticks now);
  /// One less.
  void leave(const Gid& group, Ticks now) noexcept;
  /// `changed` are going to be the device's addresses: groups are reported in VLANs that are new, and left in
  /// those that go, but not where others may want them: on interfaces of the kernel. Throws bad_alloc.
  void prepare(const Addresses& changed, Ticks now);
  /// The link is up again, maybe at another switch.
  void on_link_up(Ticks now) noexcept;
  /// The device goes, and so do the groups, as in prepare(): the listener is of no use any longer.
  void end(Ticks now) noexcept;

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
  [[nodiscard]] std::unique_ptr<Membership> membership_in(std::uint16_t vlan, std::size_t own,
                                                          Ticks now) const;
  [[nodiscard]] bool is_wanted(const Gid& group, std::uint16_t vlan,
                               const Addresses& addresses) const noexcept;
  [[nodiscard]] bool may_leave_own() const noexcept;
  void change_own(Membership& in, const Addresses& changed, Ticks now) const noexcept;
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
