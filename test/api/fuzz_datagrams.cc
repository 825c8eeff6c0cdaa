// Steps with datagrams, multicast groups, and addresses that come and go.
#include <algorithm>

#include "api/fuzz_world.h"

namespace uroce::api {

namespace {

bool can_reach(const GidEntry& own, const Gid& dgid) {
  if (own.gid.is_zero()) return false;
  if (own.type == GidType::kRoceV1 && dgid.is_multicast()) return true;
  return own.gid.is_v4() == dgid.is_v4();
}

bool same(const GidEntry& a, const GidEntry& b) {
  return a.gid == b.gid && a.prefix_len == b.prefix_len && a.vlan == b.vlan && a.type == b.type;
}

}  // namespace

/// An own address and one of the peer that fits it, mostly.
void World::choose_path(Side& on, Side& peer, std::uint32_t& sgid_index, Gid& dgid) {
  sgid_index = 1;
  dgid = peer.gids.at(1).gid;
  if (dgid.is_zero()) dgid = peer.gids.at(0).gid;
  if (!chance(4)) return;
  sgid_index = below(static_cast<std::uint32_t>(on.gids.size()));
  const GidEntry& own = on.gids[sgid_index];
  for (int i = 0; i < 8; ++i) {
    const GidEntry& any = peer.gids[below(static_cast<std::uint32_t>(peer.gids.size()))];
    if (any.gid.is_zero()) continue;
    dgid = any.gid;
    if (any.type == own.type && any.vlan == own.vlan && any.gid.is_v4() == own.gid.is_v4()) return;
  }
}

Gid World::random_group() {
  static const std::array kGroups{*Gid::parse("239.1.1.1"),     *Gid::parse("239.1.1.2"),
                                  *Gid::parse("ff1e::1:2"),     *Gid::parse("ff02::1"),
                                  *Gid::parse("224.0.0.1"),     *Gid::parse("ff0e::ffff:ef01:101"),
                                  *Gid::parse("255.255.255.1"), *Gid::parse("10.0.0.1")};
  return kGroups[wrong(8) ? random_.below(kGroups.size()) : below(3)];
}

void World::create_ah(Side& on) {
  PdObject* pd = pick(on.pds, random_);
  if (pd == nullptr || on.ahs.size() == 8) return;
  AhAttr attr{.traffic_class = static_cast<std::uint8_t>(below(256)),
              .hop_limit = static_cast<std::uint8_t>(below(256)),
              .flow_label = chance(2) ? 0 : random_.next32() & 0xf'ffff,
              .sl = static_cast<std::uint8_t>(wrong(16) ? below(256) : below(8))};
  choose_path(on, chance(8) ? on : other(on), attr.sgid_index, attr.dgid);
  if (chance(4)) attr.dgid = random_group();
  if (wrong(16)) attr.dgid = Gid{};
  if (wrong(16)) attr.sgid_index = below(40);
  const bool is_right = !attr.dgid.is_zero() && attr.sl < 8 && attr.sgid_index < on.gids.size() &&
                        can_reach(on.gids[attr.sgid_index], attr.dgid);
  auto ah = Ah::create(pd->pd, attr);
  expect(ah.has_value() == is_right, "Ah::create judges its arguments wrongly");
  if (!ah) {
    ++totals_.errors;
    return expect_error(ah.error(), {Errc::kInvalid}, "Ah::create");
  }
  on.ahs.push_back(std::make_unique<AhObject>(std::move(*ah)));
}

void World::destroy_ah(Side& on) {
  AhObject* ah = pick(on.ahs, random_);
  if (ah != nullptr && wrong(2)) erase(on.ahs, *ah);
}

/// Mostly to a QP or group of the peer.
void World::aim_datagram(Side& on, SendWr& wr) {
  for (int i = 0; i < 4 && on.ahs.empty() && is_tame_; ++i) create_ah(on);
  const AhObject* ah = pick(on.ahs, random_);
  const QpObject* to = partner_of(QpType::kUd, other(on));
  wr.remote_qkey = wrong(8) ? random_.next32() : kQkey;
  wr.remote_qpn = to == nullptr || wrong(16) ? Qpn{random_.next32()} : to->qp.qpn();
  if (ah == nullptr || wrong(16)) {
    wr.ah = AhId{random_.next()};
    return;
  }
  wr.ah = ah->ah.id();
  if (ah->ah.attr().dgid.is_multicast() && !wrong(8)) wr.remote_qpn = Qpn{0xff'ffff};
}

void World::attach(Side& on) {
  QpObject* qp = pick(on.qps, random_);
  if (qp == nullptr || (qp->type() != QpType::kUd && !wrong(2))) return;
  const Gid group = random_group();
  const Status attached = qp->qp.attach_multicast(group);
  expect(attached.has_value() == (qp->type() == QpType::kUd && group.is_multicast()),
         "Qp::attach_multicast judges its arguments wrongly");
  if (attached) {
    qp->groups.insert(group);
  } else {
    ++totals_.errors;
    expect_error(attached.error(), {Errc::kInvalid}, "Qp::attach_multicast");
  }
}

void World::detach(Side& on) {
  QpObject* qp = pick(on.qps, random_);
  if (qp == nullptr || (qp->type() != QpType::kUd && !wrong(2))) return;
  const Gid group = random_group();
  const Status detached = qp->qp.detach_multicast(group);
  expect(detached.has_value() == (qp->groups.erase(group) == 1),
         "Qp::detach_multicast fails for a QP that is attached, or does not for one that is not");
  if (!detached) {
    ++totals_.errors;
    expect_error(detached.error(), {Errc::kInvalid}, "Qp::detach_multicast");
  }
}

/// The GID table is what the calls before have made of it.
void World::check_gids(Side& on) {
  const std::vector<GidEntry> now = on.device.gids();
  if (on.gids.empty()) on.gids = on.all_gids = now;
  expect(std::equal(now.begin(), now.end(), on.gids.begin(), on.gids.end(), same),
         "the GID table is not what was made of it");
}

/// Its entries are there, where they were if they were ever there, or are gone; nothing else changes.
void World::note_ip(Side& on, const std::string& text, bool is_added) {
  const Gid gid = *Gid::parse(text.substr(0, text.find('/')));
  const std::size_t at = text.find('@');
  const unsigned vlan = at == std::string::npos ? 0 : static_cast<unsigned>(std::stoul(text.substr(at + 1)));
  const auto is_it = [&](const GidEntry& entry) { return entry.gid == gid && entry.vlan == vlan; };
  const bool is_new = std::none_of(on.all_gids.begin(), on.all_gids.end(), is_it);
  if (is_new) {
    const std::vector<GidEntry> now = on.device.gids();
    const std::size_t kinds = on.device.config().roce_v1 ? 2 : 1;
    expect(now.size() == on.gids.size() + kinds && is_it(now.back()) && is_it(now[on.gids.size()]),
           "a new address does not come last");
    on.all_gids.insert(on.all_gids.end(), now.end() - static_cast<std::ptrdiff_t>(kinds), now.end());
    on.gids.resize(now.size());
  }
  for (std::size_t i = 0; i < on.gids.size(); ++i) {
    if (is_it(on.all_gids[i])) on.gids[i] = is_added ? on.all_gids[i] : GidEntry{};
  }
  check_gids(on);
}

void World::change_ip(Side& on) {
  const std::string side = &on == sides_.data() ? "1" : "2";
  const std::array texts{"10.77.1." + side + "/24", "10.78.0." + side + "/24@5", "fd77::" + side + "/64",
                         "fd78::" + side + "/64@5", "10.77.0.1" + side + "/24",  std::string("fe80::5/64@7")};
  std::string text = texts[below(texts.size())];
  if (wrong(16)) text = chance(2) ? "10.0.0.1/99" : "10.1.1.1@0";
  const bool is_text = text.find("/99") == std::string::npos && text.find("@0") == std::string::npos;
  const bool is_there = on.ips[text];
  const bool adds = chance(2);
  const Status changed = adds ? on.device.add_ip(text) : on.device.remove_ip(text);
  expect(changed.has_value() == (is_text && is_there != adds), "Device::add_ip or remove_ip judges wrongly");
  if (!changed) {
    ++totals_.errors;
    if (!is_text) on.ips.erase(text);
    return expect_error(changed.error(), {is_text ? adds ? Errc::kInvalid : Errc::kNotFound : Errc::kConfig},
                        "Device::add_ip or remove_ip");
  }
  ++totals_.addresses;
  on.ips[text] = adds;
  note_ip(on, text, adds);
}

/// For the next sequence, which knows nothing of this one.
void World::restore_ips(Side& on) {
  for (auto& [text, is_there] : on.ips) {
    if (!is_there) continue;
    expect(on.device.remove_ip(text).has_value(), "an address that was added cannot be removed");
    is_there = false;
    note_ip(on, text, false);
  }
}

}  // namespace uroce::api
