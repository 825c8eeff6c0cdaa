#include "engine/neighbours.h"

#include <algorithm>

#include "wire/ether.h"
#include "wire/multicast.h"

namespace uroce::engine {

namespace {

constexpr std::size_t kUnusedKept = 64;              // known addresses that may be needed again
constexpr std::uint8_t kAsksOfSuspicion = 3;         // a known address is asked again that often at most
constexpr std::uint64_t kFreshNs = 1'000'000'000;    // after it was heard of
constexpr std::uint64_t kSettledNs = 1'000'000'000;  // between two changes that nobody asked for

}  // namespace

Neighbours::Entry* Neighbours::find(const NextHop& hop) noexcept {
  const auto entry =
      std::find_if(entries_.begin(), entries_.end(), [&](const Entry& e) { return e.hop == hop; });
  return entry == entries_.end() ? nullptr : &*entry;
}

std::optional<MacAddress> Neighbours::acquire(const NextHop& hop, Ticks now) {
  Entry* entry = find(hop);
  if (entry == nullptr) {
    entries_.push_back({.hop = hop});
    entry = &entries_.back();
  } else if (entry->users == 0) {
    --unused_;
  }
  ++entry->users;
  const bool is_fresh = entry->known && now < entry->heard + kFreshNs;
  if (!is_fresh && !entry->asking) start_asking(*entry, now);
  return entry->known ? std::optional(entry->mac) : std::nullopt;
}

void Neighbours::release(const NextHop& hop) noexcept {
  Entry* entry = find(hop);
  if (entry == nullptr || --entry->users != 0) return;
  ++unused_;
  entry->released = ++releases_;
  if (!entry->known) return forget(*entry);
  if (unused_ <= kUnusedKept) return;
  Entry* oldest = entry;
  for (Entry& other : entries_) {
    if (other.users == 0 && other.released < oldest->released) oldest = &other;
  }
  forget(*oldest);
}

void Neighbours::forget(Entry& entry) noexcept {
  --unused_;
  entry = entries_.back();
  entries_.pop_back();
}

void Neighbours::suspect(const NextHop& hop, Ticks now) noexcept {
  Entry* entry = find(hop);
  if (entry != nullptr && !entry->asking) start_asking(*entry, now);
}

void Neighbours::start_asking(Entry& entry, Ticks now) noexcept {
  entry.asking = true;
  entry.asked = 0;
  entry.next_ask = now;
  next_ask_ = earlier(next_ask_, now);
}

void Neighbours::ask_due(Ticks now) noexcept {
  next_ask_ = Ticks{};
  for (Entry& entry : entries_) {
    if (!entry.asking) continue;
    if (entry.next_ask <= now) {
      if (entry.known && entry.asked >= kAsksOfSuspicion) {
        entry.asking = false;
        continue;
      }
      ask(entry);
      if (entry.asked < UINT8_MAX) ++entry.asked;
      entry.next_ask = now + ask_interval(entry.asked);
    }
    next_ask_ = earlier(next_ask_, entry.next_ask);
  }
}

/// 1 ms after the first question, twice as long after each further one, up to the configured interval: a peer
/// that is just coming up is found soon, an absent one is not flooded.
std::uint64_t Neighbours::ask_interval(std::uint8_t asked) const noexcept {
  constexpr std::uint64_t kFirstNs = 1'000'000;
  return std::min(ask_interval_ns_, kFirstNs << std::min(asked - 1, 20));
}

wire::LinkAddress Neighbours::link_to(const MacAddress& mac, std::uint16_t vlan) const noexcept {
  return {.src = port_.info().mac, .dst = mac, .vlan_tci = wire::vlan_tag(vlan)};
}

void Neighbours::ask(const Entry& entry) noexcept {
  const MacAddress& own_mac = port_.info().mac;
  const Gid own = addresses_.source_for(entry.hop);
  const Gid& wanted = entry.hop.gid;
  if (wanted.is_v4()) {
    const wire::LinkAddress link = link_to(wire::kBroadcastMac, entry.hop.vlan);
    std::byte* frame = port_.tx_claim(wire::arp_frame_len(link));
    if (frame == nullptr) return;
    wire::emit_arp_frame(frame, link, wire::make_arp_request(own_mac, own, wanted));
    port_.tx_commit();
    counters_.add(Count::kTxArp);
    return;
  }
  const wire::NeighbourMessage question = wire::make_solicitation(own_mac, own, wanted);
  const wire::LinkAddress link = link_to(wire::multicast_mac(question.dst), entry.hop.vlan);
  std::byte* frame = port_.tx_claim(wire::neighbour_frame_len(link, question));
  if (frame == nullptr) return;
  wire::emit_neighbour_frame(frame, link, question);
  port_.tx_commit();
  counters_.add(Count::kTxNd);
}

std::optional<Neighbours::Change> Neighbours::learn(const NextHop& hop, const MacAddress& mac, Ticks now,
                                                    bool replaces) noexcept {
  Entry* entry = find(hop);
  if (entry == nullptr || wire::is_group(mac)) return std::nullopt;
  const bool is_other = entry->known && entry->mac != mac;
  if (is_other && !replaces) return std::nullopt;
  if (is_other && !entry->asking && entry->changed.is_set() && now < entry->changed + kSettledNs) {
    counters_.add(Count::kDropNeighbourFlap);
    return std::nullopt;
  }
  entry->asking = false;
  entry->heard = now;
  if (entry->known && !is_other) return std::nullopt;
  if (is_other) entry->changed = now;
  entry->known = true;
  entry->mac = mac;
  return Change{hop, mac};
}

/// Nothing else is done about it: which of the two is to give way only those know who gave out the addresses.
/// RFC 5227 2.4, RFC 4862 5.4.4
void Neighbours::watch_claim(const NextHop& claimed, const MacAddress& by) noexcept {
  if (by != port_.info().mac && addresses_.is_own(claimed.gid, claimed.vlan))
    counters_.add(Count::kAddressConflicts);
}

void Neighbours::answer(const wire::Arp& question, std::uint16_t vlan) noexcept {
  const wire::LinkAddress link = link_to(question.sender_mac, vlan);
  std::byte* reply = port_.tx_claim(wire::arp_frame_len(link));
  if (reply == nullptr) return;
  wire::emit_arp_frame(reply, link, wire::make_arp_reply(question, port_.info().mac));
  port_.tx_commit();
  counters_.add(Count::kTxArp);
}

std::optional<Neighbours::Change> Neighbours::on_arp(std::span<const std::byte> frame,
                                                     const wire::PacketView& view, bool answers,
                                                     Ticks now) noexcept {
  const auto arp = wire::parse_arp(frame, view.l3_offset);
  if (!arp.has_value()) {
    counters_.add(Count::kDropMalformed);
    return std::nullopt;
  }
  counters_.add(Count::kRxArp);
  const std::uint16_t vlan = view.vlan_id();
  const bool asks_us = arp->operation == wire::Arp::Operation::kRequest &&
                       addresses_.is_own(Gid::from_v4(arp->target_ip), vlan);
  if (asks_us && answers) answer(*arp, vlan);
  const NextHop sender{.gid = Gid::from_v4(arp->sender_ip), .vlan = vlan};
  if (answers) watch_claim(sender, arp->sender_mac);
  return learn(sender, arp->sender_mac, now);
}

void Neighbours::answer(const wire::NeighbourMessage& question, const wire::PacketView& view) noexcept {
  const wire::NeighbourMessage answer = wire::make_advertisement(question, port_.info().mac);
  const bool to_group = answer.dst.is_multicast();
  const MacAddress to =
      to_group ? wire::multicast_mac(answer.dst) : question.link_address.value_or(view.src_mac());
  const wire::LinkAddress link = link_to(to, view.vlan_id());
  std::byte* reply = port_.tx_claim(wire::neighbour_frame_len(link, answer));
  if (reply == nullptr) return;
  wire::emit_neighbour_frame(reply, link, answer);
  port_.tx_commit();
  counters_.add(Count::kTxNd);
}

std::optional<Neighbours::Change> Neighbours::on_icmp6(const wire::PacketView& view, bool answers,
                                                       Ticks now) noexcept {
  const auto message = wire::parse_neighbour(view);
  if (!message.has_value()) {
    if (wire::is_neighbour_message(view)) counters_.add(Count::kDropMalformed);
    return std::nullopt;
  }
  counters_.add(Count::kRxNd);
  const std::uint16_t vlan = view.vlan_id();
  if (message->is_advertisement) {
    const MacAddress mac = message->link_address.value_or(view.src_mac());
    const NextHop target{.gid = message->target, .vlan = vlan};
    if (answers) watch_claim(target, mac);
    return learn(target, mac, now, message->override_old);
  }
  if (answers && addresses_.is_own(message->target, vlan)) answer(*message, view);
  if (message->src.is_zero() || !message->link_address.has_value()) return std::nullopt;
  return learn({.gid = message->src, .vlan = vlan}, *message->link_address, now);
}

}  // namespace uroce::engine
