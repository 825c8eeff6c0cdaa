/// Ethernet addresses of the peers on the link: ARP for IPv4, neighbour discovery for IPv6.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/counters.h"
#include "base/time.h"
#include "engine/addresses.h"
#include "port/port.h"
#include "wire/arp.h"
#include "wire/nd.h"
#include "wire/packet.h"

namespace uroce::engine {

/// Neighbour cache of one loop. RFC 826, RFC 4861.
///
/// An entry is made when a QP or an address handle needs it, asked for until somebody answers, and kept up to
/// date by whatever ARP and ND packets tell later: at most one change a second that nobody asked for, since
/// each concerns all QPs. One that is needed again and has not been heard of for a while is asked for, and
/// used meanwhile. Nothing from the wire makes an entry. One that nobody needs any more is forgotten; those
/// that are known not at once, but when there are many. What is heard in one VLAN says nothing about another.
///
/// Threads: loop.
class Neighbours {
 public:
  Neighbours(const Addresses& addresses, port::Port& port, Counters& counters, std::uint64_t ask_interval_ns)
      : addresses_(addresses), port_(port), counters_(counters), ask_interval_ns_(ask_interval_ns) {}

  /// The next acquire() allocates nothing.
  void make_room() {
    if (entries_.size() == entries_.capacity()) entries_.reserve(2 * entries_.size() + 4);
  }
  /// One more needs the Ethernet address of `hop`. @return it, if known; otherwise asking begins.
  [[nodiscard]] std::optional<MacAddress> acquire(const NextHop& hop, Ticks now);
  /// One that did needs it no more.
  void release(const NextHop& hop) noexcept;
  /// Entries, in use or not.
  [[nodiscard]] std::size_t size() const noexcept { return entries_.size(); }
  /// A peer behind `hop` does not answer: asks again, in case its Ethernet address has changed.
  void suspect(const NextHop& hop, Ticks now) noexcept;

  /// Sends the questions that are due. Cheap when there are none.
  void on_time(Ticks now) noexcept {
    if (next_ask_.is_set() && next_ask_ <= now) ask_due(now);
  }
  [[nodiscard]] Ticks deadline() const noexcept { return next_ask_; }

  /// What a frame taught: this address is now behind that Ethernet address.
  struct Change {
    NextHop hop;
    MacAddress mac;
  };
  /// @param answers  questions about our addresses, and counts who else has one: one loop of a device is
  ///                 enough for that
  /// @return what changed, if anything.
  std::optional<Change> on_arp(std::span<const std::byte> frame, const wire::PacketView& view, bool answers,
                               Ticks now) noexcept;
  std::optional<Change> on_icmp6(const wire::PacketView& view, bool answers, Ticks now) noexcept;

 private:
  struct Entry {
    NextHop hop;
    MacAddress mac{};
    bool known = false;
    bool asking = false;
    std::uint8_t asked = 0;  // times in a row without an answer
    Ticks next_ask{};
    Ticks heard{};    // of that Ethernet address
    Ticks changed{};  // unset: it is the first that was known
    std::uint32_t users = 0;
    std::uint64_t released = 0;  // not in use: the larger, the later
  };

  [[nodiscard]] Entry* find(const NextHop& hop) noexcept;
  void start_asking(Entry& entry, Ticks now) noexcept;
  void ask_due(Ticks now) noexcept;
  void forget(Entry& entry) noexcept;
  [[nodiscard]] std::uint64_t ask_interval(std::uint8_t asked) const noexcept;
  void ask(const Entry& entry) noexcept;
  /// @param replaces  another Ethernet address that is known already. RFC 4861 7.2.5
  std::optional<Change> learn(const NextHop& hop, const MacAddress& mac, Ticks now,
                              bool replaces = true) noexcept;
  void watch_claim(const NextHop& claimed, const MacAddress& by) noexcept;
  void answer(const wire::Arp& question, std::uint16_t vlan) noexcept;
  void answer(const wire::NeighbourMessage& question, const wire::PacketView& view) noexcept;
  [[nodiscard]] wire::LinkAddress link_to(const MacAddress& mac, std::uint16_t vlan) const noexcept;

  const Addresses& addresses_;
  port::Port& port_;
  Counters& counters_;
  std::uint64_t ask_interval_ns_;
  std::vector<Entry> entries_;
  std::size_t unused_ = 0;  // of them
  std::uint64_t releases_ = 0;
  Ticks next_ask_;
};

}  // namespace uroce::engine
