/// Tells the routers and switches of a VLAN which multicast groups the device wants: IGMP and MLD.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/counters.h"
#include "base/random.h"
#include "base/time.h"
#include "engine/addresses.h"
#include "port/port.h"
#include "wire/group_message.h"

namespace uroce::engine {

/// The listener's side of IGMP and MLD in one VLAN, for all groups of a device. RFC 3376, RFC 3810; once a
/// router asks in an older version, that of RFC 2236 (or IGMPv1) and RFC 2710 until it has been silent for
/// 260 s.
///
/// A change is reported at once and again within a second (10 s in older versions), a query is answered after
/// a random time within its limit. We listen to all sources, so queries about sources are answered for the
/// whole group.
///
/// Threads: loop; what stands before on_message() are control calls of whoever owns it.
class Membership {
 public:
  /// @param vlan  0: frames without tag
  Membership(std::uint16_t vlan, const Addresses& addresses, port::Port& port, Counters& counters,
             std::uint64_t seed)
      : vlan_(vlan), addresses_(addresses), port_(port), counters_(counters), random_(seed) {}

  /// The next `joins` of them allocate nothing.
  void make_room(std::size_t joins);
  /// The device listens to `group` from now on, if it does not yet.
  void join(const Gid& group, Ticks now) noexcept;
  /// No longer.
  void leave(const Gid& group, Ticks now) noexcept;
  /// To none, which is said at once and once: there will be no later.
  void end(Ticks now) noexcept;
  /// Who was told may have changed: all groups are reported as if they were new.
  void tell_again(Ticks now) noexcept;
  [[nodiscard]] std::uint16_t vlan() const noexcept { return vlan_; }

  /// What a router or another listener says.
  void on_message(bool is_v4, const wire::GroupMessage& message, Ticks now) noexcept;

  /// Sends the reports that are due. Cheap when there are none.
  void on_time(Ticks now) noexcept {
    if (due_.is_set() && due_ <= now) send_due(now);
  }
  [[nodiscard]] Ticks deadline() const noexcept { return due_; }

 private:
  struct Entry {
    Gid group;
    bool is_member = true;     // false: the device has left
    std::uint8_t changes = 0;  // reports of the last join or leave that are still to be sent
    Ticks next_change;
    Ticks answer;  // to a query
  };
  /// Of an address family. The older dialects are spoken until their routers have been silent for long.
  struct Family {
    Ticks older_until;   // IGMPv2, MLDv1
    Ticks oldest_until;  // IGMPv1
    Ticks answer_all;    // to a general query, in the newest dialect
  };
  enum class Dialect : std::uint8_t { kOldest, kOlder, kNewest };

  [[nodiscard]] Entry* find(const Gid& group) noexcept;
  [[nodiscard]] Family& family(bool is_v4) noexcept { return families_[is_v4 ? 0 : 1]; }
  [[nodiscard]] Dialect dialect(bool is_v4, Ticks now) noexcept;
  void change(Entry& entry, Ticks now) noexcept;
  void on_query(bool is_v4, const wire::GroupMessage& query, Ticks now) noexcept;
  void note_version(bool is_v4, std::uint8_t version, Ticks now) noexcept;
  void send_due(Ticks now) noexcept;
  void send_change(Entry& entry, Ticks now) noexcept;
  void send_one(const Entry& entry, Dialect dialect, bool is_change) noexcept;
  void send_all(bool is_v4) noexcept;
  void send_report(bool is_v4, std::span<const wire::GroupRecord> records) noexcept;
  void update_due() noexcept;
  [[nodiscard]] wire::GroupReporter reporter(bool is_v4) const noexcept;

  const std::uint16_t vlan_;
  const Addresses& addresses_;
  port::Port& port_;
  Counters& counters_;
  Random random_;
  std::vector<Entry> entries_;
  Family families_[2];
  Ticks due_;
};

}  // namespace uroce::engine
