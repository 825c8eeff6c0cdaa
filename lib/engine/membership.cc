#include "engine/membership.h"

#include <algorithm>
#include <array>

#include "wire/igmp.h"
#include "wire/mld.h"
#include "wire/multicast.h"

namespace uroce::engine {

namespace {

using wire::GroupRecord;

constexpr std::uint64_t kSecond = 1'000'000'000;
constexpr std::uint8_t kRobustness = 2;                 // RFC 3376 8.1
constexpr std::uint64_t kChangeNs = kSecond;            // between reports of a change; RFC 3376 8.11
constexpr std::uint64_t kOlderChangeNs = 10 * kSecond;  // RFC 2236 8.10, RFC 2710 7.10
/// Robustness times 125 s between queries, and 10 s for the answers. RFC 3376 8.12.
constexpr std::uint64_t kOlderRouterNs = 260 * kSecond;
constexpr std::size_t kRecordsPerFrame = 64;
constexpr std::size_t kMostEntries = 4096;

bool is_reported(const Gid& group) noexcept {
  return group.is_v4() ? group != wire::kAllHosts : wire::mld_reports(group);
}

}  // namespace

Membership::Entry* Membership::find(const Gid& group) noexcept {
  const auto entry =
      std::find_if(entries_.begin(), entries_.end(), [&](const Entry& e) { return e.group == group; });
  return entry == entries_.end() ? nullptr : &*entry;
}

Membership::Dialect Membership::dialect(bool is_v4, Ticks now) noexcept {
  const Family& one = family(is_v4);
  if (now < one.oldest_until) return Dialect::kOldest;
  return now < one.older_until ? Dialect::kOlder : Dialect::kNewest;
}

void Membership::make_room(std::size_t joins) {
  // Groups that were left, and whose routers will find out by asking: a loop that nobody runs keeps few.
  if (entries_.size() >= kMostEntries) std::erase_if(entries_, [](const Entry& e) { return !e.is_member; });
  entries_.reserve(entries_.size() + joins);
}

void Membership::join(const Gid& group, Ticks now) noexcept {
  Entry* entry = find(group);
  if (entry == nullptr) {
    entries_.push_back({.group = group, .next_change = {}, .answer = {}});
    entry = &entries_.back();
  } else if (entry->is_member) {
    return;
  }
  entry->is_member = true;
  change(*entry, now);
}

void Membership::leave(const Gid& group, Ticks now) noexcept {
  Entry* entry = find(group);
  if (entry == nullptr || !entry->is_member) return;
  entry->is_member = false;
  change(*entry, now);
}

void Membership::end(Ticks now) noexcept {
  for (Entry& entry : entries_) {
    if (!entry.is_member) continue;
    entry.is_member = false;
    change(entry, now);
  }
  send_due(now);
}

void Membership::tell_again(Ticks now) noexcept {
  for (Entry& entry : entries_) {
    if (entry.is_member) change(entry, now);
  }
}

void Membership::change(Entry& entry, Ticks now) noexcept {
  const bool says_it_once = !entry.is_member && dialect(entry.group.is_v4(), now) != Dialect::kNewest;
  entry.changes = says_it_once ? 1 : kRobustness;
  entry.next_change = now;
  entry.answer = Ticks{};
  if (!is_reported(entry.group)) entry.changes = 0;
  due_ = now;
}

void Membership::on_message(bool is_v4, const wire::GroupMessage& message, Ticks now) noexcept {
  if (message.kind == wire::GroupMessage::Kind::kQuery) return on_query(is_v4, message, now);
  if (message.kind != wire::GroupMessage::Kind::kReport || dialect(is_v4, now) == Dialect::kNewest) return;
  // In the older versions one listener speaks for all. RFC 2236 3, RFC 2710 4.
  Entry* entry = find(message.group);
  if (entry == nullptr || !entry->is_member) return;
  entry->answer = Ticks{};
  entry->changes = 0;
  update_due();
}

/// All that is pending ends with a change of version. RFC 3376 7.2.1, RFC 3810 8.2.1.
void Membership::note_version(bool is_v4, std::uint8_t version, Ticks now) noexcept {
  Family& one = family(is_v4);
  const Dialect before = dialect(is_v4, now);
  const Ticks until = now + kOlderRouterNs;
  if (version == 1 && is_v4) one.oldest_until = until;
  if (version == (is_v4 ? 2 : 1)) one.older_until = until;
  if (dialect(is_v4, now) == before) return;
  one.answer_all = Ticks{};
  for (Entry& entry : entries_) {
    if (entry.group.is_v4() != is_v4) continue;
    entry.answer = Ticks{};
    entry.changes = 0;
  }
  due_ = now;
}

/// RFC 3376 5.2, RFC 3810 6.2: an answer that is due earlier answers this query too.
void Membership::on_query(bool is_v4, const wire::GroupMessage& query, Ticks now) noexcept {
  note_version(is_v4, query.version, now);
  const bool is_newest = dialect(is_v4, now) == Dialect::kNewest;
  Family& one = family(is_v4);
  const auto delay = [&] { return now + random_.below(query.max_delay_ns + 1); };
  if (is_newest) {
    const Ticks when = delay();
    if (one.answer_all.is_set() && one.answer_all <= when) return;
    if (query.group.is_zero()) {
      one.answer_all = when;
    } else if (Entry* entry = find(query.group)) {
      entry->answer = earlier(entry->answer, when);
    }
    return update_due();
  }
  for (Entry& entry : entries_) {
    const bool is_meant = query.group.is_zero() ? entry.group.is_v4() == is_v4 : entry.group == query.group;
    if (is_meant) entry.answer = earlier(entry.answer, delay());
  }
  update_due();
}

void Membership::send_due(Ticks now) noexcept {
  for (Entry& entry : entries_) {
    if (entry.changes > 0 && entry.next_change <= now) send_change(entry, now);
    if (!entry.answer.is_set() || entry.answer > now) continue;
    entry.answer = Ticks{};
    if (entry.is_member && is_reported(entry.group))
      send_one(entry, dialect(entry.group.is_v4(), now), false);
  }
  for (const bool is_v4 : {true, false}) {
    Ticks& all = family(is_v4).answer_all;
    if (!all.is_set() || all > now) continue;
    all = Ticks{};
    send_all(is_v4);
  }
  std::erase_if(entries_, [](const Entry& entry) { return !entry.is_member && entry.changes == 0; });
  update_due();
}

void Membership::send_change(Entry& entry, Ticks now) noexcept {
  const Dialect spoken = dialect(entry.group.is_v4(), now);
  send_one(entry, spoken, true);
  --entry.changes;
  const std::uint64_t within = spoken == Dialect::kNewest ? kChangeNs : kOlderChangeNs;
  entry.next_change = now + 1 + random_.below(within);
}

/// Where there is no room to send, the message is as lost as on the wire: that is why changes are told twice.
void Membership::send_one(const Entry& entry, Dialect dialect, bool is_change) noexcept {
  using Type = GroupRecord::Type;
  const bool is_v4 = entry.group.is_v4();
  const bool is_member = entry.is_member;
  if (dialect == Dialect::kNewest) {
    const Type changed = is_member ? Type::kToExclude : Type::kToInclude;
    const GroupRecord record{is_change ? changed : Type::kIsExclude, entry.group};
    return send_report(is_v4, {&record, 1});
  }
  if (dialect == Dialect::kOldest && !is_member) return;  // IGMPv1 has no leave
  const wire::GroupReporter from = reporter(is_v4);
  std::byte* frame = port_.tx_claim(is_v4 ? wire::igmp_frame_len(from) : wire::mld_frame_len(from));
  if (frame == nullptr) return;
  if (is_v4) {
    using enum wire::IgmpType;
    const wire::IgmpType report = dialect == Dialect::kOldest ? kReportV1 : kReportV2;
    wire::emit_igmp_frame(frame, from, is_member ? report : kLeave, entry.group);
  } else {
    wire::emit_mld_frame(frame, from, is_member ? wire::MldType::kReport : wire::MldType::kDone, entry.group);
  }
  port_.tx_commit();
  counters_.add(Count::kTxMembership);
}

void Membership::send_all(bool is_v4) noexcept {
  constexpr std::uint32_t kAround = 64;  // headers before the records, without the tag
  const std::size_t fit = (port_.info().link_mtu - kAround) / (is_v4 ? 8 : 20);
  std::array<GroupRecord, kRecordsPerFrame> records;
  std::size_t count = 0;
  for (const Entry& entry : entries_) {
    if (!entry.is_member || entry.group.is_v4() != is_v4 || !is_reported(entry.group)) continue;
    records[count++] = {GroupRecord::Type::kIsExclude, entry.group};
    if (count < std::min(fit, records.size())) continue;
    send_report(is_v4, std::span(records).first(count));
    count = 0;
  }
  if (count > 0) send_report(is_v4, std::span(records).first(count));
}

void Membership::send_report(bool is_v4, std::span<const GroupRecord> records) noexcept {
  const wire::GroupReporter from = reporter(is_v4);
  std::byte* frame = port_.tx_claim(is_v4 ? wire::igmp_report_len(from, records.size())
                                          : wire::mld_report_len(from, records.size()));
  if (frame == nullptr) return;
  if (is_v4) {
    wire::emit_igmp_report(frame, from, records);
  } else {
    wire::emit_mld_report(frame, from, records);
  }
  port_.tx_commit();
  counters_.add(Count::kTxMembership);
}

void Membership::update_due() noexcept {
  due_ = earlier(families_[0].answer_all, families_[1].answer_all);
  for (const Entry& entry : entries_) {
    if (entry.changes > 0) due_ = earlier(due_, entry.next_change);
    due_ = earlier(due_, entry.answer);
  }
}

/// MLD comes from the link-local address, in VLANs too. RFC 3810 5.2.13.
wire::GroupReporter Membership::reporter(bool is_v4) const noexcept {
  return {.mac = port_.info().mac,
          .own = is_v4 ? addresses_.source_for({wire::kAllHosts, vlan_}) : addresses_.own().front().gid,
          .vlan = vlan_};
}

}  // namespace uroce::engine
