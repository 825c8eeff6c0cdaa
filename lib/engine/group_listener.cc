#include "engine/group_listener.h"

#include <algorithm>
#include <new>

#include "wire/igmp.h"
#include "wire/multicast.h"

namespace uroce::engine {

namespace {

/// Whether nodes ask for that address in its solicited-node group. RFC 4861 7.2.1.
bool is_solicited(const Address& own) noexcept {
  return !own.gid.is_v4() && !own.removed;
}

}  // namespace

GroupListener::GroupListener(const Addresses& addresses, port::Port& port, Counters& counters,
                             std::uint64_t seed)
    : addresses_(addresses), port_(port), counters_(counters), seed_(seed) {
  prepare(addresses, Ticks{1});
}

std::vector<GroupListener::Wanted>::iterator GroupListener::find(const Gid& group) noexcept {
  return std::find_if(wanted_.begin(), wanted_.end(), [&](const Wanted& one) { return one.group == group; });
}

void GroupListener::join(const Gid& group, Ticks now) {
  if (const auto known = find(group); known != wanted_.end()) {
    ++known->users;
    return;
  }
  for (const auto& membership : in_) membership->make_room(1);
  wanted_.push_back({group, 1});
  try {
    port_.listen(heard_with(addresses_));
  } catch (const std::bad_alloc&) {
    wanted_.pop_back();
    throw;
  }
  for (const auto& membership : in_) membership->join(group, now);
  update_due();
}

/// Without memory for a new list the port goes on hearing the group, which does no harm.
void GroupListener::leave(const Gid& group, Ticks now) noexcept {
  const auto known = find(group);
  if (known == wanted_.end() || --known->users > 0) return;
  wanted_.erase(known);
  for (const auto& membership : in_) {
    if (!is_wanted(group, membership->vlan(), addresses_)) membership->leave(group, now);
  }
  update_due();
  try {
    port_.listen(heard_with(addresses_));
  } catch (const std::bad_alloc&) {
    return;
  }
}

void GroupListener::prepare(const Addresses& changed, Ticks now) {
  std::vector<std::uint16_t> vlans;
  for (const Address& own : changed.own()) {
    if (!own.removed) vlans.push_back(own.vlan);
  }
  std::sort(vlans.begin(), vlans.end());
  vlans.erase(std::unique(vlans.begin(), vlans.end()), vlans.end());
  const std::vector<MacAddress> heard = heard_with(changed);
  Memberships next;
  next.reserve(vlans.size());
  const auto is_in = [](std::uint16_t vlan) {
    return [vlan](const auto& one) { return one->vlan() == vlan; };
  };
  for (const std::uint16_t vlan : vlans) {
    const bool is_new = std::none_of(in_.begin(), in_.end(), is_in(vlan));
    next.push_back(is_new ? membership_in(vlan, changed.own().size(), now) : nullptr);
  }
  for (const auto& membership : in_) membership->make_room(changed.own().size());
  // From here on nothing fails.
  for (std::size_t i = 0; i < vlans.size(); ++i) {
    if (next[i] == nullptr)
      next[i] = std::move(*std::find_if(in_.begin(), in_.end(), [&](const auto& one) {
        return one != nullptr && one->vlan() == vlans[i];
      }));
  }
  for (const auto& gone : in_) {
    if (gone != nullptr && may_leave_own()) gone->end(now);
  }
  in_ = std::move(next);
  for (const auto& membership : in_) change_own(*membership, changed, now);
  port_.listen(heard);
  update_due();
}

/// That has joined what the QPs want, with room for as many `own` groups.
std::unique_ptr<Membership> GroupListener::membership_in(std::uint16_t vlan, std::size_t own,
                                                         Ticks now) const {
  auto made = std::make_unique<Membership>(vlan, addresses_, port_, counters_, seed_ + vlan);
  made->make_room(wanted_.size() + own);
  for (const Wanted& one : wanted_) made->join(one.group, now);
  return made;
}

/// By a QP, or for an address.
bool GroupListener::is_wanted(const Gid& group, std::uint16_t vlan,
                              const Addresses& addresses) const noexcept {
  const auto& own = addresses.own();
  if (std::any_of(wanted_.begin(), wanted_.end(), [&](const Wanted& one) { return one.group == group; }))
    return true;
  return port_.info().ends == 0 && std::any_of(own.begin(), own.end(), [&](const Address& one) {
           return is_solicited(one) && one.vlan == vlan && wire::solicited_node_group(one.gid) == group;
         });
}

/// Not where nobody else is, nor on an interface of the kernel: that mostly is in the same groups, for
/// addresses of its own, and some switches believe the first who leaves.
bool GroupListener::may_leave_own() const noexcept {
  return port_.info().ends == 0 && !port_.info().kernel_sends;
}

/// Joins and leaves the solicited-node groups.
void GroupListener::change_own(Membership& in, const Addresses& changed, Ticks now) const noexcept {
  if (port_.info().ends != 0) return;
  for (const Address& own : changed.own()) {
    if (own.gid.is_v4() || own.vlan != in.vlan()) continue;
    const Gid group = wire::solicited_node_group(own.gid);
    if (is_wanted(group, own.vlan, changed)) {
      in.join(group, now);
    } else if (may_leave_own()) {
      in.leave(group, now);
    }
  }
}

void GroupListener::on_link_up(Ticks now) noexcept {
  if (port_.info().ends != 0) return;
  for (const auto& membership : in_) membership->tell_again(now);
  update_due();
}

void GroupListener::end(Ticks now) noexcept {
  if (!may_leave_own()) return;
  for (const auto& membership : in_) membership->end(now);
  port_.tx_flush();
}

void GroupListener::on_message(std::uint16_t vlan, bool is_v4, const wire::GroupMessage& message,
                               Ticks now) noexcept {
  counters_.add(Count::kRxMembership);
  for (const auto& membership : in_) {
    if (membership->vlan() == vlan) membership->on_message(is_v4, message, now);
  }
  update_due();
}

void GroupListener::send_due(Ticks now) noexcept {
  for (const auto& membership : in_) membership->on_time(now);
  update_due();
}

void GroupListener::update_due() noexcept {
  due_ = Ticks{};
  for (const auto& membership : in_) due_ = earlier(due_, membership->deadline());
}

/// The Ethernet addresses of what every node must hear, of neighbour discovery of its addresses, and of the
/// groups.
std::vector<MacAddress> GroupListener::heard_with(const Addresses& addresses) const {
  std::vector<MacAddress> macs{wire::multicast_mac(wire::kAllHosts), wire::multicast_mac(wire::kAllNodes)};
  for (const Address& own : addresses.own()) {
    if (is_solicited(own)) macs.push_back(wire::multicast_mac(wire::solicited_node_group(own.gid)));
  }
  for (const Wanted& one : wanted_) macs.push_back(wire::multicast_mac(one.group));
  std::sort(macs.begin(), macs.end(), [](const auto& a, const auto& b) { return a.raw < b.raw; });
  macs.erase(std::unique(macs.begin(), macs.end()), macs.end());
  return macs;
}

}  // namespace uroce::engine
